"""Deployments to be placed, a check of what is proposed for them, and the goal worked out another way."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any

from engine.document.deployment import Deployment, Replica
from engine.estimation.mace import mace
from engine.estimation.overload import lasting_overloads


def operator(name: str, cost: float, source: str = "s", **more: Any) -> dict[str, Any]:
    query = name.split("/")[0] if "/" in name else None
    read = {"from": source, "selectivity": more.pop("selectivity", 1.0), "cycles_per_event": cost}
    return {"id": name, "inputs": [read], **({"query": query} if query else {}), **more}


def node(name: str, capacity: float = 100.0, cores: int = 1) -> dict[str, Any]:
    return {"id": name, "capacity_cps": capacity, "cores": cores}


def fleet(operators: list[dict[str, Any]], nodes: list[dict[str, Any]], **more: Any) -> Deployment:
    document = {
        "subinterval_s": 1.0,
        "sources": [{"id": "s", "arrivals": [10.0, 0.0, 10.0]}, {"id": "t", "arrivals": [0.0, 10.0, 0.0]}],
        "nodes": nodes,
        "operators": operators,
    }
    return Deployment.parse(document | more, placed=False)


def drawn(seed: int, *, links: bool = False, constraints: bool = False, placed: bool = True) -> Deployment:
    """A small deployment: 2 or 3 nodes, 3 to 5 operators in two queries, 12 subintervals."""
    draw = random.Random(seed)
    names = ["a", "b", "c"][: draw.randint(2, 3)]
    nodes = [node(name, draw.choice([60.0, 100.0, 100.0, 140.0])) for name in names]
    operators = []
    before = {"p": "s", "q": "t"}
    for k in range(draw.randint(3, 5)):
        query = draw.choice("pq")
        entry = operator(f"{query}/{k}", draw.choice([1.0, 2.0, 4.0, 7.0]), before[query], selectivity=0.9)
        entry |= {"bytes_per_event": draw.choice([10.0, 40.0]), "stateless": True}
        if placed or draw.random() < 0.5:
            entry["node"] = draw.choice(names)
        operators.append(entry)
        before[query] = entry["id"]
    more: dict[str, Any] = {
        "sources": [
            {"id": name, "arrivals": [draw.choice([2.0, 5.0, 9.0, 30.0]) for _ in range(12)]} for name in ("s", "t")
        ]
    }
    if links:
        more["links"] = [
            {
                "from": x,
                "to": y,
                "bandwidth_bytes_s": draw.choice([None, 150.0, 400.0]),
                "delay_s": draw.choice([0.0, 0.4]),
            }
            for x in names
            for y in names
            if x != y
        ]
    if constraints:
        ids = [entry["id"] for entry in operators]
        limits: dict[str, Any] = {}
        if draw.random() < 0.5:
            limits["pin"] = {draw.choice(ids): draw.choice(names)}
        if draw.random() < 0.5:
            limits["forbid"] = {draw.choice(ids): [draw.choice(names)]}
        if draw.random() < 0.5:
            limits["apart"] = [draw.sample(ids, 2)]
        if draw.random() < 0.5:
            limits["max_moves"] = draw.randint(0, 3)
        more["constraints"] = limits
        if set(limits.get("pin", {})) & set(limits.get("forbid", {})):
            del limits["forbid"]
    queries = sorted({entry["query"] for entry in operators})
    more["objectives"] = [{"query": name, "statistic": "worst", "bound_s": draw.choice([0.5, 4.0])} for name in queries]
    return fleet(operators, nodes, **more)


Places = dict[str, tuple[Replica, ...]]


def places_of(report: dict[str, Any]) -> Places:
    return {name: tuple(Replica(**part) for part in parts) for name, parts in report["placement"].items()}


def broken(
    deployment: Deployment, places: Places, closed: tuple[str, ...] = (), fixed: tuple[str, ...] = ()
) -> list[str]:
    """Everything that a placement does not respect; written without any code of the search."""
    limits, result = deployment.constraints, []
    cores = {placed.id: placed.cores for placed in deployment.nodes}
    moves = 0
    for placed in deployment.operators:
        parts = places.get(placed.id, ())
        if abs(sum(part.fraction for part in parts) - 1.0) > 1e-9:
            result.append(f"{placed.id} is not whole")
        if len({(part.node, part.core) for part in parts}) < len(parts):
            result.append(f"{placed.id} is twice on a core")
        old = {(part.node, part.core): part.fraction for part in placed.replicas}
        if len(parts) > max(1, len(old)) and placed.id not in (limits.may_split or ()):
            result.append(f"{placed.id} may not be split")
        for part in parts:
            if part.core >= cores[part.node]:
                result.append(f"{placed.id} on no core")
            if limits.pin.get(placed.id, part.node) != part.node:
                result.append(f"{placed.id} is not where it is pinned")
            if part.node in limits.forbid.get(placed.id, ()):
                result.append(f"{placed.id} is on a forbidden node")
            if part.node in closed and placed.id not in fixed:
                result.append(f"{placed.id} is on a closed node")
        changed = {(part.node, part.core): part.fraction for part in parts} != old
        if placed.id in fixed and changed:
            result.append(f"{placed.id} was to stay")
        moves += bool(old) and changed
    for group in limits.apart:
        for a, b in itertools.combinations(group, 2):
            if {part.node for part in places[a]} & {part.node for part in places[b]}:
                result.append(f"{a} and {b} share a node")
    if limits.max_moves is not None and moves > limits.max_moves:
        result.append(f"{moves} moves")
    return result


def goal(deployment: Deployment, places: Places, objective: str = "worst") -> float:
    """The largest, over the queries, of the slowest server plus the longest delay; weighted by 1 over the bound."""
    whole = deployment.with_placement(places)
    result = mace(whole)
    worst = dict(zip((server.name for server in whole.servers), result.worst_s, strict=True))
    delay = {(link.source, link.target): link.delay_s for link in whole.links}
    bounds = {objective.query: objective.bound_s for objective in whole.objectives}

    def longest(name: str, here: str) -> float:
        if name not in whole.operator_index:
            return 0.0
        parts = whole.operators[whole.operator_index[name]]
        return max(
            (
                delay.get((part.node, here), 0.0) + max(longest(e.source, part.node) for e in parts.inputs)
                for part in parts.replicas
            ),
            default=0.0,
        )

    largest = 0.0
    for query in {op.query for op in whole.operators}:
        servers, way = set(), 0.0
        for op in (op for op in whole.operators if op.query == query):
            for part in op.replicas:
                cores = whole.nodes[whole.node_index[part.node]].cores
                servers.add(part.node if cores == 1 else f"{part.node}#{part.core}")
                for entry in op.inputs:
                    way = max(way, longest(entry.source, part.node))
                    above = whole.operator_index.get(entry.source)
                    origins = whole.operators[above].replicas if above is not None else ()
                    servers |= {f"{origin.node}->{part.node}" for origin in origins}
        weight = 1.0 if objective == "worst" else 2.0 ** whole.priorities.get(query or "", 0) / bounds[query or ""]
        largest = max(largest, weight * (max(worst.get(name, 0.0) for name in servers) + way))
    return largest


def endless(deployment: Deployment, places: Places) -> int:
    """Number of queries with a server that gets more than its capacity for good."""
    whole = deployment.with_placement(places)
    over = [overload.server for overload in lasting_overloads(mace(whole)).values()]
    at: dict[str, set[str]] = {op.query or "": set() for op in whole.operators}
    for op in whole.operators:
        for part in op.replicas:
            cores = whole.nodes[whole.node_index[part.node]].cores
            at[op.query or ""].add(part.node if cores == 1 else f"{part.node}#{part.core}")
            above = [whole.operator_index[e.source] for e in op.inputs if e.source in whole.operator_index]
            at[op.query or ""] |= {
                f"{origin.node}->{part.node}" for j in above for origin in whole.operators[j].replicas
            }
    return sum(bool(servers.intersection(over)) for servers in at.values())


def every_placement(deployment: Deployment) -> Iterator[Places]:
    """All placements in one piece."""
    cores = [Replica(home.id, core) for home in deployment.nodes for core in range(home.cores)]
    names = [home.id for home in deployment.operators]
    for chosen in itertools.product(cores, repeat=len(names)):
        yield {name: (place,) for name, place in zip(names, chosen, strict=True)}


def best_places(deployment: Deployment, objective: str = "worst", **limits: Any) -> Places | None:
    """The placement of the least goal that respects the constraints, if there are some of those on which everything
    catches up; None if there is none."""
    allowed = [places for places in every_placement(deployment) if not broken(deployment, places, **limits)]
    good = [places for places in allowed if not endless(deployment, places)] or allowed
    return min(good, key=lambda places: goal(deployment, places, objective), default=None)


def least(deployment: Deployment, objective: str = "worst", **limits: Any) -> float | None:
    """The goal of `best_places`."""
    best = best_places(deployment, objective, **limits)
    return None if best is None else goal(deployment, best, objective)
