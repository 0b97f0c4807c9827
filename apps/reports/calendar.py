"""Calendar rules of schedules: read strictly, put into a sentence, computed as instants in UTC. No database."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time, timedelta
from functools import partial
from itertools import islice
from typing import Any
from zoneinfo import ZoneInfo

from dateutil import rrule as rr

from apps.core.errors import Fault, Malformed, fault_count
from apps.core.rest.serializers import unknown_message
from engine.words import listed

__all__ = [
    "DAYS",
    "HOURS",
    "MONTHS",
    "RULE_FIELDS",
    "CalendarRule",
    "ScheduledRun",
    "last_due",
    "next_run",
    "read_rule",
    "runs_after",
]


DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_DAY_NAMES = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_MAX_DAYS_IN_MONTH = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
#: Kinds of rules, with the fields each takes beside `every`.
EVERY: dict[str, tuple[str, ...]] = {
    "day": ("at",),
    "week": ("at", "days"),
    "month": ("at", "day", "nth", "weekday", "short_month"),
    "year": ("at", "month", "day", "short_month"),
    "hours": ("at", "hours"),
    "rrule": ("rrule",),
}
HOURS = (1, 2, 3, 4, 6, 8, 12)  # they divide a day, so that every day has the same times
_NTH = {1: "first", 2: "second", 3: "third", 4: "fourth", 5: "fifth", -1: "last"}
_CLOCK = re.compile(r"([01]\d|2[0-3]):([0-5]\d)")
_FREQUENCIES = ("DAILY", "WEEKLY", "MONTHLY", "YEARLY")
_MAX_TIMES_A_DAY = 24
_MAX_INTERVAL = 1000


#: Fields of a rule for the API's description; which of them a kind takes is in `EVERY`.
RULE_FIELDS: dict[str, dict[str, Any]] = {
    "every": {"type": "string", "enum": list(EVERY)},
    "at": {"type": "string", "pattern": f"^{_CLOCK.pattern}$", "description": "Time of day; not with rrule."},
    "days": {
        "type": "array",
        "items": {"type": "string", "enum": list(DAYS)},
        "minItems": 1,
        "description": "Of a week.",
    },
    "day": {
        "oneOf": [{"type": "integer", "minimum": 1, "maximum": 31}, {"type": "string", "enum": ["last"]}],
        "description": "Of a month or year.",
    },
    "nth": {"type": "integer", "enum": list(_NTH), "description": "With `weekday` in place of `day`; -1 is the last."},
    "weekday": {"type": "string", "enum": list(DAYS)},
    "month": {"type": "integer", "minimum": 1, "maximum": len(MONTHS)},
    "short_month": {"type": "string", "enum": ["skip", "last"], "description": "Where a month has no such day."},
    "hours": {"type": "integer", "enum": list(HOURS)},
    "rrule": {"type": "string", "description": "A rule of RFC 5545."},
}


@dataclass(frozen=True)
class CalendarRule:
    """A rule that was read: its fields as they are stored, and what they mean."""

    every: str
    at: str = "00:00"
    days: tuple[str, ...] = ()
    day: int | str = 1
    month: int = 1
    nth: int = 0
    weekday: str = ""
    short_month: str = "skip"
    hours: int = 24
    text: str = ""
    given: Mapping[str, object] = field(default_factory=dict)

    @property
    def counts(self) -> bool:
        """Whether it matters from which day it counts."""
        return self.every == "rrule"

    def recurrence(self, start: datetime, end: datetime) -> Iterable[datetime]:
        """Clock times from `start` (a midnight) to `end`, without a zone, in order."""
        if self.every == "rrule":
            rule, count = _parsed(self.text, start)
            return islice(rule.replace(until=min(rule._until or end, end)), count)
        hour, minute = map(int, self.at.split(":"))
        times = partial(rr.rrule, dtstart=start, until=end, byhour=hour, byminute=minute, bysecond=0)
        match self.every:
            case "day":
                return times(rr.DAILY)
            case "hours":
                return times(rr.DAILY, byhour=sorted((hour + step) % 24 for step in range(0, 24, self.hours)))
            case "week":
                return times(rr.WEEKLY, byweekday=[DAYS.index(day) for day in self.days])
        if self.nth:
            return times(rr.MONTHLY, byweekday=rr.weekday(DAYS.index(self.weekday))(self.nth))
        days, position = self._month_days()
        if self.every == "year":
            return times(rr.YEARLY, bymonth=self.month, bymonthday=days, bysetpos=position)
        return times(rr.MONTHLY, bymonthday=days, bysetpos=position)

    def _month_days(self) -> tuple[list[int], int | None]:
        """Days of a month, and which of them: with short_month "last", the latest that is not after `day`."""
        if self.day == "last":
            return [-1], None
        day = int(self.day)
        return (list(range(28, day + 1)), -1) if self.short_month == "last" and day > 28 else ([day], None)

    @property
    def sentence(self) -> str:
        """`every Monday at 07:00`."""
        match self.every:
            case "day":
                return f"every day at {self.at}"
            case "hours":
                if self.hours == 1:
                    return f"every hour, one of them at {self.at}"
                return f"every {self.hours} hours, one of them at {self.at}"
            case "week":
                names = [_DAY_NAMES[DAYS.index(day)] for day in self.days]
                return f"every {listed(names, len(names))} at {self.at}"
            case "month" if self.nth:
                return f"every {_NTH[self.nth]} {_DAY_NAMES[DAYS.index(self.weekday)]} of a month at {self.at}"
            case "month":
                return f"{self._day_words()} of every month at {self.at}{self._short_words(30)}"
            case "year":
                longest = 28 if self.month == 2 else 31
                return f"{self._day_words()} of every {MONTHS[self.month - 1]} at {self.at}{self._short_words(longest)}"
        return f"by the rule {self.text}"

    def _day_words(self) -> str:
        return "the last day" if self.day == "last" else f"day {self.day}"

    def _short_words(self, shortest: int) -> str:
        if self.day == "last" or int(self.day) <= min(shortest, 28):
            return ""
        way = "on the last day instead" if self.short_month == "last" else "left out"
        return f" ({way} where there is no such day)"


def read_rule(document: Any, path: str = "rule") -> CalendarRule:
    """A rule from its fields, such as `{"every": "week", "days": ["mon"], "at": "07:00"}`.

    Raises
    ------
    Malformed
        With every fault: unknown fields, values out of range, days that never come.
    """
    every = document.get("every") if isinstance(document, Mapping) else document
    if not isinstance(document, Mapping) or not isinstance(every, str) or every not in EVERY:
        fault = Fault(f"{path}.every", f"every is {every!r}; allowed are {', '.join(EVERY)}")
        raise Malformed(f"{fault.path}: {fault.message}.", [fault])
    reader = _RuleReader(document, path)
    rule = reader.rule()
    if reader.faults:
        first = f"{reader.faults[0].path}: {reader.faults[0].message}"
        if len(reader.faults) > 1:
            raise Malformed(f"{first} ({fault_count(reader.faults)}).", reader.faults)
        raise Malformed(f"{first}.", reader.faults)
    return rule


class _RuleReader:
    """Reads a rule's fields and collects every fault on the way."""

    def __init__(self, given: Mapping[str, object], path: str) -> None:
        self.given, self.path = given, path
        self.every = str(given["every"])
        self.faults: list[Fault] = []

    def rule(self) -> CalendarRule:
        allowed = ("every", *EVERY[self.every])
        for name in self.given:
            if name not in allowed:
                self._fault(name, unknown_message(str(name), list(allowed)))
        rule = CalendarRule(self.every, given=dict(self.given))
        if self.every == "rrule":
            return replace(rule, text=self._recurrence())
        rule = replace(rule, at=self._clock())
        if self.every == "week":
            return replace(rule, days=self._days())
        if self.every == "hours":
            return replace(rule, hours=self._one_of("hours", HOURS))
        if self.every == "month" and ("nth" in self.given or "weekday" in self.given):
            if "day" in self.given:
                self._fault("day", "either a day, or nth and weekday; not both")
            return replace(rule, nth=self._one_of("nth", _NTH), weekday=self._one_of("weekday", DAYS))
        return self._on_month_day(rule) if self.every in {"month", "year"} else rule

    def _fault(self, name: str, message: str) -> None:
        self.faults.append(Fault(f"{self.path}.{name}", message))

    def _one_of(self, name: str, allowed: Iterable[Any]) -> Any:
        allowed = list(allowed)
        value = self.given.get(name)
        if isinstance(value, bool) or value not in allowed:
            lead = f"{name} is {value!r}" if name in self.given else f"{name} is missing"
            self._fault(name, f"{lead}; allowed are {', '.join(map(str, allowed))}")
            return allowed[0]
        return value

    def _clock(self) -> str:
        value = self.given.get("at")
        if not (isinstance(value, str) and _CLOCK.fullmatch(value)):
            lead = f"at is {value!r}" if "at" in self.given else "at is missing"
            self._fault("at", f"{lead}; allowed is a time of day from 00:00 to 23:59")
            return "00:00"
        return value

    def _days(self) -> tuple[str, ...]:
        value = self.given.get("days")
        if not (isinstance(value, list) and value and all(day in DAYS for day in value)):
            lead = f"days is {value!r}" if "days" in self.given else "days is missing"
            self._fault("days", f"{lead}; allowed is a list of {', '.join(DAYS)}")
            return ("mon",)
        return tuple(day for day in DAYS if day in value)

    def _on_month_day(self, rule: CalendarRule) -> CalendarRule:
        day = self._one_of("day", [*range(1, 32), "last"])
        short_month = self._one_of("short_month", ("skip", "last")) if "short_month" in self.given else "skip"
        if self.every == "month":
            return replace(rule, day=day, short_month=short_month)
        month = self._one_of("month", range(1, 13))
        name, longest = MONTHS[month - 1], _MAX_DAYS_IN_MONTH[month - 1]
        if day != "last" and int(day) > longest:
            self._fault("day", f"{day} {name} never comes; {name} has {longest} days")
        return replace(rule, day=day, short_month=short_month, month=month)

    def _recurrence(self) -> str:
        """An RFC 5545 rule such as FREQ=WEEKLY;BYDAY=MO;BYHOUR=7, normalised."""
        text = "".join(str(self.given.get("rrule", "")).split()).upper().removeprefix("RRULE:")
        parts = dict(part.partition("=")[::2] for part in text.split(";") if part)
        if parts.get("FREQ") not in _FREQUENCIES:
            self._fault("rrule", f"FREQ is {parts.get('FREQ')!r}; allowed are {', '.join(_FREQUENCIES)}")
            return "FREQ=DAILY"
        for name, default in (("BYHOUR", "0"), ("BYMINUTE", "0"), ("BYSECOND", "0")):
            parts.setdefault(name, default)
        text = ";".join(f"{name}={value}" for name, value in parts.items())
        a_day = len(parts["BYHOUR"].split(",")) * len(parts["BYMINUTE"].split(","))
        if a_day > _MAX_TIMES_A_DAY:
            self._fault("rrule", f"it is due {a_day} times a day; allowed are {_MAX_TIMES_A_DAY}")
        interval = parts.get("INTERVAL", "1")
        if not interval.isdecimal() or not 1 <= int(interval) <= _MAX_INTERVAL:
            self._fault("rrule", f"INTERVAL is {interval}; allowed is a whole number from 1 to {_MAX_INTERVAL}")
            return "FREQ=DAILY"
        if parts["BYSECOND"] != "0":
            self._fault("rrule", f"BYSECOND is {parts['BYSECOND']}; allowed is 0: schedules keep to the minute")
        try:
            _parsed(text, datetime(2000, 1, 1))  # noqa: DTZ001 - clock times have no zone here
        except (ValueError, TypeError, AttributeError) as error:
            self._fault("rrule", f"{text!r} is no recurrence rule of RFC 5545: {error}")
            return "FREQ=DAILY"
        if not self.faults and not _names_a_day(text):
            self._fault("rrule", f"{text!r} never comes: no day of the calendar fits it")
        return text


def _names_a_day(text: str) -> bool:
    """Whether any day of the calendar's 400 years fits; dateutil looks until the year 9999, hence from 9600 on."""
    endless = ";".join(part for part in text.split(";") if not part.startswith(("COUNT=", "UNTIL=")))
    start = datetime(9600, 1, 1)  # noqa: DTZ001 - clock times have no zone here
    return next(iter(rr.rrulestr(endless, dtstart=start)), None) is not None


def _parsed(text: str, start: datetime) -> tuple[Any, int | None]:
    """The rule without its COUNT, and the count: dateutil would look for a day that never comes until the year 9999."""
    parts = [part for part in text.split(";") if not part.startswith("COUNT=")]
    counts = [int(part.removeprefix("COUNT=")) for part in text.split(";") if part.startswith("COUNT=")]
    return rr.rrulestr(";".join(parts), dtstart=start), counts[0] if counts else None


#: How far a rule is followed: 29 February comes on every weekday within 40 years.
YEARS_AHEAD = 40
_MARGIN = timedelta(hours=27)  # no zone is further from UTC, and none ever jumped by more than a day


@dataclass(frozen=True)
class ScheduledRun:
    """One due time: the instant in UTC, the clock time the rule names, and a note where the two differ."""

    at: datetime
    clock: datetime
    note: str = ""


def runs_after(rule: CalendarRule, zone: ZoneInfo, after: datetime, starts_on: date) -> Iterator[ScheduledRun]:
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


def next_run(rule: CalendarRule, zone: ZoneInfo, after: datetime, starts_on: date) -> ScheduledRun | None:
    """The first due time later than `after`; None if the rule has ended or never comes."""
    return next(runs_after(rule, zone, after, starts_on), None)


def last_due(
    rule: CalendarRule, zone: ZoneInfo, first: datetime, now: datetime, starts_on: date
) -> tuple[datetime, int]:
    """Of the due times from `first` (one of them) to `now`: the last one, and how many there are."""
    latest, count = first, 1
    for run in runs_after(rule, zone, first, starts_on):
        if run.at > now:
            break
        latest, count = run.at, count + 1
    return latest, count


def _clock_times(rule: CalendarRule, begin: datetime, starts_on: date) -> Iterator[datetime]:
    """Times of the clock from `begin` on, for `YEARS_AHEAD` years."""
    end = begin + timedelta(days=366 * YEARS_AHEAD)
    start = datetime.combine(starts_on, time())
    if not rule.counts:  # it is the same from any day on, so the years since `starts_on` need not be walked through
        start = max(start, datetime.combine(begin.date(), time()))
    for clock in rule.recurrence(start, end):
        if clock >= begin:
            yield clock


def _instant(clock: datetime, zone: ZoneInfo) -> ScheduledRun:
    aware = clock.replace(tzinfo=zone, fold=0)
    instant = aware.astimezone(UTC)
    if instant.astimezone(zone).replace(tzinfo=None) == clock:
        return ScheduledRun(instant, clock)
    at = _jump(clock, zone)
    local = at.astimezone(zone)
    return ScheduledRun(
        at, clock, f"{clock:%H:%M} does not exist on {clock.day} {clock:%b %Y} in {zone.key}; due {local:%H:%M}"
    )


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
