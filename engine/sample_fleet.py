"""A made-up fleet with queries that run on it, of any size: something large to try the product on.

Sources are On-Off streams as in section VIII of the Mace paper; queries are pipelines with a join, of about ten
operators. Nothing in it was measured, and it says so: its statistics are assumed, with made samples behind them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from engine.arrays import frozen_array
from engine.document.deployment import Deployment, Replica
from engine.document.elements import Batch, Evidence, Input, Node, Operator, Source
from engine.estimation.flow import flow
from engine.estimation.loads import loads_of
from engine.placement.greedy import place
from engine.workload import on_off

__all__ = ["FleetPlan", "make_fleet"]

# name, share of the nodes, cycles/s of one core, cores, price per hour
_POOLS = (
    ("small", 0.6, 2.0e9, 1, 0.05),
    ("medium", 0.3, 2.4e9, 2, 0.11),
    ("large", 0.1, 3.0e9, 4, 0.25),
)
_SLICES = 4  # of a subinterval
_OPERATORS = 10  # of a query
_QUERIES_PER_SOURCE = 8
_BATCHES = 8
_SLACK = (1.15, 2.5)  # objectives over what Flow finds at the start
_TIGHTEST_S = 3.0  # what seconds of a subinterval can tell apart
_LARGEST = 0.5  # of the fastest core, at most, by the busiest subinterval of one operator
_MISPLACED = 0.03  # share of the operators put on a random node, so that a search has something to find


@dataclass(frozen=True)
class FleetPlan:
    """Plan of a sample fleet: sizes, the subintervals of one second, the mean load of the capacity, the seed."""

    nodes: int = 400
    operators: int = 4000
    subintervals: int = 1000
    load: float = 0.55
    seed: int = 1


def make_fleet(plan: FleetPlan) -> dict[str, object]:
    """A deployment document at a quarter of a subinterval, everything placed, every query with an objective.

    Raises
    ------
    ValueError
        If there is no node or no operator to make.

    Examples
    --------
    >>> document = make_fleet(FleetPlan(nodes=4, operators=20, subintervals=60))
    >>> len(document["nodes"]), len(document["operators"]), len(document["objectives"])
    (4, 20, 2)
    """
    if plan.nodes < 1 or plan.operators < 1:
        raise ValueError(f"nodes is {plan.nodes} and operators is {plan.operators}; allowed: at least 1 of each")
    rng = np.random.default_rng(plan.seed)
    queries = -(-plan.operators // _OPERATORS)
    sources = _sources(plan, -(-queries // _QUERIES_PER_SOURCE))
    operators: list[Operator] = []
    for q in range(queries):
        count = min(_OPERATORS, plan.operators - q * _OPERATORS)
        operators += _query(rng, f"q{q:03}", [source.id for source in sources], count)
    made = Deployment(
        subinterval_s=1.0 / _SLICES,
        subintervals=len(sources[0].arrivals),
        sources=tuple(sources),
        nodes=_nodes(plan.nodes),
        operators=tuple(operators),
    )
    fitted = _fit_load(_cap_operators(_fit_load(made, plan.load)), plan.load)
    placed = _place_operators(fitted, rng)
    return _with_objectives(placed, rng).to_document()


def _nodes(count: int) -> tuple[Node, ...]:
    ends = np.cumsum([share for _, share, *_ in _POOLS]) * count
    nodes = []
    for i in range(count):
        name, _, capacity_cps, cores, price = _POOLS[min(int(np.searchsorted(ends, i, side="right")), len(_POOLS) - 1)]
        nodes.append(Node(f"{name}-{i + 1:03}", capacity_cps, cores=cores, pool=name, price_per_hour=price))
    return tuple(nodes)


def _sources(plan: FleetPlan, count: int) -> list[Source]:
    rng = np.random.default_rng([plan.seed, 1])
    return [
        Source(
            f"stream-{i + 1:02}",
            frozen_array(
                on_off(
                    mean_rate_eps=float(rng.uniform(400.0, 4000.0)),
                    horizon_s=float(plan.subintervals),
                    slice_s=1.0 / _SLICES,
                    ratio=float(rng.uniform(2.0, 6.0)),
                    high_period_s=float(rng.uniform(3.0, 15.0)),
                    seed=int(rng.integers(2**31)),
                )
            ),
        )
        for i in range(count)
    ]


def _query(rng: np.random.Generator, name: str, sources: list[str], count: int) -> list[Operator]:
    """Read, clean, filter, fork, join again, aggregate, publish; shorter where fewer operators are asked for."""
    read = [str(source) for source in rng.choice(sources, size=1)]
    wiring = [read, ["o0"], ["o1"], ["o2"], ["o2"], ["o3"], ["o4", "o5"], ["o6"], ["o7"], ["o8"]]
    kinds = ["source", "map", "filter", "map", "map", "map", "join", "window", "aggregate", "sink"]
    return [_operator(rng, name, i, kinds[i], wiring[i]) for i in range(count)]


def _operator(rng: np.random.Generator, query: str, i: int, kind: str, reads: list[str]) -> Operator:
    sigma = {"filter": rng.uniform(0.2, 0.9), "join": rng.uniform(0.3, 0.6), "aggregate": rng.uniform(0.01, 0.1)}
    selectivity = float(sigma.get(kind, 1.0))
    inputs = tuple(
        _input(rng, name if i == 0 else f"{query}/{name}", selectivity, float(rng.lognormal(0.0, 0.6)))
        for name in reads
    )
    return Operator(
        f"{query}/o{i}",
        (),
        inputs,
        query=query,
        kind=kind,
        stateless=kind in ("source", "map", "filter"),
        bytes_per_event=float(rng.integers(60, 400)),
        evidence=Evidence("assumed", sum(entry.batches[0].events for entry in inputs) * _BATCHES),
        state_bytes=float(rng.integers(1, 400)) * 1e6 if kind in ("join", "window", "aggregate") else None,
    )


def _input(rng: np.random.Generator, source: str, selectivity: float, cycles: float) -> Input:
    events = 5000.0
    batches = tuple(
        Batch(
            events,
            outputs=round(events * selectivity * float(rng.normal(1.0, 0.01)), 1),
            cycles=round(events * cycles * float(rng.normal(1.0, 0.02)), 1),
        )
        for _ in range(_BATCHES)
    )
    return Input(source, selectivity, cycles, batches=batches)


def _on_one_node(deployment: Deployment) -> Deployment:
    """Everything on one node: where operators are does not matter to their own loads."""
    return deployment.with_placement({op.id: (Replica(deployment.nodes[0].id),) for op in deployment.operators})


def _cap_operators(deployment: Deployment) -> Deployment:
    """The same without operators that a core could hardly hold alone: no placement helps them."""
    peaks = loads_of(_on_one_node(deployment).coarsened(_SLICES)).operators().load.max(axis=1)
    fastest = max(node.capacity_cps or 0.0 for node in deployment.nodes)
    max_events = _LARGEST * fastest * deployment.subinterval_s * _SLICES
    factors = np.minimum(1.0, max_events / np.maximum(peaks, 1e-12))
    operators = [_scale_costs(op, float(factor)) for op, factor in zip(deployment.operators, factors, strict=True)]
    return replace(deployment, operators=tuple(operators))


def _fit_load(deployment: Deployment, load: float) -> Deployment:
    """The same with every cost scaled so that the mean load is `load` of all capacity."""
    everything = _on_one_node(deployment)
    cycles = float(loads_of(everything).by_time.sum())
    capacity = sum((node.capacity_cps or 0.0) * node.cores for node in deployment.nodes)
    factor = load * capacity * deployment.subinterval_s * deployment.subintervals / cycles
    return replace(deployment, operators=tuple(_scale_costs(operator, factor) for operator in deployment.operators))


def _scale_costs(operator: Operator, factor: float) -> Operator:
    inputs = tuple(
        replace(
            entry,
            cycles_per_event=entry.cycles_per_event * factor,
            batches=tuple(replace(batch, cycles=batch.cycles * factor) for batch in entry.batches),
        )
        for entry in operator.inputs
    )
    return replace(operator, inputs=inputs)


def _place_operators(deployment: Deployment, rng: np.random.Generator) -> Deployment:
    """Placed by the greedy rule, then a few operators put anywhere."""
    placement = dict(place(deployment, coarse=_SLICES))
    names = [operator.id for operator in deployment.operators]
    for name in rng.choice(names, size=round(_MISPLACED * len(names)), replace=False):
        node = deployment.nodes[int(rng.integers(len(deployment.nodes)))]
        placement[str(name)] = (Replica(node.id, int(rng.integers(node.cores))),)
    return deployment.with_placement(placement)


def _with_objectives(deployment: Deployment, rng: np.random.Generator) -> Deployment:
    """Objectives a little to a good deal above what Flow finds now."""
    document = deployment.to_document()
    latency = flow(deployment, by_input=True).by_query
    document["objectives"] = [
        {
            "query": query,
            "statistic": "worst",
            "bound_s": round(max(_TIGHTEST_S, series.max() * rng.uniform(*_SLACK)), 1),
        }
        for query, series in latency.items()
    ]
    return Deployment.parse(document)
