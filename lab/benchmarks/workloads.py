"""Workloads of the Mace paper: systems of section VIII, and the clusters of section IX-B."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.arrays import FloatArray
from engine.document.deployment import Batch, Deployment, Input, Operator
from engine.estimation.mace import mace
from engine.placement.problem import PlacementProblem
from engine.simulation import Simulation, SimulationSettings, simulate
from engine.workload import count_slices, on_off, on_off_rate, random_generator

__all__ = [
    "BATCHES",
    "PlacementSetting",
    "System",
    "build",
    "event_times",
    "on_off_times",
    "problem_of",
    "run",
    "with_sampled_statistics",
]


EVENTS = 75_000
HORIZON_S = 200.0
SLICE_S = 0.25  # w/4
LOAD = 0.75
COST_CV = 0.5
OPERATORS_PER_QUERY = 14
TRAINING_SHARE = 0.08
BATCHES = 8

RANGES = ((0.0, 1.0), (1.0, 2.0), (2.0, 4.0), (4.0, 8.0))
WIDTH_S = 1.0
RATE_EPS = 1000.0


@dataclass(frozen=True)
class System:
    """A deployment with its true statistics, and the events that arrive."""

    deployment: Deployment
    times_s: dict[str, NDArray[np.float64]]
    seed: int


def build(queries: int, nodes: int, seed: int, horizon_s: float = HORIZON_S) -> System:
    """A system of `queries` queries, placed at random on equal nodes of which the busiest is loaded at 0.75."""
    rng = np.random.default_rng([seed, queries, nodes])
    times_s = {f"s{q}": event_times(int(rng.integers(2**31)), EVENTS / queries, horizon_s) for q in range(queries)}
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
    settings = SimulationSettings(seed=system.seed, cost_cv=COST_CV)
    return simulate(system.deployment, settings, times_s=system.times_s, groups=groups)


def with_sampled_statistics(deployment: Deployment, sampled: NDArray[np.float64]) -> Deployment:
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


def event_times(seed: int, events: float, horizon_s: float) -> FloatArray:
    """An On-Off pattern scaled to about `events` events: a few random periods are far from their long-run mean."""
    drawn = len(on_off_times(mean_rate_eps=events / horizon_s, horizon_s=horizon_s, seed=seed))
    rate_eps = events / horizon_s * events / max(1, drawn)
    return on_off_times(mean_rate_eps=rate_eps, horizon_s=horizon_s, seed=seed)


def _query(rng: np.random.Generator, q: int, nodes: int) -> list[dict[str, Any]]:
    """Input, then mostly projects and selects with two joins, then an output that reads every loose end."""
    names = [f"s{q}"]
    loose: set[str] = set()
    operators: list[dict[str, Any]] = []
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


@dataclass(frozen=True)
class PlacementSetting:
    """One setting; `skew` is the Zipf parameter of the selectivity ranges."""

    scale: int
    subintervals: int
    seed: int = 1
    load: float = 0.75
    skew: float = 1.0
    noise: float = 0.10
    anti: float = 0.005


def problem_of(setting: PlacementSetting) -> PlacementProblem:
    """Items' loads in cycles per subinterval on equal cores of one cycle per second."""
    rng = np.random.default_rng([setting.seed, setting.scale, setting.subintervals])
    items, cores, streams = 200 * setting.scale, 20 * setting.scale, 10 * setting.scale
    arrivals = np.array([_stream(rng, setting.subintervals) for _ in range(streams)])
    stream = rng.choice(streams, items, p=_zipf(streams, 1.0))
    low, high = np.array(RANGES)[rng.choice(len(RANGES), items, p=_zipf(len(RANGES), setting.skew))].T
    selectivity = high - rng.random(items) * (high - low)
    series = arrivals[stream]
    opposite = np.flatnonzero(rng.random(items) < setting.anti)
    series[opposite] = _opposite(series[opposite])
    noise = 1.0 + setting.noise * (rng.uniform(-1.0, 1.0, (items, 1)) + rng.uniform(-1.0, 1.0, series.shape))
    load = selectivity[:, None] * series * noise
    load *= setting.load * cores * WIDTH_S * setting.subintervals / load.sum()
    return PlacementProblem(
        load=load,
        budget=np.full((cores, 1), WIDTH_S),
        core_node=np.arange(cores),
        allowed=np.ones((items, cores), dtype=bool),
        width_s=WIDTH_S,
    )


def _stream(rng: np.random.Generator, subintervals: int) -> FloatArray:
    """Periods have their fixed lengths; where in them the series begins is drawn."""
    high_s = float(rng.uniform(3.0, 15.0))
    skipped = int(rng.integers(round(4.0 * high_s)))
    series = on_off(
        mean_rate_eps=RATE_EPS,
        horizon_s=(subintervals + skipped) * WIDTH_S,
        slice_s=WIDTH_S,
        high_period_s=high_s,
        fixed_periods=True,
        seed=int(rng.integers(2**31)),
    )
    return series[skipped:]


def _opposite(series: FloatArray) -> FloatArray:
    """High where the series are low, with the same means."""
    turned = series.max(axis=1, keepdims=True) - series
    return np.asarray(turned * (series.mean(axis=1) / turned.mean(axis=1))[:, None])


def _zipf(count: int, parameter: float) -> FloatArray:
    weights = np.arange(1, count + 1) ** -parameter
    return np.asarray(weights / weights.sum())


def on_off_times(
    *,
    mean_rate_eps: float,
    horizon_s: float,
    ratio: float = 100.0,
    duration_ratio: float = 1 / 3,
    high_period_s: float = 10.0,
    fixed_periods: bool = False,
    seed: int = 0,
) -> FloatArray:
    """Arrival time of every event of an On-Off source, seconds, ascending; parameters as in `on_off`."""
    count_slices(mean_rate_eps, horizon_s, horizon_s)
    rng = random_generator(seed)
    rate = on_off_rate(rng, mean_rate_eps, horizon_s, ratio, duration_ratio, high_period_s, fixed_periods)
    total = float(rate.events[-1])  # of a Poisson process of this rate
    times: FloatArray = np.interp(np.sort(rng.uniform(0.0, total, rng.poisson(total))), rate.events, rate.edges_s)
    return times
