"""Executor side: records are processed where they are read; the driver gets partial aggregates.

A task knows the positions of the agents' generations. Records that are due, of known plans, it runs through the
operators and returns as one row for each flow: partial aggregates as an Arrow stream, and the operators' counters.
Their frames go to the driver without bodies. Every other frame keeps its body, and the driver treats it as in a small
batch: frames behind a gap wait, unreadable ones go to quarantine. Only returned rows count, so a task that runs twice
counts once.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from agent.wire import FrameKind, batch_bytes, table_of
from engine.dataflow.pipeline import Pipeline
from spark_jobs.input.arrivals import Arrival
from spark_jobs.input.entries import ARRIVAL_SCHEMA, Read, arrival_rows
from spark_jobs.plans import aggregate_of
from spark_jobs.records import BadBody, entry_schema, process_at_driver, read_conforming
from spark_jobs.results import OperatorWork

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["SenderOrder", "TaskResult", "process_in_tasks"]

_RESULT = "result"  # kind of a row that is no frame, but the result of a flow's records
_AT_ONCE_BYTES = 16 * 2**20  # a task holds so much, and its partial aggregates
_ARRIVAL_SQL = (
    "id string, agent string, life string, seq bigint, kind string, query string, plan string, entry int, "
    "epoch bigint, extra string, body binary, size bigint"
)
_RECORDS = FrameKind.RECORDS.value
_NOTHING = pa.py_buffer(b"")
_SenderKey = tuple[str, str]


@dataclass(frozen=True)
class TaskResult:
    """Result of a flow's records in one task."""

    flow: tuple[str, str]
    partial: pa.Table
    counts: list[list[int]]  #: operator, records in, records out


@dataclass
class SenderOrder:
    """Order of the senders' frames, as in `arrivals.in_order`: sequence numbers follow each other, and count once."""

    last: dict[_SenderKey, int]
    early: dict[_SenderKey, set[int]] = field(
        default_factory=dict
    )  #: numbers the driver has, or will have, with bodies

    @classmethod
    def of(cls, positions: Mapping[_SenderKey, int], waiting: Iterable[Arrival]) -> SenderOrder:
        """Order after the processed positions, beside the waiting frames."""
        order = cls(dict(positions))
        for arrival in waiting:
            order.early.setdefault(arrival.sender, set()).add(arrival.seq)
        return order

    def is_due(self, sender: _SenderKey, seq: int) -> bool | None:
        """Whether it follows on the last one; None for one that is here already."""
        last, early = self.last.get(sender, 0), self.early.setdefault(sender, set())
        if seq <= last or seq in early:
            return None
        if seq > last + 1:
            early.add(seq)
            return False
        while (seq := seq + 1) in early:
            early.remove(seq)
        self.last[sender] = seq - 1
        return True


def process_in_tasks(
    spans: DataFrame,
    read: Read,
    pipelines: Iterable[Pipeline],
    positions: Mapping[_SenderKey, int],
    waiting: Iterable[Arrival],
) -> tuple[pa.Table, list[TaskResult]]:
    """The frames of a batch as rows of `arrivals_of`, and the results of the records among them.

    Parameters
    ----------
    spans
        The batch; what belongs to one life is in one of them.
    read
        From spans to frames.
    pipelines
        Of plans whose records may be processed.
    positions, waiting
        Of the state before the batch.
    """
    documents = {pipeline.digest: json.dumps(pipeline.document) for pipeline in pipelines}
    rows = spans.mapInArrow(_process(read, documents, SenderOrder.of(positions, waiting)), _ARRIVAL_SQL).toArrow()
    is_result = pc.equal(rows["kind"], _RESULT)
    return rows.filter(pc.invert(is_result)), [_task_result(row) for row in rows.filter(is_result).to_pylist()]


def _task_result(row: Mapping[str, Any]) -> TaskResult:
    return TaskResult((row["query"], row["plan"]), table_of(row["body"]), json.loads(row["extra"]))


def _process(
    read: Read, documents: Mapping[str, str], order: SenderOrder
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function of a task; `order` is its own copy."""

    def run(spans: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        flows: dict[tuple[str, str], _TaskFlow] = {}
        for batch in read(spans):
            yield _passed(batch, lambda row, body: _take(row, body, order, documents, flows))
        if flows:
            rows = [flow.given(*key) for key, flow in flows.items()]
            yield pa.RecordBatch.from_pylist(rows, schema=ARRIVAL_SCHEMA)

    return run


def _passed(batch: pa.RecordBatch, take: Callable[[Mapping[str, Any], pa.Buffer], bool]) -> pa.RecordBatch:
    """The batch as the driver gets it: without the bodies that `take` takes."""
    bodies = batch.column("body")
    rows = batch.select(["agent", "life", "seq", "kind", "query", "plan", "entry"]).to_pylist()
    return arrival_rows(
        batch, [take(row, body.as_buffer() or _NOTHING) for row, body in zip(rows, bodies, strict=True)]
    )


def _take(
    row: Mapping[str, Any],
    body: pa.Buffer,
    order: SenderOrder,
    documents: Mapping[str, str],
    flows: dict[tuple[str, str], _TaskFlow],
) -> bool:
    """Whether the frame's body is done with: its records are processed, or were before."""
    due = order.is_due((row["agent"], row["life"]), row["seq"])
    if row["kind"] != _RECORDS or not due:
        return row["kind"] == _RECORDS and due is None
    document = documents.get(row["plan"])
    if document is None:
        return False
    pipeline = _pipeline(document)
    try:
        table = read_conforming(body, entry_schema(pipeline, row["entry"]))
    except BadBody:
        return False
    flows.setdefault((row["query"], row["plan"]), _TaskFlow(pipeline)).add(row["entry"], table, body.size)
    return True


@dataclass
class _TaskFlow:
    """Records of one flow in a task."""

    pipeline: Pipeline
    tables: dict[int, list[pa.Table]] = field(default_factory=lambda: defaultdict(list))
    partials: list[pa.Table] = field(default_factory=list)
    size: int = 0
    work: OperatorWork = field(default_factory=OperatorWork)

    def add(self, entry: int, table: pa.Table, size: int) -> None:
        self.tables[entry].append(table)
        self.size += size
        if self.size > _AT_ONCE_BYTES:
            self._settle()

    def _settle(self) -> None:
        if self.tables:
            self.partials.append(process_at_driver(self.pipeline, self.tables, self.work))
        self.tables.clear()
        self.size = 0

    def given(self, query: str, plan: str) -> dict[str, Any]:
        """The row for the driver."""
        self._settle()
        partial = aggregate_of(self.pipeline).merge(self.partials)
        counts = [[index, *both] for index, both in self.work.counts.items()]
        row = {"query": query, "plan": plan, "kind": _RESULT, "extra": json.dumps(counts)}
        return row | {"body": batch_bytes(partial.combine_chunks()), "size": 0}


@lru_cache(maxsize=100)
def _pipeline(document: str) -> Pipeline:
    """The pipeline of a document; a worker keeps it from batch to batch."""
    return Pipeline.parse(json.loads(document))
