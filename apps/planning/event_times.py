"""Times of events: read on a zone's clock, also in nights when clocks change; and occurrences of those that repeat."""

from __future__ import annotations

import calendar
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import count

from apps.core.errors import Fault
from apps.planning.choices import EventRepeat
from apps.planning.models import PlannedEvent
from apps.queries.arrivals.times import zone_of

__all__ = ["MAX_DAYS", "Occurrence", "last_time", "local_moment", "occurrence_at", "occurrences", "span_faults"]

MAX_DAYS = 56  # of an event
_PERIODS = {EventRepeat.WEEKLY: 7, EventRepeat.MONTHLY: 28, EventRepeat.YEARLY: 365}  # days, at least
_YEAR = timedelta(weeks=52)  # the same weekday


@dataclass(frozen=True)
class Occurrence:
    """One time that an event comes."""

    starts_at: datetime
    ends_at: datetime

    @property
    def length(self) -> timedelta:
        return self.ends_at - self.starts_at


def local_moment(text: object, zone: tzinfo, field: str, faults: list[Fault]) -> datetime | None:
    """A moment from ISO 8601, on the zone's clock where it names no offset; None with a fault where it is none.

    A time that clocks leave out, or that comes twice without an offset, is a fault.
    """
    try:
        moment = text if isinstance(text, datetime) else datetime.fromisoformat(str(text).strip())
    except ValueError:
        faults.append(Fault(field, f"{field} is {str(text)[:40]!r}; allowed: a time such as 2026-11-27T08:00"))
        return None
    if moment.tzinfo is not None:
        return _in_years(moment, field, faults)
    first, second = (moment.replace(tzinfo=zone, fold=fold) for fold in (0, 1))
    name = getattr(zone, "key", str(zone))
    if first.astimezone(UTC).astimezone(zone).replace(tzinfo=None) != moment.replace(fold=0):
        there = first.astimezone(UTC).astimezone(zone)
        message = (
            f"{field} is {moment:%Y-%m-%d %H:%M}, which clocks in {name} leave out; allowed: {there:%H:%M} or later"
        )
        faults.append(Fault(field, message))
        return None
    if first.utcoffset() != second.utcoffset():
        message = (
            f"{field} is {moment:%Y-%m-%d %H:%M}, which comes twice in {name}; allowed: with its offset, "
            f"{first.isoformat(timespec='minutes')} or {second.isoformat(timespec='minutes')}"
        )
        faults.append(Fault(field, message))
        return None
    return _in_years(first, field, faults)


def _in_years(moment: datetime, field: str, faults: list[Fault]) -> datetime | None:
    if 2000 <= moment.year < 2100:
        return moment.astimezone(UTC)
    faults.append(Fault(field, f"{field} is in the year {moment.year}; allowed: 2000 to 2099"))
    return None


def span_faults(starts_at: datetime, ends_at: datetime, repeat: str) -> Iterator[Fault]:
    """Faults of a beginning and an end."""
    if ends_at <= starts_at:
        yield Fault(
            "ends_at",
            f"ends_at is {ends_at:%Y-%m-%d %H:%M} UTC; allowed: after starts_at, {starts_at:%Y-%m-%d %H:%M} UTC",
        )
        return
    days = (ends_at - starts_at) / timedelta(days=1)
    if days > MAX_DAYS:
        yield Fault("ends_at", f"the event lasts {days:.3g} days; allowed: at most {MAX_DAYS}")
    period = _PERIODS.get(EventRepeat(repeat))
    if period is not None and days > period:
        message = f"repeat is {repeat!r} of an event of {days:.3g} days; allowed: less often than it lasts"
        yield Fault("repeat", message)


def occurrences(event: PlannedEvent) -> Iterator[Occurrence]:
    """Occurrences of an event, the first one first; of one that repeats, very many."""
    zone = zone_of(event.time_zone)
    first = event.starts_at.astimezone(zone).replace(tzinfo=None)
    last = event.ends_at.astimezone(zone).replace(tzinfo=None)
    yield Occurrence(event.starts_at, event.ends_at)
    if event.repeat == EventRepeat.ONCE:
        return
    for k in count(1):
        starts = _shifted(first, event.repeat, k)
        if starts.year >= 2100:
            return
        ends = starts + (last - first)
        yield Occurrence(
            starts.replace(tzinfo=zone, fold=0).astimezone(UTC), ends.replace(tzinfo=zone, fold=1).astimezone(UTC)
        )


def _shifted(moment: datetime, repeat: str, k: int) -> datetime:
    """A wall-clock time `k` repeats later; of a month without that day, its last day."""
    if repeat == EventRepeat.WEEKLY:
        return moment + timedelta(weeks=k)
    months = moment.month - 1 + (k if repeat == EventRepeat.MONTHLY else 12 * k)
    year, month = moment.year + months // 12, months % 12 + 1
    return moment.replace(year=year, month=month, day=min(moment.day, calendar.monthrange(year, month)[1]))


def occurrence_at(event: PlannedEvent, now: datetime) -> Occurrence:
    """The occurrence that is on or comes next; the last where all are over."""
    found = Occurrence(event.starts_at, event.ends_at)
    for found in occurrences(event):
        if found.ends_at > now:
            break
    return found


def last_time(event: PlannedEvent, occurrence: Occurrence) -> Occurrence:
    """When it came before: as is said, one repeat earlier, or 52 weeks."""
    if event.trace_starts_at is not None:
        return Occurrence(event.trace_starts_at, event.trace_starts_at + occurrence.length)
    before = {EventRepeat.WEEKLY: timedelta(weeks=1), EventRepeat.MONTHLY: timedelta(weeks=4)}
    shift = before.get(EventRepeat(event.repeat), _YEAR)
    zone = zone_of(event.time_zone)
    starts = (occurrence.starts_at.astimezone(zone).replace(tzinfo=None) - shift).replace(tzinfo=zone).astimezone(UTC)
    return Occurrence(starts, starts + occurrence.length)
