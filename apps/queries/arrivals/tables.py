"""Uploaded tables as traces of arrivals: a preview of their columns, then their lines with every fault."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from apps.core.errors import Malformed, TooLarge
from apps.core.limits import MAX_EVENTS_PER_COUNT, MAX_TRACE_ROWS
from apps.queries.arrivals.grid import EventCounts, EventStamps, Trace
from apps.queries.arrivals.text import TableLayout, find_layout, open_text, rows_of
from apps.queries.arrivals.times import NUMBER_FORMATS, format_of, iso_utc, parser_of, zone_of
from engine.arrays import FloatArray
from engine.words import counted

__all__ = [
    "SAMPLE_ROWS",
    "Inspection",
    "LineProblem",
    "TraceReading",
    "UploadColumn",
    "count_of",
    "inspect_table",
    "numbers_of",
    "read_trace",
]


SHOWN_PROBLEMS = 20
SAMPLE_ROWS = 1000


@dataclass(frozen=True)
class LineProblem:
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


def read_trace(
    file: BinaryIO,
    *,
    limit_bytes: int,
    time_column: str,
    count_column: str | None = None,
    time_zone: str = "UTC",
    time_format: str | None = None,
) -> TraceReading:
    """Read a table with the given columns, each line one event or one count.

    Raises
    ------
    Malformed
        The file is no table, has no such column, or its times have no known format.
    TooLarge
        It has more than `MAX_TRACE_ROWS` lines, or its text is longer than `limit_bytes`.
    """
    layout = find_layout(open_text(file, limit_bytes=limit_bytes))
    places = _places(layout, time_column, count_column)
    problems = _Problems()
    lines, cells = _cells(rows_of(open_text(file, limit_bytes=limit_bytes), layout), layout, places, problems)
    time_format = time_format or format_of(cells[0][:SAMPLE_ROWS])
    if time_format is None:
        message = f"the values of column {time_column!r} are not times of one known format"
        raise Malformed(f"time_column: {message}.", [("time_column", message)])
    times, bad = numbers_of(cells[0], parser_of(time_format, zone_of(time_zone)))
    problems.add(lines, bad, time_column, cells[0], f"is not a time ({time_format}) of the years 1900 to 5137")
    counts = None
    if count_column is not None:
        counts, bad_counts = numbers_of(cells[1], count_of)
        problems.add(lines, bad_counts, count_column, cells[1], "is not a count; allowed is a number from 0 to 1e12")
        bad |= bad_counts
        counts = counts[~bad]
    return _reading(times[~bad], counts, len(lines), lines, problems)


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


def _cells(rows: Any, layout: TableLayout, places: list[int], problems: _Problems) -> tuple[list[int], list[list[str]]]:
    """Line numbers and the cells of the wanted columns; lines of another width are noted and left out."""
    width, lines, cells = len(layout.columns), [], [[] for _ in places]  # type: ignore[var-annotated]
    appends = [(kept.append, place) for kept, place in zip(cells, places, strict=True)]
    for line, row in rows:
        if len(row) != width:
            problems.total += 1
            if len(problems.listed) < SHOWN_PROBLEMS:
                shown = layout.delimiter.join(row)[:60]
                problems.listed.append(LineProblem(line, "(line)", shown, f"has {len(row)} columns; allowed: {width}"))
            continue
        lines.append(line)
        for append, place in appends:
            append(row[place])
        if len(lines) > MAX_TRACE_ROWS:
            message = f"has more than {MAX_TRACE_ROWS:,} lines"
            raise TooLarge(f"The file {message}, which is the limit.", [("file", message)])
    return lines, cells


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


def count_of(cell: str) -> float:
    """A cell as a number of events, 0 to `MAX_EVENTS_PER_COUNT`; ValueError for anything else."""
    value = float(cell)
    # The comparison is also false for NaN; float() takes underscores, people do not write them in tables.
    if not 0 <= value <= MAX_EVENTS_PER_COUNT or "_" in cell:
        raise ValueError(cell)
    return value


def _reading(
    times: FloatArray, counts: FloatArray | None, rows: int, lines: Sequence[int], problems: _Problems
) -> TraceReading:
    notes: list[str] = []
    if len(times) > 1 and (np.diff(times) < 0).any():
        notes.append("The lines were not in order of time; they were sorted.")
        order = np.argsort(times, kind="stable")
        times, counts = times[order], None if counts is None else counts[order]
    trace: Trace | None = None
    step_s = None
    if counts is not None and len(times):
        trace, step_s = _counts_trace(times, counts, notes)
    elif len(times):
        trace = EventStamps(times)
    return TraceReading(trace, rows, step_s, problems.first(), problems.total, tuple(notes))


def _counts_trace(times: FloatArray, counts: FloatArray, notes: list[str]) -> tuple[EventCounts, float]:
    unique, where = np.unique(times, return_inverse=True)
    if len(unique) < len(times):
        notes.append(f"{len(times) - len(unique)} lines repeat the time of another; their counts were added.")
    if len(unique) < 2:
        message = "counts need at least two different times, to tell how long one count lasts"
        raise Malformed(f"file: {message}.", [("file", message)])
    gaps = np.diff(unique)
    step_s = float(np.median(gaps))
    long = gaps > 1.5 * step_s
    if long.any():
        missing = int(np.round(gaps[long] / step_s - 1).sum())
        first = iso_utc(float(unique[:-1][long][0] + step_s)).replace("T", " ").replace("Z", " UTC")
        gaps_text, steps_text = counted(int(long.sum()), "gap"), counted(missing, "step")
        notes.append(
            f"{gaps_text}: {steps_text} of {step_s:g} s without a count, taken as 0 events; "
            f"the first gap begins at {first}, the longest lasts {float(gaps.max()) - step_s:g} s."
        )
    if (np.abs(gaps / step_s - np.round(gaps / step_s)) > 0.01).mean() > 0.1:
        notes.append(f"The times keep no regular step; each count is spread over at most {step_s:g} s, their median.")
    widths = np.append(np.minimum(gaps, step_s), step_s)
    return EventCounts(unique, widths, np.bincount(where, weights=counts).astype(np.float64)), step_s


PREVIEW_ROWS = 10
_TIME_NAMES = re.compile(r"time|date|stamp|period|when|^ts$|^t$", re.IGNORECASE)
_COUNT_NAMES = re.compile(
    r"count|value|events|requests|hits|total|volume|records|messages|number|^n$|^qty$", re.IGNORECASE
)


@dataclass(frozen=True)
class UploadColumn:
    """A column of an uploaded table: `kind` is time, number or text."""

    name: str
    kind: str
    time_format: str | None = None


@dataclass(frozen=True)
class Inspection:
    """An uploaded table before anything of it is stored: its columns, a proposal, and what reading it so would give."""

    columns: tuple[UploadColumn, ...]
    preview: tuple[tuple[str, ...], ...]
    delimiter: str
    has_header: bool
    time_column: str | None
    time_format: str | None
    count_column: str | None
    rows: int = 0
    starts_at: str | None = None
    ends_at: str | None = None
    span_s: float | None = None
    step_s: float | None = None
    events: float | None = None
    problems: tuple[LineProblem, ...] = ()
    problems_total: int = 0
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """As REST shows it."""
        return asdict(self)


def inspect_table(file: BinaryIO, *, limit_bytes: int, time_zone: str = "UTC") -> Inspection:
    """Look at a table: propose a time column and a count column, and read it whole with them.

    A count column is proposed where a column is named like one or the times keep a regular step; otherwise every line
    is one event.
    """
    text = open_text(file, limit_bytes=limit_bytes)
    layout = find_layout(text)
    sample = [row for _, row in islice(rows_of(open_text(file, limit_bytes=limit_bytes), layout), SAMPLE_ROWS)]
    columns = tuple(_column(name, [row[i] for row in sample if i < len(row)]) for i, name in enumerate(layout.columns))
    time = _propose_time(columns)
    count = _propose_count(columns, time, sample) if time else None
    inspection = Inspection(
        columns=columns,
        preview=tuple(tuple(row) for row in sample[:PREVIEW_ROWS]),
        delimiter=layout.delimiter,
        has_header=layout.has_header,
        time_column=time.name if time else None,
        time_format=time.time_format if time else None,
        count_column=count.name if count else None,
        rows=len(sample),
    )
    if time is None:
        return replace(inspection, notes=("No column looks like a time. Choose one and its format.",))
    count_column = count.name if count else None
    try:
        reading = read_trace(
            file, limit_bytes=limit_bytes, time_column=time.name, count_column=count_column, time_zone=time_zone
        )
    except Malformed as error:  # the proposal does not work; another choice of columns may
        return replace(inspection, notes=(error.message,))
    return _with_reading(inspection, reading)


def _column(name: str, cells: list[str]) -> UploadColumn:
    cells = [cell for cell in cells if cell.strip()]
    time_format = format_of(cells)
    if time_format:
        return UploadColumn(name, "time", time_format)
    _, bad = numbers_of(cells, count_of)
    return UploadColumn(name, "number" if len(cells) and bad.mean() <= 0.1 else "text")


def _propose_time(columns: Sequence[UploadColumn]) -> UploadColumn | None:
    """ISO before numbers (large counts look like unix times), a telling name before another, then the first."""
    times = [column for column in columns if column.kind == "time"]
    return max(
        times, key=lambda column: (column.time_format == "iso", bool(_TIME_NAMES.search(column.name))), default=None
    )


def _propose_count(columns: Sequence[UploadColumn], time: UploadColumn, sample: list[list[str]]) -> UploadColumn | None:
    others = [column for column in columns if column is not time]
    numbers = [column for column in others if column.kind == "number" or column.time_format in NUMBER_FORMATS]
    named = [column for column in numbers if _COUNT_NAMES.search(column.name)]
    if named or not numbers:
        return named[0] if named else None
    place = columns.index(time)
    times, bad = numbers_of(
        [row[place] for row in sample if place < len(row)], parser_of(time.time_format or "iso", zone_of("UTC"))
    )
    gaps = np.diff(times[~bad])
    regular = len(gaps) > 2 and (np.abs(gaps - np.median(gaps)) <= 0.01 * abs(np.median(gaps))).mean() > 0.8
    return numbers[0] if regular and np.median(gaps) > 0 else None


def _with_reading(inspection: Inspection, reading: TraceReading) -> Inspection:
    trace = reading.trace
    span: dict[str, Any] = {}
    if trace is not None:
        span = {
            "starts_at": iso_utc(trace.start_s),
            "ends_at": iso_utc(trace.end_s),
            "span_s": trace.end_s - trace.start_s,
            "events": trace.total,
        }
    return replace(
        inspection,
        rows=reading.rows,
        step_s=reading.step_s,
        problems=reading.problems,
        problems_total=reading.problems_total,
        notes=reading.notes,
        **span,
    )
