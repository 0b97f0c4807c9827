"""End of a query's epoch: its tables as frames, the notes for a restart, the controller's decision."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from agent.runtime.downstream import DELAY
from agent.runtime.durability.recovery import PlanDelta, PlanNote
from agent.runtime.query.adaptation import epoch_observation
from agent.runtime.query.pipeline import LocalPipeline
from agent.runtime.query.record_queue import QueueItem
from agent.runtime.reports import QueryEpochReport, epoch_row
from agent.wire import MAX_BODY_BYTES, Frame, FrameKind, batch_bytes

__all__ = ["Framer", "QueryEpochEnd", "adapt_query", "end_query_epoch"]


@dataclass
class Framer:
    """Builds the frames of one epoch, unnumbered, in the order in which they are to be sent."""

    agent: str
    epoch: int
    batch_records: int
    frames: list[Frame] = field(default_factory=list)
    lost: int = 0  #: records of which one alone is larger than a frame may be

    def tables(self, kind: FrameKind, query: str, plan: str, entry: int, tables: Sequence[pa.Table]) -> int:
        """Records or partial rows, about `batch_records` in each frame; how many bytes they are."""
        rows = sum(table.num_rows for table in tables)
        if not rows:
            return 0
        before = len(self.frames)
        whole = pa.concat_tables(tables).combine_chunks()
        pieces = -(-rows // self.batch_records)
        for i in range(pieces):
            start = i * rows // pieces
            piece = whole.slice(start, (i + 1) * rows // pieces - start)
            for body in self._bodies(piece):
                self._add(kind, query, plan, entry=entry, body=body)
        return sum(len(frame.body) for frame in self.frames[before:])

    def checkpoint(self, query: str, plan: str, entry: int, bodies: Sequence[bytes]) -> None:
        """A copy of all rows of open windows, in as many frames as there are bodies."""
        for part, body in enumerate(bodies, 1):
            extra = {"part": part, "parts": len(bodies)}
            self._add(FrameKind.CHECKPOINT, query, plan, entry=entry, body=body, extra=extra)

    def take_lost(self) -> int:
        """Records lost since this was last asked."""
        lost, self.lost = self.lost, 0
        return lost

    def _bodies(self, table: pa.Table) -> Iterator[bytes]:
        """The table's bytes, halved until each body may travel."""
        body = batch_bytes(table)
        if len(body) <= MAX_BODY_BYTES:
            yield body
        elif table.num_rows == 1:
            self.lost += 1
        else:
            half = table.num_rows // 2
            yield from self._bodies(table.slice(0, half))
            yield from self._bodies(table.slice(half))

    def mark(
        self, query: str, plan: str, paths: int, watermark_us: int, *, final: bool, delays: Mapping[str, Any] = {}
    ) -> None:
        """The watermark of every path, drained and regular; and how late the query's streams are, for a relay."""
        says: dict[str, Any] = {
            "watermarks": {str(k): watermark_us for k in range(paths)},
            "closing_epoch_us": self.epoch,
            "final": final,
        }
        if delays:
            says[DELAY] = dict(delays)
        self._add(FrameKind.MARK, query, plan, extra=says)

    def sweeps(self, table: pa.Table) -> None:
        """Windows of all queries whose watermark has passed the operators."""
        self._add(FrameKind.SWEEPS, "", "", body=batch_bytes(table))

    def counters(self, table: pa.Table, variation: Mapping[str, Any]) -> None:
        """Add the counters of every operator, and how costs and arrivals vary; the last frame of an epoch."""
        self._add(FrameKind.COUNTERS, "", "", body=batch_bytes(table), extra=variation)

    def _add(self, kind: FrameKind, query: str, plan: str, **rest: Any) -> None:
        self.frames.append(Frame(kind, self.agent, life="", seq=1, query=query, plan=plan, epoch=self.epoch, **rest))


@dataclass(frozen=True)
class QueryEpochEnd:
    """State of a query after an epoch, as a restart needs it."""

    note: PlanNote
    delta: PlanDelta
    rows: list[pa.Table]  #: of open windows
    queue: tuple[QueueItem, ...]  #: what waits


def end_query_epoch(
    report: QueryEpochReport, framer: Framer, epoch_us: int, checkpoint_share: float, delays: Mapping[str, Any]
) -> QueryEpochEnd:
    """Frame the output of the query's pipeline, and count it in the report; `delays` of its streams go with the
    mark.
    """
    pipeline = report.pipeline
    paths, closed, report.counts = pipeline.end_epoch(epoch_us)
    for k, tables in enumerate(paths):
        pipeline.checkpoints.sent(framer.tables(FrameKind.RECORDS, pipeline.query, pipeline.plan, k, tables))
    if (other := pipeline.config.pipeline.other_entry) is not None:
        framer.tables(FrameKind.RECORDS, pipeline.query, pipeline.plan, other, pipeline.take_others())
    entry = max(len(pipeline.stages) - 1, 0)
    if closed.emitted is not None:
        pipeline.checkpoints.sent(
            framer.tables(FrameKind.PARTIALS, pipeline.query, pipeline.plan, entry, [closed.emitted])
        )
    if pipeline.windows is not None:
        bodies = pipeline.checkpoints.due(pipeline.windows, checkpoint_share)
        framer.checkpoint(pipeline.query, pipeline.plan, entry, bodies)
    framer.mark(pipeline.query, pipeline.plan, len(paths), pipeline.watermark_us, final=False, delays=delays)
    delta = PlanDelta(closed.delta, pipeline.queue_change())
    rows = pipeline.windows.tables() if pipeline.windows is not None else []
    note = _note(pipeline, entry).anew(delta, restart=closed.restart)
    return QueryEpochEnd(note, delta, rows, pipeline.queue_items())


def _note(pipeline: LocalPipeline, entry: int) -> PlanNote:
    return PlanNote(
        query=pipeline.query,
        plan=pipeline.plan,
        paths=len(pipeline.stages) + 1,
        entry=entry,
        size_us=pipeline.windows.size_us if pipeline.windows is not None else None,
        watermark_us=pipeline.watermark_us,
    )


def adapt_query(report: QueryEpochReport, epoch_us: int, epoch_s: float) -> dict[str, Any]:
    """Let the query's controller decide on the next epoch; the row of this one."""
    pipeline, version = report.pipeline, report.pipeline.adaptation.version
    seen = epoch_observation(
        report.counts,
        pipeline.load_factors,
        epoch_us=epoch_us,
        epoch_s=epoch_s,
        budget_s=report.budget_ns / 1e9,
        used_s=report.used_ns / 1e9,
    )
    pipeline.adaptation.epoch_over(seen, report.counts)
    return epoch_row(seen, report.counts, version)
