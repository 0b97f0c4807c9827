"""Pytest plug-in: `--shift MOMENT` runs the tests at another time of the calendar.

The clock is that of Python alone, and ticks: sockets, timers, Redis and every other process keep their own. Therefore a
file with a test that starts processes stays on the real clock altogether, as do the fixtures that its tests share.
Every group of tests (`tests/tiers.py`) begins at the moment anew, so that the hour meant is met by all of them.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator
from typing import Any

import pytest
import time_machine

from launcher.moments import Moment, MomentError, parse_moment
from tests.tiers import MARKS_WITH_PROCESSES, group_of

_SHIFT = pytest.StashKey["Shift"]()


class Shift:
    """The clock of a run under another moment."""

    def __init__(self, moment: Moment) -> None:
        self.moment = moment
        self._real: set[str] = set()
        self._group: str | None = None
        self._travel: time_machine.travel | None = None

    def leave_out(self, items: list[pytest.Item]) -> None:
        """Keep the groups with processes of their own on the real clock."""
        self._real = {group_of(item) for item in items if any(map(item.get_closest_marker, MARKS_WITH_PROCESSES))}

    def begin(self, group: str) -> None:
        """Set the clock for a test of this group: anew where another one's ran before."""
        if group == self._group:
            return
        self.end()
        self._group = group
        if group in self._real:
            return
        # a zone beside the time is made the process's; the offset alone would not be
        self._travel = time_machine.travel(self.moment.at if self.moment.zone else self.moment.at.timestamp())
        self._travel.start()

    def end(self) -> None:
        """Back to the real clock."""
        if self._travel is not None:
            self._travel.stop()
        self._group, self._travel = None, None

    def check_zone(self) -> None:
        """Say where the machine does not know the zone: the C library would take it for UTC in silence."""
        self.begin("a look")
        here = time.localtime().tm_gmtoff
        self.end()
        offset = self.moment.at.utcoffset()
        if self.moment.zone and offset is not None and here != offset.total_seconds():
            raise pytest.UsageError(f"--shift {self.moment}: this machine has no zone {self.moment.zone}: install tzdata")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shift", metavar="MOMENT", help="another time for tests without processes of their own")


def pytest_configure(config: pytest.Config) -> None:
    if not (text := config.getoption("--shift")):
        return
    try:
        shift = Shift(parse_moment(text))
    except MomentError as error:
        raise pytest.UsageError(f"--shift {error}") from None
    shift.check_zone()
    config.option.shift = str(shift.moment)  # the processes of a run share the moment
    config.stash[_SHIFT] = shift


def pytest_report_header(config: pytest.Config) -> str | None:
    shift = config.stash.get(_SHIFT, None)
    return None if shift is None else f"clock: {shift.moment}"


def pytest_collection_finish(session: pytest.Session) -> None:
    if (shift := session.config.stash.get(_SHIFT, None)) is not None:
        shift.leave_out(session.items)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[Any]:
    shift = item.config.stash.get(_SHIFT, None)
    if shift is None:
        return (yield)
    shift.begin(group_of(item))
    try:
        return (yield)
    finally:
        if nextitem is None or group_of(nextitem) != group_of(item):
            shift.end()


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """How to see a failure again."""
    shift = config.stash.get(_SHIFT, None)
    failed = [*terminalreporter.stats.get("failed", ()), *terminalreporter.stats.get("error", ())]
    if shift is None or not failed:
        return
    again = ["./sluice", "test", "--shift", str(shift.moment)]
    if (seed := getattr(config.option, "randomly_seed", None)) is not None:
        again += ["-p", "randomly", "--randomly-seed", str(seed)]
    files = sorted({report.nodeid.partition("::")[0] for report in failed})
    terminalreporter.write_line(f"again: {shlex.join([*again, *files])}", bold=True)
