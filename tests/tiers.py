"""Pytest plug-in: tiers and groups of the tests.

Tests of the laboratory (`tests/lab`) run with `--lab` alone, with `--with-lab` beside the others, or where they are
named; no other run has them. Tests with the mark `night`, long ones of whole installations, run with `--with-lab` or
where their file is named.
The quick tier has neither a browser nor Spark, PostgreSQL or a process of its own, nor a test of `slow.txt`: those
computed for more than 60 ms, with the set-up that is theirs alone, when `RECORD_SLOW_TESTS=1 ./sluice test --quick
-n 1` last wrote the list.
The folder of a test says what it needs; a test elsewhere that starts a process says so with the mark `process`, and
fails without it. Tests of one group run in one process of the run: the tests of a file share its fixtures, all of
Spark's tests one session, and the tests of a console one console.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

_TESTS = Path(__file__).resolve().parent
_FOLDER_MARKS = {"spark": "spark", "e2e": "process", "workers": "process", "launcher": "process"}
#: A test with one of these starts processes.
MARKS_WITH_PROCESSES = ("e2e", "spark", "postgres", "process")
_PROCESS_FIXTURES = {"redis_server", "console"}
_NOT_QUICK = (*MARKS_WITH_PROCESSES, "slow", "night")
_SLOW_S, _LONG_S = 0.06, 0.5  # computed, and with all waiting
_SLOW_LIST = _TESTS / "slow.txt"
_LAB = _TESTS / "lab"
_RECORDS = os.environ.get("RECORD_SLOW_TESTS") == "1"
#: Folders whose tests all share one thing: a Spark session, a world in the database, the seeded demo.
_SHARED_FOLDERS = ("spark", "apps/contracts", "apps/demo")
#: Files that share with others than those of their folder. Tests of Spark with processes of their own need no session
#: in the tests' process; the simulator takes longer to compile than all of its tests.
_GROUPS = {
    "spark/live/test_standalone": "spark cluster",
    "spark/live/test_driver": "spark driver",
    "engine/estimation/test_scheduling_bound": "simulator",
    "engine/estimation/test_theorem2": "simulator",
    "engine/simulation/test_command": "simulator",
    "engine/simulation/test_comparison": "simulator",
    "engine/simulation/test_simulation": "simulator",
    "lab/benchmarks/test_mace_accuracy": "simulator",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="leave out what needs a browser, Spark or other processes")
    parser.addoption("--lab", action="store_true", help="the tests of the laboratory, and no others")
    parser.addoption("--with-lab", action="store_true", help="the tests of the laboratory beside the others")
    parser.addoption("--fuzz-seconds", type=float, default=8.0, help="how long the fuzz of the API takes")
    parser.addoption("--fuzz-seed", type=int, default=None, help="send what a run with this seed sent")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--lab") and not _names_lab(config):
        config.args[:] = [str(_LAB)]
    # pytest loses fixtures of a folder that it comes back to after another one
    config.args.sort()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """The laboratory has a tier of its own. The quick one spares itself the imports of folders it has no test of."""
    if collection_path == _LAB and not config.getoption("--with-lab") and not _names_lab(config):
        return True
    if config.getoption("--quick") and collection_path.is_relative_to(_TESTS):
        parts = collection_path.relative_to(_TESTS).parts
        return True if parts and parts[0] in _FOLDER_MARKS else None
    return None


def _names_lab(config: pytest.Config) -> bool:
    """Whether the laboratory's tests, or some of them, are asked for by their path."""
    paths = (config.invocation_params.dir / argument.split("::")[0] for argument in config.args)
    return any(path.is_relative_to(_LAB) for path in paths)


def group_of(item: pytest.Item) -> str:
    """The group of a test: its file, unless it shares something dear with the tests of other files."""
    group = _group_of_file(item.path)
    return "console" if group.startswith("e2e/") and "console" in getattr(item, "fixturenames", ()) else group


@cache
def _group_of_file(file: Path) -> str:
    if not file.is_relative_to(_TESTS):
        return ""
    path = file.relative_to(_TESTS).with_suffix("")
    if group := _GROUPS.get(str(path)):
        return group
    for folder in _SHARED_FOLDERS:
        if path.is_relative_to(folder):
            return folder
    return str(path)


def pytest_itemcollected(item: pytest.Item) -> None:
    if not item.path.is_relative_to(_TESTS):
        return  # an example of a docstring
    folder = item.path.relative_to(_TESTS).parts[0]
    if mark := _FOLDER_MARKS.get(folder):
        item.add_marker(mark)
    if _PROCESS_FIXTURES & set(getattr(item, "fixturenames", ())):
        item.add_marker("process")
    # here already: xdist reads the groups before other plug-ins see the whole list
    item.add_marker(pytest.mark.xdist_group(group_of(item)))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    chosen, left_out = [], []
    for item in items:
        (chosen if _is_chosen(item, config) else left_out).append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = chosen


def _is_chosen(item: pytest.Item, config: pytest.Config) -> bool:
    """Whether the run has a test of its paths."""
    if config.getoption("--quick"):
        return is_quick(item)
    if item.get_closest_marker("night") is None:
        return True
    return bool(config.getoption("--with-lab")) or item.path in _named(config)


def _named(config: pytest.Config) -> set[Path]:
    """Files that the caller named, with or without a test in them."""
    return {config.invocation_params.dir / argument.split("::")[0] for argument in config.args}


@cache
def _slow_tests() -> frozenset[str]:
    return frozenset() if _RECORDS else frozenset(_SLOW_LIST.read_text().split())


def is_quick(item: pytest.Item) -> bool:
    """Whether a test belongs to the quick tier."""
    if item.path.is_relative_to(_LAB):
        return False
    return _function(item.nodeid) not in _slow_tests() and not any(map(item.get_closest_marker, _NOT_QUICK))


def _function(nodeid: str) -> str:
    """A test without its parameters and its group."""
    return nodeid.split("[")[0].split("@")[0]


_slow: set[str] = set()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if _RECORDS and report.when == "call":
        computed_s = dict(report.user_properties).get("cpu_s", 0.0)
        if computed_s > _SLOW_S or report.duration > _LONG_S:
            _slow.add(_function(report.nodeid))


def pytest_sessionfinish(session: pytest.Session) -> None:
    if _RECORDS and not hasattr(session.config, "workerinput"):
        _SLOW_LIST.write_text("".join(f"{name}\n" for name in sorted(_slow)))


class _Processes:
    """Refuses new processes while a test runs that has none of the marks for them."""

    is_refused = False

    def __init__(self) -> None:
        self._start = subprocess.Popen.__init__

    def install(self) -> None:
        start = self._start

        def checked(process: Any, *arguments: Any, **options: Any) -> None:
            assert not self.is_refused, "a test that starts a process needs the mark `process`"
            start(process, *arguments, **options)

        subprocess.Popen.__init__ = checked  # type: ignore[method-assign]


_PROCESSES = _Processes()
_PROCESSES.install()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    _PROCESSES.is_refused = not any(map(item.get_closest_marker, MARKS_WITH_PROCESSES))
    started_s = time.process_time()
    try:
        return (yield)
    finally:
        item.user_properties.append(("cpu_s", _set_up.own_s + time.process_time() - started_s))
        _PROCESSES.is_refused = False


class _SetUp:
    """CPU time of the running test's set-up: its own, and that of fixtures that it shares with others."""

    own_s = 0.0
    shared_s = 0.0


_set_up = _SetUp()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    _set_up.shared_s, started_s = 0.0, time.process_time()
    yield
    _set_up.own_s = time.process_time() - started_s - _set_up.shared_s


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Iterator[Any]:
    before_s, started_s = _set_up.shared_s, time.process_time()
    made = yield
    if fixturedef.scope != "function":  # with all shared ones that it asked for itself
        _set_up.shared_s = before_s + time.process_time() - started_s
    return made
