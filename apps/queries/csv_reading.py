"""Arrivals from uploaded tables with chosen columns, and what is wrong line by line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from apps.core.errors import Malformed, TooLarge
from apps.queries.resampling import Counts, Stamps, Trace
from apps.queries.text_files import Layout, find_layout, open_text, rows_of
from apps.queries.times import format_of, iso_utc, parser_of, zone_of
from apps.ui.numbers import counted

__all__ = ["MOST_PER_COUNT", "SAMPLE_ROWS", "Problem", "Reading", "count_of", "numbers_of", "read_trace"]

FloatArray = npt.NDArray[np.float64]

MAX_ROWS = 2_000_000
# So that the sum of a horizon stays far from where floats lose whole events.
MOST_PER_COUNT = 1e12
SHOWN_PROBLEMS = 20
SAMPLE_ROWS = 1000


@dataclass(frozen=True)
class Problem:
    """A cell or line that cannot be used."""

    line: int
    column: str
    value: str
    message: str

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}: {self.value!r} {self.message}"


@dataclass(frozen=True)
class Reading:
    """What a table says. With problems, `trace` holds the good lines only and must not be stored as if complete."""

    trace: Trace | None
    rows: int
    step_s: float | None
    problems: tuple[Problem, ...]
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
) -> Reading:
    """Read a table with the given columns, each line one event or one count.

    Raises
    ------
    Malformed
        The file is no table, has no such column, or its times have no known format.
    TooLarge
        It has more than `MAX_ROWS` lines, or its text is longer than `limit_bytes`.
    """
    layout = find_layout(open_text(file, limit_bytes=limit_bytes))
    places = _places(layout, time_column, count_column)
    found = _Problems()
    lines, cells = _cells(rows_of(open_text(file, limit_bytes=limit_bytes), layout), layout, places, found)
    time_format = time_format or format_of(cells[0][:SAMPLE_ROWS])
    if time_format is None:
        message = f"the values of column {time_column!r} are not times of one known format"
        raise Malformed(f"time_column: {message}.", [("time_column", message)])
    times, bad = numbers_of(cells[0], parser_of(time_format, zone_of(time_zone)))
    found.add(lines, bad, time_column, cells[0], f"is not a time ({time_format}) of the years 1900 to 5137")
    counts = None
    if count_column is not None:
        counts, bad_counts = numbers_of(cells[1], count_of)
        found.add(lines, bad_counts, count_column, cells[1], "is not a count; allowed is a number from 0 to 1e12")
        bad |= bad_counts
        counts = counts[~bad]
    return _reading(times[~bad], counts, len(lines), lines, found)


@dataclass
class _Problems:
    listed: list[Problem] = field(default_factory=list)
    total: int = 0

    def add(self, lines: Sequence[int], bad: npt.NDArray[np.bool_], column: str, cells: list[str], why: str) -> None:
        places = np.flatnonzero(bad)
        self.total += len(places)
        self.listed += [Problem(lines[i], column, cells[i][:60], why) for i in places[:SHOWN_PROBLEMS].tolist()]

    def first(self) -> tuple[Problem, ...]:
        return tuple(sorted(self.listed, key=lambda problem: problem.line)[:SHOWN_PROBLEMS])


def _places(layout: Layout, time_column: str, count_column: str | None) -> list[int]:
    wanted = {"time_column": time_column} | ({"count_column": count_column} if count_column is not None else {})
    missing = [(key, name) for key, name in wanted.items() if name not in layout.columns]
    if missing:
        allowed = ", ".join(layout.columns)
        faults = [(key, f"there is no column {name!r}; the file has {allowed}") for key, name in missing]
        raise Malformed(f"{faults[0][0]}: {faults[0][1]}.", faults)
    return [layout.columns.index(name) for name in wanted.values()]


def _cells(rows: Any, layout: Layout, places: list[int], found: _Problems) -> tuple[list[int], list[list[str]]]:
    """Line numbers and the cells of the wanted columns; lines of another width are noted and left out."""
    width, lines, cells = len(layout.columns), [], [[] for _ in places]  # type: ignore[var-annotated]
    appends = [(kept.append, place) for kept, place in zip(cells, places, strict=True)]
    for line, row in rows:
        if len(row) != width:
            found.total += 1
            if len(found.listed) < SHOWN_PROBLEMS:
                shown = layout.delimiter.join(row)[:60]
                found.listed.append(Problem(line, "(line)", shown, f"has {len(row)} columns; allowed: {width}"))
            continue
        lines.append(line)
        for append, place in appends:
            append(row[place])
        if len(lines) > MAX_ROWS:
            message = f"has more than {MAX_ROWS:,} lines"
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
    """A cell as a number of events, 0 to `MOST_PER_COUNT`; ValueError for anything else."""
    value = float(cell)
    # The comparison is also false for NaN; float() takes underscores, people do not write them in tables.
    if not 0 <= value <= MOST_PER_COUNT or "_" in cell:
        raise ValueError(cell)
    return value


def _reading(
    times: FloatArray, counts: FloatArray | None, rows: int, lines: Sequence[int], found: _Problems
) -> Reading:
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
        trace = Stamps(times)
    return Reading(trace, rows, step_s, found.first(), found.total, tuple(notes))


def _counts_trace(times: FloatArray, counts: FloatArray, notes: list[str]) -> tuple[Counts, float]:
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
    return Counts(unique, widths, np.bincount(where, weights=counts)), step_s
