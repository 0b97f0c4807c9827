"""The archive of Spark's classes: made once by a process of its own, whole or not at all."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spark_jobs.class_archive import ClassArchive
from tests.servers import wait_until

pytestmark = pytest.mark.process

MADE = """#!/bin/sh
for argument do
  case "$argument" in
    -XX:SharedArchiveFile=*) printf whole > "${argument#*=}" ;;
  esac
done
exit CODE
"""


@pytest.fixture
def jars(tmp_path: Path) -> Path:
    folder = tmp_path / "jars"
    folder.mkdir()
    (folder / "spark.jar").write_bytes(b"classes")
    return folder


@pytest.fixture
def spark() -> Any:
    system = SimpleNamespace(getProperty=lambda name: "classes.jar")
    return SimpleNamespace(_jvm=SimpleNamespace(java=SimpleNamespace(lang=SimpleNamespace(System=system))))


def java(folder: Path, text: str) -> Path:
    binary = folder / "java"
    binary.write_text(text)
    binary.chmod(0o755)
    return binary


def look_until_over(archive: ClassArchive, spark: Any) -> None:
    def is_over() -> bool:
        archive.look(spark)
        return archive._is_over

    wait_until(is_over, what="the archive")


def test_first_jvm_notes_names_and_later_ones_use_the_archive(tmp_path: Path, jars: Path, spark: Any) -> None:
    binary = java(tmp_path, MADE.replace("CODE", "0"))
    archive = ClassArchive(tmp_path, binary, jars)
    assert "DumpLoadedClassList" in archive.java_options
    (tmp_path / "classes-of-another-java.jsa").write_text("old")
    look_until_over(archive, spark)
    assert [path.read_text() for path in tmp_path.glob("classes-*")] == ["whole"]
    assert f'-XX:SharedArchiveFile="{archive.path}"' in ClassArchive(tmp_path, binary, jars).java_options


def test_other_jars_ask_for_another_archive(tmp_path: Path, jars: Path, spark: Any) -> None:
    binary = java(tmp_path, MADE.replace("CODE", "0"))
    look_until_over(ClassArchive(tmp_path, binary, jars), spark)
    (jars / "spark.jar").write_bytes(b"other classes")
    assert "DumpLoadedClassList" in ClassArchive(tmp_path, binary, jars).java_options


def test_java_that_fails_leaves_nothing_and_is_asked_once(tmp_path: Path, jars: Path, spark: Any) -> None:
    archive = ClassArchive(tmp_path, java(tmp_path, MADE.replace("CODE", "1")), jars)
    look_until_over(archive, spark)
    archive.look(spark)
    assert archive._process is None
    assert list(tmp_path.glob("classes-*")) == []


def test_archive_that_is_not_done_goes_with_the_driver(tmp_path: Path, jars: Path, spark: Any) -> None:
    archive = ClassArchive(tmp_path, java(tmp_path, "#!/bin/sh\nexec sleep 600\n"), jars)
    archive.look(spark)
    process = archive._process
    assert isinstance(process, subprocess.Popen)
    archive.stop()
    assert process.poll() is not None
    assert list(tmp_path.glob("classes-*")) == []


def test_java_uses_an_archive_and_says_the_same(tmp_path: Path) -> None:
    """A real Java takes the options of both kinds, and an archive that is none does not stop it."""
    from spark_jobs.class_archive import _java
    from tests.java import java_variables

    home = java_variables().get("JAVA_HOME")
    binary = Path(home) / "bin" / "java" if home else _java()
    jars = tmp_path / "no jars"
    jars.mkdir()
    archive = ClassArchive(tmp_path, binary, jars)
    for _ in range(2):
        options = archive.java_options.replace('"', "").split(" -")
        command = [str(binary), *[option if option.startswith("-") else f"-{option}" for option in options], "-version"]
        assert subprocess.run(command, capture_output=True, check=False).returncode == 0
        archive.path.write_bytes(b"half")
