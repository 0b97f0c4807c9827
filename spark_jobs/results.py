"""Results of closed windows, as frames for the console."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from agent.wire import MAX_BODY_BYTES, MAX_TABLE_BYTES, Frame, FrameKind, batch_bytes, encode_frame
from agent.wire.schemas import compressed_bytes
from engine.dataflow.arrow.kernels import RowKernel
from engine.dataflow.pipeline import Pipeline
from spark_jobs.plans import aggregate_of, operator_of
from spark_jobs.state import FlowState, RecoveredRows, StreamState
from spark_jobs.statistics import updates
from spark_jobs.windows import DueWindow, closing_epoch_us, count_records

__all__ = ["SENDER", "OperatorWork", "finish_partials", "result_frame", "update_frame"]

_MAX_NAMED = 100  # agents in a header, which has bounds
SENDER = "stream"  #: the stream processor as an agent among agents


@dataclass
class OperatorWork:
    """Counters of one flow's operators in a step: [records in, records out] by operator."""

    counts: dict[int, list[int]] = field(default_factory=dict)
    groups: int = 0
    epoch_us: int = 0  #: of the newest frame behind it

    def add(self, operator: int, records_in: int, records_out: int) -> None:
        both = self.counts.setdefault(operator, [0, 0])
        both[0] += records_in
        both[1] += records_out

    @property
    def records_entered(self) -> int:
        """Records that came from outside: those an operator took beyond what the one before it gave."""
        given = {operator + 1: records_out for operator, (_, records_out) in self.counts.items()}
        return sum(max(taken - given.get(operator, 0), 0) for operator, (taken, _) in self.counts.items())


def finish_partials(pipeline: Pipeline, partial: pa.Table, work: OperatorWork) -> pa.Table:
    """The rows of a closed window: the aggregate's, taken through the operators after it."""
    assert pipeline.aggregate is not None
    rows = aggregate_of(pipeline).finalise(partial)
    work.add(pipeline.aggregate, 0, rows.num_rows)
    work.groups += rows.num_rows
    for operator in pipeline.operators[pipeline.aggregate + 1 :]:
        after = _through(pipeline, operator.index, rows)
        work.add(operator.index, rows.num_rows, after.num_rows)
        rows = after
    return rows


def result_frame(
    flow: FlowState, pipeline: Pipeline, due: DueWindow, rows: pa.Table, recovered: RecoveredRows, step: int, seq: int
) -> Frame:
    """The RESULT frame of a window, issued now; `recovered` are the rows that silent agents left of it, included in
    `rows`.
    """
    assert pipeline.window is not None
    body, left_out = _body(rows)
    records_by_agent = {agent: count_records(partial) for agent, partial in recovered.items()}
    extra: dict[str, Any] = {
        "window_us": due.begin_us,
        "width_us": pipeline.window.size_us,
        "revision": due.window.revision,
        "batch": step,
        "complete": not due.missing,
        "missing": due.missing[:_MAX_NAMED],
        "late": flow.late,
        "early": flow.early,
        "rows": rows.num_rows,
        "records": due.window.records + sum(records_by_agent.values()),
        "closing_epoch_us": closing_epoch_us(flow.agents.values(), due.end_us),
        "emitted_us": time.time_ns() // 1000,
    }
    if records_by_agent:
        extra["recovered"] = dict(sorted(records_by_agent.items())[:_MAX_NAMED])
    if left_out:
        extra["left_out"] = left_out
    return Frame(
        FrameKind.RESULT,
        agent=SENDER,
        life=SENDER,
        seq=seq,
        query=flow.query,
        plan=flow.plan,
        epoch=due.begin_us,
        extra=extra,
        body=body,
    )


def update_frame(
    kind: FrameKind, schema: pa.Schema, state: StreamState, flow: updates.FlowKey, rows: updates.Rows
) -> bytes:
    """One query's rows as the next frame of the stream processor."""
    state.emitted += 1
    body = compressed_bytes(pa.Table.from_pylist(rows, schema=schema))
    query, plan = flow
    extra = {"batch": state.step}
    return encode_frame(Frame(kind, SENDER, SENDER, state.emitted, query=query, plan=plan, extra=extra, body=body))


def _through(pipeline: Pipeline, index: int, rows: pa.Table) -> pa.Table:
    """One operator after the aggregate, on all rows of a window."""
    operator = operator_of(pipeline, index)
    return operator.run(rows) if isinstance(operator, RowKernel) else operator.finalise(operator.partial(rows))


def _body(rows: pa.Table) -> tuple[bytes, int]:
    """The rows as bytes that fit into a frame, compressed where they must be; and how many rows had to stay behind."""
    body = batch_bytes(rows)
    if len(body) <= MAX_BODY_BYTES:
        return body, 0
    kept = rows
    while kept.nbytes > MAX_TABLE_BYTES:
        kept = kept.slice(0, int(kept.num_rows * 0.9 * MAX_TABLE_BYTES / kept.nbytes))
    while len(body := compressed_bytes(kept)) > MAX_BODY_BYTES:
        kept = kept.slice(0, int(kept.num_rows * 0.9 * MAX_BODY_BYTES / len(body)))
    return body, rows.num_rows - kept.num_rows
