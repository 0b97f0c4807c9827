"""What waits before an operator: records in the order in which they came, and among them marks of the watermark."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import NamedTuple

import pyarrow as pa

__all__ = ["NOTHING", "Change", "Item", "Mark", "RecordQueue", "Waiting", "changed"]

MOST_KEPT = 2  # bytes in memory for each byte of records that outlive an epoch


@dataclass(frozen=True, slots=True)
class Waiting:
    """Records that wait together."""

    table: pa.Table
    arrived_us: int = 0  #: when the first came to the agent, in the time of epochs
    least_us: int = 0  #: event time of the earliest
    size_bytes: int = 0

    @property
    def records(self) -> int:
        return int(self.table.num_rows)

    def split(self, records: int) -> tuple[Waiting, Waiting]:
        """So many of them, and the others."""
        size_bytes = self.size_bytes * records // self.records
        head, tail = self.table.slice(0, records), self.table.slice(records)
        return (
            Waiting(head, self.arrived_us, self.least_us, size_bytes),
            Waiting(tail, self.arrived_us, self.least_us, self.size_bytes - size_bytes),
        )

    def alone(self) -> Waiting:
        """The same without the table that it is a small part of, and would keep in memory."""
        table = self.table
        if table.get_total_buffer_size() <= MOST_KEPT * self.size_bytes:
            return self
        pieces = [table.slice(0, 0), table]  # several chunks are copied, one would stay as it is
        return replace(self, table=pa.concat_tables(pieces).combine_chunks())


@dataclass(frozen=True, slots=True)
class Mark:
    """No record behind it falls below the watermark."""

    watermark_us: int
    arrived_us: int  #: when the agent read it
    queued: int = 0  #: records of the query that waited before it then
    work_s: float = 0.0  #: CPU time that they were expected to take


Item = Waiting | Mark


class Change(NamedTuple):
    """What became of a queue since it was last asked."""

    left: int  #: of the records that were there, those that are gone, all from the front
    came: list[Item]  #: and wait still


NOTHING = Change(0, [])


def changed(items: Iterable[Item], change: Change) -> Iterator[Item]:
    """What waits after a change, given what waited before it: a mark goes with the last record before it."""
    left, before = change.left, True
    for item in items:
        if isinstance(item, Waiting):
            if left >= item.records:
                left -= item.records
                continue
            item, left = item.split(left)[1] if left else item, 0
            before = False
        elif before:
            continue
        yield item
    yield from change.came


class RecordQueue:
    """Records are taken from the front, in pieces of any size without a copy; marks come out when all before them is.

    Marks with no records between them become one, unless a window ends between them: it is to be known when it could
    have been closed.
    """

    def __init__(self, period_us: int | None = None) -> None:
        self._items: deque[Item] = deque()
        self._period_us = period_us
        self._old = 0  # items at the front that were there at the last `change`
        self._left = 0  # of their records, those that are gone since
        self._out: list[Mark] = []
        self.records = self.size_bytes = 0

    def put(self, table: pa.Table, arrived_us: int = 0, least_us: int = 0) -> None:
        """Records come."""
        if table.num_rows:
            self._items.append(Waiting(table, arrived_us, least_us, table.nbytes))
            self.records += table.num_rows
            self.size_bytes += table.nbytes

    def mark(self, mark: Mark) -> None:
        """The watermark of everything that came by now; it is out at once where nothing waits."""
        if not self._items:
            self._out.append(mark)
            return
        last = self._items[-1]
        if len(self._items) > self._old and isinstance(last, Mark) and not self._window_ends_between(last, mark):
            self._items.pop()
            mark = replace(last, watermark_us=mark.watermark_us)
        self._items.append(mark)

    def _window_ends_between(self, first: Mark, then: Mark) -> bool:
        period_us = self._period_us
        return period_us is not None and first.watermark_us // period_us < then.watermark_us // period_us

    def take(self, most: int) -> Waiting:
        """The first `most` records, or all there are; the queue is not empty."""
        found: list[Waiting] = []
        wanted = min(most, self.records)
        while wanted:
            item, old = self._popped()
            if isinstance(item, Mark):
                continue
            if item.records > wanted:
                item, rest = item.split(wanted)
                self._items.appendleft(rest)
                self._old += old
            self._left += item.records * old
            self.records -= item.records
            self.size_bytes -= item.size_bytes
            wanted -= item.records
            found.append(item)
        while self._items and isinstance(self._items[0], Mark):
            self._popped()
        return _together(found)

    def _popped(self) -> tuple[Item, bool]:
        """The first item, and whether it was there at the last `change`; a mark is out."""
        item, old = self._items.popleft(), self._old > 0
        self._old -= old
        if isinstance(item, Mark):
            self._out.append(item)
        return item, old

    def passed(self) -> list[Mark]:
        """Marks that came out since this was last asked; what was taken before them has been dealt with by then."""
        out, self._out = self._out, []
        return out

    # What waits

    @property
    def arrived_us(self) -> int | None:
        """When what has waited longest came."""
        return next((item.arrived_us for item in self._items if isinstance(item, Waiting)), None)

    @property
    def least_us(self) -> int | None:
        """The earliest event time."""
        return min((item.least_us for item in self._items if isinstance(item, Waiting)), default=None)

    @property
    def first(self) -> int:
        """Records of those that have waited longest and came at once."""
        return next((item.records for item in self._items if isinstance(item, Waiting)), 0)

    def older(self, than_us: int) -> int:
        """Records that came before."""
        found = 0
        for item in self._items:
            if item.arrived_us >= than_us:
                break
            found += item.records if isinstance(item, Waiting) else 0
        return found

    def before(self, watermark_us: int) -> tuple[Mark, int] | None:
        """The first mark that has come so far, and how many records wait before it; None where there is none."""
        records = 0
        for item in self._items:
            if isinstance(item, Waiting):
                records += item.records
            elif item.watermark_us >= watermark_us:
                return item, records
        return None

    def items(self) -> tuple[Item, ...]:
        """Everything, in order."""
        return tuple(self._items)

    # Over epochs

    def change(self) -> Change:
        """What became of it since this was last asked."""
        for i in range(self._old, len(self._items)):
            item = self._items[i]
            self._items[i] = item.alone() if isinstance(item, Waiting) else item
        change = Change(self._left, list(islice(self._items, self._old, None)))
        self._left, self._old = 0, len(self._items)
        return change

    def restore(self, items: Sequence[Item]) -> None:
        """What waited before a restart."""
        self._items.extend(items)
        self.change()
        waiting = [item for item in items if isinstance(item, Waiting)]
        self.records = sum(item.records for item in waiting)
        self.size_bytes = sum(item.size_bytes for item in waiting)


def _together(found: Sequence[Waiting]) -> Waiting:
    return Waiting(
        pa.concat_tables([item.table for item in found]),
        min(item.arrived_us for item in found),
        min(item.least_us for item in found),
        sum(item.size_bytes for item in found),
    )
