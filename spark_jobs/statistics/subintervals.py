"""Counters of epochs become sums of subintervals. Sums add up, so batches may come in any order.

References
----------
Jarvis, section IV: cost and relay ratio of an operator are profiled from epochs of one configuration. The weights
w = 1 / n^2 make the normal equations those of the cost per record.

`engine.measurement.variation` says what they are for. Agents tell sums over runs and over steps of their sources; an
epoch, as a unit of the costs' next scale, follows from the totals of its runs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from agent.wire import (
    ARRIVAL_SUMS,
    COST_SUMS,
    COUNT_SUMS,
    COUNTERS,
    MAX_CHARACTERS,
    MAX_NUMBER,
    STATISTICS,
    SUM_COLUMNS,
    SUM_NAMES,
    SUMS,
    FrameKind,
    Merge,
    batch_bytes,
    variation_columns,
)
from engine.dataflow.pipeline import Pipeline
from spark_jobs.plans import SUBINTERVAL_US, FlowKey
from spark_jobs.statistics.history import MIN_RECORDS, StatisticsState
from spark_jobs.statistics.refinement import RefinementReport
from spark_jobs.statistics.updates import Update

__all__ = [
    "SENDER",
    "SUM_ROWS",
    "CounterFrame",
    "FlowWork",
    "StatisticsReport",
    "epoch_rows",
    "epoch_sums",
    "growing_sums",
    "merge_sums",
    "statistics_rows",
    "statistics_updates",
    "sum_counters",
    "work_epochs",
]

#: Columns that agents tell.
RUN_SUMS = (*COST_SUMS, *ARRIVAL_SUMS)


def epoch_sums_of_runs(epochs: pa.Table) -> dict[str, Any]:
    """Columns of `agent.wire.EPOCH_SUMS`: every epoch that had runs is one unit of n records that took t seconds."""
    n, t = epochs["run_records"], epochs["run_cpu_s"]
    return {
        "run_epochs": pc.greater(n, 0.0).cast(pa.float64()),
        "epoch_nn": pc.multiply(n, n),
        "epoch_nt": pc.multiply(n, t),
        "epoch_tt": pc.multiply(t, t),
    }


_SUBINTERVALS_KEPT = 3
SENDER = "stream"  #: the stream processor as a place among agents

#: Counters with what the stream processor adds: who sent them, how long a subinterval is, whether time was taken; and
#: with what their header says of variation.
EPOCHS = pa.schema(
    [
        *COUNTERS,
        ("place", pa.string()),
        ("width_us", pa.int64()),
        ("measured", pa.bool_()),
        ("step", pa.int64()),
        *((name, pa.float64()) for name in RUN_SUMS),
    ]
)

_GROUP = ["query", "plan", "operator", "fingerprint", "place", "window_us", "width_us", "measured"]
_VERSION = "config_version"  # never mixed within the sums of a fit
_QUEUED = "records_queued"  # what waits at an epoch's end is no sum

#: Sums by configuration version, as a state keeps them. Load factors are no key, for they move every few epochs: counts
#: and normal equations of an operator are of the records that it worked on, whatever share of its input they were.
SUM_ROWS = pa.schema(
    [
        *((name, pa.string()) for name in _GROUP[:5]),
        ("window_us", pa.int64()),
        ("width_us", pa.int64()),
        ("measured", pa.bool_()),
        (_VERSION, pa.int64()),
        *SUM_COLUMNS.values(),
        ("step", pa.int64()),  # of the last counters in them
    ]
)
_MAX_ROWS = 50_000  # of counters that wait to be summed, at any time
_ROWS_PER_FRAME = 5_000
_NOTHING: dict[str, Any] = dict.fromkeys(EPOCHS.names, 0)


@dataclass(frozen=True)
class FlowWork:
    """Work of a batch at one operator of a flow."""

    query: str
    pipeline: Pipeline
    index: int
    records_in: int
    records_out: int
    groups_out: int
    cpu_ns: int
    now_us: int


class CounterFrame(NamedTuple):
    """Rows of a COUNTERS frame, the agent they are of, and its header."""

    rows: pa.Table
    place: str
    extra: Mapping[str, Any] = {}


def epoch_rows(frames: Sequence[CounterFrame], widths_us: Mapping[str, int], step: int) -> pa.Table:
    """Rows of COUNTERS frames as rows of `EPOCHS`, at once: a frame alone has too few to be worth its own calls.

    Raises
    ------
    ValueError
        The sums of variation of a frame cannot be, a count is null or negative, or an operator's records do not add
        up: what came in, and what waited from the epoch before, was processed, drained, sent on or waits.
    """
    rows = pa.concat_tables([frame.rows for frame in frames]).combine_chunks()
    for name in [*(each.name for each in COUNT_SUMS), _QUEUED, "epoch_us"]:
        least, most = pc.min_max(rows[name]).as_py().values() if rows.num_rows else (0, 0)
        if rows[name].null_count or least < 0 or most > MAX_NUMBER:
            raise ValueError(f"{name} has null, negative or too large values; allowed: whole numbers to {MAX_NUMBER}")
    for name in ("query", "plan", "operator", "fingerprint"):
        longest = MAX_CHARACTERS[name]
        lengths = pc.utf8_length(rows[name])
        fits = pc.and_(pc.greater(lengths, 0), pc.less_equal(lengths, longest))
        if not pc.all(fits, min_count=0, skip_nulls=False).as_py():
            raise ValueError(f"{name} has null, empty or too long texts; allowed: 1 to {longest} characters")
    gone = pc.add(pc.add(rows["records_processed"], rows["records_drained"]), rows["records_overflow"])
    if not pc.all(pc.less_equal(rows["records_in"], pc.add(gone, rows[_QUEUED])), min_count=0).as_py():
        sum_text = "records_processed, records_drained, records_overflow and records_queued"
        raise ValueError(f"records_in is more than the sum of {sum_text}")
    width = pa.array([widths_us.get(query, SUBINTERVAL_US) for query in rows["query"].to_pylist()], pa.int64())
    place = pa.array([frame.place for frame in frames for _ in range(frame.rows.num_rows)], pa.string())
    more = [pa.repeat(value, rows.num_rows) for value in (pa.scalar(True), pa.scalar(step))]
    varied: dict[str, list[float]] = {name: [] for name in RUN_SUMS}
    for frame in frames:
        told = variation_columns(frame.extra, frame.rows.num_rows)
        for name, column in varied.items():
            column += told[name]
    sums = [pa.array(column, pa.float64()) for column in varied.values()]
    return pa.Table.from_arrays([*rows.columns, place, width, *more, *sums], schema=EPOCHS)


def epoch_sums(epochs: pa.Table) -> pa.Table:
    """Rows of `EPOCHS` as sums (`SUM_ROWS`) of one epoch each; `merge_sums` adds them up.

    An epoch counts for the fit of costs when the operator worked on at least `MIN_RECORDS` records, which leaves out
    those that only drained.
    """
    usable = pc.greater_equal(epochs["records_processed"], MIN_RECORDS)
    n = pc.if_else(usable, _floats(epochs["records_processed"]), 1.0)
    g, t = _floats(epochs["groups_out"]), pc.divide(_floats(epochs["cpu_ns"]), 1e9)
    n2 = pc.multiply(n, n)
    terms = {
        "sampled": epochs["records_processed"],
        "sum_wn2": pa.scalar(1.0),
        "sum_wng": pc.divide(g, n),
        "sum_wg2": pc.divide(pc.multiply(g, g), n2),
        "sum_wnt": pc.divide(t, n),
        "sum_wgt": pc.divide(pc.multiply(g, t), n2),
        "cost_count": pa.scalar(1),
        "cost_sum": pc.divide(t, n),
        "cost_sum2": pc.divide(pc.multiply(t, t), n2),
    }
    width_us = epochs["width_us"]
    columns = {name: pc.if_else(usable, term, pa.scalar(0, term.type)) for name, term in terms.items()}
    columns["window_us"] = pc.multiply(pc.divide(epochs["epoch_us"], width_us), width_us)
    columns["epochs"] = pa.chunked_array([pa.repeat(1, epochs.num_rows)])
    columns |= epoch_sums_of_runs(epochs)
    arrays = [columns[name] if name in columns else epochs[name] for name in SUM_ROWS.names]
    return pa.Table.from_arrays(arrays, names=SUM_ROWS.names).cast(SUM_ROWS)


def merge_sums(sums: pa.Table) -> pa.Table:
    """Sums (`SUM_ROWS`) of the same key added up, in their order."""
    groups = sums.group_by([*_GROUP, _VERSION], use_threads=False)
    added = groups.aggregate([*((name, "sum") for name in SUM_NAMES), ("step", "max")])
    renamed = {f"{name}_sum": name for name in SUM_NAMES} | {"step_max": "step"}
    named = added.rename_columns([renamed.get(name, name) for name in added.column_names])
    return named.select(SUM_ROWS.names).cast(SUM_ROWS)


def _floats(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.float64())


def growing_sums(sums: pa.Table) -> pa.Table:
    """Sums that may still grow: the last few subintervals of every place. An agent sends its epochs in order."""
    newest = sums.group_by("place").aggregate([("window_us", "max")])
    joined = sums.join(newest, "place")
    oldest = pc.subtract(joined["window_us_max"], pc.multiply(joined["width_us"], _SUBINTERVALS_KEPT - 1))
    return joined.filter(pc.greater_equal(joined["window_us"], oldest)).select(SUM_ROWS.names).combine_chunks()


def statistics_rows(sums: pa.Table, since_step: int) -> pa.Table:
    """Rows of STATISTICS for the subintervals that counters reached after `since_step`.

    Versions are merged as `agent.wire.SUMS` says: counts are of all, fits of the version with the most records.
    """
    ranked = sums.sort_by([("sampled", "descending"), (_VERSION, "descending")])
    merges = [(each.name, "sum" if each.merge is Merge.ALL else "first") for each in SUMS]
    rows = ranked.group_by(_GROUP, use_threads=False).aggregate([*merges, ("step", "max")])
    rows = rows.filter(pc.greater(rows["step_max"], since_step))
    renamed = {f"{name}_{merge}": name for name, merge in merges} | {"step_max": "batch"}
    rows = rows.rename_columns([renamed.get(name, name) for name in rows.column_names])
    return rows.select(STATISTICS.names).cast(STATISTICS)


class StatisticsReport:
    """Gathers counters, and sums them up every `every_ms` of arrival time."""

    def __init__(self, every_ms: int, refining: RefinementReport) -> None:
        self._every_ms, self._refining = every_ms, refining

    def is_due(self, state: StatisticsState, rows: int) -> bool:
        """Whether `rows` counters that wait are to be summed now."""
        return rows >= _MAX_ROWS or (rows > 0 and state.now_ms - state.summed_ms >= self._every_ms)

    def updates(self, state: StatisticsState, live: Collection[FlowKey]) -> list[Update]:
        """Sum the counters that wait: STATISTICS and REFINED updates."""
        if state.counters is None:
            return []
        refined = self._refining.updates(state, state.counters, live)
        rows, state.sums = sum_counters(state.sums, state.counters)
        state.counters, state.summed_ms = None, state.now_ms
        return [*refined, *statistics_updates(rows)]


def sum_counters(sums: pa.Table | None, counters: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Rows of STATISTICS that new counters (`EPOCHS`) change, and all sums that may still grow."""
    since = pc.min(counters["step"]).as_py() - 1
    tables = [epoch_sums(counters)]
    if sums is not None:
        tables.append(sums)
    merged = merge_sums(pa.concat_tables(tables))
    return statistics_rows(merged, since), growing_sums(merged)


def statistics_updates(rows: pa.Table) -> list[Update]:
    """Rows of STATISTICS as updates of a bounded size."""
    return [
        Update(FrameKind.STATISTICS, batch_bytes(rows.slice(begin, _ROWS_PER_FRAME).combine_chunks()))
        for begin in range(0, rows.num_rows, _ROWS_PER_FRAME)
    ]


def work_epochs(works: Iterable[FlowWork], widths_us: Mapping[str, int], step: int) -> pa.Table | None:
    """The stream processor's operators as rows of `EPOCHS`: what a batch did at one of them is an epoch.

    CPU time is apportioned by records, for operators run one behind the other: `measured` is false.
    """
    rows: list[dict[str, Any]] = []
    for work in works:
        operator = work.pipeline.operators[work.index]
        rows.append(
            _NOTHING
            | {
                "query": work.query,
                "plan": work.pipeline.digest,
                "operator": operator.id,
                "fingerprint": operator.fingerprint,
                "entry": work.index,
                "epoch_us": work.now_us,
                "records_in": work.records_in,
                "records_processed": work.records_in,
                "records_out": work.records_out,
                "cpu_ns": work.cpu_ns,
                "groups_out": work.groups_out,
                "load_factor": 1.0,
                "place": SENDER,
                "width_us": widths_us.get(work.query, SUBINTERVAL_US),
                "measured": False,
                "step": step,
            }
        )
    return pa.Table.from_pylist(rows, schema=EPOCHS) if rows else None
