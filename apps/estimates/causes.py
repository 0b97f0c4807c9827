"""Causes of late queries, read from the reports of the stream processor and of the agents, or from an estimate."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import cached_property
from typing import Any

from agent.wire.broker import StreamProcessorReport
from agent.wire.heartbeat import AgentQueryReport
from apps.estimates.answers import StoredEstimate
from apps.fleet.models import Cluster
from apps.queries.models import Query
from apps.telemetry.epochs import RecordedEpochs, recorded_epochs
from apps.telemetry.models import Agent, AgentKind, Assignment, LiveQuery, LiveState
from apps.telemetry.selectors import SILENT_S, idle_collectors, stream_state
from engine.estimation.answer import Bottleneck
from engine.estimation.waits.summary import main_wait
from engine.measurement.causes import (
    LIVE_ENDED,
    MAIN_WAIT,
    AgentReport,
    BusyServer,
    LatenessCause,
    StreamReport,
    busy_server_cause,
    lateness_causes,
    unobserved_cause,
)

__all__ = ["ChainReports", "estimate_causes", "is_busy", "measured_causes"]

_EPOCHS_S = 60.0  # the newest epochs of an agent, whose delays are looked at
_OVERFLOWING = frozenset({"overflowing", "congested"})


class ChainReports:
    """Present reports of the stages of a cluster's live queries, read once."""

    def __init__(self, cluster: Cluster, now: datetime) -> None:
        self.cluster = cluster
        self.now = now

    @cached_property
    def said(self) -> StreamProcessorReport:
        """Report of the stream processor."""
        return stream_state()

    @cached_property
    def stream(self) -> StreamReport:
        lag = self.said.get("lag")
        return StreamReport(
            state=str(self.said.get("state", "unknown")),
            behind_s=_number(self.said.get("behind_s")),
            frames=int(sum(lag.values())) if isinstance(lag, Mapping) else 0,
            trigger_s=_number(self.said.get("trigger_s")),
            batch_s=_number(self.said.get("batch_s")),
        )

    @cached_property
    def lives(self) -> dict[int, LiveQuery]:
        rows = LiveQuery.objects.filter(query__cluster=self.cluster).select_related("query__cluster")
        return {live.query_id: live for live in rows}

    @cached_property
    def _agents(self) -> dict[Any, Agent]:
        return {agent.pk: agent for agent in Agent.objects.filter(cluster=self.cluster, enabled=True)}

    @cached_property
    def _parts(self) -> dict[int, list[Any]]:
        """Agents by live query."""
        rows = Assignment.objects.filter(
            enabled=True, agent__in=self._agents, live__in=[live.pk for live in self.lives.values()]
        )
        parts: dict[int, list[Any]] = {}
        for live_id, agent_id in rows.values_list("live_id", "agent_id"):
            parts.setdefault(live_id, []).append(agent_id)
        return parts

    @cached_property
    def _epochs(self) -> RecordedEpochs:
        return recorded_epochs(self._agents.values(), self.now, _EPOCHS_S)

    def agents_of(self, live: LiveQuery) -> list[AgentReport]:
        """Agents that take part in a live query, and the relays above them."""
        ids = dict.fromkeys(self._parts.get(live.pk, ()))
        for agent_id in list(ids):
            parent_id = self._agents[agent_id].parent_id
            while parent_id in self._agents and parent_id not in ids:
                ids[parent_id] = None
                parent_id = self._agents[parent_id].parent_id
        return [self._report(self._agents[agent_id], live) for agent_id in ids]

    def _report(self, agent: Agent, live: LiveQuery) -> AgentReport:
        says = agent.heartbeat
        spool = says.get("spool") or {}
        rows: list[AgentQueryReport] = says.get("queries", [])
        row: AgentQueryReport = next((row for row in rows if row.get("query") == live.key), {})
        silent_s = None if agent.last_seen is None else (self.now - agent.last_seen).total_seconds()
        sources = {source.source_id for source in live.sources}
        epochs = self._epochs.get(str(agent.pk), {}).get(live.key, ())
        delays = [epoch.delay_s for epoch in epochs if epoch.delay_s is not None]
        return AgentReport(
            name=agent.name,
            is_relay=agent.kind == AgentKind.RELAY,
            silent_s=silent_s if silent_s is not None and silent_s > SILENT_S else None,
            delay_s=max(delays, default=None),
            frames=int(spool.get("frames", 0)),
            spool=str(spool.get("state", "ok")),
            used_cores=float(says.get("cpu_cores", 0.0)),
            budget_cores=agent.budget_cores,
            overflowing=row.get("state") in _OVERFLOWING,
            shedding=tuple(
                collector["source"]
                for collector in says.get("collectors", ())
                if collector.get("state") == "shedding" and collector["source"] in sources
            ),
            heard=agent.last_seen is not None,
            idle=tuple((source, state) for source, state in idle_collectors(agent) if source in sources),
        )

    def unobserved(self) -> dict[int, LatenessCause]:
        """Live queries of which nothing can be observed at present, by their keys, each with the reason."""
        causes = {
            pk: LatenessCause(LIVE_ENDED, state=live.fault) if live.state == LiveState.STOPPED else self._gap(live)
            for pk, live in self.lives.items()
            if live.state != LiveState.STOPPED or live.fault
        }
        return {pk: cause for pk, cause in causes.items() if cause is not None}

    def _gap(self, live: LiveQuery) -> LatenessCause | None:
        return unobserved_cause(self.stream, self.agents_of(live))

    def watermark(self, live: LiveQuery) -> tuple[float | None, list[str]]:
        """Lag of a query's watermark in seconds, and the agents that hold it there."""
        said = (self.said.get("queries") or {}).get(live.key) or {}
        at_us = _number(said.get("watermark_us"))
        names = {str(agent.pk): agent.name for agent in self._agents.values()}
        waiting = [names.get(str(agent_id), str(agent_id)[:8]) for agent_id in said.get("waiting_for") or ()]
        return (None if at_us is None else self.now.timestamp() - at_us / 1e6), waiting


def measured_causes(
    chain: ChainReports, query: Query, latency_s: float, bottleneck: Bottleneck | None
) -> list[LatenessCause]:
    """Causes of a latency that was measured: of a live query by what its stages report.

    Of one that another engine runs nothing is reported but its latency; the estimate's busiest server is left.
    """
    live, server = chain.lives.get(query.pk), _server(bottleneck)
    if live is None:
        return lateness_causes(latency_s, StreamReport("unknown"), [], server=server)
    behind_s, waiting_for = chain.watermark(live)
    return lateness_causes(
        latency_s,
        chain.stream,
        chain.agents_of(live),
        watermark_behind_s=behind_s,
        waiting_for=waiting_for,
        server=server,
    )


def estimate_causes(answer: StoredEstimate, estimate_s: float, statistic: str) -> list[LatenessCause]:
    """Causes of an estimate: the wait that makes most of it, else its busiest server; empty where neither does."""
    term = main_wait(answer.waits, estimate_s, statistic)
    if term is not None:
        return [LatenessCause(MAIN_WAIT, str(term.words), seconds=term.part_s(statistic))]
    server = _server(answer.bottleneck)
    cause = busy_server_cause(server) if server is not None else None
    return [cause] if cause is not None else []


def is_busy(bottleneck: Bottleneck | None) -> bool:
    """Whether the busiest server of an estimate is busy enough to make anything late."""
    server = _server(bottleneck)
    return server is not None and busy_server_cause(server) is not None


def _server(bottleneck: Bottleneck | None) -> BusyServer | None:
    if bottleneck is None:
        return None
    return BusyServer(bottleneck.server, bottleneck.load_peak, bottleneck.excess_s)


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
