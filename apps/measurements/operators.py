"""Operators of a live query's pipeline, and the nodes where they run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from apps.fleet.choices import CycleUnit, NodeState
from apps.fleet.models import Cluster, Node
from apps.telemetry.models import Agent, LiveQuery
from engine.dataflow.pipeline import Pipeline
from engine.measurement.places import STREAM

__all__ = ["STREAM_NODE", "Places", "PlanOperator", "pipeline_operators", "places_of", "plan_operators"]


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
