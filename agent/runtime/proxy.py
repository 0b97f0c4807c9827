"""The control proxy before an operator: who goes in, who is drained, who was still waiting when the epoch ended."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

import pyarrow as pa

__all__ = ["ControlProxy", "Counts", "RecordQueue"]

ROUNDING = 1e-9  # of a record: 0.1 ten times over is one record


@dataclass
class Counts:
    """What one operator did in one epoch; names are those of `agent.wire.COUNTERS`."""

    records_in: int = 0
    records_processed: int = 0
    records_drained: int = 0
    records_overflow: int = 0
    records_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    bytes_drained: int = 0
    cpu_ns: int = 0
    groups_out: int = 0


class RecordQueue:
    """Tables in order, taken in pieces of any size without a copy."""

    def __init__(self) -> None:
        self._tables: deque[pa.Table] = deque()
        self.records = 0

    def put(self, table: pa.Table) -> None:
        if table.num_rows:
            self._tables.append(table)
            self.records += table.num_rows

    def take(self, most: int) -> pa.Table:
        """The first `most` records, or all there are; the queue is not empty."""
        found, wanted = [], min(most, self.records)
        self.records -= wanted
        while wanted:
            table = self._tables.popleft()
            if table.num_rows > wanted:
                self._tables.appendleft(table.slice(wanted))
                table = table.slice(0, wanted)
            found.append(table)
            wanted -= table.num_rows
        return pa.concat_tables(found)


class ControlProxy:
    """Lets the share `load_factor` of its input into the operator's queue; the rest is drained.

    The share is kept over time: what rounding leaves is carried over, so after n records those that passed differ from
    ``load_factor * n`` by less than one. Which ones pass moves on through the batches, for records often come sorted.

    Notes
    -----
    At every epoch's end ``processed + drained + overflow = in`` and the queue is empty (Jarvis, section IV: pending
    records make an operator congested; here they go on to the stream processor rather than wait).
    """

    def __init__(self, load_factor: float) -> None:
        self.load_factor = load_factor
        self.counts = Counts()
        self.queue = RecordQueue()
        self.drained: list[pa.Table] = []
        self._carry = 0.0
        self._turn = 0

    def admit(self, table: pa.Table) -> None:
        """Records arrive."""
        records = table.num_rows
        if not records:
            return
        self.counts.records_in += records
        self.counts.bytes_in += table.nbytes
        passing = self._passing(records)
        start = self._turn % records if 0 < passing < records else 0
        self._turn += passing
        self.queue.put(_around(table, start, passing))
        if passing < records:
            rest = _around(table, (start + passing) % records, records - passing)
            self.counts.records_drained += rest.num_rows
            self._drain(rest)

    def _passing(self, records: int) -> int:
        exact = self._carry + records * self.load_factor
        passing = min(records, math.floor(exact + ROUNDING))
        self._carry = exact - passing
        return passing

    def refuse(self, table: pa.Table) -> None:
        """Records that were let in but cannot be processed here go on unprocessed."""
        self.counts.records_overflow += table.num_rows
        self._drain(table)

    def end_epoch(self) -> tuple[list[pa.Table], Counts]:
        """What is to be sent to this operator's other half, and what happened; the next epoch starts from nothing."""
        if self.queue.records:
            self.refuse(self.queue.take(self.queue.records))
        drained, counts = self.drained, self.counts
        self.drained, self.counts = [], Counts()
        return drained, counts

    def _drain(self, table: pa.Table) -> None:
        self.counts.bytes_drained += table.nbytes
        self.drained.append(table)


def _around(table: pa.Table, start: int, count: int) -> pa.Table:
    """`count` records from `start` on, going on at the beginning behind the last one."""
    head = table.slice(start, count)
    if head.num_rows == count:
        return head
    return pa.concat_tables([head, table.slice(0, count - head.num_rows)])
