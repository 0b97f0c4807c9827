"""Queries that run at this agent, and recovery of them: what is stored with each epoch and rebuilt after a restart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import pyarrow as pa

from agent.config import AgentConfig, QueryConfig
from agent.runtime.intake import Intake
from agent.runtime.interface import Clock, EpochLabels, RecordSource
from agent.runtime.query.adaptation import Adaptation, NewestAccepted
from agent.runtime.query.pipeline import LocalPipeline
from agent.runtime.query.record_queue import NO_CHANGE, QueueChange, QueuedMark, QueuedRecords, QueueItem, apply_change
from agent.runtime.query.windows import still_open
from agent.runtime.write_ahead_log import WriterState
from agent.wire import batch_bytes, table_of

__all__ = ["PlanDelta", "PlanNote", "QueryRegistry", "RecoveryState", "feed_pipeline"]

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
        for kind, *document in self.came:
            if kind == _MARK:
                yield QueuedMark(*document)
            elif table is not None:
                records, arrived_us, least_us = document
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
        self.newest = {query: NewestAccepted(**document) for query, document in notes.get("newest", {}).items()}
        self.plans = {note.key: note for note in (PlanNote(**document) for document in notes["plans"])}
        blobs = iter(stored.blobs)
        rows, queues, self.rows, self.queues = self.rows, self.queues, {}, {}
        for key, note in self.plans.items():
            earlier = [] if note.restart else rows.get(key, [])
            self.rows[key] = [*earlier, *([table_of(next(blobs))] if note.rows else [])]
            came = list(note.items(table_of(next(blobs)) if note.queued else None))
            self.queues[key] = list(apply_change(queues.get(key, ()), QueueChange(note.left, came)))


@dataclass(frozen=True)
class RetiredPlan:
    """A plan that was stopped, and its remains."""

    note: PlanNote
    rows: Sequence[pa.Table]  #: of open windows
    waiting: Sequence[pa.Table]  #: records that waited at the first operator


class QueryRegistry:
    """Chains by query and plan, sources by name; changed between two epochs only."""

    def __init__(self, clock: Clock, labels: EpochLabels, most_bytes: int) -> None:
        self._clock, self._labels, self._most_bytes = clock, labels, most_bytes
        self.pipelines: dict[Key, LocalPipeline] = {}
        self.intakes: dict[str, Intake] = {}
        self.refused: dict[str, str] = {}  #: by query, why it does not run
        self.retired: list[RetiredPlan] = []

    def adopt(
        self, config: AgentConfig, sources: Mapping[str, RecordSource] | None, recovery: RecoveryState, now_us: int
    ) -> None:
        """Switch to this configuration; `sources`, where given, replace all others."""
        if sources is not None:
            self.intakes = {name: self._intake(name, source, recovery) for name, source in sources.items()}
        old, self.pipelines, self.refused = self.pipelines, {}, {}
        for query in config.queries:
            self._take_up(query, config.agent, old, recovery, now_us)
        gone = (key for key in recovery.plans if key not in self.pipelines)
        self.retired = [
            RetiredPlan(recovery.plans[key], recovery.rows.get(key, []), recovery.waiting(key)) for key in gone
        ]

    def _intake(self, name: str, source: RecordSource, recovery: RecoveryState) -> Intake:
        intake_before = self.intakes.get(name)
        if intake_before is not None and intake_before.source is source:
            return intake_before
        intake = Intake(name, source, recovery.watermarks.get(name, 0))
        intake.seek(recovery.positions)
        return intake

    def _take_up(
        self, query: QueryConfig, agent: str, old: Mapping[Key, LocalPipeline], recovery: RecoveryState, now_us: int
    ) -> None:
        key = (query.query, query.pipeline.digest)
        streams = query.pipeline.streams
        missing = [name for name in streams if name not in self.intakes]
        if missing:
            reason = f"source {missing[0]!r} is not configured here; there are: {sorted(self.intakes)}"
            self.refused[query.query] = reason
        elif key in old:
            old[key].update(query, now_us)
            self.pipelines[key] = old[key]
        else:
            adaptation = Adaptation(query, agent, recovery.newest.get(query.query), now_us)
            pipeline = LocalPipeline(query, adaptation, self._clock, self._labels.now_us, self._most_bytes)
            if pipeline.windows is not None:
                pipeline.windows.restore(recovery.rows.get(key, []))
            note = recovery.plans.get(key)
            # what a plan that is new here did not see is not held back by it
            seen_us = min(self.intakes[name].watermark_us for name in streams)
            watermark_us = note.watermark_us if note is not None else seen_us
            pipeline.restore(watermark_us, recovery.queues.get(key, ()))
            self.pipelines[key] = pipeline

    def recovery_state(self, epoch_us: int, newest: Mapping[str, NewestAccepted]) -> RecoveryState:
        """Recovery state of an epoch, without its plans; sources are settled."""
        recovery = RecoveryState(epoch_us)
        for name, intake in self.intakes.items():
            recovery.watermarks[name], recovery.positions[name] = intake.settle()
        running = {pipeline.query: pipeline.adaptation.refined_state.newest for pipeline in self.pipelines.values()}
        stopped = {query: newest[query] for query in self.refused if query in newest}
        recovery.newest = {query: taken for query, taken in (running | stopped).items() if taken.version}
        return recovery

    def begin_epoch(self, now_us: int) -> bool:
        """Set the load factors of the epoch that begins; whether the console should hear of a change at once."""
        changed = False
        for pipeline in self.pipelines.values():
            pipeline.adaptation.begin_epoch(now_us)
            pipeline.steer()
            changed, pipeline.adaptation.refined_state.changed = (
                changed or pipeline.adaptation.refined_state.changed,
                False,
            )
        return changed


def feed_pipeline(pipeline: LocalPipeline, intake: Intake, table: pa.Table | None, now_us: int) -> None:
    """Records come to a query's operators, or pass them by where theirs is the stream that is joined; or both."""
    if table is None:
        return
    plan = pipeline.config.pipeline
    if intake.source_id == plan.source.id:
        pipeline.feed(table, now_us, intake.least_us(table, plan.source.time))
    if intake.source_id == plan.other_stream:
        pipeline.pass_by(table)
