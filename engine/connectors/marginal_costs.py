"""Marginal costs: the part of an operator's cost that one more event costs, by its work under several loads.

The more events come, the less one of them costs: what a thread does for each wake-up, timer and batch, it does once for
many of them. In a stretch in which r events/s come to a thread it is busy for the part of the time

    b = fixed + cost x r,  both at least 0

which least squares fit to stretches of ten seconds under several loads, with an interval by the residuals, of fewer
stretches where those in a row resemble each other. Under one load nothing tells the two apart. Then the interval is
what costs were seen to fall elsewhere: by half at the most, and by no more than what a little fixed work amounts to at
that load (docs/models/engines.md, Nexmark).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from engine.arrays import FloatArray
from engine.connectors.cpu_costs import fit_costs, is_close
from engine.connectors.picture import VertexSample
from engine.document.elements import MarginalCost

__all__ = ["LoadPoint", "count_loads", "with_marginal_cost"]

#: Of Nexmark's queries an event took 0.9 ms under the light load and 0.6 ms under more where its work waits, and
#: twice as long under the light load where it computes, so that machine code is compiled meanwhile.
_MAX_FALL = 0.5
#: Part of a thread's time that this was under the light load, be the fall by a third or by half.
_MAX_FIXED = 0.05
_MIN_FALL = 0.06  # less of it is below the error of any cost
_LEVEL_Z = 1.645  # of a 90 % interval
_STRETCH_S = 10.0  # of shorter ones events and their work are not always counted together
_MIN_STRETCHES = 3  # of one load
_OTHER_LOAD = 1.25  # times the rate, from which it is another load
_MIN_RANGE = 1.5  # of the rates that a fit rests on


@dataclass(frozen=True, slots=True)
class LoadPoint:
    """A stretch of a vertex: events/s of each of its threads, the part of the time that they were busy, its weight."""

    span_s: float
    rate: float
    busy: float
    weight: float


@dataclass(frozen=True, slots=True)
class _Line:
    """Work of a thread by the rate: ``fixed + cost x rate``; the 90 % interval of the cost, in seconds."""

    fixed: float
    cost_s: float
    low_s: float
    high_s: float

    def cost_at(self, rate: float) -> float:
        return self.cost_s + self.fixed / rate


def count_loads(rates: Iterable[float]) -> int:
    """Number of loads, each a quarter above the one below, among rates of stretches; of each there are some.

    Examples
    --------
    >>> count_loads([10.0, 10.5, 11.0, 10.2, 20.0, 20.1, 20.2]), count_loads([10.0, 20.0]), count_loads([])
    (2, 1, 0)
    """
    ordered = sorted(rates)
    levels: list[list[float]] = []
    for rate in ordered:
        if not levels or rate > _OTHER_LOAD * levels[-1][0]:
            levels.append([])
        levels[-1].append(rate)
    return max(sum(len(level) >= _MIN_STRETCHES for level in levels), min(1, len(ordered)))


def with_marginal_cost(
    sample: VertexSample, points: Iterable[LoadPoint], *, rate_now: float | None = None
) -> VertexSample:
    """The sample with the part of its cost that one more event costs; its cost is that of the present rate then.

    Parameters
    ----------
    points : iterable of LoadPoint
        Stretches on quiet hosts, in order of time.
    rate_now : float, optional
        Events/s of each thread at present; the mean of all stretches unless given.
    """
    if not sample.cost_s:
        return sample
    pooled = _pooled(points)
    rates = np.array([point.rate for point in pooled])
    loads = count_loads(rates)
    if loads > 1 and rates.max() >= _MIN_RANGE * rates.min():
        weights = np.array([point.weight for point in pooled])
        mean_rate = float(np.average(rates, weights=weights))
        line = _fit(rates, np.array([point.busy for point in pooled]), weights)
        if line is not None:
            cost_s = line.cost_at(rate_now or mean_rate)
            moved = cost_s / line.cost_at(mean_rate)
            marginal = MarginalCost(
                line.cost_s / cost_s, min(line.low_s, line.cost_s) / cost_s, min(1.0, line.high_s / cost_s), loads
            )
            batches = tuple(replace(batch, cycles=batch.cycles * moved) for batch in sample.batches)
            return replace(sample, cost_s=sample.cost_s * moved, batches=batches, marginal=marginal)
    fall = min(_MAX_FALL, _MAX_FIXED / sample.busy_share) if sample.busy_share else _MAX_FALL
    if fall < _MIN_FALL:
        return sample
    return replace(sample, marginal=MarginalCost(1.0 - fall / 2.0, 1.0 - fall, 1.0, 1))


def _pooled(points: Iterable[LoadPoint]) -> list[LoadPoint]:
    """Points of at least `_STRETCH_S`, whatever was between them: work is linear in the rate."""
    pooled: list[LoadPoint] = []
    for point in points:
        if pooled and pooled[-1].span_s < _STRETCH_S:
            pooled[-1] = _together(pooled[-1], point)
        else:
            pooled.append(point)
    return pooled


def _together(first: LoadPoint, second: LoadPoint) -> LoadPoint:
    weight = first.weight + second.weight
    rate, busy = (
        (getattr(first, name) * first.weight + getattr(second, name) * second.weight) / weight
        for name in ("rate", "busy")
    )
    return LoadPoint(first.span_s + second.span_s, rate, busy, weight)


def _fit(rates: FloatArray, busy: FloatArray, weights: FloatArray) -> _Line | None:
    """Line of the work; None where the cost is not known well enough to be told."""
    costs, errors = fit_costs(rates[:, None], busy, weights)
    cost_s = float(costs[0])
    fixed = max(0.0, float(np.average(busy - cost_s * rates, weights=weights)))
    spread = np.sqrt(weights) * (busy - fixed - cost_s * rates)
    # Student's t about its normal z: z (1 + (z^2 + 1) / 4n)
    error_s = float(errors[0]) * _LEVEL_Z * (1.0 + (_LEVEL_Z**2 + 1.0) / (4.0 * (len(rates) - 2)))
    error_s *= _repetition(spread)
    low_s, high_s = cost_s - error_s, cost_s + error_s
    return _Line(fixed, cost_s, low_s, high_s) if is_close(low_s, high_s) else None


def _repetition(residuals: FloatArray) -> float:
    """Factor of an error where residuals in a row resemble each other by r: sqrt((1 + r) / (1 - r)), at least 1."""
    total = float(residuals @ residuals)
    likeness = min(0.9, max(0.0, float(residuals[1:] @ residuals[:-1]) / total)) if total > 0.0 else 0.0
    return math.sqrt((1.0 + likeness) / (1.0 - likeness))
