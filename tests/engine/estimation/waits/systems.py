"""Deployments with windows, triggers and buffers, and what the simulator makes of them."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from engine.arrays import FloatArray
from engine.document.deployment import Deployment
from engine.estimation.waits.estimate import query_waits
from engine.estimation.waits.summary import QueryWaits
from engine.simulation import SimulationSettings, simulate

TUMBLING = {"policy": "time", "type": "tumbling", "size": 10.0}
DATA = Path(__file__).parent / "data"
_GOING_ON = 20  # subintervals after the horizon
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


def case_of(name: str) -> dict[str, Any]:
    """The deployment of a case in `data`, as a document."""
    document: dict[str, Any] = json.loads((DATA / f"{name}.json").read_text())["deployment"]
    return document


def simulated(document: dict[str, Any], phases_s: Sequence[float], *, cost_cv: float = 1.0) -> Iterator[FloatArray]:
    """Latencies of the results of the events in a document's horizon, one run for each of these phases.

    The sources go on for a while at the rate they end with, until what waits at the end of the horizon has come out.
    """
    system = copy.deepcopy(document)
    for source in system["sources"]:
        source["arrivals"] += source["arrivals"][-1:] * _GOING_ON
    deployment = Deployment.parse(system)
    horizon_s = deployment.subinterval_s * (deployment.subintervals - _GOING_ON)
    for seed, phase_s in enumerate(phases_s):
        run = simulate(deployment, SimulationSettings(seed=seed, phase_s=phase_s, cost_cv=cost_cv))
        yield run.latency_s[run.records["stimulus"] < horizon_s]
