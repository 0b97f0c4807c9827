"""Sweeping watermarks kept of each stream at each agent: the newest windows, each deadline once.

A window is known by its deadline and kept as its agent reported it last; the newest windows are those that arrived
last. So neither the order of frames matters, nor a repetition, nor a clock that jumps in either direction: windows of
a wrong clock are pushed out by as many later ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from agent.wire import MAX_NUMBER, WATERMARKS
from spark_jobs.statistics.updates import sent_schema

__all__ = [
    "CHAIN",
    "CLAMPED",
    "EXPECTED",
    "HISTORY",
    "RINGS",
    "ROWS",
    "VALUES",
    "WITHIN",
    "SweepTables",
    "add_sweeps",
    "flat_column",
    "number_groups",
    "ring_lengths",
    "rows_behind",
    "sweep_rows",
]  # fmt: skip

HISTORY = 400  #: windows of one stream at one agent (h)
FORGOTTEN_MS = 3_600_000  # after the last window of a stream at an agent
_FEWEST = 30  # windows of each, however many streams and agents there are
_MAX_ROWS = 400_000  # of all together: with more than a thousand streams at agents each keeps fewer
_MAX_TEXT = {"query": 200, "plan": 64, "stream": 120}  # as of counters, in characters
CLAMPED, EXPECTED, WITHIN = 1, 2, 4  #: marks of a row: its delay was negative; it had an interval; it came within it

CHAIN = ["query", "plan", "stream", "place"]

VALUES: list[tuple[str, pa.DataType]] = [
    ("seen_ms", pa.int64()),  # when Redis took it
    ("deadline_us", pa.int64()),
    ("period_us", pa.int64()),
    ("delay_us", pa.int64()),
    ("latency_us", pa.int64()),
    ("marks", pa.uint8()),
]

#: One window of one stream at one agent.
ROWS = pa.schema([*((name, pa.string()) for name in CHAIN), *VALUES])

#: The windows of each stream at each agent, the newest last.
RINGS = pa.schema([*((name, pa.string()) for name in CHAIN), *((name, pa.list_(kind)) for name, kind in VALUES)])


@dataclass(frozen=True)
class SweepTables:
    """Everything that is known of sweeping watermarks."""

    step: int = 0  #: that last changed it
    told_ms: int = 0  #: time of the last report
    rings: pa.Table = field(default_factory=RINGS.empty_table)
    sent: pa.Table = field(default_factory=sent_schema(WATERMARKS).empty_table)  #: rows last sent to the console


def sweep_rows(table: pa.Table, place: str, seen_ms: int) -> pa.Table:
    """Rows of SWEEPS as rows of `ROWS`.

    Raises
    ------
    ValueError
        A text is empty or too long, a time or a period none that there may be, a delay negative or none.
    """
    for name, longest in _MAX_TEXT.items():
        lengths = pc.utf8_length(table[name])
        fits = pc.and_(pc.greater(lengths, 0), pc.less_equal(lengths, longest))
        if not pc.all(fits, min_count=0, skip_nulls=False).as_py():
            raise ValueError(f"{name} has null, empty or too long texts; allowed: 1 to {longest} characters")
    times = {name: _whole(table, name) for name in ("deadline_us", "arrived_us", "emitted_us")}
    period_us = _whole(table, "period_us", least=1)
    delay_s = np.asarray(table["delay_s"].to_numpy(), dtype=np.float64)
    if not np.all((delay_s >= 0.0) & (delay_s <= MAX_NUMBER / 1e6)):
        raise ValueError("delay_s has null, negative or too large values; allowed: 0 and more")
    least, most = (pc.cast(table[name], pa.float64()).to_numpy() for name in ("least_us", "most_us"))
    is_within = (least <= times["arrived_us"]) & (times["arrived_us"] <= most)  # never where one is null
    marks = CLAMPED * table["clamped"].fill_null(False).to_numpy()
    marks = marks + EXPECTED * ~(np.isnan(least) | np.isnan(most)) + WITHIN * is_within
    columns = {
        "place": pa.repeat(pa.scalar(place), table.num_rows),
        "seen_ms": pa.repeat(pa.scalar(seen_ms), table.num_rows),
        "deadline_us": pa.array(times["deadline_us"]),
        "period_us": pa.array(period_us),
        "delay_us": pa.array(np.rint(delay_s * 1e6).astype(np.int64)),
        "latency_us": pa.array(np.maximum(times["emitted_us"] - times["deadline_us"], 0)),
        "marks": pa.array(marks.astype(np.uint8)),
    }
    return pa.table([columns[name] if name in columns else table[name] for name in ROWS.names], schema=ROWS)


def _whole(table: pa.Table, name: str, least: int = -MAX_NUMBER) -> Any:
    values = table[name]
    if values.null_count or (
        table.num_rows and not least <= pc.min(values).as_py() <= pc.max(values).as_py() <= MAX_NUMBER
    ):
        raise ValueError(f"{name} has null, too small or too large values; allowed: {least} to {MAX_NUMBER}")
    return values.to_numpy()


def add_sweeps(rings: pa.Table, rows: pa.Table, at_ms: int) -> pa.Table:
    """`RINGS` with new `ROWS`; those of which nothing came within an hour before `at_ms` are left out."""
    keys = pa.concat_tables([rings.select(CHAIN), rows.select(CHAIN)]).combine_chunks()
    number = number_groups(keys, CHAIN)
    known_numbers = number[: rings.num_rows]
    ring = np.concatenate([np.repeat(known_numbers, ring_lengths(rings)), number[rings.num_rows :]])
    values = {name: np.concatenate([flat_column(rings, name), rows[name].to_numpy()]) for name, _ in VALUES}
    order = _newest(ring, values["deadline_us"], values["seen_ms"], at_ms)
    kept, counts = np.unique(ring[order], return_counts=True)
    first_of = np.zeros(len(number), dtype=np.int64)
    first_of[number[::-1]] = np.arange(len(number))[::-1]
    offsets = pa.array(np.insert(np.cumsum(counts), 0, 0).astype(np.int32))
    lists = [pa.ListArray.from_arrays(offsets, pa.array(values[name][order], kind)) for name, kind in VALUES]
    named = keys.take(pa.array(first_of[kept]))
    return pa.Table.from_arrays([*named.columns, *lists], schema=RINGS)


def _newest(ring: Any, deadline: Any, seen: Any, at_ms: int) -> Any:
    """Windows that stay, by ring, the newest last."""
    by_deadline = np.lexsort((seen, deadline, ring))  # stable: of what came at once the later stands
    differs = (np.diff(ring[by_deadline]) != 0) | (np.diff(deadline[by_deadline]) != 0)
    once = by_deadline[np.append(differs, True)] if len(ring) else by_deadline
    order = once[np.lexsort((deadline[once], seen[once], ring[once]))]
    heard = np.unique(ring[order][at_ms - seen[order] < FORGOTTEN_MS])
    order = order[np.isin(ring[order], heard)]
    most = min(HISTORY, max(_FEWEST, _MAX_ROWS // max(len(heard), 1)))
    return order[rows_behind(ring[order]) < most]


def number_groups(table: pa.Table, names: list[str]) -> Any:
    """A number for each row, from 0 on, the same where all of the columns `names` are the same."""
    number = np.zeros(table.num_rows, dtype=np.int64)
    for name in names:
        codes = pc.dictionary_encode(table[name].combine_chunks())
        number = number * max(len(codes.dictionary), 1) + codes.indices.to_numpy()
        number = np.unique(number, return_inverse=True)[1].astype(np.int64)
    return number


def ring_lengths(rings: pa.Table) -> Any:
    """Windows of each ring."""
    return pc.list_value_length(rings["deadline_us"]).to_numpy()


def flat_column(rings: pa.Table, name: str) -> Any:
    """Values of all rings, one ring after the other."""
    return pc.list_flatten(rings[name]).to_numpy()


def rows_behind(groups: Any) -> Any:
    """Number of rows of the same group after each row, where the rows of a group are adjacent."""
    ends = np.flatnonzero(np.append(np.diff(groups) != 0, True)) if len(groups) else np.zeros(0, dtype=np.int64)
    sizes = np.diff(np.insert(ends, 0, -1))
    return np.repeat(ends, sizes) - np.arange(len(groups))
