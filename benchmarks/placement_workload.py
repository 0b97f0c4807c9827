"""The workload of section IX-B: 20 X nodes, 200 X operators, 10 X bursty streams.

Streams are those of section VIII: On-Off with a high to low rate of 100; lengths of high periods are drawn from 3 to
15 s, low periods are three times as long. Operators take a stream by Zipf's law (parameter 1), a selectivity range by
Zipf's law, a selectivity uniformly from the range, and noise on it, once and in every subinterval. An anti-correlated
operator works when its stream is low. Capacities are equal and such that the mean load of the system is as asked for.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.elements import FloatArray
from engine.placement.problem import Problem
from engine.workload import on_off

__all__ = ["Setting", "problem_of"]

RANGES = ((0.0, 1.0), (1.0, 2.0), (2.0, 4.0), (4.0, 8.0))
WIDTH_S = 1.0
RATE_EPS = 1000.0


@dataclass(frozen=True)
class Setting:
    """One setting; `skew` is the Zipf parameter of the selectivity ranges."""

    scale: int
    subintervals: int
    seed: int = 1
    load: float = 0.75
    skew: float = 1.0
    noise: float = 0.10
    anti: float = 0.005


def problem_of(setting: Setting) -> Problem:
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
    return Problem(
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
