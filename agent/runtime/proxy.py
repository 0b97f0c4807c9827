"""The control proxy before an operator: who goes in, who is drained, who is sent on because it would wait too long."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pyarrow as pa

from agent.runtime.waiting import RecordQueue

__all__ = ["ControlProxy", "Counts"]

ROUNDING = 1e-9  # of a record: 0.1 ten times over is one record


@dataclass
class Counts:
    """What one operator did in one epoch; names are those of `agent.wire.COUNTERS`."""

    records_in: int = 0
    records_processed: int = 0
    records_drained: int = 0
    records_overflow: int = 0
    records_queued: int = 0  #: at the epoch's end
    records_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    bytes_drained: int = 0
    cpu_ns: int = 0
    groups_out: int = 0


class ControlProxy:
    """Lets the share `load_factor` of its input into the operator's queue; the rest is drained.

    The share is kept over time: what rounding leaves is carried over, so after n records those that passed differ from
    ``load_factor * n`` by less than one. Which ones pass moves on through the batches, for records often come sorted.

    Notes
    -----
    At every epoch's end ``in + queued before = processed + drained + overflow + queued``. Records that are given up
    are overflow: they go on to the stream processor, unprocessed.
    """

    def __init__(self, load_factor: float, period_us: int | None = None) -> None:
        self.load_factor = load_factor
        self.counts = Counts()
        self.queue = RecordQueue(period_us)
        self.drained: list[pa.Table] = []
        self._carry = 0.0
        self._turn = 0

    def admit(self, table: pa.Table, arrived_us: int = 0, least_us: int = 0) -> None:
        """Records arrive; they came to the agent then, and none is of an earlier event time."""
        records = table.num_rows
        if not records:
            return
        self.counts.records_in += records
        self.counts.bytes_in += table.nbytes
        passing = self._passing(records)
        start = self._turn % records if 0 < passing < records else 0
        self._turn += passing
        self.queue.put(_around(table, start, passing), arrived_us, least_us)
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

    def give_up(self, records: int) -> None:
        """The first of those that wait go on unprocessed."""
        if records:
            self.refuse(self.queue.take(records).table)

    def end_epoch(self) -> tuple[list[pa.Table], Counts]:
        """What is to be sent to this operator's other half, and what happened."""
        drained, counts = self.drained, self.counts
        counts.records_queued = self.queue.records
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
