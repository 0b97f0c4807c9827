"""Freezes: times in which nothing starts, once from a date to another, or every week in a time zone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from functools import cache
from typing import Annotated, ClassVar
from zoneinfo import ZoneInfo, available_timezones

from engine.errors import Fault, suggestion
from engine.kinds import Enumeration, Number, String
from engine.records import ItemCount, Moment, Record, Words

__all__ = ["DAYS", "Freeze", "WeeklyWindow", "active_freezes", "thaw_of"]

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
FROZEN = ("starts", "versions")  # a query that does not run yet; another version of one that does
MAX_HOURS = 167.0  # of a week: a freeze that never ends is no calendar
_MAX_STEPS = 200  # freezes that follow one another without a gap


@cache
def _zones() -> frozenset[str]:
    return frozenset(available_timezones())


@dataclass(frozen=True)
class WeeklyWindow(Record):
    """A window of every week: from a time of day on some days, for a number of hours.

    It begins by the clock of its zone and lasts so many hours whatever the clock does meanwhile.
    """

    TITLE: ClassVar[str] = "a weekly window"

    days: Annotated[tuple[Annotated[str, Enumeration(DAYS)], ...], ItemCount(1, 7), Words("Days on which it begins.")]
    at: Annotated[str, String(r"([01]\d|2[0-3]):[0-5]\d", "a time of day such as 18:00"), Words("When it begins.")]
    hours: Annotated[float, Number(above=0, most=MAX_HOURS), Words("How long it lasts.")]
    time_zone: Annotated[str, String(), Words("Such as Europe/Berlin.")] = "UTC"

    def find_faults(self) -> Iterator[Fault]:
        if self.time_zone not in _zones():
            near = suggestion(self.time_zone, sorted(_zones())) or "; allowed: a time zone such as Europe/Berlin"
            yield Fault("time_zone", f"time_zone is {self.time_zone!r}{near}")

    def end_at(self, at: datetime) -> datetime | None:
        """End of the window that holds a moment; None where none does. Begin included, end excluded."""
        zone, length = ZoneInfo(self.time_zone), timedelta(hours=self.hours)
        local = at.astimezone(zone)
        begins = time.fromisoformat(self.at)
        ends = []
        for back in range(int(self.hours // 24) + 2):
            day = local.date() - timedelta(days=back)
            begin = datetime.combine(day, begins, zone).astimezone(at.tzinfo)
            if DAYS[day.weekday()] in self.days and begin <= at < begin + length:
                ends.append(begin + length)
        return max(ends, default=None)


@dataclass(frozen=True)
class Freeze(Record):
    """A time in which nothing starts: dated (`begins`, `ends`), or weekly (`every`)."""

    TITLE: ClassVar[str] = "a freeze"

    name: Annotated[str, String(), Words("As reasons name it.")]
    begins: Annotated[Moment | None, Words("First moment of a dated freeze, with its offset from UTC.")] = None
    ends: Annotated[Moment | None, Words("Moment at which a dated freeze is over.")] = None
    every: Annotated[WeeklyWindow | None, Words("Window of a weekly freeze.")] = None
    what: Annotated[
        tuple[Annotated[str, Enumeration(FROZEN)], ...],
        ItemCount(1, 2),
        Words("starts (queries that do not run yet), versions (other versions of those that do)."),
    ] = FROZEN
    teams: Annotated[tuple[Annotated[str, String()], ...], Words("Teams that it holds for; none: all.")] = ()

    def find_faults(self) -> Iterator[Fault]:
        dated = [name for name in ("begins", "ends") if getattr(self, name) is not None]
        if self.every is not None:
            for name in dated:
                yield Fault(name, f"{name} is given beside every; allowed: either begins and ends, or every")
            return
        for name in ("begins", "ends"):
            value: datetime | None = getattr(self, name)
            if value is None:
                yield Fault(name, f"{name} is missing; a freeze needs begins and ends, or every")
            elif value.tzinfo is None:
                text = value.isoformat()
                yield Fault(name, f"{name} is {text!r}; allowed: a moment with its offset, such as {text}+00:00")
        if self.begins and self.ends and self.begins.tzinfo and self.ends.tzinfo and self.ends <= self.begins:
            text = self.ends.isoformat()
            yield Fault("ends", f"ends is {text!r}; allowed: after begins, {self.begins.isoformat()}")

    def end_at(self, at: datetime) -> datetime | None:
        """When it is over, if it holds at a moment; None if it does not."""
        if self.every is not None:
            return self.every.end_at(at)
        assert self.begins is not None and self.ends is not None
        return self.ends if self.begins <= at < self.ends else None

    def concerns(self, team: str, *, is_version: bool) -> bool:
        """Whether it holds for a team's query: for another version of one that runs, or for a start."""
        kind = "versions" if is_version else "starts"
        return kind in self.what and (not self.teams or team in self.teams)


def active_freezes(
    freezes: Iterable[Freeze], at: datetime, team: str, *, is_version: bool = False
) -> list[tuple[Freeze, datetime]]:
    """Freezes that hold for a team at a moment, each with its end."""
    ends = [(freeze, freeze.end_at(at)) for freeze in freezes if freeze.concerns(team, is_version=is_version)]
    return [(freeze, end) for freeze, end in ends if end is not None]


def thaw_of(freezes: Iterable[Freeze], at: datetime, team: str, *, is_version: bool = False) -> datetime | None:
    """First moment from `at` on in which no freeze holds; None where they follow one another without a gap."""
    listed = list(freezes)
    for _ in range(_MAX_STEPS):
        active = active_freezes(listed, at, team, is_version=is_version)
        if not active:
            return at
        at = max(end for _, end in active)
    return None
