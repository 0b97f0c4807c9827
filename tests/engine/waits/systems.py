"""Deployments with windows, triggers and buffers, and what the simulator makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from engine.arrays import FloatArray
from engine.document.deployment import Deployment
from engine.simulation import SimulationSettings, simulate
from engine.waits.estimate import query_waits
from engine.waits.summary import QueryWaits

TUMBLING = {"policy": "time", "type": "tumbling", "size": 10.0}
CHEAP = 1.0  # cycles of an event, of a million that a node has


def operator(name: str, *above: str, selectivity: float = 1.0, cost: float = CHEAP, **fields: Any) -> dict[str, Any]:
    """An operator of query q on node n, with a cost that makes no queue."""
    inputs = [{"from": source, "selectivity": selectivity, "cycles_per_event": cost} for source in above]
    return {"id": name, "node": "n", "query": "q", "inputs": inputs, **fields}


def deployment(operators: Sequence[dict[str, Any]], width_s: float = 1.0, **arrivals: Any) -> Deployment:
    """A deployment of operators and arrivals by source."""
    return Deployment.parse(
        {
            "subinterval_s": width_s,
            "sources": [{"id": name, "arrivals": list(map(float, counts))} for name, counts in arrivals.items()],
            "nodes": [{"id": "n", "capacity_cps": 1e6, "cores": 2}],
            "operators": list(operators),
        }
    )


def waits_of(system: Deployment) -> QueryWaits:
    """Waits of its query q."""
    return query_waits(system)["q"]


def terms_of(waits: QueryWaits) -> list[tuple[str, str]]:
    return [(term.operator, term.kind) for term in waits.terms]


def simulated(system: Deployment, phases_s: Sequence[float], *, drawn: bool = True, skip_s: float = 0.0) -> FloatArray:
    """Latencies of the results whose stimulus is not in the first seconds, with each of these phases."""
    found = []
    for seed, phase_s in enumerate(phases_s):
        settings = SimulationSettings(seed=seed, phase_s=phase_s, drawn_arrivals=drawn)
        run = simulate(system, settings)
        found.append(run.latency_s[run.records["stimulus"] >= skip_s])
    return np.concatenate(found)
