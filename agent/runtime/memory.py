"""What the runtime writes down with each epoch, and what it makes of that after a restart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import pyarrow as pa

from agent.runtime.taking import NewestTaken
from agent.runtime.wal import Stored
from agent.runtime.windows import still_open
from agent.wire import batch_bytes, table_of

__all__ = ["Memory", "PlanNote"]


@dataclass(frozen=True)
class PlanNote:
    """A plan that ran in the epoch, and all that is needed to take leave of it without its pipeline."""

    query: str
    plan: str
    paths: int  #: entries 0 to M
    entry: int  #: of the partial aggregates
    size_us: int | None  #: of a window
    watermark_us: int
    restart: bool = True  #: nothing from before this epoch is still open
    rows: bool = False  #: the record has a blob for it

    @property
    def key(self) -> tuple[str, str]:
        return self.query, self.plan

    def open_rows(self, tables: list[pa.Table]) -> list[pa.Table]:
        """Rows of windows that the watermark, which never goes back, has not passed."""
        if not tables or self.size_us is None:
            return tables
        whole = pa.concat_tables(tables)
        return [whole.filter(still_open(whole, self.size_us, self.watermark_us))]


@dataclass
class Memory:
    """Epoch, positions of the sources, what was taken last of each query's refined configurations, and the partial
    rows of open windows by plan.
    """

    epoch: int = 0
    positions: dict[str, Any] = field(default_factory=dict)
    watermarks: dict[str, int] = field(default_factory=dict)
    newest: dict[str, NewestTaken] = field(default_factory=dict)
    plans: dict[tuple[str, str], PlanNote] = field(default_factory=dict)
    rows: dict[tuple[str, str], list[pa.Table]] = field(default_factory=dict)

    @classmethod
    def recovered(cls, records: Sequence[Stored]) -> Memory:
        """Replay what was stored, oldest first."""
        memory = cls()
        for stored in records:
            memory._replay(stored)
        memory.rows = {key: memory.plans[key].open_rows(tables) for key, tables in memory.rows.items()}
        return memory

    def stored(self, deltas: dict[tuple[str, str], pa.Table]) -> Stored:
        """The notes of an epoch; `deltas` are the rows of the plans that have `rows`."""
        notes = {
            "epoch": self.epoch,
            "positions": self.positions,
            "watermarks": self.watermarks,
            "newest": {query: asdict(taken) for query, taken in self.newest.items()},
            "plans": [asdict(note) for note in self.plans.values()],
        }
        return Stored(notes, tuple(batch_bytes(deltas[key]) for key, note in self.plans.items() if note.rows))

    def snapshot(self) -> Stored:
        """All of it in one record, whatever came before."""
        whole = {key: pa.concat_tables(tables) for key, tables in self.rows.items() if tables}
        plans = {key: replace(note, restart=True, rows=key in whole) for key, note in self.plans.items()}
        return replace(self, plans=plans).stored(whole)

    def _replay(self, stored: Stored) -> None:
        notes = stored.notes
        self.epoch, self.positions, self.watermarks = notes["epoch"], notes["positions"], notes["watermarks"]
        self.newest = {query: NewestTaken(**says) for query, says in notes.get("newest", {}).items()}
        self.plans = {note.key: note for note in (PlanNote(**says) for says in notes["plans"])}
        blobs = iter(stored.blobs)
        self.rows = {key: self._rows_of(note, blobs) for key, note in self.plans.items()}

    def _rows_of(self, note: PlanNote, blobs: Iterator[bytes]) -> list[pa.Table]:
        earlier = [] if note.restart else self.rows.get(note.key, [])
        return [*earlier, *([table_of(next(blobs))] if note.rows else [])]
