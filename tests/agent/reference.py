"""Perfect stream processor in memory: the results of agents' frames when nothing is late, lost or dropped."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from agent.wire import COUNTERS, SWEEPS, Frame, FrameKind, decode_frames, table_of
from engine.dataflow import Pipeline
from engine.dataflow.arrow.kernels import kernel, partial_schema, rest, whole

Key = tuple[str, str]


class ReferenceProcessor:
    """Takes the frames of any number of agents and gives the result of every query.

    `take` asserts what holds of every frame: numbers without gaps, a schema that fits its entry, watermarks that never
    go back, and at every proxy in + queued before = processed + drained + overflow + queued.
    """

    def __init__(self, pipelines: Iterable[Pipeline]) -> None:
        self.pipelines = {pipeline.digest: pipeline for pipeline in pipelines}
        self.last: dict[tuple[str, str], int] = {}  #: agent, life -> seq
        self.marks: dict[tuple[str, str, str], dict[str, int]] = {}  #: agent, query, plan -> watermarks
        self.finals: list[Key] = []
        self.counters: list[dict[str, Any]] = []
        self.sweeps: list[dict[str, Any]] = []  #: windows whose watermark has passed the agent's operators
        self.records: dict[Key, int] = defaultdict(int)  #: that came unfinished
        self.late: int = 0  #: rows behind a watermark that was marked before
        self.epochs: list[int] = []
        self.queued: dict[tuple[str, str, str, str], int] = {}  #: agent, query, plan, operator -> records
        self._partials: dict[Key, list[pa.Table]] = defaultdict(list)
        self.checkpoints: dict[
            tuple[str, str, str], tuple[int, list[pa.Table]]
        ] = {}  #: by agent and flow, with its epoch
        self._coming: list[pa.Table] = []  # parts of a checkpoint
        self._takers = {
            FrameKind.RECORDS: self._take_records,
            FrameKind.PARTIALS: self._take_partials,
            FrameKind.CHECKPOINT: self._take_checkpoint,
            FrameKind.MARK: self._take_mark,
            FrameKind.SWEEPS: self._take_sweeps,
            FrameKind.COUNTERS: self._take_counters,
        }

    def take(self, data: bytes) -> None:
        """Frames as they travel; one that came before is passed over."""
        for frame, _ in decode_frames(data):
            sender = (frame.agent, frame.life)
            if frame.seq <= self.last.get(sender, 0):
                continue
            assert frame.seq == self.last.get(sender, 0) + 1, f"a gap before frame {frame.seq}"
            self.last[sender] = frame.seq
            self._takers[frame.kind](frame)

    def _take_records(self, frame: Frame) -> None:
        pipeline = self.pipelines[frame.plan]
        assert 0 <= frame.entry <= pipeline.source_operators
        table = table_of(frame.body)
        assert table.schema.equals(_schema_at(pipeline, frame.entry)), f"{table.schema} at {frame.entry}"
        self.records[frame.query, frame.plan] += table.num_rows
        self._count_late(frame, table, pipeline.source.time, 1)
        for k in range(frame.entry, pipeline.aggregate):
            table = kernel(pipeline, k).run(table)
        self._partials[frame.query, frame.plan].append(kernel(pipeline, pipeline.aggregate).partial(table))

    def _take_partials(self, frame: Frame) -> None:
        pipeline = self.pipelines[frame.plan]
        assert frame.entry == pipeline.aggregate
        table = table_of(frame.body)
        assert table.schema.equals(partial_schema(pipeline)), table.schema
        self._count_late(frame, table, "window_start", pipeline.window.size_us)
        self._partials[frame.query, frame.plan].append(table)
        _, copies = self.checkpoints.get((frame.agent, frame.query, frame.plan), (0, []))
        copies[:] = [copy.filter(pc.invert(pc.is_in(copy["window_start"], table["window_start"]))) for copy in copies]

    def _take_checkpoint(self, frame: Frame) -> None:
        pipeline = self.pipelines[frame.plan]
        assert frame.entry == pipeline.aggregate
        table = table_of(frame.body)
        assert table.schema.equals(partial_schema(pipeline)), table.schema
        assert frame.extra["part"] == len(self._coming) + 1, "parts come one after the other"
        self._coming.append(table)
        if frame.extra["part"] == frame.extra["parts"]:
            self.checkpoints[frame.agent, frame.query, frame.plan] = frame.epoch, self._coming
            self._coming = []

    def _count_late(self, frame: Frame, table: pa.Table, column: str, width_us: int) -> None:
        marked = self.marks.get((frame.agent, frame.query, frame.plan), {}).get(str(frame.entry), 0)
        ends = pc.add(table[column].cast(pa.int64()), width_us)
        self.late += pc.sum(pc.less_equal(ends, marked).cast(pa.int64())).as_py() or 0

    def _take_mark(self, frame: Frame) -> None:
        pipeline = self.pipelines[frame.plan]
        key = (frame.agent, frame.query, frame.plan)
        watermarks = frame.extra["watermarks"]
        assert list(watermarks) == [str(k) for k in range(pipeline.source_operators + 1)]
        for path, before in self.marks.get(key, {}).items():
            assert watermarks[path] >= before, "a watermark went back"
        self.marks[key] = watermarks
        if frame.extra["final"]:
            self.finals.append((frame.query, frame.plan))
            self.checkpoints.pop(key, None)
            self.queued = {key_: left for key_, left in self.queued.items() if key_[:3] != key}

    def _take_sweeps(self, frame: Frame) -> None:
        table = table_of(frame.body)
        assert table.schema.equals(SWEEPS)
        rows = table.to_pylist()
        assert all(row["arrived_us"] <= row["swept_us"] <= row["emitted_us"] for row in rows), rows
        assert all(row["epoch_us"] == frame.epoch for row in rows)
        self.sweeps += rows

    def _take_counters(self, frame: Frame) -> None:
        table = table_of(frame.body)
        assert table.schema.equals(COUNTERS)
        rows = table.to_pylist()
        for row in rows:
            counter = frame.extra.get("origin", frame.agent)  # a relay passes on what several agents counted
            operator = (counter, row["query"], row["plan"], row["operator"])
            seen = row["records_processed"] + row["records_drained"] + row["records_overflow"] + row["records_queued"]
            assert seen == row["records_in"] + self.queued.get(operator, 0), row
            self.queued[operator] = row["records_queued"]
        self.counters += rows
        self.epochs.append(frame.epoch)

    def result(self, query: str, pipeline: Pipeline, *, dead: bool = False) -> pa.Table:
        """The query's rows, of every window; with what agents last said of their open ones, had they all died."""
        parts = list(self._partials.get((query, pipeline.digest), ()))
        for key, (_, copies) in self.checkpoints.items():
            parts += copies if dead and key[1:] == (query, pipeline.digest) else []
        if not parts:
            return whole(pipeline, pipeline.source.schema.empty_table())
        one = kernel(pipeline, pipeline.aggregate)
        return rest(pipeline, one.finalise(one.merge(parts)))

    def total(self, name: str, **where: Any) -> int:
        """A counter's sum, over the rows that say `where`."""
        return sum(row[name] for row in self.counters if all(row[key] == value for key, value in where.items()))


def _schema_at(pipeline: Pipeline, entry: int) -> pa.Schema:
    operators = pipeline.operators
    return operators[entry].input_schema if entry < len(operators) else operators[-1].output_schema


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    """Rows in an order of their own, to compare tables whose order means nothing."""
    return sorted(table.to_pylist(), key=lambda row: [repr(row[name]) for name in sorted(row)])
