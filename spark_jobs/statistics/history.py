"""Measurements kept of operators and of sweeping watermarks: decayed sums, and the newest windows of each stream.

Everything adds up and refers, agent by agent, to its newest epoch, to which later and earlier epochs are decayed
alike: neither their order of arrival matters, nor a clock that is behind. Load factors move every few epochs and are
no key. Epochs are kept apart by the number of records that the operator processed, in levels of half an octave, on
which costs and groups depend; and by plan and configuration version, which never mix.

A window is known by its deadline and kept as its agent reported it last; the newest windows are those that arrived
last. So neither the order of frames matters, nor a repetition, nor a clock that jumps in either direction: windows of
a wrong clock are pushed out by as many later ones.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from agent.wire import MAX_NUMBER, REFINEMENTS, WATERMARKS
from spark_jobs.statistics.updates import sent_schema

__all__ = [
    "CHAIN",
    "CLAMPED",
    "CYCLE_SUMS",
    "EXPECTED",
    "HALF_LIFE_S",
    "HISTORY",
    "MIN_RECORDS",
    "OPERATORS",
    "REST",
    "RINGS",
    "VALUES",
    "WITHIN",
    "OperatorHistory",
    "StatisticsState",
    "SweepTables",
    "add_epochs",
    "add_sweeps",
    "flat_column",
    "number_groups",
    "ring_lengths",
    "rows_behind",
    "sweep_rows",
]

MIN_RECORDS = 30  # an epoch with fewer is no sample of the cost per record


HALF_LIFE_S = 300.0
FORGOTTEN_MS = 3_600_000  # of a silent agent
REST = -1  #: level of epochs that say too little of costs
_MIN_WEIGHT = 0.1  # of an epoch: rows that weigh less are forgotten

_CHAIN = [("query", pa.string()), ("plan", pa.string()), ("place", pa.string()), ("entry", pa.int16())]
_NAMES = [("operator", pa.string()), ("fingerprint", pa.string())]
_OF = ["query", "plan", "place", "entry", "config_version"]
_SUMS = [
    "epochs", "records_in", "bytes_in", "records_processed", "records_out", "bytes_out", "groups_out", "granted_s",
    "sum_wng", "sum_wg2", "sum_wnt", "sum_wgt", "cost_sum2",
]  # fmt: skip
CYCLE_SUMS = ["closings", "epochs", "records_processed", "records_out", "bytes_out"]

#: Decayed sums of epochs by level, under the names of `agent.wire.SUMS`.
OPERATORS = pa.schema(
    [
        *_CHAIN,
        *_NAMES,
        ("config_version", pa.int64()),
        ("level", pa.int16()),
        *((name, pa.float64()) for name in _SUMS),
        ("newest_us", pa.int64()),
    ]
)

#: Whole windows of aggregates, decayed; and what came since the last one closed, as it is.
CYCLES = pa.schema(
    [
        *_CHAIN,
        ("config_version", pa.int64()),
        *((name, pa.float64()) for name in CYCLE_SUMS),
        ("open_epochs", pa.int64()),
        ("open_records", pa.int64()),
        ("begun", pa.bool_()),  # a closing was seen: what the next one closes is whole
    ]
)


@dataclass(frozen=True)
class OperatorHistory:
    """Everything learned."""

    step: int = 0  #: that last changed it
    newest: dict[str, tuple[int, int]] = field(default_factory=dict)  #: epoch (microseconds) and arrival by agent
    told_ms: int = 0  #: time of the last report
    operators: pa.Table = field(default_factory=OPERATORS.empty_table)
    cycles: pa.Table = field(default_factory=CYCLES.empty_table)
    sent: pa.Table = field(default_factory=sent_schema(REFINEMENTS).empty_table)  #: rows last sent to the console


def add_epochs(
    before: OperatorHistory, epochs: pa.Table, aggregate_of: Callable[[str], int | None], at_ms: int, step: int
) -> OperatorHistory:
    """Take in rows of `EPOCHS` that agents counted.

    Parameters
    ----------
    aggregate_of
        Entry of the windowed aggregate of a plan; None where it has none, or the plan is not known.
    at_ms
        When the last of them arrived; an epoch of a clock that is ahead counts as of then.
    """
    rows = epochs.filter(epochs["measured"])
    at_us = pc.min_element_wise(rows["epoch_us"], 1000 * at_ms)
    rows = rows.set_column(rows.schema.get_field_index("epoch_us"), "epoch_us", at_us)
    newest = _newest(before, rows, at_ms)
    since = {place: _weight(newest[place][0] - at_us) for place, (at_us, _) in before.newest.items() if place in newest}
    weights = _weight(_column([newest[place][0] for place in rows["place"].to_pylist()]) - _column(rows["epoch_us"]))
    operators = _added([_decayed(before.operators, _SUMS, since), _summands(rows, weights)])
    operators = operators.filter(pc.greater_equal(operators["epochs"], _MIN_WEIGHT)).combine_chunks()
    cycles = _Cycles(_decayed(before.cycles, CYCLE_SUMS, since))
    cycles.add(_of_aggregates(rows, weights, aggregate_of))
    return replace(before, step=step, newest=newest, operators=operators, cycles=cycles.table(operators))


def _newest(before: OperatorHistory, rows: pa.Table, at_ms: int) -> dict[str, tuple[int, int]]:
    newest = {place: seen for place, seen in before.newest.items() if at_ms - seen[1] < FORGOTTEN_MS}
    for row in rows.group_by("place").aggregate([("epoch_us", "max")]).to_pylist():
        newest[row["place"]] = max(row["epoch_us_max"], newest.get(row["place"], (0, 0))[0]), at_ms
    return newest


def _weight(age_us: Any) -> Any:
    return np.exp2(-age_us / 1e6 / HALF_LIFE_S)


def _column(values: Any) -> Any:
    return np.asarray(values, dtype=np.float64)


def _decayed(table: pa.Table, names: list[str], by: dict[str, float]) -> pa.Table:
    """Rows of agents that are known still, their sums times a weight of the agent."""
    weights = _column([by.get(place, 0.0) for place in table["place"].to_pylist()])
    for name in names:
        scaled = pa.array(_column(table[name]) * weights)
        table = table.set_column(table.schema.get_field_index(name), name, scaled)
    return table.filter(pa.array(weights > 0.0, pa.bool_()))


def _summands(rows: pa.Table, weights: Any) -> pa.Table:
    """A row of `OPERATORS` for each row of `EPOCHS`."""
    n, g, t = (rows[name].to_numpy().astype(float) for name in ("records_processed", "groups_out", "cpu_ns"))
    usable = n >= MIN_RECORDS
    per = np.where(usable, 1.0 / np.maximum(n, 1.0), 0.0)
    t = t / 1e9
    values = {
        "epochs": np.ones(len(n)),
        "records_processed": n,
        "groups_out": g,
        "granted_s": rows["granted_cpu_ns"].to_numpy() / 1e9,
        "sum_wng": g * per,
        "sum_wg2": (g * per) ** 2,
        "sum_wnt": t * per,
        "sum_wgt": g * t * per**2,
        "cost_sum2": (t * per) ** 2,
    }
    values |= {name: rows[name].to_numpy() for name in ("records_in", "bytes_in", "records_out", "bytes_out")}
    level = np.where(usable, np.rint(2.0 * np.log2(np.maximum(n, 1.0))), REST).astype(np.int16)
    keys = {name: rows[name] for name in ("query", "plan", "place", "entry", "operator", "fingerprint")}
    keys |= {"config_version": rows["config_version"], "level": pa.array(level)}
    sums = {name: pa.array(values[name] * weights, pa.float64()) for name in _SUMS}
    return pa.table(keys | sums | {"newest_us": rows["epoch_us"]}).select(OPERATORS.names).cast(OPERATORS)


def _added(parts: list[pa.Table]) -> pa.Table:
    """Rows of one key as one."""
    keys = [name for name in OPERATORS.names if name not in {*_SUMS, "newest_us"}]
    groups = pa.concat_tables(parts).group_by(keys, use_threads=False)
    added = groups.aggregate([*((name, "sum") for name in _SUMS), ("newest_us", "max")])
    plain = [name.removesuffix("_sum").removesuffix("_max") for name in added.column_names]
    return added.rename_columns(plain).select(OPERATORS.names).cast(OPERATORS)


def _of_aggregates(rows: pa.Table, weights: Any, aggregate_of: Callable[[str], int | None]) -> list[tuple[Any, ...]]:
    """Key, epoch, weight and counts of the epochs of aggregates over windows, in the order of their epochs."""
    entries = {plan: aggregate_of(plan) for plan in pc.unique(rows["plan"]).to_pylist()}
    names = [*_OF, "epoch_us", "records_processed", "records_out", "bytes_out"]
    columns = [rows[name].to_pylist() for name in names]
    listed = [
        (fields[:5], fields[5], weight, *fields[6:])
        for *fields, weight in zip(*columns, weights.tolist(), strict=True)
        if entries[fields[1]] == fields[3]
    ]
    return sorted(((tuple(key), *rest) for key, *rest in listed), key=lambda fields: fields[:2])


class _Cycles:
    """Windows from closing to closing. The first closing of a version belongs to a window that began earlier, and
    only begins one.
    """

    def __init__(self, cycles: pa.Table) -> None:
        self._rows: dict[tuple[Any, ...], dict[str, Any]] = {
            tuple(row[name] for name in _OF): row for row in cycles.to_pylist()
        }

    def add(self, epochs: list[tuple[Any, ...]]) -> None:
        for key, listed in groupby(epochs, key=lambda epoch: epoch[0]):
            row = self._rows.setdefault(key, defaultdict(int, dict(zip(_OF, key, strict=True)), begun=False))
            for _, _, weight, records, out, bytes_out in listed:
                row["open_epochs"] += 1
                row["open_records"] += records
                if out:
                    self._close(row, weight, out, bytes_out)

    def _close(self, row: dict[str, Any], weight: float, out: int, bytes_out: int) -> None:
        if row["begun"]:
            closed = (1, row["open_epochs"], row["open_records"], out, bytes_out)
            for name, value in zip(CYCLE_SUMS, closed, strict=True):
                row[name] += weight * value
        row |= {"open_epochs": 0, "open_records": 0, "begun": True}

    def table(self, operators: pa.Table) -> pa.Table:
        """Those whose operators are still known."""
        keys = set(zip(*(operators[name].to_pylist() for name in _OF), strict=True))
        rows = [{name: row[name] for name in CYCLES.names} for key, row in self._rows.items() if key in keys]
        return pa.Table.from_pylist(rows, schema=CYCLES)


HISTORY = 400  #: windows of one stream at one agent (h)
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
    order = _newest_windows(ring, values["deadline_us"], values["seen_ms"], at_ms)
    kept, counts = np.unique(ring[order], return_counts=True)
    first_of = np.zeros(len(number), dtype=np.int64)
    first_of[number[::-1]] = np.arange(len(number))[::-1]
    offsets = pa.array(np.insert(np.cumsum(counts), 0, 0).astype(np.int32))
    lists = [pa.ListArray.from_arrays(offsets, pa.array(values[name][order], kind)) for name, kind in VALUES]
    named = keys.take(pa.array(first_of[kept]))
    return pa.Table.from_arrays([*named.columns, *lists], schema=RINGS)


def _newest_windows(ring: Any, deadline: Any, seen: Any, at_ms: int) -> Any:
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


@dataclass
class StatisticsState:
    """Sums and histories; tables do not change, they are replaced."""

    step: int = 0  #: batches that brought something
    now_ms: int = 0  #: arrival of the last of it
    counters: pa.Table | None = None  #: rows of `EPOCHS`, not summed yet
    sums: pa.Table | None = None  #: of subintervals that may still grow
    summed_ms: int = 0  #: when counters were last summed
    learned: OperatorHistory = field(default_factory=OperatorHistory)  #: of operators at agents
    sweeps: pa.Table | None = None  #: of windows at agents, not learned from yet
    swept: SweepTables = field(default_factory=SweepTables)  #: of sweeping watermarks at agents
