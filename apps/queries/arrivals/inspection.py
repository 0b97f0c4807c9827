"""Uploaded tables before anything of them is stored: their columns, a proposal, and what reading them so would give."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC
from itertools import islice
from typing import Annotated, BinaryIO, Literal

import numpy as np

from apps.core.errors import Malformed
from apps.queries.arrivals.numerals import find_number_style, is_number, kind_of_name
from apps.queries.arrivals.tables import SAMPLE_ROWS, LineProblem, TraceReading, numbers_of, read_trace
from apps.queries.arrivals.text import find_layout, open_text, rows_of
from apps.queries.arrivals.times import AMBIGUOUS_DATES, NUMBER_FORMATS, format_of, iso_utc, parser_of
from engine.records import Record, Words
from engine.words import listed

__all__ = ["InspectedUpload", "Inspection", "UploadColumn", "inspect_table"]

_CLOCK = re.compile(r"\s*\d{1,2}:\d{2}(:\d{2}([.,]\d+)?)?\s*([ap]\.?m\.?)?\s*\Z", re.IGNORECASE)
PREVIEW_ROWS = 10
_TIME_NAMES = re.compile(
    r"time|date|stamp|period|when|minute|hour|^ts$|^t$|zeit|datum|fecha|^hora|^heure|^jour", re.IGNORECASE
)
_EVENT_NAMES = re.compile(
    r"events?|requests?|reqs?\b|hits|records|messages|msgs|views|visits|clicks|queries|calls|orders|transactions"
    r"|trips|rides|tweets|lines_in|aufrufe|zugriffe|anfragen|ereignisse|visitas|visites",
    re.IGNORECASE,
)
_COUNT_NAMES = re.compile(
    r"count|value|total|volume|number|anzahl|menge|nombre|cantidad|^n$|^qty$|^cnt$|^num$", re.IGNORECASE
)
_OTHER_NAMES = re.compile(
    r"user|client|connection|thread|session|\bvus?\b|fail|error|exception|latency|duration|response.?time|elapsed"
    r"|percent|%|average|\bavg|\bmean\b(?!.*eps)|median|(?<!/)(?<!per )\bmin\b|\bmax\b|\bp\d\d|size|bytes|token"
    r"|account|countr|county|discount|\bid\b|_id$|status|code|idle|^connect$",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class UploadColumn(Record):
    """A column of an uploaded table."""

    name: str
    kind: Literal["time", "number", "text"]
    time_format: str | None = None


@dataclass(frozen=True)
class Inspection(Record):
    """An uploaded table before anything of it is stored: its columns, a proposal, and what reading it so would give."""

    columns: tuple[UploadColumn, ...]
    preview: tuple[tuple[str, ...], ...]
    delimiter: str
    has_header: bool
    time_column: str | None
    time_format: str | None
    count_column: str | None
    count_kind: str | None = None
    rows: int = 0
    starts_at: str | None = None
    ends_at: str | None = None
    span_s: float | None = None
    step_s: float | None = None
    events: float | None = None
    problems: tuple[LineProblem, ...] = ()
    problems_total: int = 0
    warnings: Annotated[
        tuple[str, ...],
        Words("Columns that may be meant and are not proposed: overlooked, loads would be far too small."),
    ] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class InspectedUpload(Inspection):
    """Guessed content of an uploaded file, and the key to store it by within a day."""

    key: str


def inspect_table(
    file: BinaryIO, *, limit_bytes: int, time_zone: str = "UTC", now_s: float | None = None
) -> Inspection:
    """Look at a table: propose a time column and a count column, and read it whole with them.

    A count column is proposed where a column is named like one or the times keep a regular step; otherwise every line
    is one event, which is told where a column looks as if it were more.
    """
    text = open_text(file, limit_bytes=limit_bytes)
    layout = find_layout(text)
    sample = [row for _, row in islice(rows_of(open_text(file, limit_bytes=limit_bytes), layout), SAMPLE_ROWS)]
    columns = tuple(
        _column(name, [row[i] for row in sample if i < len(row)], layout.delimiter)
        for i, name in enumerate(layout.columns)
    )
    time_column = _propose_time(columns)
    count = _propose_count(columns, time_column, sample) if time_column else None
    inspection = Inspection(
        columns=columns,
        preview=tuple(tuple(row) for row in sample[:PREVIEW_ROWS]),
        delimiter=layout.delimiter,
        has_header=layout.has_header,
        time_column=time_column.name if time_column else None,
        time_format=time_column.time_format if time_column else None,
        count_column=count.name if count else None,
        rows=len(sample),
    )
    if time_column is None:
        return replace(inspection, notes=(*layout.notes, "No column looks like a time. Choose one and its format."))
    inspection = replace(inspection, warnings=_column_warnings(columns, time_column, count, sample))
    try:
        reading = read_trace(
            file,
            limit_bytes=limit_bytes,
            time_column=time_column.name,
            count_column=count.name if count else None,
            time_zone=time_zone,
            now_s=now_s,
        )
    except Malformed as error:  # the proposal does not work; another choice of columns may
        return replace(inspection, notes=(error.message,))
    return _with_reading(inspection, reading)


def _column(name: str, cells: list[str], delimiter: str) -> UploadColumn:
    cells = [cell for cell in cells if cell.strip()]
    time_format = format_of(cells)
    if time_format:
        return UploadColumn(name, "time", None if time_format == AMBIGUOUS_DATES else time_format)
    style = find_number_style(cells, delimiter)
    if style is None:
        return UploadColumn(name, "text")
    _, bad = numbers_of(cells, style.count_of)
    return UploadColumn(name, "number" if bad.mean() <= 0.1 else "text")


def _propose_time(columns: Sequence[UploadColumn]) -> UploadColumn | None:
    """Dates before numbers (large counts look like unix times), a telling name before another, then the first."""
    times = [column for column in columns if column.kind == "time"]

    def rank(column: UploadColumn) -> tuple[int, bool]:
        place = 0 if column.time_format in NUMBER_FORMATS else 1 if column.time_format == "digits" else 2
        return place, bool(_TIME_NAMES.search(column.name))

    return max(times, key=rank, default=None)


def _count_rank(name: str) -> int:
    """Likeness of a name to that of a count: events before numbers, counts of steps before rates and totals."""
    if _OTHER_NAMES.search(name):
        return 0
    named = kind_of_name(name)
    if _EVENT_NAMES.search(name):
        return {"count": 6, "total": 3}.get(named, 5)
    if _COUNT_NAMES.search(name):
        return {"count": 4}.get(named, 2)
    return 0 if named == "count" else 1


def _propose_count(columns: Sequence[UploadColumn], time: UploadColumn, sample: list[list[str]]) -> UploadColumn | None:
    others = [column for column in columns if column is not time]
    numbers = [column for column in others if _holds_numbers(column)]
    best = max(numbers, key=lambda column: _count_rank(column.name), default=None)
    if best is None or _count_rank(best.name):
        return best
    unnamed = [column for column in numbers if not _OTHER_NAMES.search(column.name)]
    return unnamed[0] if unnamed and _is_regular(columns, time, sample) else None


def _holds_numbers(column: UploadColumn) -> bool:
    return column.kind == "number" or column.time_format in NUMBER_FORMATS or column.time_format == "digits"


def _is_regular(columns: Sequence[UploadColumn], time: UploadColumn, sample: list[list[str]]) -> bool:
    """Whether times keep a step, as those of counts do."""
    place = columns.index(time)
    times, bad = numbers_of(
        [row[place] for row in sample if place < len(row)], parser_of(time.time_format or "dmy", UTC)
    )
    gaps = np.abs(np.diff(times[~bad]))
    usual = float(np.median(gaps)) if len(gaps) > 2 else 0.0
    return usual > 0 and bool((np.abs(gaps - usual) <= 0.01 * usual).mean() > 0.8)


def _column_warnings(
    columns: Sequence[UploadColumn], time: UploadColumn, count: UploadColumn | None, sample: list[list[str]]
) -> tuple[str, ...]:
    """Sentences about columns that are not proposed and may be meant: overlooked, they make loads far too small."""
    others = [(i, column) for i, column in enumerate(columns) if column is not time and column is not count]
    clocks = [column.name for i, column in others if _holds_clocks([row[i] for row in sample if i < len(row)])]
    warnings = []
    if clocks:
        warnings.append(f"Column {clocks[0]!r} holds times of day, which {time.name!r} does not have: join both.")
    if count is not None:
        numbers = [column.name for _, column in others if _holds_numbers(column)]
        if not _count_rank(count.name):
            instead = f", not {listed(numbers)}" if numbers else ""
            warnings.append(
                f"No column is named like a count; as the times keep a regular step, {count.name!r} is taken{instead}."
            )
        return tuple(warnings)
    for place, column in others:
        cells = [row[place] for row in sample if place < len(row) and row[place].strip()]
        readable = sum(map(is_number, cells))
        if column.kind == "text" and 2 * readable > len(cells):
            odd = next((cell for cell in cells if not is_number(cell) or "-" in cell), cells[0])
            warnings.append(
                f"Column {column.name!r} holds numbers and others, such as {odd.strip()[:60]!r}: it counts nothing."
            )
        elif column.kind == "text" and _count_rank(column.name) and cells:
            warnings.append(
                f"Column {column.name!r} is named like a count, but values such as {cells[0].strip()[:60]!r} are no "
                "counts that can be read: each line would be one event."
            )
    if not warnings and others and _is_regular(columns, time, sample):
        warnings.append(
            "The times keep a regular step, as those of counts do, and no column is taken for counts: each line "
            "would be one event."
        )
    return tuple(warnings)


def _holds_clocks(cells: list[str]) -> bool:
    return bool(cells) and sum(len(cell) <= 20 and bool(_CLOCK.match(cell)) for cell in cells) >= 0.9 * len(cells)


def _with_reading(inspection: Inspection, reading: TraceReading) -> Inspection:
    trace = reading.trace
    if trace is not None:
        inspection = replace(
            inspection,
            starts_at=iso_utc(trace.start_s),
            ends_at=iso_utc(trace.end_s),
            span_s=trace.end_s - trace.start_s,
            events=trace.total,
        )
    return replace(
        inspection,
        rows=reading.rows,
        time_format=reading.time_format,
        count_kind=reading.count_kind,
        step_s=reading.step_s,
        problems=reading.problems,
        problems_total=reading.problems_total,
        notes=reading.notes,
    )
