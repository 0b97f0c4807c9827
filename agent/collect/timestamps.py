"""Times as logs and recorded files write them, as microseconds since 1970."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import lru_cache

from agent.wire import MAX_NUMBER

__all__ = ["UNITS_US", "LineTimes", "reader_of"]

#: Microseconds in the unit that a number counts since 1970.
UNITS_US = {"s": 1e6, "ms": 1e3, "us": 1.0, "ns": 1e-3}
_CACHED = 4096  # lines of a log come many to a second


def reader_of(time_format: str | None) -> Callable[[str], int | None]:
    """Reader of a time format: text to microseconds, None for other text. Times without a zone are UTC.

    `time_format` is one of `UNITS_US`, a format of strptime, or None for ISO 8601. A format without a year, as in
    syslog, means the latest such day that is not in the future.
    """
    if time_format in UNITS_US:
        factor = UNITS_US[time_format]
        return lru_cache(_CACHED)(lambda text: _number(text, factor))
    if time_format is None:
        return lru_cache(_CACHED)(_iso)
    if re.search("%[YyGcxs]", time_format) is None:
        return lru_cache(_CACHED)(lambda text: _without_year(text, time_format))
    return lru_cache(_CACHED)(lambda text: _formatted(text, time_format))


def _number(text: str, factor: float) -> int | None:
    try:
        return round(float(text) * factor)
    except (ValueError, OverflowError):
        return None


def _iso(text: str) -> int | None:
    try:
        return _us(datetime.fromisoformat(text))
    except ValueError:
        return None


def _formatted(text: str, time_format: str) -> int | None:
    try:
        return _us(datetime.strptime(text, time_format))  # noqa: DTZ007 - the zone follows in `_us`
    except ValueError:
        return None


def _without_year(text: str, time_format: str) -> int | None:
    now = datetime.now(UTC)
    for year in (now.year, now.year - 1):
        at_us = _formatted(f"{year} {text}", f"%Y {time_format}")
        if at_us is not None and at_us <= _us(now) + 86_400_000_000:
            return at_us
    return None


def _us(moment: datetime) -> int:
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    since = aware - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


class LineTimes:
    """Event times of lines of text: the first group of a pattern, read by a format."""

    def __init__(self, pattern: str, time_format: str | None) -> None:
        self._pattern = re.compile(pattern)
        self._read = reader_of(time_format)

    def read(self, lines: Sequence[str], before_us: int, latest_us: int = MAX_NUMBER) -> tuple[list[int], int]:
        """One time per line, and how many lines have none: those get the time of the line before.

        A time after `latest_us` is none.
        """
        times: list[int] = []
        without = 0
        for line in lines:
            match = self._pattern.search(line)
            at_us = self._read(match.group(1)) if match and match.group(1) is not None else None
            if at_us is None or at_us > latest_us:
                without += 1
            else:
                before_us = at_us
            times.append(before_us)
        return times, without
