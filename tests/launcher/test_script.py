"""The script `sluice`, run by dash in copies of its folder whose launcher only reports what it was called with."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import pytest

from tests.launcher.fake_services import ROOT
from tests.servers import PATIENCE_S, wait_until

SHELL = shutil.which("dash") or "/bin/sh"
REPORT = (
    "import json, os, sys\nprint(json.dumps([sys.argv[1:], os.getcwd()]))\nsys.exit(7 if 'fail' in sys.argv else 0)\n"
)
# stands in for uv: the network is no part of these tests, and what pip would install is not either
UV = """#!/bin/sh
[ "$1" = --version ] && exit 0
echo "${UV_DEFAULT_INDEX:-} $*" >> "$UV_CALLS"
while [ -n "${UV_HELD:-}" ] && ! [ -e "$UV_HELD" ]; do sleep 0.05; done
exit "${UV_EXIT:-0}"
"""


@dataclass
class Copy:
    """A folder with the script, a requirements file, a reporting launcher and a PATH of its own."""

    base: Path
    env: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder = self.base / "a folder with spaces"
        self.bin = self.base / "bin"
        (self.folder / "launcher").mkdir(parents=True)
        self.bin.mkdir()
        shutil.copy(ROOT / "sluice", self.folder / "sluice")
        (self.folder / "launcher" / "__init__.py").touch()
        (self.folder / "launcher" / "__main__.py").write_text(REPORT)
        self.require("# nothing")
        (self.bin / "uv").write_text(UV)
        (self.bin / "uv").chmod(0o755)
        (self.bin / "python3").symlink_to(Path(sys.executable).resolve())
        kept = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}
        self.env = kept | {"PATH": f"{self.bin}:/usr/bin:/bin", "UV_CALLS": str(self.base / "calls")}

    def require(self, text: str) -> None:
        (self.folder / "requirements.txt").write_text(f"{text}\n")

    @property
    def installs(self) -> int:
        calls = self.base / "calls"
        return len(calls.read_text().splitlines()) if calls.exists() else 0

    @property
    def stamp(self) -> Path:
        return self.folder / ".venv" / "sluice-requirements.txt"

    def popen(
        self,
        *arguments: str,
        script: Path | None = None,
        cwd: Path | None = None,
        stderr: int | IO[str] = subprocess.PIPE,
        **env: str,
    ) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [SHELL, str(script or self.folder / "sluice"), *arguments],
            cwd=cwd or self.folder,
            env=self.env | env,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            start_new_session=True,
        )

    def run(
        self, *arguments: str, script: Path | None = None, cwd: Path | None = None, **env: str
    ) -> tuple[int, str, str]:
        process = self.popen(*arguments, script=script, cwd=cwd, **env)
        out, err = process.communicate(timeout=PATIENCE_S)
        return process.returncode, out, err


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    return Copy(tmp_path)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    made = Copy(tmp_path_factory.mktemp("installed"))
    code, _, err = made.run("doctor")
    assert code == 0, err
    assert "making the environment" in err
    assert "environment ready" in err
    return made


def test_help_needs_no_environment(copy: Copy) -> None:
    for call in ([], ["help"], ["--help"]):
        code, out, err = copy.run(*call)
        assert (code, err) == (0, "")
        for command in ("up", "test", "engine", "lab", "manage", "lint", "doctor"):
            assert f"./sluice {command}" in out
    assert not (copy.folder / ".venv").exists()


def test_an_unknown_command_names_itself_and_help(copy: Copy) -> None:
    assert copy.run("upp") == (2, "", "sluice: unknown command 'upp'; ./sluice help lists the commands\n")


def test_arguments_and_folder_pass_through_unchanged(installed: Copy, tmp_path: Path) -> None:
    arguments = ["engine", "a b", "", "--x='*'", "$HOME", "ä\nö"]
    code, out, _ = installed.run(*arguments, cwd=tmp_path)
    assert code == 0
    assert json.loads(out) == [arguments, str(tmp_path)]


def test_the_exit_code_passes_through(installed: Copy) -> None:
    assert installed.run("engine", "fail")[0] == 7


def test_it_works_through_symlinks(installed: Copy, tmp_path: Path) -> None:
    direct, relative = tmp_path / "direct", tmp_path / "relative link"
    direct.symlink_to(installed.folder / "sluice")
    relative.symlink_to("direct")
    code, out, err = installed.run("lint", script=relative, cwd=tmp_path)
    assert (code, err) == (0, "")
    assert json.loads(out) == [["lint"], str(tmp_path)]


def test_nothing_is_imported_from_the_calling_folder(installed: Copy, tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('the wrong json')")
    assert installed.run("lint", cwd=tmp_path)[0] == 0


def test_a_second_start_asks_the_installer_nothing(installed: Copy) -> None:
    (installed.bin / "uv").rename(installed.bin / "away")
    (installed.bin / "uv").write_text("#!/bin/sh\necho asked >&2\n")
    (installed.bin / "uv").chmod(0o755)
    try:
        assert installed.run("lint")[2] == ""
    finally:
        (installed.bin / "away").rename(installed.bin / "uv")


def test_changed_requirements_are_installed_once(installed: Copy) -> None:
    before = installed.installs
    installed.require(f"# changed {time.time()}")
    assert "installing the packages" in installed.run("lint")[2]
    assert installed.run("lint")[2] == ""
    assert installed.installs == before + 1


def test_a_mirror_of_pip_serves_uv_too(installed: Copy) -> None:
    installed.require(f"# mirrored {time.time()}")
    installed.run("lint", PIP_INDEX_URL="https://mirror.example.org/simple")
    last = (installed.base / "calls").read_text().splitlines()[-1]
    assert last.startswith("https://mirror.example.org/simple pip install ")


def test_with_hashes_the_lock_is_installed(installed: Copy) -> None:
    lock = installed.folder / "requirements.lock"
    lock.write_text(f"# locked {time.time()}\n")
    code, _, err = installed.run("lint", SLUICE_REQUIRE_HASHES="1")
    assert (code, installed.stamp.read_text()) == (0, lock.read_text())
    assert "installing the packages of requirements.lock" in err
    code, _, err = installed.run("lint", SLUICE_REQUIRE_HASHES="yes")
    assert code == 1 and "SLUICE_REQUIRE_HASHES='yes': allowed is 0 or 1" in err


def test_the_script_and_the_launcher_know_the_same_commands() -> None:
    from launcher.cli import COMMANDS

    listed = re.search(r"^    (up \|.*)\) ;;$", (ROOT / "sluice").read_text(), re.MULTILINE)
    assert listed is not None
    assert sorted(listed[1].split(" | ")) == sorted(COMMANDS)


def test_an_interrupted_install_is_mended(installed: Copy) -> None:
    installed.require(f"# interrupted {time.time()}")
    before = installed.installs
    process = installed.popen("lint", UV_HELD="/nowhere")
    wait_until(lambda: installed.installs > before, what="the install")
    os.killpg(process.pid, signal.SIGKILL)  # takes its lock along into the grave, too
    process.communicate()
    assert not installed.stamp.exists()
    code, _, err = installed.run("lint")
    assert code == 0
    assert "environment ready" in err
    assert installed.stamp.read_text() == (installed.folder / "requirements.txt").read_text()
    assert not (installed.folder / ".venv.lock").is_symlink()


def test_concurrent_starts_install_once(installed: Copy) -> None:
    installed.require(f"# concurrent {time.time()}")
    before = installed.installs
    held = installed.base / "may go on"
    screens = [installed.base / f"screen {number}" for number in range(3)]
    processes = []
    for screen in screens:
        with screen.open("w") as stderr:
            processes.append(installed.popen("lint", stderr=stderr, UV_HELD=str(held)))

    def waiting() -> int:
        return sum("waiting for it" in screen.read_text() for screen in screens)

    wait_until(lambda: waiting() == 2, what="two starts that wait for the third")
    held.touch()
    for process in processes:
        process.communicate(timeout=PATIENCE_S)
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert installed.installs == before + 1
    assert waiting() == 2


def test_a_failed_install_says_what_to_do(installed: Copy) -> None:
    installed.require("no-such-package-for-sluice==1 --hash")  # refused by pip before it asks anyone
    code, _, err = installed.run("lint", UV_EXIT="1")
    assert code == 1
    assert "the packages could not be installed" in err
    assert "PIP_INDEX_URL" in err
    assert not installed.stamp.exists()


def test_without_a_suitable_python_it_says_how_to_get_one(copy: Copy) -> None:
    for name in ("python3.13", "python3.12", "python3.11", "python3", "python"):
        (copy.bin / name).unlink(missing_ok=True)
        (copy.bin / name).write_text('#!/bin/sh\n[ "$1" = --version ] && echo Python 3.9.2 && exit 0\nexit 1\n')
        (copy.bin / name).chmod(0o755)
    code, _, err = copy.run("up")
    assert code == 1
    assert "Sluice needs Python 3.11 or later; found: Python 3.9.2" in err
    assert "sudo apt install python3" in err
    assert not (copy.folder / ".venv.lock").is_symlink()
