"""Pytest plug-in: what a run costs, and groups in the order of what they cost.

A run of many files ends with the CPU time that it took, of the tests and of every process that they started, with the
folders and files that took most of it, with the groups that lasted longest, and with when its processes had nothing
left to do. `RECORD_COSTS=1 ./sluice test`, on a quiet machine, writes into `costs.txt` how long
each of its groups lasted. The groups that last longest begin first, so that none of them is left over when the others
have ended.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import psutil
import pytest
from xdist.scheduler.loadgroup import LoadGroupScheduling

from tests.kernels import needs_kernels
from tests.tiers import group_of

__all__ = ["ByCost", "lasting_s"]

_RECORD = Path(__file__).with_name("costs.txt")
_RECORDS = os.environ.get("RECORD_COSTS") == "1"
_SHORT_S = 5.0  # what lasts less is not recorded
_SOON_S = 10.0
_SHOWN = 12
_COST, _COLLECTING = "cost", "collecting_s"


@cache
def _recorded() -> dict[str, float]:
    """Seconds that each recorded group lasted."""
    rows = (line.split(" ", 1) for line in _RECORD.read_text().splitlines())
    return {group: float(seconds) for seconds, group in rows}


def lasting_s(group: str) -> float:
    """Seconds for which a group lasted when it was recorded; 0 for a short one."""
    return _recorded().get(group, 0.0)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The quick tier is over soon after the kernels are compiled: tests that call none are its first."""
    is_quick_run = config.getoption("--quick")
    items.sort(key=lambda item: (is_quick_run and needs_kernels(item.path), -lasting_s(group_of(item))))


class ByCost(LoadGroupScheduling):
    """The longest group first, but for a process that is not free yet.

    A process asks for its next group when two tests are left to it. Where those last long, as the one test of a file
    may, a long group would wait behind them while other processes become free: it gets the shortest.
    """

    def _assign_work_unit(self, node: Any) -> None:
        left_s = sum(
            lasting_s(group) * list(tests.values()).count(False) / len(tests)
            for group, tests in self.assigned_work[node].items()
        )
        if left_s > _SOON_S:
            self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
        super()._assign_work_unit(node)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByCost | None:
    return ByCost(config, log) if config.getvalue("dist") == "loadgroup" else None


def _spent_s() -> float:
    """CPU time of this process, of those that it has waited for and of those that live below it."""
    spent_s = sum(os.times()[:4])
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):  # it has just ended
            spent_s += sum(process.cpu_times()[:4])
    return spent_s


class _Costs:
    """Sums of the run, by file and by group; in a process of the run, where its clocks stood after the last file."""

    def __init__(self) -> None:
        self.collecting_s = 0.0
        self.by_file: defaultdict[str, float] = defaultdict(float)
        self.lasted_s: defaultdict[str, float] = defaultdict(float)
        self.ended_s: list[float] = []
        self._began_s = time.perf_counter()
        self._spent_s, self._at_s = 0.0, 0.0

    def read(self) -> tuple[float, float]:
        """CPU time, and time, since this was last called."""
        before = self._spent_s, self._at_s
        self._spent_s, self._at_s = _spent_s(), time.perf_counter()
        return self._spent_s - before[0], self._at_s - before[1]

    def note_end(self) -> None:
        """A process of the run has nothing left to do."""
        self.ended_s.append(time.perf_counter() - self._began_s)

    def lines(self) -> Iterator[str]:
        """The sums, and what they are made of for the most part."""
        by_folder: defaultdict[str, float] = defaultdict(float)
        for file, spent_s in self.by_file.items():
            by_folder["/".join(file.split("/")[:-1][:3])] += spent_s
        spent_s = sum(self.by_file.values())
        yield f"{spent_s:,.0f} s for {len(self.by_file)} files, and {self.collecting_s:,.0f} s to collect them"
        for title, sums in (
            ("CPU time of folders", by_folder),
            ("CPU time of files", self.by_file),
            ("time that groups lasted", self.lasted_s),
        ):
            yield f"{title}:"
            for name, seconds in sorted(sums.items(), key=lambda row: -row[1])[:_SHOWN]:
                yield f"{seconds:8,.0f} s  {name}"
        if self.ended_s:
            yield f"processes of the run were done after {', '.join(f'{end_s:,.0f}' for end_s in self.ended_s)} s"

    def record(self) -> None:
        """Write how long groups lasted; those that did not run keep what they have."""
        lasting = {group: seconds for group, seconds in _recorded().items() if group not in self.lasted_s}
        lasting |= {group: seconds for group, seconds in self.lasted_s.items() if seconds >= _SHORT_S}
        rows = sorted(lasting.items(), key=lambda row: (-row[1], row[0]))
        _RECORD.write_text("".join(f"{seconds:.0f} {group}\n" for group, seconds in rows))


_COSTS = _Costs()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    _COSTS.collecting_s = _COSTS.read()[0]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[Any]:
    """Read the clocks where a file ends."""
    try:
        return (yield)
    finally:
        if nextitem is None or nextitem.path != item.path:
            item.user_properties.append((_COST, (group_of(item), *_COSTS.read())))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "teardown" and (cost := dict(report.user_properties).get(_COST)) is not None:
        group, spent_s, lasted_s = cost
        _COSTS.by_file[report.nodeid.partition("::")[0]] += spent_s
        _COSTS.lasted_s[group] += lasted_s


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Note when a process of the run was done, and add the time that it took to collect."""
    _COSTS.note_end()
    _COSTS.collecting_s += getattr(node, "workeroutput", {}).get(_COLLECTING, 0.0)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if (output := getattr(session.config, "workeroutput", None)) is not None:
        output[_COLLECTING] = _COSTS.collecting_s
    elif _RECORDS:
        _COSTS.record()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if len(_COSTS.by_file) > _SHOWN:
        terminalreporter.section("CPU time")
        for line in _COSTS.lines():
            terminalreporter.write_line(line)
