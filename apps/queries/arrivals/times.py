"""Time stamps as text or numbers to unix seconds."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import numpy.typing as npt

from apps.core.errors import Malformed
from engine.arrays import FloatArray
from engine.words import counted

__all__ = [
    "AMBIGUOUS_DATES",
    "NUMBER_FORMATS",
    "TIME_FORMATS",
    "format_of",
    "has_zone",
    "is_time",
    "iso_utc",
    "parser_of",
    "resolve_local_times",
    "time_format_fault",
    "zone_of",
]

_PER_SECOND = {"unix_s": 1.0, "unix_ms": 1e3, "unix_us": 1e6, "unix_ns": 1e9}
TIME_FORMATS: dict[str, str] = {
    "iso": "ISO 8601, such as 2026-03-01 09:30:00 or 2026-03-01T09:30:00Z",
    "digits": "calendar digits, such as 20260301, 2026030109 or 20260301093000",
    "dmy": "day first, such as 01.03.2026 09:30 or 1/3/2026 9:30 am",
    "mdy": "month first, such as 03/01/2026 09:30 or 3/1/2026 9:30 am",
    "named": "month by name, such as 01/Mar/2026:09:30:00 +0100 or Sun, 1 Mar 2026 09:30:00 GMT",
    "unix_s": "seconds since 1970",
    "unix_ms": "milliseconds since 1970",
    "unix_us": "microseconds since 1970",
    "unix_ns": "nanoseconds since 1970",
}
NUMBER_FORMATS = frozenset(_PER_SECOND)
AMBIGUOUS_DATES = "dmy or mdy"  # what `format_of` says where nothing tells days from months
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - for the difference of two times without a zone, which is fast
_EPOCH_UTC = datetime(1970, 1, 1, tzinfo=UTC)
# Beyond these years sums of two times leave the calendar; what is later is rather a number of milliseconds.
_FIRST_S, _END_S = -2_208_988_800.0, 1e11  # 1900 and 5138
_DIGITS = re.compile(r"\s*\d+(\.\d*)?\s*\Z")
_CALENDAR_WIDTHS = {8: "%Y%m%d", 10: "%Y%m%d%H", 12: "%Y%m%d%H%M", 14: "%Y%m%d%H%M%S", 17: "%Y%m%d%H%M%S%f"}
_MAX_WRITTEN = 100  # characters of a time; more are none, and are not compared with patterns
_CALENDAR_YEARS = range(1990, 2100)  # digits that give other years are rather numbers

_CLOCK = (
    r"(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2})(?:[.,](?P<part>\d{1,9}))?)?"
    r"\s*(?P<half>[ap]\.?m\.?)?"
)
_OFFSET = r"(?P<zone>Z|(?:UTC|GMT)?\s?[+-]\d{2}:?\d{2}|UTC|GMT)(?:\s*\([^)]*\))?"
_TIME_OF_DAY = rf"(?:(?:,\s*|\s+|T|:|\s+at\s+){_CLOCK}(?:\s*{_OFFSET})?)?"
_WEEKDAY = r"(?:(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*\.?,?\s+)?"
_NAME = r"(?P<name>jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?"
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_IN_NUMBERS = r"(?P<{0}>\d{{1,2}})(?P<mark>[./-])(?P<{1}>\d{{1,2}})(?P=mark)(?P<year>\d{{4}}|\d{{2}})"


def _written(*dates: str) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(rf"\s*{date}{_TIME_OF_DAY}\s*\Z", re.IGNORECASE | re.ASCII) for date in dates)


# What stands in a table as a person or a program of no standard writes it; ISO 8601 proper is read by Python.
_WRITTEN = {
    "iso": _written(
        r"(?P<year>\d{4})[-/.](?P<month>\d{1,2})[-/.](?P<day>\d{1,2})",
        r"(?P<year>\d{4})[-/](?P<month>\d{1,2})(?P<day>)",
    ),
    "dmy": _written(_WEEKDAY + _IN_NUMBERS.format("day", "month")),
    "mdy": _written(_WEEKDAY + _IN_NUMBERS.format("month", "day")),
    "named": (
        *_written(
            rf"\[?{_WEEKDAY}(?P<day>\d{{1,2}})(?:\.\s*|[ /-]){_NAME},?[ /-](?P<year>\d{{4}})",
            rf"{_WEEKDAY}{_NAME}\s+(?P<day>\d{{1,2}}),?\s+(?P<year>\d{{4}})",
        ),
        re.compile(
            rf"\s*{_WEEKDAY}{_NAME}\s+(?P<day>\d{{1,2}})\s+{_CLOCK}(?:\s+{_OFFSET})?\s+(?P<year>\d{{4}})\s*\Z",
            re.IGNORECASE | re.ASCII,
        ),
    ),
}
_HAS_ZONE = re.compile(
    rf":\d{{2}}(?:[.,]\d+)?\s*(?:[ap]\.?m\.?)?\s*(?:{_OFFSET}|[+-]\d{{2}})(?:\s+\d{{4}})?\]?\s*\Z", re.I
)
_COMPACT_ZONE = re.compile(r"T\d{4,6}(?:[.,]\d+)?(?:Z|[+-]\d{2}(?::?\d{2})?)\s*\Z")


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
    """The format most of `cells` have, `AMBIGUOUS_DATES` where days and months cannot be told apart, or None if they
    are not times.

    Digits that all are calendar times of one width are that. Other numbers count as times from 1973 on (in seconds):
    smaller ones are rather counts.
    """
    if not cells:
        return None
    numbers = sorted(float(cell) for cell in cells if _DIGITS.match(cell))
    if len(numbers) >= 0.9 * len(cells):
        if _is_calendar(cells):
            return "digits"
        middle = numbers[len(numbers) // 2]
        for name, upper in (("unix_s", 1e11), ("unix_ms", 1e14), ("unix_us", 1e17), ("unix_ns", 1e20)):
            if upper / 1e3 <= middle < upper:
                return name
        return None
    shares = {name: _readable_share(name, cells) for name in ("iso", "named", "dmy", "mdy")}
    for name in ("iso", "named"):
        if shares[name] >= 0.9:
            return name
    if max(shares["dmy"], shares["mdy"]) < 0.9:
        return None
    if shares["dmy"] != shares["mdy"]:
        return "dmy" if shares["dmy"] > shares["mdy"] else "mdy"
    # Every day is a month too. Dots stand between days and months alone.
    return "dmy" if all("/" not in cell and "-" not in cell.strip()[:6] for cell in cells) else AMBIGUOUS_DATES


def _is_calendar(cells: list[str]) -> bool:
    """Whether nine of ten cells, or more, are calendar times of one width and no other number has that width."""
    texts = [cell.strip() for cell in cells]
    width = len(texts[len(texts) // 2])
    if width not in _CALENDAR_WIDTHS:
        return False
    parse = parser_of("digits", UTC)
    of_width = [text for text in texts if text.isdigit() and len(text) == width]
    return len(of_width) >= 0.9 * len(texts) and all(_reads(parse, text) for text in of_width)


def _readable_share(time_format: str, cells: list[str]) -> float:
    parse = parser_of(time_format, UTC)
    if not any(_reads(parse, cell) for cell in cells[:20]):  # most columns are no times of most formats
        return 0.0
    return sum(_reads(parse, cell) for cell in cells) / len(cells)


def time_format_fault(time_format: str) -> str | None:
    """Fault of a format's name, if there is one."""
    if time_format in TIME_FORMATS:
        return None
    return f"time_format is {time_format!r}; allowed are {', '.join(TIME_FORMATS)}"


def parser_of(time_format: str, zone: tzinfo) -> Callable[[str], float]:
    """A function from a cell to unix seconds; it raises ValueError for what is no time of the format.

    `zone` is taken for times that name none. A local time that occurs twice (clocks set back) is the first of both:
    `resolve_local_times` tells them apart by their order.
    """
    if time_format in _PER_SECOND:
        return _number_parser(_PER_SECOND[time_format])
    if fault := time_format_fault(time_format):
        raise Malformed(f"{fault}.", [("time_format", fault)])
    utc = zone is UTC or getattr(zone, "key", "") == "UTC"
    moment_of = {"iso": _iso_moment, "digits": _digits_moment}.get(time_format) or _written_parser(time_format)

    def parse(cell: str) -> float:
        moment = moment_of(cell)
        if moment.tzinfo is None and utc:
            seconds = (moment - _EPOCH).total_seconds()
        else:
            zoned = moment if moment.tzinfo is not None else moment.replace(tzinfo=zone)
            seconds = (zoned - _EPOCH_UTC).total_seconds()
        if not _FIRST_S <= seconds < _END_S:
            raise ValueError(cell)
        return seconds

    return parse


def _iso_moment(cell: str) -> datetime:
    try:
        return datetime.fromisoformat(cell.strip())
    except ValueError:
        return _written_iso(cell)


def _digits_moment(cell: str) -> datetime:
    text = cell.strip()
    pattern = _CALENDAR_WIDTHS.get(len(text))
    if pattern is None or not (text.isascii() and text.isdigit()):
        raise ValueError(cell)
    day = (int(text[:4]), int(text[4:6]), int(text[6:8]))
    clock = [int(text[i : i + 2] or 0) for i in (8, 10, 12)]
    if day[0] not in _CALENDAR_YEARS:
        raise ValueError(cell)
    return datetime(*day, *clock, int(text[14:] or 0) * 1000)  # type: ignore[arg-type,misc] # noqa: DTZ001


def _written_parser(time_format: str) -> Callable[[str], datetime]:
    patterns = _WRITTEN[time_format]

    def parse(cell: str) -> datetime:
        if len(cell) > _MAX_WRITTEN:
            raise ValueError(cell[:_MAX_WRITTEN])
        parts = next((found for pattern in patterns if (found := pattern.match(cell.replace("]", "")))), None)
        if parts is None:
            raise ValueError(cell)
        return _moment_of_parts(parts.groupdict())

    return parse


def _moment_of_parts(parts: dict[str, str | None]) -> datetime:
    year = int(parts["year"] or 0)
    if year < 100:  # as POSIX has it: 69 to 99 are of the last century
        year += 1900 if year >= 69 else 2000
    name = parts.get("name")
    month = _MONTHS.index(name.lower()) + 1 if name else int(parts.get("month") or 0)
    hour, half = int(parts["hour"] or 0), (parts["half"] or "")[:1].lower()
    if half:
        if not 1 <= hour <= 12:
            raise ValueError(f"{hour} {half}m")
        hour = hour % 12 + (12 if half == "p" else 0)
    part = int((parts["part"] or "")[:6].ljust(6, "0"))
    zone = _zone_of_text(parts["zone"])
    return datetime(
        year,
        month,
        int(parts["day"] or 1),
        hour,
        int(parts["minute"] or 0),
        int(parts["second"] or 0),
        part,
        tzinfo=zone,
    )


def _zone_of_text(text: str | None) -> tzinfo | None:
    if text is None:
        return None
    offset = text.upper().removeprefix("UTC").removeprefix("GMT").strip().replace(":", "")
    if offset in ("", "Z"):
        return UTC
    minutes = int(offset[1:3]) * 60 + int(offset[3:])
    return timezone(timedelta(minutes=-minutes if offset[0] == "-" else minutes))


_written_iso = _written_parser("iso")


def is_time(cell: str, time_format: str) -> bool:
    """Whether a cell is a time of a format, or of either where days and months cannot be told apart."""
    names = ("dmy", "mdy") if time_format == AMBIGUOUS_DATES else (time_format,)
    return any(_reads(parser_of(name, UTC), cell) for name in names)


def has_zone(cell: str) -> bool:
    """Whether a time names its own offset from UTC."""
    return bool(_HAS_ZONE.search(cell) or _COMPACT_ZONE.search(cell))


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


_DAY_S = 86_400.0


@dataclass(frozen=True)
class _ClockChange:
    """Change of a zone's clocks at `at_s` (unix seconds), by `by_s` (below 0: set back)."""

    at_s: float
    by_s: float
    offset_s: float  # before


def resolve_local_times(
    times: FloatArray, cells: list[str], zone: tzinfo, naive_of: Callable[[str], float]
) -> tuple[FloatArray, list[str]]:
    """Times of lines, in the order of the file, with the second of two equal hours where the order tells it.

    Parameters
    ----------
    times : ndarray, shape (n,)
        Unix seconds in the order of lines; a local time that comes twice is the first of both.
    cells : list of str
        Their texts: those that name an offset stay as they are.
    naive_of : callable
        A text as seconds of its own clock.

    Returns
    -------
    tuple
        The times, and what is to be told.
    """
    notes: list[str] = []
    if len(times) < 2:
        return times, notes
    forward = (np.diff(times) >= 0).mean() >= 0.5
    order = slice(None) if forward else slice(None, None, -1)
    times, cells = times[order].copy(), cells[order]
    for change in _clock_changes(times, zone):
        if change.by_s < 0:
            notes += _tell_apart(times, cells, change, zone)
        else:
            notes += _missing_hour(times, cells, change, zone, naive_of)
    return times[order], notes


def _clock_changes(times: FloatArray, zone: tzinfo) -> list[_ClockChange]:
    """Changes of the clocks on the days of `times`, a day more at either end."""
    days = np.unique(np.floor(times / _DAY_S))
    days = np.unique(np.concatenate([days - 1, days, days + 1]))
    offsets = {day: _offset_s(zone, day * _DAY_S) for day in np.unique(np.concatenate([days, days + 1])).tolist()}
    changes = []
    for day in days.tolist():
        before, after = offsets[day], offsets[day + 1]
        if before != after:
            low, high = day * _DAY_S, (day + 1) * _DAY_S
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if _offset_s(zone, middle) == before else (low, middle)
            changes.append(_ClockChange(high, after - before, before))
    return changes


def _offset_s(zone: tzinfo, at_s: float) -> float:
    offset = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=at_s)).astimezone(zone).utcoffset()
    return offset.total_seconds() if offset is not None else 0.0


def _tell_apart(times: FloatArray, cells: list[str], change: _ClockChange, zone: tzinfo) -> list[str]:
    """Move lines of the second of two equal hours, in place.

    It begins where the local time jumps back within that hour: by half of it or more, or by anything if the file is in
    order elsewhere; and where a time comes more often than every other time does. Where the hour is there once, it is
    the one that is joined to the rest of the file.
    """
    twice_s = -change.by_s
    inside = (times >= change.at_s - twice_s) & (times < change.at_s)
    places = np.flatnonzero(inside)
    places = places[[not has_zone(cells[i]) for i in places.tolist()]] if len(places) else places
    if not len(places):
        return []
    inside = np.zeros(len(times), dtype=bool)
    inside[places] = True
    steps = np.diff(times)
    elsewhere = steps[~(inside[1:] | inside[:-1])]
    in_order = bool((elsewhere >= 0).all())
    begins = iso_utc(change.at_s - twice_s + change.offset_s)[:16].replace("T", " ")
    hour = f"The hour from {begins} comes twice in {getattr(zone, 'key', 'this zone')}"
    if not in_order and (elsewhere < 0).mean() > 0.1:
        return [f"{hour}, and the lines keep no order: {counted(len(places), 'line')} of it count as the first."]
    second = _second_pass(times, inside, twice_s, in_order)
    if not second.any() and not (times[: places[0]] < change.at_s - twice_s).any() and places[-1] + 1 < len(times):
        second = inside  # nothing comes before: what is there is joined to the hours after
    times[second] += twice_s
    if second.any():
        return [f"{hour}: by the order of lines {counted(int(second.sum()), 'line')} count as the second."]
    return [f"{hour}: the lines do not jump back, so that {counted(len(places), 'line')} of it count as the first."]


def _second_pass(
    times: FloatArray, inside: npt.NDArray[np.bool_], twice_s: float, in_order: bool
) -> npt.NDArray[np.bool_]:
    second = np.zeros(len(times), dtype=bool)
    _, repeats = np.unique(times[~inside], return_counts=True)
    usual = int(repeats[0]) if len(repeats) > 1 and (repeats == repeats[0]).all() else len(times)
    places = np.flatnonzero(inside)
    ends_s = float(times[places].max()) + 2 * twice_s
    before, is_second, run = int(places[0]), False, 0
    for place in places.tolist():
        between = times[before + 1 : place]
        if len(between) and ((between < ends_s - 4 * twice_s) | (between > ends_s)).any():
            is_second, run = False, 0  # the file left that hour and came back: another series begins
        else:
            back_s = times[before] - times[place]
            run = run + 1 if back_s == 0 else 1
            if back_s >= 0.5 * twice_s or (in_order and back_s > 0) or run > usual:
                is_second = True
        second[place] = is_second
        before = place
    return second


def _missing_hour(
    times: FloatArray, cells: list[str], change: _ClockChange, zone: tzinfo, naive_of: Callable[[str], float]
) -> list[str]:
    """Lines whose local time the clocks jump over."""
    near = np.flatnonzero((times >= change.at_s) & (times < change.at_s + change.by_s)).tolist()
    begins = change.at_s + change.offset_s
    missing = [i for i in near if not has_zone(cells[i]) and begins <= naive_of(cells[i]) < begins + change.by_s]
    if not missing:
        return []
    name = getattr(zone, "key", "the zone")
    return [
        f"{counted(len(missing), 'line')} from {cells[missing[0]].strip()} on: {name} has no such time, its clocks are "
        f"set forward there. They count {change.by_s / 60:g} min later; if the file's clock never changes, choose a "
        "zone without summer time."
    ]
