"""Time stamps as text or numbers to unix seconds."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from apps.core.errors import Malformed

__all__ = ["NUMBER_FORMATS", "TIME_FORMATS", "format_of", "iso_utc", "parser_of", "zone_of"]

_PER_SECOND = {"unix_s": 1.0, "unix_ms": 1e3, "unix_us": 1e6, "unix_ns": 1e9}
TIME_FORMATS: dict[str, str] = {
    "iso": "ISO 8601, such as 2026-03-01 09:30:00 or 2026-03-01T09:30:00Z",
    "unix_s": "seconds since 1970",
    "unix_ms": "milliseconds since 1970",
    "unix_us": "microseconds since 1970",
    "unix_ns": "nanoseconds since 1970",
}
NUMBER_FORMATS = frozenset(_PER_SECOND)
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - for the difference of two times without a zone, which is fast
_EPOCH_UTC = datetime(1970, 1, 1, tzinfo=UTC)
# Beyond these years sums of two times leave the calendar; what is later is rather a number of milliseconds.
_FIRST_S, _END_S = -2_208_988_800.0, 1e11  # 1900 and 5138
_DIGITS = re.compile(r"\s*\d+(\.\d*)?\s*\Z")


def zone_of(name: str) -> tzinfo:
    """The time zone of an IANA name.

    Raises
    ------
    Malformed
        There is no such zone.
    """
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        message = f"{name!r} is not a time zone; allowed are IANA names such as Europe/Berlin or UTC"
        raise Malformed(f"time_zone: {message}.", [("time_zone", message)]) from None


def format_of(cells: list[str]) -> str | None:
    """The format most of `cells` have, or None if they are not times.

    Numbers count as times from 1973 on (in seconds): smaller ones are rather counts.
    """
    if not cells:
        return None
    numbers = sorted(float(cell) for cell in cells if _DIGITS.match(cell))
    if len(numbers) >= 0.9 * len(cells):
        middle = numbers[len(numbers) // 2]
        for name, upper in (("unix_s", 1e11), ("unix_ms", 1e14), ("unix_us", 1e17), ("unix_ns", 1e20)):
            if upper / 1e3 <= middle < upper:
                return name
        return None
    iso = parser_of("iso", UTC)
    return "iso" if sum(_reads(iso, cell) for cell in cells) >= 0.9 * len(cells) else None


def parser_of(time_format: str, zone: tzinfo) -> Callable[[str], float]:
    """A function from a cell to unix seconds; it raises ValueError for what is no time of the format.

    `zone` is taken for ISO times that name none. A local time that occurs twice (clocks set back) is the first of both.
    """
    if time_format in _PER_SECOND:
        return _number_parser(_PER_SECOND[time_format])
    if time_format != "iso":
        allowed = ", ".join(TIME_FORMATS)
        raise Malformed(
            f"time_format is {time_format!r}; allowed are {allowed}.", [("time_format", f"allowed are {allowed}")]
        )
    utc = zone is UTC or getattr(zone, "key", "") == "UTC"

    def parse(cell: str) -> float:
        moment = datetime.fromisoformat(cell.strip())
        if moment.tzinfo is None and utc:
            seconds = (moment - _EPOCH).total_seconds()
        else:
            zoned = moment if moment.tzinfo is not None else moment.replace(tzinfo=zone)
            seconds = (zoned - _EPOCH_UTC).total_seconds()
        if not _FIRST_S <= seconds < _END_S:
            raise ValueError(cell)
        return seconds

    return parse


def iso_utc(time_s: float) -> str:
    """Unix seconds as ISO 8601 in UTC, to the microsecond where it is not a whole second."""
    moment = _EPOCH_UTC + timedelta(seconds=time_s)
    return moment.isoformat().replace("+00:00", "Z")


def _number_parser(per_second: float) -> Callable[[str], float]:
    def parse(cell: str) -> float:
        seconds = float(cell) / per_second
        if not 0 <= seconds < _END_S or "_" in cell:
            raise ValueError(cell)
        return seconds

    return parse


def _reads(parse: Callable[[str], float], cell: str) -> bool:
    try:
        parse(cell)
    except ValueError:
        return False
    return True
