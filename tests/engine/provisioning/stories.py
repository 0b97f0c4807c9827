"""Deployments for the tests of provisioning: queries of one operator each, and brute force over their placements."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from engine.document.deployment import Deployment
from engine.estimation.mace import mace
from engine.estimation.overload import lasting_overloads
from engine.latency_state import ENDLESS_S
from engine.provisioning.nodes import lose_nodes

__all__ = ["bursty", "document", "keeps", "placements", "queueing", "ranked", "steady", "worst"]


def document(loads: list[list[float]], nodes: int, *, bound_s: float = 1.0, capacity: float = 10.0) -> dict[str, Any]:
    """Sources s0 ..., each read by an operator f0 ... of query q0 ... at a cycle per event, on nodes n0 ... in turn."""
    return {
        "subinterval_s": 1.0,
        "sources": [{"id": f"s{i}", "arrivals": values} for i, values in enumerate(loads)],
        "nodes": [{"id": f"n{k}", "capacity_cps": capacity, "pool": "p", "price_per_hour": 2.0} for k in range(nodes)],
        "operators": [
            {
                "id": f"f{i}",
                "query": f"q{i}",
                "node": f"n{i % nodes}",
                "inputs": [{"from": f"s{i}", "selectivity": 1, "cycles_per_event": 1}],
            }
            for i in range(len(loads))
        ],
        "objectives": [{"query": f"q{i}", "statistic": "worst", "bound_s": bound_s} for i in range(len(loads))],
    }


def bursty(seed: int, operators: int = 5, d: int = 12, nodes: int = 2, bound_s: float = 1.0) -> dict[str, Any]:
    """Queries whose loads peak at different times."""
    rng = np.random.default_rng(seed)
    loads = rng.integers(0, 4, (operators, d)).astype(float)
    for row in loads:
        at = int(rng.integers(0, d - 2))
        row[at : at + 2] += rng.integers(6, 12)
    return document(loads.tolist(), nodes, bound_s=bound_s)


def queueing(
    count: int, *, load: float = 0.25, bound_s: float = 0.5, cost_cv2: float = 1.0, d: int = 600, **of_source: Any
) -> dict[str, Any]:
    """Queries of one operator each, all on one node: 20 events a second at random, and each takes `load` of a core."""
    rng = np.random.default_rng(0)
    entry = {"selectivity": 1, "cycles_per_event": load / 20.0, "cost_cv2": cost_cv2}
    return {
        "subinterval_s": 0.25,
        "sources": [
            {"id": f"s{i}", "arrivals": rng.poisson(5.0, d).astype(float).tolist(), **of_source} for i in range(count)
        ],
        "nodes": [{"id": "n0", "capacity_cps": 1.0, "price_per_hour": 1.0}],
        "operators": [
            {"id": f"f{i}", "query": f"q{i}", "node": "n0", "inputs": [{"from": f"s{i}", **entry}]}
            for i in range(count)
        ],
        "objectives": [{"query": f"q{i}", "statistic": "worst", "bound_s": bound_s} for i in range(count)],
    }


def steady(document: dict[str, Any], events: int = 1000) -> dict[str, Any]:
    """The same work in so many times the events; neither costs nor arrivals are random, so that the mean path holds."""
    for source in document["sources"]:
        source["arrivals"] = [events * value for value in source["arrivals"]]
        source |= {"dispersion": 0.0, "dispersion_step_s": document["subinterval_s"]}
    for entry in (entry for operator in document["operators"] for entry in operator["inputs"]):
        entry["cycles_per_event"] /= events
        entry["cost_cv2"] = 0.0
    return document


def placements(deployment: Deployment) -> list[Deployment]:
    """Every placement of the operators on the nodes (of one core)."""
    from engine.document.deployment import Replica

    names = [operator.id for operator in deployment.operators]
    nodes = [node.id for node in deployment.nodes]
    return [
        deployment.with_placement({name: (Replica(node),) for name, node in zip(names, chosen, strict=True)})
        for chosen in itertools.product(nodes, repeat=len(names))
    ]


def ranked(placed: Deployment) -> float:
    """Largest Mace of a server, with the penalty of one that never catches up: (1 + growth) times `ENDLESS_S`."""
    result = mace(placed)
    endless = {server: (1.0 + overload.growth) * ENDLESS_S for server, overload in lasting_overloads(result).items()}
    return max(seconds + endless.get(server, 0.0) for server, seconds in enumerate(result.worst_s.tolist()))


def worst(deployment: Deployment) -> float:
    """Least rank over all placements."""
    return min(ranked(placed) for placed in placements(deployment))


def keeps(deployment: Deployment, bound_s: float, *, lost: bool = False) -> bool:
    """Whether some placement stays within a bound, also when any node is lost and only its operators are moved."""
    return any(
        mace(placed).worst <= bound_s and (not lost or _survives(placed, bound_s)) for placed in placements(deployment)
    )


def _survives(placed: Deployment, bound_s: float) -> bool:
    return all(_refilled(placed, node.id, bound_s) for node in placed.nodes)


def _refilled(placed: Deployment, node: str, bound_s: float) -> bool:
    left = lose_nodes(placed, {node})
    fixed = {op.id: op.replicas for op in left.operators if op.replicas}
    return bool(left.nodes) and any(
        mace(other).worst <= bound_s
        for other in placements(left)
        if all(
            other.operators[i].replicas == fixed.get(op.id, other.operators[i].replicas)
            for i, op in enumerate(left.operators)
        )
    )
