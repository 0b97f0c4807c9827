"""Realised statistics of queries: medians and intervals from the figures of a walk's paths."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from engine.arrays import FloatArray
from engine.records import Record, Sentence

__all__ = [
    "LEVEL",
    "LatencySample",
    "RealisedQuery",
    "RealisedStatistic",
    "histogram_quantiles",
    "model_error",
    "summarise_paths",
]

LEVEL = 0.9  #: share of realisations that the intervals are to hold

_Z = 1.75  # 1.645, widened for the few paths
_FLOW_ERROR = 0.02  # Flow's own error, relative
_WALK_ERROR = 0.12  # of the walk, relative, times the square root of the share that is noise
_TINY_S = 1e-12
_NORMAL_END = 1.6448536269514722  # deviates of a normal distribution at either end of 90 %


@dataclass(frozen=True, slots=True)
class RealisedStatistic(Record):
    """Median and interval (90 %) in which the realised value of a statistic lies, in seconds."""

    estimate_s: float
    low_s: float
    high_s: float

    def delayed(self, wait_s: float, margin_s: float) -> RealisedStatistic:
        """The same after a wait, known to `margin_s` on either side."""
        return RealisedStatistic(
            self.estimate_s + wait_s, max(0.0, self.low_s + wait_s - margin_s), self.high_s + wait_s + margin_s
        )

    def share_within(self, bound_s: float) -> float:
        """Share of realisations within a bound, of a logarithm that is normal on either side of the median.

        Examples
        --------
        >>> figures = RealisedStatistic(1.0, 0.8, 1.5)
        >>> [round(figures.share_within(bound_s), 3) for bound_s in (0.8, 1.0, 1.5, 9.0)]
        [0.05, 0.5, 0.95, 1.0]
        """
        end_s = self.high_s if bound_s >= self.estimate_s else self.low_s
        if not self.low_s > 0.0 or end_s == self.estimate_s:
            return float(self.estimate_s <= bound_s)
        deviates = _NORMAL_END * abs(math.log(bound_s / self.estimate_s) / math.log(end_s / self.estimate_s))
        share = 0.5 * math.erfc(-deviates / math.sqrt(2.0))
        return share if bound_s >= self.estimate_s else 1.0 - share


@dataclass(frozen=True, slots=True, eq=False)
class LatencySample:
    """Latencies of a query's events on all paths together: seconds, and the events that had so much, (n,) each."""

    values_s: FloatArray
    weights: FloatArray


@dataclass(frozen=True, slots=True)
class RealisedQuery:
    """Realised latencies of a query.

    Attributes
    ----------
    statistics : mapping
        ``worst``, ``mean``, ``q0.5``, ``q0.9``, ``q0.99`` and the quantile that the query's objective is about.
    under_s : float
        Latencies stay under this (95 %), and under nothing shorter: no less than the widest step of counts.
    assumed, not_modelled : tuples of str
        Sentences about what was assumed, and about what the numbers leave out.
    assumed_sources : tuple of str
        Sources whose arrivals inside a step of counts are a model that no measurement supports.
    assumed_costs : tuple of str
        Inputs, ``operator<-source``, whose variation of costs was not given.
    latencies : LatencySample or None
        All latencies, of queues alone.
    catch_up_s : tuple or None
        Interval (90 %) of the seconds from the horizon's beginning until it has caught up with what waits there; an end
        beyond the horizon is None. None where nothing waits.
    """

    statistics: Mapping[str, RealisedStatistic]
    under_s: float
    assumed: tuple[Sentence, ...] = ()
    not_modelled: tuple[Sentence, ...] = ()
    assumed_sources: tuple[str, ...] = ()
    assumed_costs: tuple[str, ...] = ()
    latencies: LatencySample | None = field(default=None, compare=False)
    catch_up_s: tuple[float | None, float | None] | None = None

    def delayed(self, wait_s: Callable[[str], float], margin_s: float) -> RealisedQuery:
        """The same after waits beyond queueing and processing, `wait_s` of each statistic."""
        statistics = {name: figures.delayed(wait_s(name), margin_s) for name, figures in self.statistics.items()}
        return replace(self, statistics=statistics, under_s=self.under_s + wait_s("worst") + margin_s)


def summarise_paths(values: FloatArray, floor_s: float = 0.0, flow_s: float = 0.0) -> RealisedStatistic:
    """Median and interval from one value per path, shape (K,), of which `flow_s` is no noise; none below `floor_s`.

    Cornish-Fisher on the logarithms; errors of Flow and of the walk itself are added in quadrature.
    """
    if not values.max() > _TINY_S:
        return RealisedStatistic(floor_s, floor_s, floor_s)
    logs = np.log(np.maximum(values, _TINY_S))
    mean = float(logs.sum()) / len(logs)
    apart = logs - mean
    squares = apart * apart
    spread = math.sqrt(float(squares.sum()) / max(len(logs) - 1, 1))
    skew = float((squares * apart).sum()) / len(logs) / spread**3 if spread > 1e-9 else 0.0
    skew = min(1.0, max(-1.0, skew))
    spread = math.hypot(spread * math.sqrt(1.0 + 1.0 / len(logs)), model_error(math.exp(mean), flow_s))
    low, middle, high = (math.exp(mean + spread * (z + skew * (z * z - 1.0) / 6.0)) for z in (-_Z, 0.0, _Z))
    return RealisedStatistic(max(middle, floor_s), max(low, floor_s), max(high, floor_s))


def model_error(estimate_s: float, flow_s: float) -> float:
    """Relative error of Flow and of the walk themselves, which no further realisation takes away.

    Examples
    --------
    >>> model_error(1.0, 1.0), round(model_error(1.0, 0.0), 3)
    (0.02, 0.122)
    """
    noise = min(1.0, max(0.0, 1.0 - flow_s / max(estimate_s, _TINY_S)))
    return math.hypot(_FLOW_ERROR, _WALK_ERROR * math.sqrt(noise))


def histogram_quantiles(bins: FloatArray, edges: FloatArray, levels: Sequence[float]) -> FloatArray:
    """Values below which so many of the events of each path lie, (levels, K), of bins (K, b) between edges (b + 1,)."""
    reached = np.cumsum(bins, axis=1)
    rows, values = np.arange(len(bins)), np.empty((len(levels), len(bins)))
    for number, level in enumerate(levels):
        goal = level * reached[:, -1]
        at = np.minimum((reached < goal[:, None] * (1.0 - 1e-12)).sum(axis=1), bins.shape[1] - 1)
        inside = bins[rows, at]
        below = reached[rows, at] - inside
        share = np.divide(goal - below, inside, out=np.zeros(len(bins)), where=inside > 0.0)
        values[number] = edges[at] + np.clip(share, 0.0, 1.0) * (edges[at + 1] - edges[at])
    return values
