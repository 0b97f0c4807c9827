"""Recovery state: what the runtime stores with each epoch and rebuilds after a restart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import pyarrow as pa

from agent.runtime.durability.write_ahead_log import WriterState
from agent.runtime.query.record_queue import NO_CHANGE, QueueChange, QueuedMark, QueuedRecords, QueueItem, apply_change
from agent.runtime.query.refined_config import NewestAccepted
from agent.runtime.query.windows import still_open
from agent.wire import batch_bytes, table_of

__all__ = ["PlanDelta", "PlanNote", "RecoveryState"]

Key = tuple[str, str]  # query and plan
_RECORDS, _MARK = "records", "mark"


@dataclass(frozen=True)
class PlanNote:
    """A plan that ran in the epoch, and all that is needed to take leave of it without its pipeline."""

    query: str
    plan: str
    paths: int  #: entries 0 to M
    entry: int  #: of the partial aggregates
    size_us: int | None  #: of a window
    watermark_us: int  #: the query's own: everything before it has left the operators
    restart: bool = True  #: nothing from before this epoch is still open
    rows: bool = False  #: the record has a blob for it
    left: int = 0  #: records that waited after the epoch before and are gone
    came: tuple[list[Any], ...] = ()  #: what waits since this epoch, without its records

    def anew(self, delta: PlanDelta, *, restart: bool) -> PlanNote:
        """The same plan after an epoch that changed so much."""
        came = tuple(_without_records(item) for item in delta.queue.came)
        return replace(self, restart=restart, rows=delta.rows is not None, left=delta.queue.left, came=came)

    @property
    def queued(self) -> bool:
        """Whether the record has a blob of queued records, too."""
        return any(kind == _RECORDS for kind, *_ in self.came)

    @property
    def key(self) -> tuple[str, str]:
        return self.query, self.plan

    def items(self, table: pa.Table | None) -> Iterator[QueueItem]:
        """Items queued since this epoch, with their records."""
        at = 0
        for kind, *says in self.came:
            if kind == _MARK:
                yield QueuedMark(*says)
            elif table is not None:
                records, arrived_us, least_us = says
                piece = table.slice(at, records)
                at += records
                yield QueuedRecords(piece, arrived_us, least_us, piece.nbytes)

    def open_rows(self, tables: list[pa.Table]) -> list[pa.Table]:
        """Rows of windows that the watermark, which never goes back, has not passed."""
        if not tables or self.size_us is None:
            return tables
        whole = pa.concat_tables(tables)
        return [whole.filter(still_open(whole, self.size_us, self.watermark_us))]


def _without_records(item: QueueItem) -> list[Any]:
    if isinstance(item, QueuedMark):
        return [_MARK, item.watermark_us, item.arrived_us, item.queued, item.work_s]
    return [_RECORDS, item.records, item.arrived_us, item.least_us]


@dataclass(frozen=True)
class PlanDelta:
    """Change of a plan's state in one epoch."""

    rows: pa.Table | None = None  #: that were added to open windows
    queue: QueueChange = NO_CHANGE

    def blobs(self) -> Iterator[bytes]:
        """Rows and records."""
        if self.rows is not None:
            yield batch_bytes(self.rows)
        tables = [item.table for item in self.queue.came if isinstance(item, QueuedRecords)]
        if tables:
            yield batch_bytes(pa.concat_tables(tables).combine_chunks())


@dataclass
class RecoveryState:
    """Epoch, positions of the sources, the newest accepted refined configuration of each query, and by plan the
    partial rows of open windows and the records queued at the first operator.
    """

    epoch: int = 0
    positions: dict[str, Any] = field(default_factory=dict)
    watermarks: dict[str, int] = field(default_factory=dict)
    newest: dict[str, NewestAccepted] = field(default_factory=dict)
    plans: dict[Key, PlanNote] = field(default_factory=dict)
    rows: dict[Key, list[pa.Table]] = field(default_factory=dict)
    queues: dict[Key, Sequence[QueueItem]] = field(default_factory=dict)

    @classmethod
    def recovered(cls, records: Sequence[WriterState]) -> RecoveryState:
        """Replay what was stored, oldest first."""
        recovery = cls()
        for stored in records:
            recovery._replay(stored)
        recovery.rows = {key: recovery.plans[key].open_rows(tables) for key, tables in recovery.rows.items()}
        return recovery

    @property
    def latest_us(self) -> int:
        """Latest time that it knows of: of the epoch, or within it, when something came that waits."""
        return max([self.epoch, *(item.arrived_us for items in self.queues.values() for item in items)])

    def waiting(self, key: Key) -> list[pa.Table]:
        """Records of a plan that wait."""
        return [item.table for item in self.queues.get(key, ()) if isinstance(item, QueuedRecords)]

    def stored(self, deltas: Mapping[Key, PlanDelta]) -> WriterState:
        """The notes of an epoch; `deltas` are those of all plans."""
        notes = {
            "epoch": self.epoch,
            "positions": self.positions,
            "watermarks": self.watermarks,
            "newest": {query: asdict(taken) for query, taken in self.newest.items()},
            "plans": [asdict(note) for note in self.plans.values()],
        }
        return WriterState(notes, tuple(blob for key in self.plans for blob in deltas[key].blobs()))

    def snapshot(self) -> WriterState:
        """The complete state in one record, independent of earlier ones."""
        whole = {
            key: PlanDelta(
                pa.concat_tables(self.rows[key]) if self.rows.get(key) else None,
                QueueChange(0, list(self.queues.get(key, ()))),
            )
            for key in self.plans
        }
        plans = {key: note.anew(whole[key], restart=True) for key, note in self.plans.items()}
        return replace(self, plans=plans).stored(whole)

    def _replay(self, stored: WriterState) -> None:
        notes = stored.notes
        self.epoch, self.positions, self.watermarks = notes["epoch"], notes["positions"], notes["watermarks"]
        self.newest = {query: NewestAccepted(**says) for query, says in notes.get("newest", {}).items()}
        self.plans = {note.key: note for note in (PlanNote(**says) for says in notes["plans"])}
        blobs = iter(stored.blobs)
        rows, queues, self.rows, self.queues = self.rows, self.queues, {}, {}
        for key, note in self.plans.items():
            earlier = [] if note.restart else rows.get(key, [])
            self.rows[key] = [*earlier, *([table_of(next(blobs))] if note.rows else [])]
            came = list(note.items(table_of(next(blobs)) if note.queued else None))
            self.queues[key] = list(apply_change(queues.get(key, ()), QueueChange(note.left, came)))
