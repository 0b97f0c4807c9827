"""Random clusters in which queries share servers, links and streams, and random changes to them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from engine.arrays import frozen_array
from engine.document.deployment import Deployment, Objective, Replica, rename_inputs, with_node_like
from engine.placement.greedy import place
from engine.provisioning.nodes import lose_nodes

__all__ = ["other_change", "random_change", "random_cluster"]

_STEPS = 24


def random_cluster(rng: np.random.Generator, *, queries: int = 8, nodes: int = 5, load: float = 0.9) -> dict[str, Any]:
    """A document of chains, joins and splits on few nodes; `load` is that of all cores on the mean, also above 1."""
    machines: list[dict[str, Any]] = [
        {"id": f"n{i}", "capacity_cps": 100.0, "cores": int(rng.integers(1, 4))} for i in range(nodes)
    ]
    if rng.random() < 0.3:
        machines[0] = {"id": "n0", "capacity_series_cps": [float(x) for x in rng.choice([0.0, 50.0, 150.0], _STEPS)]}
        machines[0]["capacity_series_cps"][-1] = 100.0
    places = [(m["id"], core) for m in machines for core in range(m.get("cores", 1))]
    sources: list[dict[str, Any]] = [
        {
            "id": f"s{u}",
            "arrivals": [float(x) for x in rng.poisson(rng.uniform(2.0, 30.0), _STEPS) * rng.integers(0, 3, _STEPS)],
        }
        for u in range(max(2, queries // 2))
    ]
    links = []
    for a in machines:
        for b in machines:
            if a is not b and rng.random() < 0.35:
                link = {"from": a["id"], "to": b["id"], "delay_s": float(rng.choice([0.0, 0.01, 0.3]))}
                if rng.random() < 0.4:
                    link["bandwidth_bytes_s"] = float(rng.uniform(200.0, 2000.0))
                links.append(link)
    operators: list[dict[str, Any]] = []
    for q in range(queries):
        operators += _query(rng, f"q{q}", sources, operators, places)
    mean = sum(sum(s["arrivals"]) for s in sources) / len(sources) / _STEPS
    scale = load * 100.0 * len(places) / max(1.0, mean * len(operators) * 2.0)
    for operator in operators:
        for entry in operator["inputs"]:
            if "model" in entry:
                entry["model"]["cycles"] = [x * scale for x in entry["model"]["cycles"]]
            else:
                entry["cycles_per_event"] *= scale
    document: dict[str, Any] = {
        "subinterval_s": 1.0,
        "sources": sources,
        "nodes": machines,
        "links": links,
        "operators": operators,
        "objectives": [
            {"query": f"q{q}", "statistic": str(rng.choice(["worst", "mean", "q0.9"])), "bound_s": 3.0}
            for q in range(queries)
            if rng.random() < 0.7
        ],
    }
    if rng.random() < 0.2:
        sources[0]["backlog"] = {"behind_s": float(rng.uniform(1.0, 8.0))}
    if rng.random() < 0.1:
        machines[-1]["scheduling"] = "fcfs"
    if rng.random() < 0.25:
        document["combine"] = {"kind": "interference", "alpha": 0.1} if rng.random() < 0.5 else {"kind": "max"}
    return document


def _query(
    rng: np.random.Generator,
    name: str,
    sources: list[dict[str, Any]],
    others: list[dict[str, Any]],
    places: list[tuple[str, int]],
) -> list[dict[str, Any]]:
    """Up to five operators behind each other, which now and then join a second stream or read another query's."""
    own: list[dict[str, Any]] = []
    for i in range(int(rng.integers(1, 6))):
        above = own[-1]["id"] if own else str(rng.choice([s["id"] for s in sources]))
        if not own and others and rng.random() < 0.2:
            above = str(rng.choice([o["id"] for o in others]))
        read = [above]
        if rng.random() < 0.2:
            read.append(str(rng.choice([s["id"] for s in sources if s["id"] != above])))
        operator: dict[str, Any] = {
            "id": f"{name}.{i}",
            "query": name,
            "bytes_per_event": float(rng.choice([0.0, 20.0, 60.0])),
            "inputs": [_entry(rng, source) for source in read],
            **_waits(rng),
        }
        if rng.random() < 0.2 and len(places) > 1:
            chosen = rng.choice(len(places), 2, replace=False)
            operator["split"] = [
                {"node": places[c][0], "core": places[c][1], "fraction": part}
                for c, part in zip(chosen, (0.25, 0.75), strict=True)
            ]
        else:
            operator["node"], operator["core"] = places[int(rng.integers(len(places)))]
        own.append(operator)
    return own


def _waits(rng: np.random.Generator) -> dict[str, Any]:
    """A window, a trigger or a buffer that an operator's events wait for, or nothing."""
    kind = rng.random()
    if kind < 0.08:
        return {"window": {"policy": "time", "type": "tumbling", "size": 4.0}}
    if kind < 0.16:
        return {"trigger": {"interval_s": 3.0, "overhead_s": 0.2}}
    return {"buffer_timeout_s": 0.1} if kind < 0.24 else {}


def _entry(rng: np.random.Generator, source: str) -> dict[str, Any]:
    if rng.random() < 0.1:
        return {"from": source, "model": {"output": [0.0, 0.5, 0.001], "cycles": [0.2, 1.0, 0.01]}}
    return {
        "from": source,
        "selectivity": float(rng.choice([0.1, 0.5, 1.0, 1.5])),
        "cycles_per_event": float(rng.uniform(0.2, 4.0)),
    }


def random_change(rng: np.random.Generator, deployment: Deployment) -> Deployment:
    """A query that joins, goes, moves or costs more, other arrivals, or another capacity."""
    changes: list[Callable[[], Deployment]] = [
        lambda: _joined(rng, deployment),
        lambda: _left(rng, deployment),
        lambda: _moved(rng, deployment),
        lambda: _dearer(rng, deployment),
        lambda: _busier(rng, deployment),
        lambda: _faster(rng, deployment),
    ]
    return changes[int(rng.integers(len(changes)))]()


def other_change(rng: np.random.Generator, deployment: Deployment) -> Deployment:
    """A query that starts later at a part of its rate, another objective, a node that is lost, or one more."""
    changes: list[Callable[[], Deployment]] = [
        lambda: _later(rng, deployment),
        lambda: _judged(rng, deployment),
        lambda: _lost(rng, deployment),
        lambda: _grown(rng, deployment),
    ]
    return changes[int(rng.integers(len(changes)))]()


def _joined(rng: np.random.Generator, deployment: Deployment) -> Deployment:
    """With a query more, the like of one that runs, elsewhere."""
    like = [op for op in deployment.operators if op.query == str(rng.choice(deployment.queries))]
    name = "new" + "er" * sum(query.startswith("new") for query in deployment.queries)
    renamed = {op.id: f"{name}.{op.id}" for op in like}
    node = deployment.nodes[int(rng.integers(len(deployment.nodes)))]
    fresh = [
        replace(rename_inputs(op, renamed.get), id=renamed[op.id], query=name, replicas=(Replica(node.id),))
        for op in like
    ]
    return deployment.extended(fresh)


def _left(rng: np.random.Generator, deployment: Deployment) -> Deployment:
    """Without one query that no other reads; the first operator moves where there is none."""
    owner = {op.id: op.query for op in deployment.operators}
    read = {owner.get(e.source) for op in deployment.operators for e in op.inputs if owner.get(e.source) != op.query}
    free = [query for query in deployment.queries if query not in read]
    return deployment.without_query(str(rng.choice(free))) if len(free) > 1 else _moved(rng, deployment)


def _moved(rng: np.random.Generator, deployment: Deployment) -> Deployment:
    operator = deployment.operators[int(rng.integers(len(deployment.operators)))]
    node = deployment.nodes[int(rng.integers(len(deployment.nodes)))]
    return deployment.with_placement({operator.id: [Replica(node.id, int(rng.integers(node.cores)))]})


def _dearer(rng: np.random.Generator, deployment: Deployment) -> Deployment:
    at = int(rng.integers(len(deployment.operators)))
    operator = deployment.operators[at]
    inputs = tuple(
        e if e.model else replace(e, cycles_per_event=e.cycles_per_event * 1.7, selectivity=e.selectivity * 0.9)
        for e in operator.inputs
    )
    operators = (*deployment.operators[:at], replace(operator, inputs=inputs), *deployment.operators[at + 1 :])
    return replace(deployment, operators=operators)


def _busier(rng: np.random.Generator, deployment: Deployment) -> Deployment:
    source = deployment.sources[int(rng.integers(len(deployment.sources)))]
    return deployment.with_arrivals({source.id: np.array(source.arrivals) * rng.choice([0.5, 1.4])})


def _faster(rng: np.random.Generator, deployment: Deployment) -> Deployment:
    node = next(node for node in deployment.nodes[::-1] if node.capacity_cps is not None)
    nodes = (replace(each, capacity_cps=130.0) if each is node else each for each in deployment.nodes)
    return replace(deployment, nodes=tuple(nodes))


def _later(rng: np.random.Generator, deployment: Deployment) -> Deployment:
    """With a query that reads copies of its sources, from a later subinterval on and a part of their events."""
    query, start, share = str(rng.choice(deployment.queries)), int(rng.integers(0, 12)), float(rng.choice([0.3, 1.0]))
    own = {entry.source for op in deployment.operators if op.query == query for entry in op.inputs}
    copies = []
    for source in deployment.sources:
        if source.id in own:
            arrivals = np.array(source.arrivals) * share
            arrivals[:start] = 0.0
            copies.append(replace(source, id=f"{source.id}@{query}", arrivals=frozen_array(arrivals)))
    names = {copy.id.rpartition("@")[0]: copy.id for copy in copies}
    operators = tuple(rename_inputs(op, names.get) if op.query == query else op for op in deployment.operators)
    return replace(deployment, operators=operators, sources=(*deployment.sources, *copies))


def _judged(rng: np.random.Generator, deployment: Deployment) -> Deployment:
    """With another objective of a query, or one more."""
    query = str(rng.choice(deployment.queries))
    others = tuple(found for found in deployment.objectives if found.query != query)
    return replace(deployment, objectives=(*others, Objective(query, str(rng.choice(["worst", "q0.5"])), 1.5)))


def _lost(rng: np.random.Generator, deployment: Deployment) -> Deployment:
    """Without a node; what was on it is on the others."""
    left = lose_nodes(deployment, {deployment.nodes[int(rng.integers(len(deployment.nodes)))].id})
    return left.with_placement(place(left))


def _grown(rng: np.random.Generator, deployment: Deployment) -> Deployment:
    """With a node more, and an operator on it."""
    like = deployment.nodes[int(rng.integers(len(deployment.nodes)))]
    grown = with_node_like(deployment, replace(like, id="extra"), like.id)
    operator = deployment.operators[int(rng.integers(len(deployment.operators)))]
    return grown.with_placement({operator.id: [Replica("extra")]})
