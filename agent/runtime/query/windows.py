"""Open windows of an aggregate, and the checkpoints of them that go to the stream processor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from agent.wire import MAX_AHEAD_US, MAX_BODY_BYTES, batch_bytes

__all__ = ["Checkpoints", "ClosedWindows", "OpenWindows", "still_open"]


WINDOW = "window_start"
MAX_TABLES = 16  # partial results of open windows that wait unmerged
MAX_FRESH = 64  # of one epoch


@dataclass
class ClosedWindows:
    """Outcome of an epoch's end for the windows."""

    emitted: pa.Table | None  #: to be sent now
    delta: pa.Table | None  #: what this epoch added to the windows that stay open
    restart: bool  #: the delta stands for the whole state
    groups: int  #: distinct groups of the epoch


def still_open(table: pa.Table, size_us: int, watermark_us: int, epoch_us: int = 0) -> pa.ChunkedArray:
    """Of each partial row: does its window end above the watermark, and not begin too far after the epoch, if any?"""
    begins = table[WINDOW].cast(pa.int64())
    above = pc.greater(begins, pa.scalar(watermark_us - size_us, pa.int64()))
    return pc.and_(above, pc.less_equal(begins, epoch_us + MAX_AHEAD_US)) if epoch_us else above


@dataclass
class OpenWindows:
    """Partial rows by group and window; `merge` is the aggregate's own.

    A window is sent once the watermark has passed its end. Records that are later still make another partial of it,
    sent at once: the stream processor merges. So a state above `most_bytes` is simply sent early, and so is what
    begins more than `MAX_AHEAD_US` after the epoch: no watermark would come that far, and it is counted up there.
    """

    merge: Callable[[list[pa.Table]], pa.Table]
    size_us: int | None  #: None: no windows, everything is sent at each epoch's end
    most_bytes: int
    _settled: list[pa.Table] = field(default_factory=list)
    _fresh: list[pa.Table] = field(default_factory=list)

    def add(self, partial: pa.Table) -> None:
        """A sub-epoch's groups."""
        self._fresh.append(partial)
        if len(self._fresh) >= MAX_FRESH:
            self._fresh = [self.merge(self._fresh)]

    def restore(self, tables: Sequence[pa.Table]) -> None:
        """Restore the windows from before a restart."""
        self._settled.extend(tables)

    def end_epoch(self, watermark_us: int, epoch_us: int) -> ClosedWindows:
        """Take out the windows that the watermark closed, and new rows that lie too far ahead."""
        fresh = self._merged(self._fresh)
        groups = fresh.num_rows if fresh is not None else 0
        self._fresh = []
        if self.size_us is None:
            return ClosedWindows(fresh, None, restart=True, groups=groups)
        delta, closing = self._split(fresh, watermark_us, epoch_us)
        parts = [self._split(table, watermark_us) for table in self._settled]
        parts.append((delta, closing))
        self._settled = [stays for stays, _ in parts if stays is not None]
        gone = [goes for _, goes in parts if goes is not None]
        if len(self._settled) > MAX_TABLES:
            self._settled = [self.merge(self._settled)]
        if sum(table.nbytes for table in self._settled) > self.most_bytes:
            gone, self._settled = [*gone, *self._settled], []
            return ClosedWindows(self._merged(gone), None, restart=True, groups=groups)
        return ClosedWindows(self._merged(gone), delta, restart=False, groups=groups)

    def tables(self) -> list[pa.Table]:
        """Everything that is open, as it lies."""
        return list(self._settled)

    def all(self) -> pa.Table | None:
        """Everything that is open, merged."""
        merged = self._merged(self._settled)
        self._settled = [] if merged is None else [merged]
        return merged

    def _merged(self, tables: list[pa.Table]) -> pa.Table | None:
        if not tables:
            return None
        return tables[0] if len(tables) == 1 else self.merge(tables)

    def _split(
        self, table: pa.Table | None, watermark_us: int, epoch_us: int = 0
    ) -> tuple[pa.Table | None, pa.Table | None]:
        """Rows that stay and rows that go; None where there are none."""
        if table is None or not table.num_rows or self.size_us is None:
            return None, None
        stays = still_open(table, self.size_us, watermark_us, epoch_us)
        if pc.all(stays).as_py():
            return table, None
        goes = table.filter(pc.invert(stays))
        return (table.filter(stays) if goes.num_rows < table.num_rows else None), goes


class Checkpoints:
    """Timing of checkpoints: a copy of the open windows is sent when it is small beside the data sent since the last
    one.
    """

    def __init__(self) -> None:
        self._sent_bytes = 0

    def sent(self, size_bytes: int) -> None:
        """The query has sent so much else."""
        self._sent_bytes += size_bytes

    def due(self, windows: OpenWindows, share: float) -> list[bytes]:
        """Bodies of a copy of everything that is open; empty while it is too large, or nothing is open.

        Rows are merged only where the copy may be small enough: the whole is not smaller than one of its parts.
        """
        most_bytes = share * self._sent_bytes
        if max((table.nbytes for table in windows.tables()), default=most_bytes + 1) > most_bytes:
            return []
        table = windows.all()
        if table is None or not table.num_rows:
            return []
        parts = -(-table.nbytes // (MAX_BODY_BYTES // 2))
        rows = -(-table.num_rows // parts)
        bodies = [batch_bytes(table.slice(at, rows).combine_chunks()) for at in range(0, table.num_rows, rows)]
        if sum(map(len, bodies)) > most_bytes or max(map(len, bodies)) > MAX_BODY_BYTES:
            return []
        self._sent_bytes = 0
        return bodies
