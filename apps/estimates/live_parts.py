"""Live parts of an estimate: the waits of its stages, the trust in it, and the policies its nodes run."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from apps.fleet.choices import Evidence
from apps.fleet.models import Cluster
from apps.measurements.operators import STREAM_NODE, places_of
from apps.measurements.stream_processor import timing_now
from apps.telemetry.configs import live_served
from apps.telemetry.selectors import policy_in_force
from engine.arrays import finite_max
from engine.document.cycles import CPU_NS
from engine.document.deployment import Deployment
from engine.document.elements import STIMULUS_TIME, scheduling_document
from engine.measurement.microbatch import StageTiming, batch_upper_s, batch_work_s, live_latency, live_waits

if TYPE_CHECKING:
    from engine.estimation.estimate import Estimate
    from engine.estimation.reports import QueryReport

__all__ = ["as_scheduled", "node_policies", "with_live_parts"]


def node_policies(cluster: Cluster) -> dict[str, str]:
    """The policy in force at each node's agent, as it said last.

    Where a node has several agents, one that is not scheduled by stimulus time decides: it is what loosens the bound.
    """
    policies = policy_in_force(cluster)
    if not policies:
        return {}
    by_node: dict[str, str] = {}
    for agent, node in places_of(cluster).nodes.items():
        policy = policies.get(agent)
        if policy and by_node.get(node.name, STIMULUS_TIME) == STIMULUS_TIME:
            by_node[node.name] = policy
    return by_node


def as_scheduled(deployment: Deployment, cluster: Cluster) -> Deployment:
    """The deployment with the policies of its nodes; nodes without an agent keep their own.

    On a connected engine's node every thread takes what has come first. A thread that runs one operator, or a chain in
    its order, is a server with one queue, for which no policy makes a difference; where operators share a server, the
    node counts as first-in first-out.
    """
    policies = {**_engine_policies(deployment), **node_policies(cluster)}
    nodes = {node.id: node for node in deployment.nodes if node.id in policies}
    changed = {name: replace(node, scheduling=policies[name]) for name, node in nodes.items()}
    return deployment.with_nodes(replaced=changed) if changed else deployment


def _engine_policies(deployment: Deployment) -> dict[str, str]:
    """First-in first-out for nodes of engines on which a server has several operators."""
    engines = {node.id for node in deployment.nodes if node.cycle_unit == CPU_NS}
    if not engines:
        return {}
    held = Counter(
        (replica.node, replica.core)
        for operator in deployment.operators
        for replica in operator.replicas
        if replica.node in engines
    )
    return {node: "fcfs" for (node, _), count in held.items() if count > 1}


def with_live_parts(answer: dict[str, Any], *, cluster: Cluster, estimate: Estimate) -> dict[str, Any]:
    """The engine's answer with the waits of live queries.

    Each gets `live`: its parts in seconds, and their evidence, assumed until a batch was timed. The whole gets
    `policies`, in force at the agents of nodes.
    """
    names = set(live_served().filter(query__cluster=cluster).values_list("query__name", flat=True))
    if not names:
        return answer
    timing = timing_now()
    servers = [i for i, server in enumerate(estimate.coarse.servers) if _is_stream(estimate, server.node)]
    answer_with_waits = {
        name: _whole(report, estimate, timing, servers) if name in names else answer["queries"][name]
        for name, report in estimate.queries.items()
    }
    policies = {node.id: node.scheduling for node in estimate.coarse.nodes if node.scheduling}
    return {**answer, "policies": policies, "queries": answer_with_waits}


def _is_stream(estimate: Estimate, node: int | None) -> bool:
    return node is not None and estimate.coarse.nodes[node].id == STREAM_NODE


def _whole(report: QueryReport, estimate: Estimate, timing: StageTiming, servers: list[int]) -> dict[str, Any]:
    """A report with the waits that belong to each of its numbers."""
    work = batch_work_s(estimate.mace, servers, timing.interval_s)
    margin_s = live_latency(0.0, work, timing, statistic=report.statistic).margin_s
    late = report.delayed_by(live_waits(work, timing), margin_s)
    added_s = late.estimate_s - report.estimate_s
    live = live_latency(report.estimate_s, work, timing, statistic=report.statistic, added_s=added_s)
    uneven_s = estimate.coarse.subinterval_s  # a burst may begin inside a subinterval
    upper = batch_upper_s(estimate.mace, dict.fromkeys(servers, timing.interval_s)) + uneven_s
    parts = live.to_dict() | {
        "interval_s": timing.interval_s,
        "mean_work_s": float(work.mean()),
        "upper_s": finite_max(upper + timing.epoch_s + live.overhead_s),
        "evidence": str(Evidence.ASSUMED if timing.is_assumed else Evidence.MEASURED),
    }
    latency = late.to_dict() | {"live": parts}
    if "scheduling" in latency:
        bound = scheduling_document(latency["scheduling"]["nodes"], parts["upper_s"])
        latency["scheduling"] = {**latency["scheduling"], **bound}
    return latency
