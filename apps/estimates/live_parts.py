"""Live parts of an estimate: the waits of its stages, the trust in it, and the policies its nodes run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from apps.estimates.trust import evidence_of, trust_of
from apps.fleet.choices import Evidence
from apps.fleet.models import Cluster
from apps.measurements.operators import STREAM_NODE, places_of
from apps.measurements.stream_processor import timing_now
from apps.queries.models import Query
from apps.telemetry.configs import live_served
from apps.telemetry.selectors import policy_in_force
from engine.arrays import FloatArray, finite_max
from engine.document.deployment import Deployment
from engine.document.elements import STIMULUS_TIME, Objective, objective_state, scheduling_document
from engine.measurement.microbatch import LiveLatency, StageTiming, batch_upper_s, batch_work_s, live_latency
from engine.measurement.trust import EstimateTrust, widen_interval

if TYPE_CHECKING:
    from engine.estimation.estimate import Estimate

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
    """The deployment with the policies of its nodes; nodes without an agent keep their own."""
    policies = node_policies(cluster)
    nodes = {node.id: node for node in deployment.nodes if node.id in policies}
    changed = {name: replace(node, scheduling=policies[name]) for name, node in nodes.items()}
    return deployment.with_nodes(replaced=changed) if changed else deployment


def with_live_parts(answer: dict[str, Any], *, cluster: Cluster, estimate: Estimate) -> dict[str, Any]:
    """The engine's answer with the estimates of live queries made whole.

    Each gets `live` (its parts in seconds, and their evidence: assumed until a batch was timed) and `trust` (factor,
    score, outcomes, whose they are, and the interval before it was widened); the whole gets `policies`, in force at
    the agents of nodes.
    """
    queries = {
        row.query.name: row.query for row in live_served().filter(query__cluster=cluster).select_related("query")
    }
    if not queries:
        return answer
    timing = timing_now()
    servers = [i for i, server in enumerate(estimate.coarse.servers) if _is_stream(estimate, server.node)]
    answer_with_waits = {
        name: _whole(result, queries[name], estimate, timing, servers) if name in queries else result
        for name, result in answer["queries"].items()
    }
    policies = {node.id: node.scheduling for node in estimate.coarse.nodes if node.scheduling}
    return {**answer, "policies": policies, "queries": answer_with_waits}


def _is_stream(estimate: Estimate, node: int | None) -> bool:
    return node is not None and estimate.coarse.nodes[node].id == STREAM_NODE


def _whole(
    result: Mapping[str, Any], query: Query, estimate: Estimate, timing: StageTiming, servers: list[int]
) -> dict[str, Any]:
    half = None if result["high_s"] is None else result["high_s"] - result["estimate_s"]
    work = batch_work_s(estimate.mace, servers, timing.interval_s)
    live = live_latency(result["estimate_s"], work, timing, statistic=result["statistic"])
    half = None if half is None else half + live.margin_s
    upper = batch_upper_s(estimate.mace, dict.fromkeys(servers, timing.interval_s))
    parts = live.to_dict() | {
        "interval_s": timing.interval_s,
        "mean_work_s": float(work.mean()),
        "upper_s": finite_max(upper + timing.epoch_s + live.overhead_s),
        "evidence": str(Evidence.ASSUMED if timing.is_assumed else Evidence.MEASURED),
    }
    latency = {**result, **_shifted(result, live, work, timing), "live": parts}
    if "scheduling" in result:
        latency["scheduling"] = scheduling_document(result["scheduling"]["nodes"], parts["upper_s"])
    trusted, scope = trust_of(query, result["statistic"], evidence_of(latency))
    return latency | _interval(latency, half, trusted, scope)


def _shifted(result: Mapping[str, Any], live: LiveLatency, work: FloatArray, timing: StageTiming) -> dict[str, Any]:
    """Every number of the answer with the waits that belong to it."""

    def added(statistic: str) -> float:
        return live_latency(0.0, work, timing, statistic=statistic).total_s

    return {
        "estimate_s": live.total_s,
        "worst_s": result["worst_s"] + added("worst"),
        "mean_s": result["mean_s"] + added("mean"),
        "quantiles": {level: value + added(f"q{level}") for level, value in result["quantiles"].items()},
        **_realised(result, added),
        "under_resolution": False,
        "series": {
            name: None if values is None else (np.asarray(values) + live.added_s).tolist()
            for name, values in result["series"].items()
        },
    }


def _realised(result: Mapping[str, Any], added: Callable[[str], float]) -> dict[str, Any]:
    """Realised statistics with the waits that belong to each."""
    realised = {
        statistic: {end: value + added(statistic) for end, value in figures.items()}
        for statistic, figures in (result.get("realised") or {}).items()
    }
    if not realised:
        return {}
    return {"realised": realised, "under_s": max(result["under_s"], realised["worst"]["high_s"])}


def _interval(latency: Mapping[str, Any], half: float | None, trusted: EstimateTrust, scope: str) -> dict[str, Any]:
    estimate_s, bound_s = latency["estimate_s"], latency["bound_s"]
    shown = widen_interval(estimate_s, half, trusted)
    low, high = shown if shown else (None, None)
    objective = Objective("", latency["statistic"], bound_s) if bound_s is not None else None
    stated = widen_interval(estimate_s, half, EstimateTrust(1.0, 1.0, 0, None, False))
    return {
        "low_s": low,
        "high_s": high,
        **objective_state(objective, estimate_s, high),
        "series": _band(latency["series"], (high or estimate_s) - estimate_s if shown else None),
        "trust": {
            "factor": trusted.factor,
            "score": trusted.score,
            "outcomes": trusted.outcomes,
            "concluded": trusted.concluded,
            "of": scope,
            "half_s": half,
            "stated": list(stated) if stated else None,
        },
    }


def _band(series: Mapping[str, Any], half: float | None) -> dict[str, Any]:
    """The band of the chart, at least as wide as the interval of the estimate is to either side."""
    if half is None:
        return dict(series)
    middle = np.asarray(series["estimate"])
    low, high = series.get("low"), series.get("high")
    width = np.full(len(middle), half)
    if low is not None and high is not None:
        width = np.maximum(width, (np.asarray(high) - np.asarray(low)) / 2)
    return {
        "estimate": series["estimate"],
        "low": np.maximum(0.0, middle - width).tolist(),
        "high": (middle + width).tolist(),
    }
