"""Drawn loads of a scheduling simulation: queries and arrivals of the paper's benchmarks and of a mix, by a seed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.klink.simulation.loads import Arrivals, SimulatedOperator, SimulatedQuery

__all__ = ["DELAYS", "LOADS", "DrawnLoad", "delays_ms", "draw_load"]

Array = NDArray[np.float64]

DELAYS = ("uniform", "zipf")
LOADS = ("ysb", "lrb", "nyt", "mixed")
_CHUNK_MS = 60.0  # of events that travel together
_MAX_DELAY_MS = 1_000.0
_ZIPF = 0.99
_SHARE = 0.1  # of a core that a query of these loads takes on average: 40 saturate four cores
_MIXED_PERIODS_MS = (1_000.0, 2_000.0, 3_000.0, 5_000.0, 10_000.0)
_MIXED_SPREAD = 8.0  # a query's work is up to so many times the average's, or as many times less
_COST_SHARES = {2: (0.4, 0.6), 3: (0.3, 0.3, 0.4), 5: (0.2, 0.2, 0.2, 0.1, 0.3)}


@dataclass(frozen=True)
class DrawnLoad:
    """Parameters of a drawn load of `count` queries."""

    kind: str  #: one of `LOADS`
    count: int
    seed: int
    horizon_s: float = 65.0
    delay: str = "uniform"
    bursty: bool = False
    aligned: bool = False  #: windows of all queries end together
    tick_ms: float = 10.0
    burst_peak: float = 5.0  #: rate within a burst, of the mean
    burst_share: float = 0.15  #: of the time
    burst_s: float = 3.0  #: mean length
    samples: int = 1  #: delays that an epoch shows
    nodes: int = 1
    spanning: bool = False  #: each query over two nodes
    waits_periods: float = math.inf  #: that events may wait


def draw_load(load: DrawnLoad) -> tuple[list[SimulatedQuery], list[Arrivals]]:
    """Draw the queries of a load and their arrivals; the same load gives the same draw."""
    random = np.random.default_rng(load.seed)
    queries, arrivals = [], []
    shares = _shares(load, random)
    for index in range(load.count):
        query, rate, streams = _query(load, index, random, float(shares[index]))
        queries.append(query)
        arrivals.append(_arrivals(load, query, rate, streams, random))
    return queries, arrivals


def delays_ms(kind: str, count: int, random: np.random.Generator) -> Array:
    """Delays of 0 to 1 s, uniform or Zipf(0.99) over steps of 1 ms, short ones most often."""
    if kind == "uniform":
        return random.uniform(0.0, _MAX_DELAY_MS, count)
    weights = np.arange(1, int(_MAX_DELAY_MS) + 1) ** -_ZIPF
    return random.choice(len(weights), size=count, p=weights / weights.sum()) + random.random(count)


def _shares(load: DrawnLoad, random: np.random.Generator) -> Array:
    """Cores that each query takes on average."""
    if load.kind != "mixed":
        return np.full(load.count, _SHARE)
    drawn = np.exp(random.uniform(-math.log(_MIXED_SPREAD), math.log(_MIXED_SPREAD), load.count))
    return drawn * _SHARE / drawn.mean()


def _query(load: DrawnLoad, index: int, random: np.random.Generator, share: float) -> tuple[SimulatedQuery, float, int]:
    """A query, its events per millisecond and its streams."""
    period_ms, rate, streams, selectivities, size = _shape(load, random)
    costs = share / rate * np.array(_COST_SHARES[len(selectivities)])
    reach, operators = 1.0, []
    for cost, selectivity in zip(costs, selectivities, strict=True):
        operators.append(SimulatedOperator(float(cost / reach), selectivity))
        reach *= selectivity
    nodes: tuple[int, ...] = (index % load.nodes,)
    if load.spanning and load.nodes > 1:
        nodes = (index % load.nodes, (index + 1) % load.nodes)
    query = SimulatedQuery(
        id=f"q{index:03}",
        operators=tuple(operators),
        period_ms=period_ms,
        first_ms=period_ms if load.aligned else float(random.uniform(0.0, period_ms)),
        nodes=nodes,
        split=1,
        event_bytes=size,
        waits_ms=load.waits_periods * period_ms,
    )
    return query, rate, streams


def _shape(load: DrawnLoad, random: np.random.Generator) -> tuple[float, float, int, Sequence[float], float]:
    """Period, events per millisecond, streams, selectivities and bytes of an event."""
    kind = load.kind if load.kind != "mixed" else LOADS[int(random.integers(3))]
    if kind == "ysb":  # filter, look up, count by campaign in tumbling windows of 3 s
        shape: tuple[float, float, int, Sequence[float], float] = (3_000.0, 10.0, 1, (0.33, 1.0, 0.01), 120.0)
    elif kind == "lrb":  # three streams joined in windows of 5 s that slide by 3 s
        shape = (3_000.0, 9.75, 3, (0.9, 0.05), 80.0)
    else:  # stateless steps, then windows of 2 s that slide by 1 s
        shape = (1_000.0, 7.0, 1, (0.9, 0.95, 1.0, 0.9, 0.02), 150.0)
    if load.kind == "mixed":
        return float(random.choice(_MIXED_PERIODS_MS)), *shape[1:]
    return shape


def _arrivals(
    load: DrawnLoad, query: SimulatedQuery, rate: float, streams: int, random: np.random.Generator
) -> Arrivals:
    bins = round(load.horizon_s * 1e3 / load.tick_ms)
    events, stimulus = np.zeros(bins), np.full(bins, math.inf)
    for _ in range(streams):
        made_ms = np.arange(float(random.uniform(0.0, _CHUNK_MS)), load.horizon_s * 1e3, _CHUNK_MS)
        sizes = rate / streams * _CHUNK_MS * (_bursts(load, made_ms, random) if load.bursty else 1.0)
        at_ms = made_ms + delays_ms(load.delay, len(made_ms), random)
        at = np.ceil(at_ms / load.tick_ms).astype(np.int64)
        seen = at < bins
        np.add.at(events, at[seen], np.broadcast_to(sizes, made_ms.shape)[seen])
        np.minimum.at(stimulus, at[seen], made_ms[seen])
    assert query.period_ms is not None
    windows = max(0, math.ceil((load.horizon_s * 1e3 - query.first_ms) / query.period_ms))
    due = query.first_ms + np.arange(windows)[:, None] * query.period_ms
    delays = delays_ms(load.delay, windows * streams, random).reshape(windows, streams)
    if load.samples == 1:
        return Arrivals(events, stimulus, due + delays, delays, delays**2)
    shown = delays_ms(load.delay, windows * streams * load.samples, random).reshape(windows, streams, load.samples)
    return Arrivals(events, stimulus, due + delays, shown.mean(axis=2), (shown**2).mean(axis=2))


def _bursts(load: DrawnLoad, made_ms: Array, random: np.random.Generator) -> Array:
    """Rate over its mean at these times: bursts and rests of random length."""
    rest = (1.0 - load.burst_peak * load.burst_share) / (1.0 - load.burst_share)
    factors, at_ms = np.empty(len(made_ms)), 0.0
    on = bool(random.random() < load.burst_share)
    while at_ms <= made_ms[-1]:
        mean_s = load.burst_s if on else load.burst_s * (1.0 / load.burst_share - 1.0)
        until_ms = at_ms + 1e3 * float(random.exponential(mean_s))
        factors[(made_ms >= at_ms) & (made_ms < until_ms)] = load.burst_peak if on else rest
        at_ms, on = until_ms, not on
    return factors
