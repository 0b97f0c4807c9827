"""Systems as in section VIII of the Mace paper: queries of 14 operators, On-Off sources, one node or several.

The paper's clickstream is not public. Queries here are random graphs with the paper's mix (input, projects, selects,
joins, custom operators, output), a cost of every event that varies by 0.5 of its mean, and drawn outputs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.deployment import Batch, Deployment, Input, Operator
from engine.mace import mace
from engine.simulation import Settings, Simulation, simulate
from engine.workload import on_off_times

__all__ = ["BATCHES", "System", "build", "learned", "run"]

EVENTS = 75_000
HORIZON_S = 200.0
SLICE_S = 0.25  # w/4
LOAD = 0.75
COST_CV = 0.5
OPERATORS_PER_QUERY = 14
TRAINING_SHARE = 0.08
BATCHES = 8


@dataclass(frozen=True)
class System:
    """A deployment with its true statistics, and the events that arrive."""

    deployment: Deployment
    times_s: dict[str, NDArray[np.float64]]
    seed: int


def build(queries: int, nodes: int, seed: int, horizon_s: float = HORIZON_S) -> System:
    """A system of `queries` queries, placed at random on equal nodes of which the busiest is loaded at 0.75."""
    rng = np.random.default_rng([seed, queries, nodes])
    times_s = {f"s{q}": _times(int(rng.integers(2**31)), EVENTS / queries, horizon_s) for q in range(queries)}
    slices = round(horizon_s / SLICE_S)
    arrivals = {name: np.bincount((t / SLICE_S).astype(int), minlength=slices) for name, t in times_s.items()}
    operators = [operator for q in range(queries) for operator in _query(rng, q, nodes)]
    document: dict[str, Any] = {
        "subinterval_s": SLICE_S,
        "sources": [{"id": name, "arrivals": counts} for name, counts in arrivals.items()],
        "nodes": [{"id": f"n{i}", "capacity_cps": 1.0} for i in range(nodes)],
        "operators": operators,
    }
    busiest = mace(Deployment.parse(document)).load.sum(axis=1).max() / horizon_s
    for node in document["nodes"]:
        node["capacity_cps"] = float(busiest / LOAD)
    return System(Deployment.parse(document), times_s, seed)


def run(system: System) -> Simulation:
    """The system event by event; the first 8 % of each source's events are sampled in batches."""
    groups = {}
    for name, times in system.times_s.items():
        training = int(TRAINING_SHARE * len(times))
        groups[name] = np.full(len(times), -1, np.int32)
        groups[name][:training] = np.arange(training) * BATCHES // max(1, training)
    settings = Settings(seed=system.seed, cost_cv=COST_CV)
    return simulate(system.deployment, settings, times_s=system.times_s, groups=groups)


def learned(deployment: Deployment, sampled: NDArray[np.float64]) -> Deployment:
    """The deployment with the statistics of a sample, shape (inputs, batches, 3), in place of the true ones."""
    rows = iter(sampled)
    return replace(deployment, operators=tuple(_relearned(operator, rows) for operator in deployment.operators))


def _relearned(operator: Operator, rows: Iterable[NDArray[np.float64]]) -> Operator:
    inputs = tuple(_from_sample(entry, row) for entry, row in zip(operator.inputs, rows, strict=False))
    return replace(operator, inputs=inputs)


def _from_sample(entry: Input, row: NDArray[np.float64]) -> Input:
    events, outputs, cycles = row.sum(axis=0)
    seen = max(1.0, events)
    batches = tuple(Batch(*map(float, batch)) for batch in row)
    return replace(entry, selectivity=outputs / seen, cycles_per_event=cycles / seen, batches=batches)


def _times(seed: int, events: float, horizon_s: float) -> NDArray[np.float64]:
    """An On-Off pattern scaled to about `events` events: a few random periods are far from their long-run mean."""
    drawn = len(on_off_times(mean_rate_eps=events / horizon_s, horizon_s=horizon_s, seed=seed))
    rate_eps = events / horizon_s * events / max(1, drawn)
    return on_off_times(mean_rate_eps=rate_eps, horizon_s=horizon_s, seed=seed)


def _query(rng: np.random.Generator, q: int, nodes: int) -> list[dict[str, Any]]:
    """Input, then mostly projects and selects with two joins, then an output that reads every loose end."""
    names, loose, operators = [f"s{q}"], set(), []
    for i in range(OPERATORS_PER_QUERY):
        last = i == OPERATORS_PER_QUERY - 1
        width = min(len(names), 2 if i in (5, 10) else 1)
        reads = sorted(loose) if last else [str(name) for name in rng.choice(names[-3:], width, replace=False)]
        name = f"q{q}/o{i:02}"
        loose = (loose - set(reads)) | {name}
        operators.append(
            {
                "id": name,
                "query": f"q{q}",
                "node": f"n{rng.integers(nodes)}",
                "inputs": [_input(rng, source, i) for source in reads],
            }
        )
        names = [*names, name] if i else [name]
    return operators


def _input(rng: np.random.Generator, source: str, i: int) -> dict[str, Any]:
    keeps_all = i in (0, OPERATORS_PER_QUERY - 1) or rng.random() < 0.5
    selectivity = 1.0 if keeps_all else float(rng.uniform(0.4, 1.1))
    return {"from": source, "selectivity": selectivity, "cycles_per_event": float(rng.lognormal(0.0, 0.7))}
