"""Tables of an epoch as frames."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from agent.forwarding import DELAY
from agent.wire import MOST_BODY_BYTES, Frame, FrameKind, batch_bytes

__all__ = ["Framer"]


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
        if len(body) <= MOST_BODY_BYTES:
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

    def counters(self, table: pa.Table) -> None:
        """What every operator did; the last frame of an epoch."""
        self._add(FrameKind.COUNTERS, "", "", body=batch_bytes(table))

    def _add(self, kind: FrameKind, query: str, plan: str, **rest: Any) -> None:
        self.frames.append(Frame(kind, self.agent, life="", seq=1, query=query, plan=plan, epoch=self.epoch, **rest))
