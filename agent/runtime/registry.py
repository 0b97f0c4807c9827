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
    """A plan that runs no more, and what it leaves."""

    note: PlanNote
    rows: Sequence[pa.Table]  #: of open windows
    waiting: Sequence[pa.Table]  #: records that waited at the first operator


class QueryRegistry:
    """Chains by query and plan, sources by name; changed between two epochs only."""

    def __init__(self, clock: Clock, labels: EpochLabels, most_bytes: int) -> None:
        self._clock, self._labels, self._most_bytes = clock, labels, most_bytes
        self.chains: dict[Key, LocalPipeline] = {}
        self.intakes: dict[str, Intake] = {}
        self.refused: dict[str, str] = {}  #: by query, why it does not run
        self.leaving: list[RetiredPlan] = []

    def adopt(
        self, config: RuntimeConfig, sources: Mapping[str, RecordSource] | None, memory: RecoveryState, now_us: int
    ) -> None:
        """Run this from now on; `sources`, where given, are all there are."""
        if sources is not None:
            self.intakes = {name: self._intake(name, source, memory) for name, source in sources.items()}
        old, self.chains, self.refused = self.chains, {}, {}
        for query in config.queries:
            self._take_up(query, config.agent, old, memory, now_us)
        gone = (key for key in memory.plans if key not in self.chains)
        self.leaving = [RetiredPlan(memory.plans[key], memory.rows.get(key, []), memory.waiting(key)) for key in gone]

    def _intake(self, name: str, source: RecordSource, memory: RecoveryState) -> Intake:
        known = self.intakes.get(name)
        if known is not None and known.source is source:
            return known
        intake = Intake(name, source, memory.watermarks.get(name, 0))
        intake.seek(memory.positions)
        return intake

    def _take_up(
        self, query: RuntimeQuery, agent: str, old: Mapping[Key, LocalPipeline], memory: RecoveryState, now_us: int
    ) -> None:
        key = (query.query, query.pipeline.digest)
        streams = query.pipeline.streams
        lacking = [name for name in streams if name not in self.intakes]
        if lacking:
            said = f"source {lacking[0]!r} is not configured here; there are: {sorted(self.intakes)}"
            self.refused[query.query] = said
        elif key in old:
            old[key].update(query, now_us)
            self.chains[key] = old[key]
        else:
            adapting = Adaptation(query, agent, memory.newest.get(query.query), now_us)
            chain = LocalPipeline(query, adapting, self._clock, self._labels.now_us, self._most_bytes)
            if chain.windows is not None:
                chain.windows.restore(memory.rows.get(key, []))
            known = memory.plans.get(key)
            # what a plan that is new here did not see is not held back by it
            seen_us = min(self.intakes[name].watermark_us for name in streams)
            watermark_us = known.watermark_us if known is not None else seen_us
            chain.restore(watermark_us, memory.queues.get(key, ()))
            self.chains[key] = chain

    def memory(self, epoch_us: int, newest: Mapping[str, NewestAccepted]) -> RecoveryState:
        """What is to be remembered of an epoch, without its plans; sources are settled."""
        memory = RecoveryState(epoch_us)
        for name, intake in self.intakes.items():
            memory.watermarks[name], memory.positions[name] = intake.settle()
        running = {chain.query: chain.adapting.prior.newest for chain in self.chains.values()}
        stopped = {query: newest[query] for query in self.refused if query in newest}
        memory.newest = {query: taken for query, taken in (running | stopped).items() if taken.version}
        return memory

    def begin_epoch(self, now_us: int) -> bool:
        """Load factors of the epoch that begins; whether the console has something to hear at once."""
        told = False
        for chain in self.chains.values():
            chain.adapting.begin_epoch(now_us)
            chain.steer()
            told, chain.adapting.prior.news = told or chain.adapting.prior.news, False
        return told


def feed_pipeline(chain: LocalPipeline, intake: Intake, table: pa.Table | None, now_us: int) -> None:
    """Records come to a query's operators, or pass them by where theirs is the stream that is joined; or both."""
    if table is None:
        return
    pipeline = chain.config.pipeline
    if intake.source_id == pipeline.source.id:
        chain.feed(table, now_us, intake.least_us(table, pipeline.source.time))
    if intake.source_id == pipeline.other_stream:
        chain.pass_by(table)
