"""Results of closed windows, and what operators did for them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from agent.wire import MAX_BODY_BYTES, MAX_TABLE_BYTES, batch_bytes
from agent.wire.schemas import compressed_bytes
from engine.dataflow.arrow.kernels import RowKernel
from engine.dataflow.pipeline import Pipeline
from spark_jobs.plans import aggregate_of, operator_of
from spark_jobs.state import FlowState, RecoveredRows
from spark_jobs.windows import DueWindow, closing_epoch_us, count_records

__all__ = ["OperatorWork", "finish_partials", "result_body", "result_facts"]

_MAX_NAMED = 100  # agents in a header, which has bounds


@dataclass
class OperatorWork:
    """Counters of one flow's operators in a step: [records in, records out] by operator."""

    counts: dict[int, list[int]] = field(default_factory=dict)
    groups: int = 0

    def add(self, operator: int, records_in: int, records_out: int) -> None:
        both = self.counts.setdefault(operator, [0, 0])
        both[0] += records_in
        both[1] += records_out

    def merge(self, other: OperatorWork) -> None:
        """Add what another did."""
        for operator, both in other.counts.items():
            self.add(operator, *both)
        self.groups += other.groups

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


def result_facts(
    flow: FlowState, pipeline: Pipeline, due: DueWindow, rows: pa.Table, recovered: RecoveredRows
) -> dict[str, Any]:
    """Header of a window's RESULT frame; `recovered` are the rows that silent agents left of it, included in `rows`."""
    assert pipeline.window is not None
    records_by_agent = {agent: count_records(partial) for agent, partial in recovered.items()}
    facts: dict[str, Any] = {
        "window_us": due.begin_us,
        "width_us": pipeline.window.size_us,
        "revision": due.window.revision,
        "complete": not due.missing,
        "missing": due.missing[:_MAX_NAMED],
        "late": flow.late,
        "early": flow.early,
        "rows": rows.num_rows,
        "records": due.window.records + sum(records_by_agent.values()),
        "closing_epoch_us": closing_epoch_us(flow.agents.values(), due.end_us),
    }
    if records_by_agent:
        facts["recovered"] = dict(sorted(records_by_agent.items())[:_MAX_NAMED])
    return facts


def _through(pipeline: Pipeline, index: int, rows: pa.Table) -> pa.Table:
    """One operator after the aggregate, on all rows of a window."""
    operator = operator_of(pipeline, index)
    return operator.run(rows) if isinstance(operator, RowKernel) else operator.finalise(operator.partial(rows))


def result_body(rows: pa.Table) -> tuple[bytes, int]:
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
