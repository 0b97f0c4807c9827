"""When a schedule's runs are due: calendar rules in a time zone, as instants in UTC. Pure: it knows no database.

A rule speaks of clock times where its readers are. Two nights of a year have clock times that are not plain:

- a time that the clock jumps over is due at the next instant that exists (02:30 at 03:00), and the run says so;
- a time that comes twice is due once, the first time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from apps.reports.rules import Rule

__all__ = ["YEARS_AHEAD", "Run", "last_due", "next_run", "runs_after"]

#: How far a rule is followed: 29 February comes on every weekday within 40 years.
YEARS_AHEAD = 40
_MARGIN = timedelta(hours=27)  # no zone is further from UTC, and none ever jumped by more than a day


@dataclass(frozen=True)
class Run:
    """One due time: the instant in UTC, the clock time the rule names, and a note where the two differ."""

    at: datetime
    clock: datetime
    note: str = ""


def runs_after(rule: Rule, zone: ZoneInfo, after: datetime, starts_on: date) -> Iterator[Run]:
    """Every due time later than the instant `after`, in order and each once.

    Parameters
    ----------
    starts_on : date
        The day the rule counts from: every second week, the third of five.
    """
    begin = after.astimezone(zone).replace(tzinfo=None) - _MARGIN
    last: datetime | None = None
    for clock in _clock_times(rule, begin, starts_on):
        run = _instant(clock, zone)
        if run.at > after and run.at != last:
            last = run.at
            yield run


def next_run(rule: Rule, zone: ZoneInfo, after: datetime, starts_on: date) -> Run | None:
    """The first due time later than `after`; None if the rule has ended or never comes."""
    return next(runs_after(rule, zone, after, starts_on), None)


def last_due(rule: Rule, zone: ZoneInfo, first: datetime, now: datetime, starts_on: date) -> tuple[datetime, int]:
    """Of the due times from `first` (one of them) to `now`: the last one, and how many there are."""
    found, count = first, 1
    for run in runs_after(rule, zone, first, starts_on):
        if run.at > now:
            break
        found, count = run.at, count + 1
    return found, count


def _clock_times(rule: Rule, begin: datetime, starts_on: date) -> Iterator[datetime]:
    """Times of the clock from `begin` on, for `YEARS_AHEAD` years."""
    end = begin + timedelta(days=366 * YEARS_AHEAD)
    start = datetime.combine(starts_on, time())
    if not rule.counts:  # it is the same from any day on, so the years since `starts_on` need not be walked through
        start = max(start, datetime.combine(begin.date(), time()))
    for clock in rule.recurrence(start, end):
        if clock >= begin:
            yield clock


def _instant(clock: datetime, zone: ZoneInfo) -> Run:
    aware = clock.replace(tzinfo=zone, fold=0)
    instant = aware.astimezone(UTC)
    if instant.astimezone(zone).replace(tzinfo=None) == clock:
        return Run(instant, clock)
    at = _jump(clock, zone)
    local = at.astimezone(zone)
    return Run(at, clock, f"{clock:%H:%M} does not exist on {clock.day} {clock:%b %Y} in {zone.key}; due {local:%H:%M}")


def _jump(clock: datetime, zone: ZoneInfo) -> datetime:
    """The instant at which the clock jumps over `clock`, to the second.

    In a gap, the offset before the jump (fold 0) gives an instant after it, and that after it (fold 1) one before it.
    """
    after = clock.replace(tzinfo=zone, fold=0).astimezone(UTC)
    before = clock.replace(tzinfo=zone, fold=1).astimezone(UTC)
    offset = after.astimezone(zone).utcoffset()
    low, high = 0, int((after - before).total_seconds())
    while high - low > 1:
        middle = (low + high) // 2
        moment = before + timedelta(seconds=middle)
        low, high = (low, middle) if moment.astimezone(zone).utcoffset() == offset else (middle, high)
    return before + timedelta(seconds=high)
