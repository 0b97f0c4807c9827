"""Operators of live queries: the nodes where they run, what was measured of them, and what is still missing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils import timezone

from apps.fleet.choices import CycleUnit, NodeState
from apps.fleet.models import Cluster, Node
from apps.measurements.models import OperatorStatistic
from apps.queries.models import Query
from apps.telemetry.models import Agent, LiveQuery
from engine.dataflow.pipeline import Pipeline
from engine.measurement.places import STREAM
from engine.measurement.statistics import MIN_EVENTS, SampleRatio

__all__ = [
    "STREAM_NODE",
    "OperatorEvidence",
    "Places",
    "PlanOperator",
    "evidence_of_operators",
    "pipeline_operators",
    "places_of",
    "plan_operators",
    "readiness_text",
]

_SILENT = timedelta(minutes=5)


@dataclass(frozen=True)
class OperatorEvidence:
    """One operator of a live query: its statistic, if there is one, and since when it lacks evidence.

    `shares` are by name of the place; errors are half of the 90 % interval.
    """

    operator: str
    statistic: OperatorStatistic | None
    shares: dict[str, float]
    selectivity_half: float | None
    cycles_half: float | None
    lacking_since: datetime | None

    @property
    def ready(self) -> bool:
        return self.statistic is not None and self.statistic.ready

    @property
    def text(self) -> str:
        return readiness_text(self.statistic)


def evidence_of_operators(query: Query) -> list[OperatorEvidence]:
    """Every operator of the pipeline a query runs live, in order; empty for a query that never did."""
    live = LiveQuery.objects.filter(query=query).first()
    if live is None:
        return []
    rows = {row.fingerprint: row for row in OperatorStatistic.objects.filter(query=query)}
    names = {str(pk): name for pk, name in Agent.objects.filter(cluster=query.cluster_id).values_list("pk", "name")}
    names[STREAM] = "stream processor"
    evidence = []
    for plan_operator in plan_operators(live):
        row = rows.get(plan_operator.fingerprint)
        evidence.append(
            OperatorEvidence(
                operator=plan_operator.name,
                statistic=row,
                shares={names.get(place, place): share for place, share in row.shares.items()} if row else {},
                selectivity_half=_half(row.selectivity_error, row) if row else None,
                cycles_half=_half(row.cycles_error, row) if row else None,
                lacking_since=row.lacking_since if row else live.started_at,
            )
        )
    return evidence


def _half(error: float | None, row: OperatorStatistic) -> float | None:
    return SampleRatio(0.0, error, max(0, row.units - 1)).half_width


def readiness_text(row: OperatorStatistic | None) -> str:
    """`ready`, `240 more events, about 3 min`, or that nothing arrives."""
    if row is None:
        return f"no event yet; {MIN_EVENTS} are the least"
    if row.ready:
        return "ready"
    events = "1 more event"
    if row.more_events != 1:
        events = f"{row.more_events:,} more events".replace(",", "\u202f")
    if row.more_s is None or timezone.now() - row.last_at > _SILENT:
        return f"{events}; nothing arrives at present"  # the rate of the sample promises nothing any more
    return f"{events}, {_about(row.more_s)}"


def _about(seconds: float) -> str:
    """About 3 min: nobody needs the seconds of a forecast."""
    if seconds < 55:
        return f"about {max(5, 5 * round(seconds / 5))} s"
    if seconds < 5400:
        return f"about {max(1, round(seconds / 60))} min"
    return f"about {round(seconds / 3600)} h" if seconds < 172_800 else f"about {round(seconds / 86_400)} days"


@dataclass(frozen=True)
class PlanOperator:
    """An operator of a pipeline. `at_sources`: whether it may run there; `merges`: its partial results do.

    `slide_s` is how often it puts out, where it does so once per window: the aggregate and what follows it.
    """

    name: str
    fingerprint: str
    at_sources: bool
    merges: bool
    slide_s: float | None = None


def plan_operators(live: LiveQuery) -> list[PlanOperator]:
    """Operators of the pipeline that a query runs, in order."""
    return pipeline_operators(Pipeline.parse(live.pipeline), live.source_operators)


def pipeline_operators(pipeline: Pipeline, source_operators: int) -> list[PlanOperator]:
    """Operators of a pipeline in order."""
    slide_s = pipeline.window.slide_us / 1e6 if pipeline.window else None
    return [
        PlanOperator(
            name=operator.id,
            fingerprint=operator.fingerprint,
            at_sources=operator.index < source_operators,
            merges=operator.index == pipeline.aggregate,
            slide_s=slide_s if pipeline.aggregate is not None and operator.index >= pipeline.aggregate else None,
        )
        for operator in pipeline.operators
    ]


STREAM_NODE = STREAM  # the node of this name is the stream processor's


@dataclass(frozen=True)
class Places:
    """`capacity_cps` of one core and node by place (an agent's id, or `stream`); places without a node have none."""

    capacity_cps: Mapping[str, float]
    nodes: Mapping[str, Node]


def places_of(cluster: Cluster) -> Places:
    """Agents and stream processor of a cluster.

    An agent's node is the one it is registered at, or else the one of its name; its capacity is what it measured
    itself, or else its node's. Without a node of its own the stream processor counts as the fastest node's core.
    """
    nodes = {node.name: node for node in cluster.nodes.filter(state=NodeState.ACTIVE)}
    by_id = {node.pk: node for node in nodes.values()}
    found: dict[str, Node] = {}
    capacity: dict[str, float] = {}
    for agent in Agent.objects.filter(cluster=cluster):
        node = by_id.get(agent.node_id) or nodes.get(agent.name)
        if node is not None:
            found[str(agent.pk)] = node
        cps = agent.capacity_cps or (node.capacity_cps if node else None)
        if node is not None and node.cycle_unit == CycleUnit.CPU_NS:
            cps = node.capacity_cps  # costs are in the unit of the node, whatever clock the agent measured
        if cps:
            capacity[str(agent.pk)] = cps
    if STREAM_NODE in nodes:
        found[STREAM] = nodes[STREAM_NODE]
    if nodes:
        fastest = max(node.capacity_cps for node in nodes.values())
        capacity[STREAM] = nodes[STREAM_NODE].capacity_cps if STREAM_NODE in nodes else fastest
    return Places(capacity, found)
