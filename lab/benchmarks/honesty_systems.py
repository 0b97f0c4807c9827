"""Systems whose latencies are known: random ones of several classes, and real traces."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from engine.arrays import FloatArray, nearest_rank
from engine.document.deployment import Deployment
from engine.document.elements import SAMPLE, THESE
from engine.simulation import SimulationSettings, simulate
from lab.benchmarks.workloads import on_off_times, with_sampled_statistics

__all__ = [
    "CLASSES",
    "GRIDS",
    "QUERY",
    "STATISTICS",
    "Grid",
    "KnownSystem",
    "build",
    "fifo_latency",
    "single",
    "traces",
]

QUERY = "q"
STATISTICS = ("exact", "sampled")
_LOADS = (0.3, 1.1)
_RATES = (10.0, 60.0)  # events/s
_SHARE, _BATCHES = 0.08, 8  # of the events, from the first on; the rest is in as many batches
_PARETO_SHAPE, _PARETO_REACH = 1.5, 100.0  # exponent; largest cost over least


@dataclass(frozen=True, slots=True)
class Grid:
    """Knowledge of arrivals: counts of `known_s`, spread over slices of `width_s`."""

    name: str
    width_s: float
    known_s: float
    horizon_s: float


STAMPS = Grid("stamps", 0.01, 0.01, 300.0)
MINUTES = Grid("5 min", 1.0, 300.0, 7200.0)
GRIDS = (STAMPS, Grid("0.25 s", 0.25, 0.25, 900.0), Grid("1 s", 1.0, 1.0, 1800.0), MINUTES)


@dataclass(frozen=True, slots=True)
class KnownSystem:
    """A deployment as an estimate gets it, by what is known of its statistics, and what became of the events."""

    name: str
    grid: Grid
    deployments: dict[str, Deployment]  # by one of STATISTICS
    realised_s: dict[str, float]  # worst, q0.99, mean


@dataclass(frozen=True, slots=True)
class _Costs:
    """Costs of mean 1 and their squared coefficient of variation."""

    cv2: float
    draw: Callable[[np.random.Generator, int], FloatArray]


def _lognormal(cv2: float) -> _Costs:
    variance = math.log1p(cv2)
    return _Costs(cv2, lambda rng, n: rng.lognormal(-0.5 * variance, math.sqrt(variance), n))


def _pareto() -> _Costs:
    a, reach = _PARETO_SHAPE, _PARETO_REACH
    whole = 1.0 - reach**-a
    mean = a / whole * (1.0 - reach ** (1.0 - a)) / (a - 1.0)
    square = a / whole * (reach ** (2.0 - a) - 1.0) / (2.0 - a)
    return _Costs(square / mean**2 - 1.0, lambda rng, n: (1.0 - rng.random(n) * whole) ** (-1.0 / a) / mean)


EXPONENTIAL = _Costs(1.0, lambda rng, n: rng.standard_exponential(n))
FIXED = _Costs(0.0, lambda rng, n: np.ones(n))
_SINGLE = {
    "M/M/1": EXPONENTIAL,
    "M/D/1": FIXED,
    "lognormal cv 2": _lognormal(4.0),
    "bounded Pareto": _pareto(),
    "on-off": EXPONENTIAL,
}
CLASSES = (*_SINGLE, "chain", "merge")


def build(name: str, number: int, seed: int) -> KnownSystem:
    """KnownSystem `number` of a class; grids take turns."""
    grid = GRIDS[number % len(GRIDS)]
    rng = np.random.default_rng([seed, CLASSES.index(name), number])
    rate, load = math.exp(rng.uniform(*np.log(_RATES))), rng.uniform(*_LOADS)
    if name in _SINGLE:
        times = _bursts(rng, rate, grid.horizon_s) if name == "on-off" else _poisson(rng, rate, grid.horizon_s)
        return single(name, grid, times, _SINGLE[name].draw(rng, len(times)) * load / rate, _SINGLE[name].cv2)
    rates = {"s0": rate} if name == "chain" else {"s0": rate, "s1": rate * rng.uniform(0.3, 1.5)}
    bursts = rng.random() < 0.3
    times_s = {source: (_bursts if bursts else _poisson)(rng, r, grid.horizon_s) for source, r in rates.items()}
    operators = _chain(rng) if name == "chain" else _merge(rng)
    return _simulated(name, grid, times_s, _loaded(operators, rates, load), float(rng.choice([0.0, 0.5, 1.0, 2**0.5])))


def single(name: str, grid: Grid, times_s: FloatArray, costs_s: FloatArray, cv2: float) -> KnownSystem:
    """One queue in order of arrival."""
    operators = [_operator("a", "n0", [("s0", 1.0, 1.0)])]
    batch = _batches(len(times_s))
    count = 2 * _BATCHES
    events = np.bincount(batch, minlength=count).astype(np.float64)
    rows = np.stack([events, events, np.bincount(batch, costs_s, count)], axis=1)
    latency_s = fifo_latency(times_s, costs_s)
    return KnownSystem(
        name, grid, _deployments(grid, {"s0": times_s}, operators, rows[None], cv2), _realised(latency_s)
    )


def fifo_latency(times_s: FloatArray, costs_s: FloatArray) -> FloatArray:
    """Latency of every event at one server (Lindley), shape (n,): both inputs in seconds, in order of arrival."""
    done = np.cumsum(costs_s)
    return np.asarray(done + np.maximum.accumulate(times_s - done + costs_s) - times_s)


def _simulated(
    name: str, grid: Grid, times_s: dict[str, FloatArray], operators: list[dict[str, Any]], cost_cv: float
) -> KnownSystem:
    groups = {source: _batches(len(times)) for source, times in times_s.items()}
    deployment = Deployment.parse(_document(grid, times_s, operators))
    settings = SimulationSettings(seed=len(times_s["s0"]), cost_cv=cost_cv)
    simulation = simulate(deployment, settings, times_s=times_s, groups=groups)
    deployments = _deployments(grid, times_s, operators, simulation.sampled, cost_cv**2)
    return KnownSystem(name, grid, deployments, _realised(simulation.latency_s))


def _poisson(rng: np.random.Generator, rate: float, horizon_s: float) -> FloatArray:
    return np.sort(rng.uniform(0.0, horizon_s, rng.poisson(rate * horizon_s)))


def _bursts(rng: np.random.Generator, rate: float, horizon_s: float) -> FloatArray:
    return on_off_times(
        mean_rate_eps=rate,
        horizon_s=horizon_s,
        ratio=float(rng.uniform(3.0, 100.0)),
        high_period_s=float(rng.uniform(2.0, 20.0)),
        seed=int(rng.integers(2**31)),
    )


def _chain(rng: np.random.Generator) -> list[dict[str, Any]]:
    length, nodes = int(rng.integers(2, 5)), int(rng.integers(2, 4))
    names = ["s0", *(f"o{i}" for i in range(length))]
    return [
        _operator(names[i + 1], f"n{min(i, nodes - 1)}", [(names[i], *_statistics(rng, i < length - 1))])
        for i in range(length)
    ]


def _merge(rng: np.random.Generator) -> list[dict[str, Any]]:
    """Two chains that share a node and end in one operator."""
    end = "n1" if rng.random() < 0.5 else "n2"
    return [
        _operator("a", "n0", [("s0", *_statistics(rng, True))]),
        _operator("b", "n1", [("a", *_statistics(rng, True))]),
        _operator("c", "n1", [("s1", *_statistics(rng, True))]),
        _operator("d", end, [("b", *_statistics(rng, False)), ("c", *_statistics(rng, False))]),
    ]


def _statistics(rng: np.random.Generator, filters: bool) -> tuple[float, float]:
    keeps_all = not filters or rng.random() < 0.5
    return 1.0 if keeps_all else float(rng.uniform(0.5, 1.0)), float(rng.uniform(0.3, 1.0))


def _operator(name: str, node: str, reads: list[tuple[str, float, float]]) -> dict[str, Any]:
    inputs = [{"from": above, "selectivity": kept, "cycles_per_event": cost} for above, kept, cost in reads]
    return {"id": name, "query": QUERY, "node": node, "inputs": inputs}


def _loaded(operators: list[dict[str, Any]], rates: dict[str, float], load: float) -> list[dict[str, Any]]:
    """The operators with costs such that the busiest node has that load."""
    flowing, work = dict(rates), dict[str, float]()
    for operator in operators:
        flowing[operator["id"]] = sum(flowing[entry["from"]] * entry["selectivity"] for entry in operator["inputs"])
        own = sum(flowing[entry["from"]] * entry["cycles_per_event"] for entry in operator["inputs"])
        work[operator["node"]] = work.get(operator["node"], 0.0) + own
    for operator in operators:
        for entry in operator["inputs"]:
            entry["cycles_per_event"] *= load / max(work.values())
    return operators


def _batches(events: int) -> Any:
    """Batch of every event: the sample's, then those of the rest."""
    first = int(_SHARE * events)
    batch = np.empty(events, np.int32)
    batch[:first] = np.arange(first) * _BATCHES // max(1, first)
    batch[first:] = _BATCHES + np.arange(events - first) * _BATCHES // max(1, events - first)
    return batch


def _document(grid: Grid, times_s: dict[str, FloatArray], operators: list[dict[str, Any]]) -> dict[str, Any]:
    slices, spread = round(grid.horizon_s / grid.width_s), round(grid.known_s / grid.width_s)
    steps = slices // spread
    sources = []
    for name, times in times_s.items():
        at = np.minimum((times / grid.known_s).astype(np.int64), steps - 1)
        counts = np.bincount(at, minlength=steps)
        sources.append({"id": name, "arrivals": np.repeat(counts / spread, spread)})
        if spread > 1:
            sources[-1]["arrivals_step_s"] = grid.known_s
    nodes = sorted({operator["node"] for operator in operators})
    return {
        "subinterval_s": grid.width_s,
        "sources": sources,
        "nodes": [{"id": node, "capacity_cps": 1.0} for node in nodes],
        "operators": operators,
    }


def _deployments(
    grid: Grid, times_s: dict[str, FloatArray], operators: list[dict[str, Any]], rows: Any, cv2: float
) -> dict[str, Deployment]:
    """With statistics of the sample (variation of costs from its batches), and of all events (variation given)."""
    plain = Deployment.parse(_document(grid, times_s, operators))
    sample, rest = rows[:, :_BATCHES], rows[:, _BATCHES:].copy()
    rest[:, 0] += sample.sum(axis=1)
    exact = with_sampled_statistics(plain, rest)
    given = tuple(
        replace(operator, inputs=tuple(replace(entry, cost_cv2=cv2) for entry in operator.inputs))
        for operator in exact.operators
    )
    return {
        "exact": replace(exact, operators=given, statistics_of=THESE),
        "sampled": replace(with_sampled_statistics(plain, sample), statistics_of=SAMPLE),
    }


def _realised(latency_s: FloatArray) -> dict[str, float]:
    ordered = np.sort(latency_s)
    return {"worst": float(ordered[-1]), "q0.99": nearest_rank(ordered, 0.99), "mean": float(ordered.mean())}


# Real traces

_LLM = "azure_llm/AzureLLMInferenceTrace_code.csv.gz"
_CUP = "worldcup98_requests_per_minute.csv.gz"
_TRACE_LOADS = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


def traces(folder: Path, seed: int) -> Iterator[KnownSystem]:
    """Systems of the traces that a folder has; one queue each, at several loads."""
    if (folder / _CUP).exists():
        yield from _world_cup(folder / _CUP, seed)
    if (folder / _LLM).exists():
        yield from _azure(folder / _LLM)


def _world_cup(path: Path, seed: int) -> Iterator[KnownSystem]:
    """Counts of two hours at a time, thinned to 40 events/s; where in their minute events lie is drawn."""
    counts = pd.read_csv(path)["count"].to_numpy(np.float64)
    busy = [i for i in range(0, len(counts) - 120, 120) if counts[i : i + 120].min() > 600.0]
    rng = np.random.default_rng([seed, 98])
    for number, start in enumerate(rng.permutation(busy)[: 4 * len(_TRACE_LOADS)]):
        window = counts[start : start + 120]
        thinned = rng.binomial(window.astype(np.int64), min(1.0, 40.0 * 60.0 / window.mean()))
        times = np.sort(60.0 * np.repeat(np.arange(120), thinned) + rng.uniform(0.0, 60.0, thinned.sum()))
        costs = EXPONENTIAL if number % 2 else FIXED
        load = _TRACE_LOADS[number // 2 % len(_TRACE_LOADS)]
        drawn = costs.draw(rng, len(times)) * load * 7200.0 / len(times)
        for known_s, words in ((1.0, "1 s"), (60.0, "1 min")):
            yield single("World Cup", Grid(words, 1.0, known_s, 7200.0), times, drawn, costs.cv2)


def _azure(path: Path) -> Iterator[KnownSystem]:
    """Stamps as they are, with fixed costs and with costs of the tokens generated."""
    table = pd.read_csv(path, parse_dates=["TIMESTAMP"]).sort_values("TIMESTAMP")
    times = (table["TIMESTAMP"] - table["TIMESTAMP"].iloc[0]).dt.total_seconds().to_numpy(np.float64)
    horizon_s = 300.0 * math.ceil((times[-1] + 1e-6) / 300.0)
    tokens = table["GeneratedTokens"].to_numpy(np.float64)
    for words, costs in (("fixed", np.ones(len(times))), ("tokens", tokens / tokens.mean())):
        for load in _TRACE_LOADS:
            for known_s, grid in ((1.0, "1 s"), (300.0, "5 min")):
                cost_s = costs * load * times[-1] / len(times)
                yield single(f"Azure, {words}", Grid(grid, 1.0, known_s, horizon_s), times, cost_s, float(costs.var()))
