"""Counters of epochs become sums of subintervals. Sums add up, so batches may come in any order.

References
----------
Jarvis, section IV: cost and relay ratio of an operator are profiled from epochs of one configuration. The weights
w = 1 / n^2 make the normal equations those of the cost per record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from agent.wire import (
    COUNTERS,
    MAX_NUMBER,
    STATISTICS,
    VARIATION,
    Frame,
    FrameKind,
    batch_bytes,
    encode_frame,
    filled_table,
    variation_columns,
)
from engine.dataflow.pipeline import Pipeline
from spark_jobs.plans import Plans
from spark_jobs.results import SENDER, OperatorWork
from spark_jobs.state import StreamState
from spark_jobs.statistics.operator_history import MIN_RECORDS
from spark_jobs.statistics.refinement import RefinementReport
from spark_jobs.statistics.variation import RUN_SUMS, epoch_sums_of_runs

__all__ = [
    "EPOCHS",
    "SUBINTERVAL_US",
    "SUMS",
    "StatisticsReport",
    "epoch_rows",
    "epoch_sums",
    "growing_sums",
    "merge_sums",
    "statistics_rows",
    "upgrade_epochs",
    "work_epochs",
]


_SUBINTERVALS_KEPT = 3
_MAX_TEXT = {"query": 200, "plan": 64, "operator": 120, "fingerprint": 64}  # what the console takes, in characters
SUBINTERVAL_US = 60_000_000  # of queries the console does not name

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
_COUNTS = [name for name in COUNTERS.names if name.startswith(("records_", "bytes_")) and name != _QUEUED]
_COUNTS += ["cpu_ns", "groups_out"]
_FITS = [
    "sampled", "sum_wn2", "sum_wng", "sum_wg2", "sum_wnt", "sum_wgt", "cost_count", "cost_sum", "cost_sum2",
]  # fmt: skip
_WHOLE = {*_COUNTS, "epochs", "sampled", "cost_count"}

#: Sums by configuration version, as a state keeps them. Load factors are no key, for they move every few epochs: counts
#: and normal equations of an operator are of the records that it worked on, whatever share of its input they were.
SUMS = pa.schema(
    [
        *((name, pa.string()) for name in _GROUP[:5]),
        ("window_us", pa.int64()),
        ("width_us", pa.int64()),
        ("measured", pa.bool_()),
        (_VERSION, pa.int64()),
        *((name, pa.int64() if name in _WHOLE else pa.float64()) for name in ["epochs", *_COUNTS, *_FITS]),
        ("step", pa.int64()),  # of the last counters in them
        *((name, pa.float64()) for name in VARIATION),
    ]
)
_MAX_ROWS = 50_000  # of counters that wait to be summed, at any time
_ROWS_PER_FRAME = 5_000
_NOTHING: dict[str, Any] = dict.fromkeys(EPOCHS.names, 0)


def epoch_rows(
    rows: pa.Table, place: str, widths_us: Mapping[str, int], step: int, extra: Mapping[str, Any] = {}
) -> pa.Table:
    """Rows of COUNTERS as rows of `EPOCHS`; `extra` is that of their frame.

    Raises
    ------
    ValueError
        The sums of variation cannot be, a count is null or negative, or the operator's records do not add up: what came
        in, and what waited from the epoch before, was processed, drained, sent on or waits.
    """
    for name in [*_COUNTS, _QUEUED, "epoch_us"]:
        least, most = pc.min_max(rows[name]).as_py().values() if rows.num_rows else (0, 0)
        if rows[name].null_count or least < 0 or most > MAX_NUMBER:
            raise ValueError(f"{name} has null, negative or too large values; allowed: whole numbers to {MAX_NUMBER}")
    for name, longest in _MAX_TEXT.items():
        lengths = pc.utf8_length(rows[name])
        fits = pc.and_(pc.greater(lengths, 0), pc.less_equal(lengths, longest))
        if not pc.all(fits, min_count=0, skip_nulls=False).as_py():
            raise ValueError(f"{name} has null, empty or too long texts; allowed: 1 to {longest} characters")
    gone = pc.add(pc.add(rows["records_processed"], rows["records_drained"]), rows["records_overflow"])
    if not pc.all(pc.less_equal(rows["records_in"], pc.add(gone, rows[_QUEUED])), min_count=0).as_py():
        sum_text = "records_processed, records_drained, records_overflow and records_queued"
        raise ValueError(f"records_in is more than the sum of {sum_text}")
    width = pa.array([widths_us.get(query, SUBINTERVAL_US) for query in rows["query"].to_pylist()], pa.int64())
    more = [pa.repeat(value, rows.num_rows) for value in (pa.scalar(place), pa.scalar(True), pa.scalar(step))]
    told = variation_columns(extra, rows.num_rows)
    varied = [pa.array(told[name], pa.float64()) for name in RUN_SUMS]
    return pa.Table.from_arrays([*rows.columns, more[0], width, more[1], more[2], *varied], schema=EPOCHS)


def upgrade_epochs(epochs: pa.Table | None) -> pa.Table | None:
    """Rows of `EPOCHS` that a state kept; in those of an earlier release nothing waited, or nothing was said of
    variation.
    """
    return None if epochs is None else filled_table(epochs, EPOCHS)


def epoch_sums(epochs: pa.Table) -> pa.Table:
    """Rows of `EPOCHS` as sums (`SUMS`) of one epoch each; `merge_sums` adds them up.

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
    arrays = [columns[name] if name in columns else epochs[name] for name in SUMS.names]
    return pa.Table.from_arrays(arrays, names=SUMS.names).cast(SUMS)


def merge_sums(sums: pa.Table) -> pa.Table:
    """Sums (`SUMS`) of the same key added up, in their order."""
    names = ["epochs", *_COUNTS, *_FITS, *VARIATION]
    groups = sums.group_by([*_GROUP, _VERSION], use_threads=False)
    added = groups.aggregate([*((name, "sum") for name in names), ("step", "max")])
    renamed = {f"{name}_sum": name for name in names} | {"step_max": "step"}
    return added.rename_columns([renamed.get(name, name) for name in added.column_names]).select(SUMS.names).cast(SUMS)


def _floats(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.float64())


def growing_sums(sums: pa.Table) -> pa.Table:
    """Sums that may still grow: the last few subintervals of every place. An agent sends its epochs in order."""
    newest = sums.group_by("place").aggregate([("window_us", "max")])
    joined = sums.join(newest, "place")
    oldest = pc.subtract(joined["window_us_max"], pc.multiply(joined["width_us"], _SUBINTERVALS_KEPT - 1))
    return joined.filter(pc.greater_equal(joined["window_us"], oldest)).select(SUMS.names).combine_chunks()


def statistics_rows(sums: pa.Table, since_step: int) -> pa.Table:
    """Rows of STATISTICS for the subintervals that counters reached after `since_step`.

    Counts are of everything; the sums of a fit are of that version with the most records.
    """
    ranked = sums.sort_by([("sampled", "descending"), (_VERSION, "descending")])
    adds = [(name, "sum") for name in ["epochs", *_COUNTS, *VARIATION]]
    firsts = [(name, "first") for name in _FITS]
    rows = ranked.group_by(_GROUP, use_threads=False).aggregate([*adds, *firsts, ("step", "max")])
    rows = rows.filter(pc.greater(rows["step_max"], since_step))
    renamed = {f"{name}_sum": name for name, _ in adds} | {f"{name}_first": name for name, _ in firsts}
    renamed["step_max"] = "batch"
    rows = rows.rename_columns([renamed.get(name, name) for name in rows.column_names])
    return rows.select(STATISTICS.names).cast(STATISTICS)


_Works = Mapping[tuple[str, str], tuple[Pipeline, OperatorWork]]


class StatisticsReport:
    """Gathers counters in the state and sums them up every `every_ms` of arrival time."""

    def __init__(self, every_ms: int, cpu_ns: Callable[[], int], refining: RefinementReport) -> None:
        self._every_ms, self._cpu_ns, self._refining = every_ms, cpu_ns, refining
        self._last_cpu_ns = cpu_ns()

    def frames(self, state: StreamState, works: _Works, plans: Plans) -> list[bytes]:
        """Take in the step's operator counters; STATISTICS and REFINED frames when it is time."""
        widths_us = plans.widths_us()
        now_ns = self._cpu_ns()
        spent_ns, self._last_cpu_ns = max(now_ns - self._last_cpu_ns, 0), now_ns
        own = work_epochs(works, widths_us, cpu_ns=spent_ns, now_us=state.now_ms * 1000, step=state.step)
        waiting = [table for table in (state.counters, own) if table is not None and table.num_rows]
        state.counters = pa.concat_tables(waiting) if waiting else None
        if state.counters is None or not self._is_time(state):
            return []
        refined = self._refining.frames(state, state.counters, plans.live())
        since = min(state.counters["step"].to_pylist()) - 1
        tables = [epoch_sums(state.counters)]
        if state.sums is not None:
            tables.append(filled_table(state.sums, SUMS))  # those of an earlier release had one more key
        sums = merge_sums(pa.concat_tables(tables))
        state.sums, state.counters, state.summed_ms = growing_sums(sums), None, state.now_ms
        return refined + [encode_frame(frame) for frame in _frames(statistics_rows(sums, since), state)]

    def _is_time(self, state: StreamState) -> bool:
        assert state.counters is not None
        return state.now_ms - state.summed_ms >= self._every_ms or state.counters.num_rows >= _MAX_ROWS


def work_epochs(works: _Works, widths_us: Mapping[str, int], *, cpu_ns: int, now_us: int, step: int) -> pa.Table | None:
    """The stream processor's operators as rows of `EPOCHS`, one step being one epoch.

    CPU time is apportioned by records, for Spark does not tell it by operator: `measured` is false.
    """
    counts: list[tuple[str, Pipeline, OperatorWork, int, int, int]] = [
        (query, pipeline, work, index, both[0], both[1])
        for (query, _), (pipeline, work) in works.items()
        for index, both in sorted(work.counts.items())
    ]
    total = sum(records_in for *_, records_in, _ in counts)
    if not counts or not total:
        return None
    rows: list[dict[str, Any]] = []
    for query, pipeline, work, index, records_in, records_out in counts:
        operator = pipeline.operators[index]
        rows.append(
            _NOTHING
            | {
                "query": query,
                "plan": pipeline.digest,
                "operator": operator.id,
                "fingerprint": operator.fingerprint,
                "entry": index,
                "epoch_us": now_us,
                "records_in": records_in,
                "records_processed": records_in,
                "records_out": records_out,
                "cpu_ns": cpu_ns * records_in // total,
                "groups_out": work.groups if index == pipeline.aggregate else 0,
                "load_factor": 1.0,
                "place": SENDER,
                "width_us": widths_us.get(query, SUBINTERVAL_US),
                "measured": False,
                "step": step,
            }
        )
    return pa.Table.from_pylist(rows, schema=EPOCHS)


def _frames(rows: pa.Table, state: StreamState) -> list[Frame]:
    frames = []
    for begin in range(0, rows.num_rows, _ROWS_PER_FRAME):
        state.emitted += 1
        body = batch_bytes(rows.slice(begin, _ROWS_PER_FRAME).combine_chunks())
        frames.append(
            Frame(FrameKind.STATISTICS, SENDER, SENDER, state.emitted, extra={"batch": state.step}, body=body)
        )
    return frames
