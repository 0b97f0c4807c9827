"""Queries that run at this agent, their sources, and the change to another configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from agent.runtime.clock import Clock, EpochLabels
from agent.runtime.durability.recovery import PlanNote, RecoveryState
from agent.runtime.intake import Intake
from agent.runtime.interface import RecordSource, RuntimeConfig, RuntimeQuery
from agent.runtime.query.adaptation import Adaptation
from agent.runtime.query.pipeline import LocalPipeline
from agent.runtime.query.refined_config import NewestAccepted

__all__ = ["QueryRegistry", "RetiredPlan", "feed_pipeline"]

Key = tuple[str, str]  # query and plan


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
        self, config: RuntimeConfig, sources: Mapping[str, RecordSource] | None, recovery: RecoveryState, now_us: int
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
        self, query: RuntimeQuery, agent: str, old: Mapping[Key, LocalPipeline], recovery: RecoveryState, now_us: int
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
