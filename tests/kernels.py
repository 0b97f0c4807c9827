"""Pytest plug-in: a run of several processes compiles the engine's kernels once, and rewrites the tests' asserts once.

Both are kept on disk. Without this, each process of the first run in a clone would do it for itself, and so would each
worker that a test starts.
"""

from __future__ import annotations

import fcntl
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.environment import RUN_DIR

_TESTS = Path(__file__).resolve().parent
_COMPILING, _COLLECTING = RUN_DIR / "compiling.lock", RUN_DIR / "collecting.lock"
# Workers seldom simulate, so that they do not warm that up. The simulator takes a minute of a core, and what needs it
# comes late: nobody waits for it.
_COMPILE = """
import os, sys
from workers.lifecycle import warm_up
from engine.simulation.cohort import simulate_trace
warm_up()
simulate_trace(1)
os.close(int(sys.argv[1]))
"""
_COMPILE_SIMULATOR = """
from engine.document.deployment import Deployment
from engine.simulation.run import simulate
from tests.engine.samples import deployment
simulate(Deployment.parse(deployment()))
"""
#: Tests that neither call a kernel nor start a worker, which would compile them.
_WITHOUT_KERNELS = (
    "agent",
    "apps/accounts",
    "apps/core",
    "apps/fleet",
    "apps/measurements",
    "apps/results",
    "apps/telemetry",
    "apps/ui",
    "console",
    "docs",
    "spark",
    "test_docs",
    "test_import_law",
)
#: Tests that simulate.
_SIMULATING = ("apps/contracts", "engine/estimation", "engine/simulation", "engine/test_golden", "lab")
_COMPILER, _IS_COMPILED = pytest.StashKey[subprocess.Popen[bytes]](), pytest.StashKey[bool]()


@cache
def needs_kernels(path: Path) -> bool:
    """Whether a test of this file may call a kernel, by its place."""
    if path == _TESTS or not path.is_relative_to(_TESTS):
        return True
    inside = path.relative_to(_TESTS).with_suffix("")
    return not any(inside.is_relative_to(folder) for folder in _WITHOUT_KERNELS)


def compiling_code(chosen: Iterable[Path]) -> str:
    """Code that compiles for tests in these files and folders; empty where none calls a kernel.

    A run of a few tests would begin to compile the simulator and end before it had, each time anew.
    """
    paths = list(chosen)
    if not any(needs_kernels(path) for path in paths):
        return ""
    simulating = [_TESTS / folder for folder in _SIMULATING]
    near = any(path.is_relative_to(place) or place.is_relative_to(path) for path in paths for place in simulating)
    return _COMPILE + _COMPILE_SIMULATOR * near


def _chosen_paths(config: pytest.Config) -> list[Path]:
    """Files and folders that the command line names, or all tests."""
    return [(config.invocation_params.dir / name.partition("::")[0]).with_suffix("") for name in config.args] or [
        _TESTS
    ]


def pytest_configure(config: pytest.Config) -> None:
    """The process that compiles inherits the lock, and lets go of it by closing the file.

    A run of one process compiles what it calls, when it does.
    """
    if hasattr(config, "workerinput") or (config.getoption("numprocesses", None) or 1) < 2 or config.option.collectonly:
        return
    code = compiling_code(_chosen_paths(config))
    if not code:
        return
    with _COMPILING.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        command = [sys.executable, "-c", code, str(file.fileno())]
        config.stash[_COMPILER] = subprocess.Popen(command, pass_fds=[file.fileno()], stderr=subprocess.DEVNULL)


def pytest_unconfigure(config: pytest.Config) -> None:
    """A run that ends early leaves no process behind."""
    if (compiler := config.stash.get(_COMPILER, None)) is not None:
        compiler.terminate()
        compiler.wait()


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[Any]:
    """Where no process has collected before, one after the other: the first one writes what the others read."""
    is_first_run = not any(_TESTS.glob("engine/__pycache__/test_*-pytest-*.pyc"))
    with _alone(_COLLECTING) if is_first_run and _COMPILING.exists() else nullcontext():
        return (yield)


def pytest_runtest_setup(item: pytest.Item) -> None:
    config = item.config
    if config.stash.get(_IS_COMPILED, False) or not _COMPILING.exists() or not needs_kernels(item.path):
        return
    with _COMPILING.open() as file:
        fcntl.flock(file, fcntl.LOCK_SH)
    config.stash[_IS_COMPILED] = True
