"""An uploaded table before anything of it is stored: which columns look like times and counts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import Any, BinaryIO

import numpy as np

from apps.core.errors import Malformed
from apps.queries.csv_reading import SAMPLE_ROWS, Problem, Reading, count_of, numbers_of, read_trace
from apps.queries.text_files import find_layout, open_text, rows_of
from apps.queries.times import NUMBER_FORMATS, format_of, iso_utc, parser_of, zone_of

__all__ = ["Column", "Inspection", "inspect"]

PREVIEW_ROWS = 10
_TIME_NAMES = re.compile(r"time|date|stamp|period|when|^ts$|^t$", re.IGNORECASE)
_COUNT_NAMES = re.compile(
    r"count|value|events|requests|hits|total|volume|records|messages|number|^n$|^qty$", re.IGNORECASE
)


@dataclass(frozen=True)
class Column:
    """A column of an uploaded table: `kind` is time, number or text."""

    name: str
    kind: str
    time_format: str | None = None


@dataclass(frozen=True)
class Inspection:
    """An uploaded table before anything of it is stored: its columns, a proposal, and what reading it so would give."""

    columns: tuple[Column, ...]
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
    problems: tuple[Problem, ...] = ()
    problems_total: int = 0
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """As REST shows it."""
        return asdict(self)


def inspect(file: BinaryIO, *, limit_bytes: int, time_zone: str = "UTC") -> Inspection:
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
    known = Inspection(
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
        return replace(known, notes=("No column looks like a time. Choose one and its format.",))
    count_column = count.name if count else None
    try:
        reading = read_trace(
            file, limit_bytes=limit_bytes, time_column=time.name, count_column=count_column, time_zone=time_zone
        )
    except Malformed as error:  # the proposal does not work; another choice of columns may
        return replace(known, notes=(error.message,))
    return _with_reading(known, reading)


def _column(name: str, cells: list[str]) -> Column:
    cells = [cell for cell in cells if cell.strip()]
    time_format = format_of(cells)
    if time_format:
        return Column(name, "time", time_format)
    _, bad = numbers_of(cells, count_of)
    return Column(name, "number" if len(cells) and bad.mean() <= 0.1 else "text")


def _propose_time(columns: Sequence[Column]) -> Column | None:
    """ISO before numbers (large counts look like unix times), a telling name before another, then the first."""
    times = [column for column in columns if column.kind == "time"]
    return max(
        times, key=lambda column: (column.time_format == "iso", bool(_TIME_NAMES.search(column.name))), default=None
    )


def _propose_count(columns: Sequence[Column], time: Column, sample: list[list[str]]) -> Column | None:
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


def _with_reading(known: Inspection, reading: Reading) -> Inspection:
    trace = reading.trace
    span = {}
    if trace is not None:
        span = {
            "starts_at": iso_utc(trace.start_s),
            "ends_at": iso_utc(trace.end_s),
            "span_s": trace.end_s - trace.start_s,
            "events": trace.total,
        }
    return replace(
        known,
        rows=reading.rows,
        step_s=reading.step_s,
        problems=reading.problems,
        problems_total=reading.problems_total,
        notes=reading.notes,
        **span,
    )
