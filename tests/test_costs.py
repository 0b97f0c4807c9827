"""The cost of a run is counted whole, and groups begin by it."""

from __future__ import annotations

import subprocess
import sys
from collections import OrderedDict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from tests import costs
from tests.servers import wait_until

TESTS = Path(__file__).resolve().parent
_BURN = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True)\ninput()"


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """A record of three groups."""
    lasting = {"e2e/long": 90.0, "workers/single": 60.0, "agent/short": 7.0}
    monkeypatch.setattr(costs, "_recorded", lambda: lasting)
    return lasting


def item(name: str) -> Any:
    return SimpleNamespace(path=TESTS / f"{name}.py")


@pytest.mark.parametrize(
    ("is_quick", "order"),
    [
        (False, ["e2e/long", "workers/single", "agent/short", "engine/new", "docs/new"]),
        (True, ["agent/short", "docs/new", "e2e/long", "workers/single", "engine/new"]),
    ],
)
def test_longest_groups_begin_first(recorded: dict[str, float], is_quick: bool, order: list[str]) -> None:
    items = [item(name) for name in ("engine/new", "agent/short", "docs/new", "workers/single", "e2e/long")]
    costs.pytest_collection_modifyitems(SimpleNamespace(getoption=lambda name: is_quick), items)
    assert [str(one.path.relative_to(TESTS).with_suffix("")) for one in items] == order


class _Process:
    """Keeps the numbers of the tests that it is to run."""

    def __init__(self) -> None:
        self.sent: list[int] = []

    def send_runtest_some(self, numbers: list[int]) -> None:
        self.sent += numbers


def test_process_that_is_not_free_yet_gets_the_shortest_group(recorded: dict[str, float]) -> None:
    scheduling, first, second = costs.ByCost.__new__(costs.ByCost), _Process(), _Process()
    tests = {"workers/single": ["s"], "e2e/long": ["l1", "l2"], "agent/short": ["a"], "engine/new": ["n"]}
    collection = [name for names in tests.values() for name in names]
    scheduling.registered_collections = {first: collection, second: collection}
    scheduling.assigned_work = {first: {}, second: {}}
    scheduling.workqueue = OrderedDict((group, dict.fromkeys(names, False)) for group, names in tests.items())
    for node in (first, first, second):
        scheduling._assign_work_unit(node)
    assert (first.sent, second.sent) == ([0, 4], [1, 2]), "the second process is free for what lasts long"
    scheduling.assigned_work[first]["workers/single"]["s"] = True
    scheduling._assign_work_unit(first)
    assert first.sent == [0, 4, 3]


@pytest.mark.process
def test_processes_are_counted_while_they_live_and_when_they_have_ended() -> None:
    before_s = costs._spent_s()
    with subprocess.Popen([sys.executable, "-c", _BURN], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as burning:
        assert burning.stdout is not None
        burning.stdout.readline()
        assert costs._spent_s() - before_s >= 0.28  # clocks of processes tick a hundred times a second
        burning.communicate(b"\n")
    wait_until(lambda: not psutil.pid_exists(burning.pid), what="its end")
    assert costs._spent_s() - before_s >= 0.28  # clocks of processes tick a hundred times a second


def test_record_keeps_groups_that_did_not_run(
    recorded: dict[str, float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(costs, "_RECORD", tmp_path / "costs.txt")
    run = costs._Costs()
    run.lasted_s |= {"agent/short": 1.0, "workers/single": 100.2, "spark": 5.4}
    run.record()
    assert (tmp_path / "costs.txt").read_text() == "100 workers/single\n90 e2e/long\n5 spark\n"


def test_end_of_a_run_names_the_dearest_folders_files_and_groups() -> None:
    run = costs._Costs()
    run.collecting_s = 88.0
    run.by_file |= {f"tests/apps/pages/live/test_{number}.py": 100.0 * number for number in range(20)}
    run.by_file["tests/e2e/test_rest.py"] = 30_000.0
    run.lasted_s |= {"console": 7.0, "workers/test_kill": 9.0}
    run.ended_s = [30.0, 3_600.0]
    lines = list(run.lines())
    assert lines[:6] == [
        "49,000 s for 21 files, and 88 s to collect them",
        "CPU time of folders:",
        "  30,000 s  tests/e2e",
        "  19,000 s  tests/apps/pages",
        "CPU time of files:",
        "  30,000 s  tests/e2e/test_rest.py",
    ]
    assert lines[-3:] == [
        "       9 s  workers/test_kill",
        "       7 s  console",
        "processes of the run were done after 30, 3,600 s",
    ]
    assert len(lines) == 21, "twelve files, and no more"
