"""What an estimate of a live query adds to the engine's answer: waits of its stages, and how far it can be trusted.

The engine's answer is of queueing and processing. A live query's result also waits for the end of the agents' epoch,
the stream processor's trigger and its batch (section VII-A with w as the trigger interval); and its interval is widened
by what became of earlier estimates.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from apps.estimates.trust import evidence_of, trust_of
from apps.fleet.choices import Evidence
from apps.fleet.models import Cluster
from apps.measurements.places import STREAM_NODE
from apps.measurements.timing import timing_now
from apps.queries.models import Query
from apps.telemetry.configs import live_served
from engine.elements import FloatArray, Objective
from engine.measurement.microbatch import LiveLatency, Timing, batch_upper_s, batch_work_s, live_latency
from engine.measurement.trust import Trust, widened
from engine.objectives import against

if TYPE_CHECKING:  # it loads numba, which only workers need
    from engine.estimation import Estimate

__all__ = ["with_live_parts"]


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
    servers = [i for i, one in enumerate(estimate.coarse.servers) if _is_stream(estimate, one.node)]
    made = {
        name: _whole(found, queries[name], estimate, timing, servers) if name in queries else found
        for name, found in answer["queries"].items()
    }
    policies = {node.id: node.scheduling for node in estimate.coarse.nodes if node.scheduling}
    return {**answer, "policies": policies, "queries": made}


def _is_stream(estimate: Estimate, node: int | None) -> bool:
    return node is not None and estimate.coarse.nodes[node].id == STREAM_NODE


def _whole(
    found: Mapping[str, Any], query: Query, estimate: Estimate, timing: Timing, servers: list[int]
) -> dict[str, Any]:
    half = None if found["high_s"] is None else found["high_s"] - found["estimate_s"]
    work = batch_work_s(estimate.mace, servers, timing.interval_s)
    live = live_latency(found["estimate_s"], work, timing, statistic=found["statistic"])
    half = None if half is None else half + live.margin_s
    upper = batch_upper_s(estimate.mace, dict.fromkeys(servers, timing.interval_s))
    parts = live.to_dict() | {
        "interval_s": timing.interval_s,
        "mean_work_s": float(work.mean()),
        "upper_s": float(upper.max()) + timing.epoch_s + live.overhead_s,
        "evidence": str(Evidence.ASSUMED if timing.is_assumed else Evidence.MEASURED),
    }
    made = {**found, **_shifted(found, live, work, timing), "live": parts}
    if "scheduling" in found:
        made["scheduling"] = {**found["scheduling"], "upper_s": parts["upper_s"]}
    trusted, whose = trust_of(query, found["statistic"], evidence_of(made))
    return made | _interval(made, half, trusted, whose)


def _shifted(found: Mapping[str, Any], live: LiveLatency, work: FloatArray, timing: Timing) -> dict[str, Any]:
    """Every number of the answer with the waits that belong to it."""

    def added(statistic: str) -> float:
        return live_latency(0.0, work, timing, statistic=statistic).total_s

    return {
        "estimate_s": live.total_s,
        "worst_s": found["worst_s"] + added("worst"),
        "mean_s": found["mean_s"] + added("mean"),
        "quantiles": {level: value + added(f"q{level}") for level, value in found["quantiles"].items()},
        "under_resolution": False,
        "series": {
            name: None if values is None else (np.asarray(values) + live.added_s).tolist()
            for name, values in found["series"].items()
        },
    }


def _interval(made: Mapping[str, Any], half: float | None, trusted: Trust, whose: str) -> dict[str, Any]:
    estimate_s, bound_s = made["estimate_s"], made["bound_s"]
    shown = widened(estimate_s, half, trusted)
    low, high = shown if shown else (None, None)
    objective = Objective("", made["statistic"], bound_s) if bound_s is not None else None
    stated = widened(estimate_s, half, Trust(1.0, 1.0, 0, None, False))
    return {
        "low_s": low,
        "high_s": high,
        **against(objective, estimate_s, high),
        "series": _band(made["series"], (high or estimate_s) - estimate_s if shown else None),
        "trust": {
            "factor": trusted.factor,
            "score": trusted.score,
            "outcomes": trusted.outcomes,
            "concluded": trusted.concluded,
            "of": whose,
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
