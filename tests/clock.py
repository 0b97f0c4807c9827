"""Pytest plug-in: `--shift MOMENT` runs the tests at another time of the calendar.

The clock is that of Python alone, and ticks: sockets, timers, Redis and every other process keep their own. Therefore a
file with a test that is not of the quick tier stays on the real clock altogether, as do the fixtures that its tests
share; `--quick` leaves such tests out, and then the others of the file are shifted.
Every group of tests (`tests/tiers.py`) begins at the moment anew, so that the hour meant is met by all of them.

A file that needs the time when it is imported asks `run_moment`, and has the mark `moment`: its tests begin then with
and without a shift, however long after the import they run.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
import time_machine

from launcher.moments import Moment, MomentError, parse_moment
from tests.tiers import group_of, is_quick

_RUN_CLOCK = pytest.StashKey["RunClock"]()


class RunClock:
    """The clocks of a run's groups."""

    moment = Moment(datetime.now(UTC).replace(microsecond=0))  # of every run in this process

    def __init__(self, is_shifted: bool) -> None:
        self.is_shifted = is_shifted
        self._real: set[str] = set()
        self._group: str | None = None
        self._travel: time_machine.travel | None = None

    def sort_out(self, items: list[pytest.Item]) -> None:
        """Find the groups that stay on the real clock."""
        marked = {group_of(item) for item in items if item.get_closest_marker("moment")}
        if self.is_shifted:
            self._real = {group_of(item) for item in items if not is_quick(item)} - marked
        else:
            self._real = {group_of(item) for item in items} - marked

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
            raise pytest.UsageError(
                f"--shift {self.moment}: this machine has no zone {self.moment.zone}: install tzdata"
            )


def run_moment() -> datetime:
    """The time at which the groups of this run begin: that of `--shift`, else when the run began."""
    return RunClock.moment.at.astimezone(UTC)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shift", metavar="MOMENT", help="another time for tests without processes of their own")


def pytest_configure(config: pytest.Config) -> None:
    text = config.getoption("--shift")
    clock = config.stash[_RUN_CLOCK] = RunClock(is_shifted=bool(text))
    if text:
        try:
            RunClock.moment = parse_moment(text)
        except MomentError as error:
            raise pytest.UsageError(f"--shift {error}") from None
        clock.check_zone()


def pytest_report_header(config: pytest.Config) -> str | None:
    return f"clock: {RunClock.moment}" if config.stash[_RUN_CLOCK].is_shifted else None


def pytest_collection_finish(session: pytest.Session) -> None:
    session.config.stash[_RUN_CLOCK].sort_out(session.items)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[Any]:
    clock, group = item.config.stash[_RUN_CLOCK], group_of(item)
    clock.begin(group)
    try:
        return (yield)
    finally:
        if nextitem is None or group_of(nextitem) != group:
            clock.end()


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """The line that repeats what failed."""
    failed = [*terminalreporter.stats.get("failed", ()), *terminalreporter.stats.get("error", ())]
    if not failed or not config.stash[_RUN_CLOCK].is_shifted:
        return
    again = ["./sluice", "test", "--shift", str(RunClock.moment)]
    if (seed := getattr(config.option, "randomly_seed", None)) is not None:
        again += ["-p", "randomly", "--randomly-seed", str(seed)]
    files = sorted({report.nodeid.partition("::")[0] for report in failed})
    terminalreporter.write_line(f"again: {shlex.join([*again, *files])}", bold=True)
