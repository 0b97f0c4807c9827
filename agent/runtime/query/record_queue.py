"""Queue before an operator: records in order of arrival, marks of the watermark among them, and their sweeps."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import NamedTuple

import pyarrow as pa

__all__ = [
    "NO_CHANGE",
    "QueueChange",
    "QueueItem",
    "QueuedMark",
    "QueuedRecords",
    "RecordQueue",
    "WindowSweep",
    "apply_change",
    "swept_windows",
]


MAX_KEPT = 2  # bytes in memory for each byte of records that outlive an epoch
MAX_SWEEPS = 20  # of one mark; a stream that comes back after hours passes any number of windows at once


@dataclass(frozen=True, slots=True)
class QueuedRecords:
    """Records that wait together."""

    table: pa.Table
    arrived_us: int = 0  #: when the first came to the agent, in the time of epochs
    least_us: int = 0  #: event time of the earliest
    size_bytes: int = 0

    @property
    def records(self) -> int:
        return int(self.table.num_rows)

    def split(self, records: int) -> tuple[QueuedRecords, QueuedRecords]:
        """So many of them, and the others."""
        size_bytes = self.size_bytes * records // self.records
        head, tail = self.table.slice(0, records), self.table.slice(records)
        return (
            QueuedRecords(head, self.arrived_us, self.least_us, size_bytes),
            QueuedRecords(tail, self.arrived_us, self.least_us, self.size_bytes - size_bytes),
        )

    def alone(self) -> QueuedRecords:
        """The same without the table that it is a small part of, and would keep in memory."""
        table = self.table
        if table.get_total_buffer_size() <= MAX_KEPT * self.size_bytes:
            return self
        pieces = [table.slice(0, 0), table]  # several chunks are copied, one would stay as it is
        return replace(self, table=pa.concat_tables(pieces).combine_chunks())


@dataclass(frozen=True, slots=True)
class QueuedMark:
    """No record behind it falls below the watermark."""

    watermark_us: int
    arrived_us: int  #: when the agent read it
    queued: int = 0  #: records of the query that waited before it then
    work_s: float = 0.0  #: CPU time that they were expected to take


QueueItem = QueuedRecords | QueuedMark


class QueueChange(NamedTuple):
    """Change of a queue since the last call."""

    left: int  #: of the records that were there, those that are gone, all from the front
    came: list[QueueItem]  #: and wait still


NO_CHANGE = QueueChange(0, [])


def apply_change(items: Iterable[QueueItem], change: QueueChange) -> Iterator[QueueItem]:
    """Apply a change to queued items: a mark goes with the last record before it."""
    left, before = change.left, True
    for item in items:
        if isinstance(item, QueuedRecords):
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
        self._items: deque[QueueItem] = deque()
        self._period_us = period_us
        self._old = 0  # items at the front that were there at the last `change`
        self._left = 0  # of their records, those that are gone since
        self._out: list[QueuedMark] = []
        self.records = self.size_bytes = 0

    def put(self, table: pa.Table, arrived_us: int = 0, least_us: int = 0) -> None:
        """Records come."""
        if table.num_rows:
            self._items.append(QueuedRecords(table, arrived_us, least_us, table.nbytes))
            self.records += table.num_rows
            self.size_bytes += table.nbytes

    def mark(self, mark: QueuedMark) -> None:
        """The watermark of everything that came by now; it is out at once where nothing waits."""
        if not self._items:
            self._out.append(mark)
            return
        last = self._items[-1]
        if len(self._items) > self._old and isinstance(last, QueuedMark) and not self._window_ends_between(last, mark):
            self._items.pop()
            mark = replace(last, watermark_us=mark.watermark_us)
        self._items.append(mark)

    def _window_ends_between(self, first: QueuedMark, then: QueuedMark) -> bool:
        period_us = self._period_us
        return period_us is not None and first.watermark_us // period_us < then.watermark_us // period_us

    def take(self, most: int) -> QueuedRecords:
        """The first `most` records, or all there are; the queue is not empty."""
        pieces: list[QueuedRecords] = []
        missing = min(most, self.records)
        while missing:
            item, old = self._popped()
            if isinstance(item, QueuedMark):
                continue
            if item.records > missing:
                item, rest = item.split(missing)
                self._items.appendleft(rest)
                self._old += old
            self._left += item.records * old
            self.records -= item.records
            self.size_bytes -= item.size_bytes
            missing -= item.records
            pieces.append(item)
        while self._items and isinstance(self._items[0], QueuedMark):
            self._popped()
        return _merge_records(pieces)

    def _popped(self) -> tuple[QueueItem, bool]:
        """The first item, and whether it was there at the last `change`; a mark is out."""
        item, old = self._items.popleft(), self._old > 0
        self._old -= old
        if isinstance(item, QueuedMark):
            self._out.append(item)
        return item, old

    def passed(self) -> list[QueuedMark]:
        """Marks that left the queue since the last call; records taken before them have been processed by then."""
        out, self._out = self._out, []
        return out

    # What waits

    @property
    def arrived_us(self) -> int | None:
        """Arrival of the oldest queued record."""
        for item in self._items:
            if isinstance(item, QueuedRecords):
                return item.arrived_us
        return None

    @property
    def least_us(self) -> int | None:
        """The earliest event time."""
        return min((item.least_us for item in self._items if isinstance(item, QueuedRecords)), default=None)

    @property
    def first(self) -> int:
        """Records of those that have waited longest and came at once."""
        return next((item.records for item in self._items if isinstance(item, QueuedRecords)), 0)

    def older(self, than_us: int) -> int:
        """Records that came before."""
        records = 0
        for item in self._items:
            if item.arrived_us >= than_us:
                break
            records += item.records if isinstance(item, QueuedRecords) else 0
        return records

    def arrivals(self, most: int) -> list[tuple[int, int]]:
        """When the first `most` records came: (time, records)."""
        found: list[tuple[int, int]] = []
        for item in self._items:
            if most <= 0:
                break
            if isinstance(item, QueuedRecords):
                found.append((item.arrived_us, min(item.records, most)))
                most -= item.records
        return found

    def before(self, watermark_us: int) -> tuple[QueuedMark, int] | None:
        """The first mark that has come so far, and how many records wait before it; None where there is none."""
        records = 0
        for item in self._items:
            if isinstance(item, QueuedRecords):
                records += item.records
            elif item.watermark_us >= watermark_us:
                return item, records
        return None

    def items(self) -> tuple[QueueItem, ...]:
        """Everything, in order."""
        return tuple(self._items)

    # Over epochs

    def change(self) -> QueueChange:
        """Change since the last call."""
        for i in range(self._old, len(self._items)):
            item = self._items[i]
            self._items[i] = item.alone() if isinstance(item, QueuedRecords) else item
        change = QueueChange(self._left, list(islice(self._items, self._old, None)))
        self._left, self._old = 0, len(self._items)
        return change

    def restore(self, items: Sequence[QueueItem]) -> None:
        """Restore the items from before a restart."""
        self._items.extend(items)
        self.change()
        waiting = [item for item in items if isinstance(item, QueuedRecords)]
        self.records = sum(item.records for item in waiting)
        self.size_bytes = sum(item.size_bytes for item in waiting)


def _merge_records(pieces: Sequence[QueuedRecords]) -> QueuedRecords:
    return QueuedRecords(
        pa.concat_tables([item.table for item in pieces]),
        min(item.arrived_us for item in pieces),
        min(item.least_us for item in pieces),
        sum(item.size_bytes for item in pieces),
    )


@dataclass(frozen=True, slots=True)
class WindowSweep:
    """A watermark that has passed all operators here; times are microseconds of epochs' labels."""

    deadline_us: int  #: end of the window
    period_us: int  #: from one deadline to the next
    arrived_us: int  #: when the watermark was read that passed it
    swept_us: int  #: when everything before it had left the operators
    queued: int  #: records of the query that waited before it when it came
    work_s: float  #: CPU time that they were expected to take
    emitted_us: int = 0  #: when the epoch that closed the window was handed to the spool


def swept_windows(mark: QueuedMark, before_us: int, period_us: int, now_us: int) -> Iterator[WindowSweep]:
    """The deadlines from the watermark before on, this one's last.

    The first one counts however far ahead it is; others beyond the mark's own time by more than a period are of no
    clock. Of more than `MAX_SWEEPS` the newest are told.
    """
    first_us = (before_us // period_us + 1) * period_us
    if mark.watermark_us < first_us:
        return
    told_us = max(min(mark.watermark_us, mark.arrived_us + period_us), first_us)
    last_us = told_us // period_us * period_us
    first_us = max(first_us, last_us - (MAX_SWEEPS - 1) * period_us)
    for deadline_us in range(first_us, last_us + 1, period_us):
        yield WindowSweep(deadline_us, period_us, mark.arrived_us, now_us, mark.queued, mark.work_s)
