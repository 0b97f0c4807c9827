"""Uploaded tables as traces of arrivals, read with given columns: their lines, and every fault of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from apps.core.errors import Malformed, TooLarge
from apps.core.limits import MAX_TRACE_ROWS
from apps.queries.arrivals.grid import EventCounts, EventStamps, Trace
from apps.queries.arrivals.numerals import (
    COUNT_KINDS,
    DECIMAL_MARKS,
    NumberStyle,
    differences,
    find_count_kind,
    find_number_style,
    rate_seconds,
)
from apps.queries.arrivals.text import TableLayout, find_layout, open_text, rows_of
from apps.queries.arrivals.times import (
    AMBIGUOUS_DATES,
    NUMBER_FORMATS,
    TIME_FORMATS,
    format_of,
    iso_utc,
    parser_of,
    resolve_local_times,
    time_format_fault,
    zone_of,
)
from engine.arrays import FloatArray
from engine.records import Record
from engine.words import counted

__all__ = [
    "SAMPLE_ROWS",
    "LineProblem",
    "TraceReading",
    "numbers_of",
    "read_trace",
]


SHOWN_PROBLEMS = 20
SAMPLE_ROWS = 1000
_STYLE_ROWS = 50_000
_PLAUSIBLE_FROM_S = 631_152_000.0  # 1990
_PLAUSIBLE_AHEAD_S = 5 * 366 * 86_400.0
_ODD_PEAK = 1000.0
_MIN_PEAK_COUNTS = 10
_SUM_NAMES = ("total", "totals", "sum", "aggregated", "grand total", "subtotal", "summe", "gesamt", "all")
# As they are written, so that a line is compared at once.
_SUM_WORDS = frozenset(
    f"{word}{end}" for name in _SUM_NAMES for word in (name, name.title(), name.upper()) for end in ("", ":")
)


@dataclass(frozen=True)
class LineProblem(Record):
    """A cell or line that cannot be used."""

    line: int
    column: str
    value: str
    message: str

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}: {self.value!r} {self.message}"


@dataclass(frozen=True)
class TraceReading:
    """Content of a table. With problems, `trace` holds the good lines only and must not be stored as if complete."""

    trace: Trace | None
    rows: int
    step_s: float | None
    problems: tuple[LineProblem, ...]
    problems_total: int
    notes: tuple[str, ...]
    time_format: str | None = None
    count_kind: str | None = None


def read_trace(
    file: BinaryIO,
    *,
    limit_bytes: int,
    time_column: str,
    count_column: str | None = None,
    time_zone: str = "UTC",
    time_format: str | None = None,
    count_kind: str | None = None,
    decimal_mark: str | None = None,
    now_s: float | None = None,
) -> TraceReading:
    """Read a table with the given columns, each line one event or one count.

    `count_kind`, `decimal_mark` and `time_format` are found out unless given; `now_s` is the time that others are
    compared with to tell implausible ones.

    Raises
    ------
    Malformed
        The file is no table, has no such column, or its times or counts have no known format, or more than one.
    TooLarge
        It has more than `MAX_TRACE_ROWS` lines, or its text is longer than `limit_bytes`.
    """
    _check_choices(time_format, count_kind, decimal_mark, count_column)
    zone = zone_of(time_zone)
    layout = find_layout(open_text(file, limit_bytes=limit_bytes))
    places = _places(layout, time_column, count_column)
    problems = _Problems()
    lines, cells, is_sum = _cells(rows_of(open_text(file, limit_bytes=limit_bytes), layout), layout, places, problems)
    time_format = time_format or _format_of_column(time_column, cells[0])
    times, bad = numbers_of(cells[0], parser_of(time_format, zone))
    notes = list(layout.notes)
    kept = ~(is_sum & bad)  # a line of sums under the table has no time
    if not kept.all():
        notes.append(f"{counted(int((~kept).sum()), 'line')} of sums without a time left out.")
        places_kept = np.flatnonzero(kept).tolist()
        lines, cells = [lines[i] for i in places_kept], [[column[i] for i in places_kept] for column in cells]
        times, bad, is_sum = times[kept], bad[kept], is_sum[kept]
    problems.add(lines, bad, time_column, cells[0], f"is not a time ({time_format}) of the years 1900 to 5137")
    notes += _format_notes(time_format)
    if time_format not in NUMBER_FORMATS and time_zone != "UTC":
        good = np.flatnonzero(~bad).tolist()
        good_cells = [cells[0][i] for i in good]
        times[good], told = resolve_local_times(times[good], good_cells, zone, parser_of(time_format, UTC))
        notes += told
    counts, style = None, NumberStyle()
    if count_column is not None:
        style = _number_style(count_column, cells[1], layout.delimiter, decimal_mark)
        notes += style.notes
        counts, bad_counts = numbers_of(cells[1], style.count_of)
        problems.add(lines, bad_counts, count_column, cells[1], "is not a count; allowed is a number from 0 to 1e12")
        bad |= bad_counts
        counts = counts[~bad]
        kept = ~_sums_of_others(times[~bad], counts, is_sum[~bad], notes)
        times, counts = times[~bad][kept], counts[kept]
    else:
        times = times[~bad]
    notes += _plausibility_notes(times, time.time() if now_s is None else now_s)
    asked = _CountColumn(count_column or "", count_kind, style.per_s)
    return _reading(times, counts, asked, time_format, len(lines), problems, notes)


def _check_choices(
    time_format: str | None, count_kind: str | None, decimal_mark: str | None, count_column: str | None
) -> None:
    faults = []
    if time_format and (fault := time_format_fault(time_format)):
        faults.append(("time_format", fault))
    for name, value, allowed in (
        ("count_kind", count_kind, COUNT_KINDS),
        ("decimal_mark", decimal_mark, DECIMAL_MARKS),
    ):
        if value and value not in allowed:
            faults.append((name, f"{name} is {value!r}; allowed are {', '.join(allowed)}"))
        elif value and count_column is None:
            faults.append((name, f"{name} is {value!r}, which has no meaning without a count_column"))
    if faults:
        raise Malformed(f"{faults[0][1]}.", faults)


def _format_of_column(time_column: str, cells: list[str]) -> str:
    time_format = format_of([cell for cell in cells[:SAMPLE_ROWS] if cell.strip()])
    if time_format == AMBIGUOUS_DATES:
        time_format = format_of(cells)
    if time_format == AMBIGUOUS_DATES:
        message = (
            f"dates of column {time_column!r} such as {cells[0].strip()} may have the day or the month first, and no "
            "value above 12 tells; choose dmy or mdy"
        )
        raise Malformed(f"time_format: {message}.", [("time_format", message)])
    if time_format is None:
        message = f"the values of column {time_column!r} are not times of one known format"
        raise Malformed(f"time_column: {message}.", [("time_column", message)])
    return time_format


def _format_notes(time_format: str) -> list[str]:
    if time_format in {"digits", "dmy", "mdy"}:
        return [f"Times are read as {TIME_FORMATS[time_format]}."]
    return []


def _plausibility_notes(times: FloatArray, now_s: float) -> list[str]:
    """Times before 1990 or years from now are rather misread."""
    if not len(times):
        return []
    first, last = float(times.min()), float(times.max())
    if first >= _PLAUSIBLE_FROM_S and last <= now_s + _PLAUSIBLE_AHEAD_S:
        return []
    return [f"The times lie between {iso_utc(first)} and {iso_utc(last)}: is their format right?"]


def _number_style(count_column: str, cells: list[str], delimiter: str, decimal_mark: str | None) -> NumberStyle:
    style = find_number_style(cells[:_STYLE_ROWS], delimiter, decimal_mark or "")
    if style is None:
        return NumberStyle()  # what is no number is told line by line
    if style.is_ambiguous and delimiter == ";":
        message = (
            f"numbers of column {count_column!r} such as {cells[0].strip()} may have a separator of thousands or of "
            "fractions; choose decimal_mark: point or comma"
        )
        raise Malformed(f"decimal_mark: {message}.", [("decimal_mark", message)])
    return style


def _sums_of_others(
    times: FloatArray, counts: FloatArray, is_sum: npt.NDArray[np.bool_], notes: list[str]
) -> npt.NDArray[np.bool_]:
    """Lines that are called a total and hold the sum of the other lines of their time."""
    if not is_sum.any() or is_sum.all():
        return np.zeros(len(times), dtype=bool)
    shared = is_sum & np.isin(times, times[~is_sum])
    whole, parts = counts[shared].sum(), counts[~is_sum & np.isin(times, times[shared])].sum()
    if shared.any() and abs(whole - parts) <= 0.02 * max(whole, parts):
        notes.append(
            f"{counted(int(shared.sum()), 'line')} of sums left out: they add up the other lines of their time."
        )
        return shared
    notes.append(
        f"{counted(int(is_sum.sum()), 'line')} called a total count like any other: they are no sums of others."
    )
    return np.zeros(len(times), dtype=bool)


@dataclass
class _Problems:
    listed: list[LineProblem] = field(default_factory=list)
    total: int = 0

    def add(self, lines: Sequence[int], bad: npt.NDArray[np.bool_], column: str, cells: list[str], why: str) -> None:
        places = np.flatnonzero(bad)
        self.total += len(places)
        self.listed += [LineProblem(lines[i], column, cells[i][:60], why) for i in places[:SHOWN_PROBLEMS].tolist()]

    def first(self) -> tuple[LineProblem, ...]:
        return tuple(sorted(self.listed, key=lambda problem: problem.line)[:SHOWN_PROBLEMS])


def _places(layout: TableLayout, time_column: str, count_column: str | None) -> list[int]:
    columns = {"time_column": time_column} | ({"count_column": count_column} if count_column is not None else {})
    missing = [(key, name) for key, name in columns.items() if name not in layout.columns]
    if missing:
        allowed = ", ".join(layout.columns)
        faults = [(key, f"there is no column {name!r}; the file has {allowed}") for key, name in missing]
        raise Malformed(f"{faults[0][0]}: {faults[0][1]}.", faults)
    return [layout.columns.index(name) for name in columns.values()]


def _cells(
    rows: Any, layout: TableLayout, places: list[int], problems: _Problems
) -> tuple[list[int], list[list[str]], npt.NDArray[np.bool_]]:
    """Line numbers, the cells of the wanted columns, and which lines are called a total; lines of another width are
    noted and left out.
    """
    width, lines, cells = len(layout.columns), [], [[] for _ in places]  # type: ignore[var-annotated]
    sums: list[int] = []
    appends = [(kept.append, place) for kept, place in zip(cells, places, strict=True)]
    for line, row in rows:
        if len(row) != width:
            problems.total += 1
            if len(problems.listed) < SHOWN_PROBLEMS:
                shown = layout.delimiter.join(row)[:60]
                problems.listed.append(LineProblem(line, "(line)", shown, f"has {len(row)} columns; allowed: {width}"))
            continue
        if not _SUM_WORDS.isdisjoint(row):
            sums.append(len(lines))
        lines.append(line)
        for append, place in appends:
            append(row[place])
        if len(lines) > MAX_TRACE_ROWS:
            message = f"has more than {MAX_TRACE_ROWS:,} lines"
            raise TooLarge(f"The file {message}, which is the limit.", [("file", message)])
    is_sum = np.zeros(len(lines), dtype=bool)
    is_sum[sums] = True
    return lines, cells, is_sum


def numbers_of(cells: list[str], parse: Callable[[str], float]) -> tuple[FloatArray, npt.NDArray[np.bool_]]:
    """Every cell as a number, and which cells could not be read (their number is 0)."""
    bad = np.zeros(len(cells), dtype=bool)
    try:
        return np.array([parse(cell) for cell in cells], dtype=np.float64), bad
    except ValueError:
        values = np.zeros(len(cells))
        for i, cell in enumerate(cells):
            try:
                values[i] = parse(cell)
            except (ValueError, OverflowError):
                bad[i] = True
        return values, bad


@dataclass(frozen=True)
class _CountColumn:
    """A column of counts: its name, the kind that was asked for, and the seconds that its unit divides by."""

    name: str
    kind: str | None
    per_s: float | None


def _reading(
    times: FloatArray,
    counts: FloatArray | None,
    column: _CountColumn,
    time_format: str,
    rows: int,
    problems: _Problems,
    notes: list[str],
) -> TraceReading:
    if len(times) > 1 and (np.diff(times) < 0).any():
        notes.append("The lines were not in order of time; they were sorted.")
        order = np.argsort(times, kind="stable")
        times, counts = times[order], None if counts is None else counts[order]
    trace: Trace | None = None
    step_s = kind = None
    if counts is not None and len(times):
        trace, step_s, kind = _counts_trace(times, counts, column, notes)
    elif len(times):
        trace = EventStamps(times)
    return TraceReading(trace, rows, step_s, problems.first(), problems.total, tuple(notes), time_format, kind)


def _counts_trace(
    times: FloatArray, numbers: FloatArray, column: _CountColumn, notes: list[str]
) -> tuple[EventCounts, float, str]:
    unique, where, repeats = np.unique(times, return_inverse=True, return_counts=True)
    if len(unique) < 2:
        message = "counts need at least two different times, to tell how long one count lasts"
        raise Malformed(f"file: {message}.", [("file", message)])
    values = np.bincount(where, weights=numbers).astype(np.float64)
    kind = column.kind
    if not kind:
        found = find_count_kind(column.name, column.per_s, values)
        kind = found.name
        notes += found.notes
    if len(unique) < len(times):
        words = {"count": "counts", "total": "running totals"}.get(kind, "rates")
        notes.append(f"{len(times) - len(unique)} lines repeat the time of another; their {words} were added.")
    gaps = np.diff(unique)
    step_s = float(np.median(gaps))
    if kind == "total":
        starts, widths, counts, told = differences(unique, values, repeats)
        notes += told
    else:
        notes += _gap_notes(unique, gaps, step_s)
        starts, widths = unique, np.append(np.minimum(gaps, step_s), step_s)
        per_s = rate_seconds(kind)
        counts = values if per_s is None else values * widths / per_s
    notes += _peak_notes(starts, counts / widths)
    return EventCounts(starts, widths, counts), step_s, kind


def _gap_notes(times: FloatArray, gaps: FloatArray, step_s: float) -> list[str]:
    notes = []
    long = gaps > 1.5 * step_s
    if long.any():
        missing = int(np.round(gaps[long] / step_s - 1).sum())
        first = iso_utc(float(times[:-1][long][0] + step_s)).replace("T", " ").replace("Z", " UTC")
        gaps_text, steps_text = counted(int(long.sum()), "gap"), counted(missing, "step")
        notes.append(
            f"{gaps_text}: {steps_text} of {step_s:g} s without a count, taken as 0 events; "
            f"the first gap begins at {first}, the longest lasts {float(gaps.max()) - step_s:g} s."
        )
    if (np.abs(gaps / step_s - np.round(gaps / step_s)) > 0.01).mean() > 0.1:
        notes.append(f"The times keep no regular step; each count is spread over at most {step_s:g} s, their median.")
    return notes


def _peak_notes(starts: FloatArray, rates: FloatArray) -> list[str]:
    """A peak that is a thousand times what is usual is rather a slip of the table."""
    usual = float(np.median(rates[rates > 0])) if (rates > 0).any() else 0.0
    peak = int(np.argmax(rates))
    if len(rates) < _MIN_PEAK_COUNTS or not usual or rates[peak] < _ODD_PEAK * usual:
        return []
    at = iso_utc(float(starts[peak])).replace("T", " ").replace("Z", " UTC")
    return [f"The count at {at} is {rates[peak] / usual:,.0f} times the median: is it right?"]
