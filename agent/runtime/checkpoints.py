"""Copies of open windows, sent while nothing is lost yet: the stream processor goes on with them if the agent dies."""

from __future__ import annotations

from agent.runtime.windows import OpenWindows
from agent.wire import MOST_BODY_BYTES, batch_bytes

__all__ = ["Checkpoints"]


class Checkpoints:
    """When a query's open windows are worth a copy: when it is small beside what was sent since the last one."""

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
        parts = -(-table.nbytes // (MOST_BODY_BYTES // 2))
        rows = -(-table.num_rows // parts)
        bodies = [batch_bytes(table.slice(at, rows).combine_chunks()) for at in range(0, table.num_rows, rows)]
        if sum(map(len, bodies)) > most_bytes or max(map(len, bodies)) > MOST_BODY_BYTES:
            return []
        self._sent_bytes = 0
        return bodies
