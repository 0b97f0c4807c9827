"""Pytest plug-in: a run of several processes compiles the engine's kernels once, while the tests are being collected.

Without it each process, and each worker that a test starts, would compile them for itself in a fresh clone.
"""

from __future__ import annotations

import fcntl
import subprocess
import sys

import pytest

from tests.environment import RUN_DIR

_LOCK = RUN_DIR / "kernels.lock"
_COMPILE = "from workers.lifecycle import warm_up; warm_up()"


def pytest_configure(config: pytest.Config) -> None:
    """The process that compiles inherits the lock, and lets go of it by ending."""
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None) or config.option.collectonly:
        return
    with _LOCK.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        subprocess.Popen([sys.executable, "-c", _COMPILE], pass_fds=[file.fileno()], stderr=subprocess.DEVNULL)


def pytest_collection_finish(session: pytest.Session) -> None:
    if hasattr(session.config, "workerinput") and _LOCK.exists():
        with _LOCK.open() as file:
            fcntl.flock(file, fcntl.LOCK_SH)
