"""The stream processor's own operators among the statistics, and when sums are made and posted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from agent.wire import Frame, FrameKind, batch_bytes, encode_frame
from engine.dataflow.pipeline import Pipeline
from spark_jobs.plans import Plans
from spark_jobs.refining import Refining
from spark_jobs.results import SENDER, Work
from spark_jobs.state import State
from spark_jobs.statistics import EPOCHS, SUBINTERVAL_US, SUMS, epoch_sums, kept, merged, statistics_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["StreamStatistics", "work_epochs"]

_MOST_ROWS = 50_000  # of counters that wait to be summed, whatever the time
_ROWS_PER_FRAME = 5_000
_NOTHING: dict[str, Any] = dict.fromkeys(EPOCHS.names, 0)
_Works = Mapping[tuple[str, str], tuple[Pipeline, Work]]


class StreamStatistics:
    """Gathers counters in the state and, every `every_ms` of arrival time, lets Spark sum them up."""

    def __init__(self, every_ms: int, cpu_ns: Callable[[], int], refining: Refining) -> None:
        self._every_ms, self._cpu_ns, self._refining = every_ms, cpu_ns, refining
        self._last_cpu_ns = cpu_ns()

    def frames(self, spark: SparkSession, state: State, works: _Works, plans: Plans) -> list[bytes]:
        """Take in what the step's operators did; STATISTICS and REFINED frames when it is time."""
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
        fresh = epoch_sums(spark.createDataFrame(state.counters).coalesce(1))
        if state.sums is not None:
            before = state.sums.select(SUMS.names)  # those of an earlier release had one more key
            fresh = fresh.unionByName(spark.createDataFrame(before)).coalesce(1)
        sums = merged(fresh).toArrow().select(SUMS.names).cast(SUMS)
        state.sums, state.counters, state.summed_ms = kept(sums), None, state.now_ms
        return refined + [encode_frame(frame) for frame in _frames(statistics_rows(sums, since), state)]

    def _is_time(self, state: State) -> bool:
        assert state.counters is not None
        return state.now_ms - state.summed_ms >= self._every_ms or state.counters.num_rows >= _MOST_ROWS


def work_epochs(works: _Works, widths_us: Mapping[str, int], *, cpu_ns: int, now_us: int, step: int) -> pa.Table | None:
    """The stream processor's operators as rows of `EPOCHS`, one step being one epoch.

    CPU time is apportioned by records, for Spark does not tell it by operator: `measured` is false.
    """
    counts: list[tuple[str, Pipeline, Work, int, int, int]] = [
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


def _frames(rows: pa.Table, state: State) -> list[Frame]:
    frames = []
    for begin in range(0, rows.num_rows, _ROWS_PER_FRAME):
        state.emitted += 1
        body = batch_bytes(rows.slice(begin, _ROWS_PER_FRAME).combine_chunks())
        frames.append(
            Frame(FrameKind.STATISTICS, SENDER, SENDER, state.emitted, extra={"batch": state.step}, body=body)
        )
    return frames
