"""Moments of the calendar under which tests are run: days and hours at which code that trusts the date goes wrong."""

from __future__ import annotations

import re
from calendar import isleap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

__all__ = ["MOMENTS", "Moment", "MomentError", "parse_moment"]

_WRITTEN = re.compile(r"(?P<time>[^\[\]]+)(\[(?P<zone>[^\[\]]+)\])?")


class MomentError(ValueError):
    """Neither the name of a moment nor a time."""


@dataclass(frozen=True)
class Moment:
    """A time, and the zone that processes run in; empty: that of the machine."""

    at: datetime
    zone: str = ""

    def __str__(self) -> str:
        """As RFC 9557 writes it, which `parse_moment` reads: `2027-10-31T02:30:00+01:00[Europe/Berlin]`."""
        return self.at.isoformat(timespec="seconds") + (f"[{self.zone}]" if self.zone else "")


def _leap_day(now: datetime) -> Moment:
    year = now.year
    while not isleap(year) or datetime(year, 2, 29, 12, tzinfo=UTC) < now:
        year += 1
    return Moment(datetime(year, 2, 29, 12, tzinfo=UTC))


def _last_minute_of_year(now: datetime) -> Moment:
    return Moment(datetime(now.year, 12, 31, 23, 59, tzinfo=UTC))


def _change(zone: str, direction: int, before: timedelta) -> Callable[[datetime], Moment]:
    """So long before the next change of a zone's clocks: forward (1) or back (-1)."""

    def moment(now: datetime) -> Moment:
        place, hour = ZoneInfo(zone), timedelta(hours=1)
        at = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
        for _ in range(2 * 366 * 24):
            at += hour
            step = (at.astimezone(place).utcoffset() or hour) - ((at - hour).astimezone(place).utcoffset() or hour)
            if step / hour * direction > 0:
                return Moment((at - before).astimezone(place), zone)
        raise MomentError(f"the clocks of {zone} do not change")

    return moment


_A_MINUTE, _HALF_AN_HOUR_AFTER = timedelta(minutes=1), timedelta(minutes=-30)
#: Each by its name. In spring a minute before the hour that is left out; in autumn in the middle of the hour that comes
#: again, when it does.
MOMENTS: Mapping[str, Callable[[datetime], Moment]] = {
    "tomorrow": lambda now: Moment(now + timedelta(days=1)),
    "in-400-days": lambda now: Moment(now + timedelta(days=400)),
    "leap-day": _leap_day,
    "berlin-spring": _change("Europe/Berlin", 1, _A_MINUTE),
    "berlin-autumn": _change("Europe/Berlin", -1, _HALF_AN_HOUR_AFTER),
    "new-york-spring": _change("America/New_York", 1, _A_MINUTE),
    "new-york-autumn": _change("America/New_York", -1, _HALF_AN_HOUR_AFTER),
    "last-minute-of-year": _last_minute_of_year,
}


def parse_moment(text: str, now: datetime | None = None) -> Moment:
    """The moment of a name, or of a time: `2027-05-01`, `2027-03-28T01:59:00+01:00[Europe/Berlin]`.

    A time without an offset is of the zone in brackets, else of UTC.

    Raises
    ------
    MomentError
        Says what is allowed.
    """
    if (make := MOMENTS.get(text)) is not None:
        return make((now or datetime.now(UTC)).replace(microsecond=0))
    try:
        written = _WRITTEN.fullmatch(text)
        if written is None:
            raise ValueError(text)
        at, zone = datetime.fromisoformat(written["time"]), written["zone"] or ""
        place = ZoneInfo(zone) if zone else UTC
    except (ValueError, ZoneInfoNotFoundError):
        raise MomentError(
            f"{text!r}: allowed are {', '.join(MOMENTS)}, "
            "or a time such as 2027-05-01 or 2027-03-28T01:59:00+01:00[Europe/Berlin]"
        ) from None
    return Moment(at.replace(tzinfo=place) if at.tzinfo is None else at.astimezone(place), zone)
