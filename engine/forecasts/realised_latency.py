"""Realised latencies under scaled arrivals: walks at a few loads, and between them what randomness adds to Mace.

A walk says for one set of factors what random costs and arrivals make of a query's latency. Its excess over Mace is
kept beside the mean load of the query's busiest server, on which queues of random events depend most, and read between
walks on a straight line. So one walk serves every set of factors that loads the query as much.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from engine.arrays import FloatArray
from engine.document.deployment import Deployment
from engine.document.elements import THESE, Input
from engine.document.policies import PolicyGap
from engine.estimation.flow import Flow
from engine.estimation.noise.dispersion import OU_MEAN_VARIANCE, cost_noise
from engine.estimation.noise.realisation import realise
from engine.estimation.noise.summary import RealisedQuery, model_error
from engine.estimation.query_flow import flow_queries
from engine.estimation.waits.estimate import query_waits, with_waits
from engine.estimation.waits.summary import NO_WAITS

__all__ = ["LatencyTable", "RealisedLatency", "ScaledWalk", "walk_scaled"]

_MIN_S = 1e-6  # of a latency, so that it has a logarithm
_Z = 1.75  # deviations from the median of a realised interval to its upper end
_SAME = 1e-9  # loads that differ by no more are one
_TIMES = (0.25, 4.0)  # that another placement's excess may differ by
_PATHS = 16  # of the walk that tells chance from lasting errors


@dataclass(frozen=True, eq=False)
class RealisedLatency:
    """Latencies of queries, shape (q,) of one walk or (n, q) of n buckets.

    Attributes
    ----------
    estimate_s, low_s, high_s : arrays
        Median and 90 % interval, seconds.
    chance, lasting : arrays
        Standard deviations of the logarithm: by what is random anew in every bucket, and by errors of the model itself,
        which all buckets share. Errors of a sample are in the interval and in neither.
    """

    estimate_s: FloatArray
    low_s: FloatArray
    high_s: FloatArray
    chance: FloatArray
    lasting: FloatArray


@dataclass(frozen=True, eq=False)
class ScaledWalk:
    """A walk under scaled arrivals: figures of some queries' statistics, and what they rest on.

    Where servers run other policies than stimulus time, `gaps` says of each query what its figures lack. Upper ends are
    widened by what is known of it, as far as a factor goes; the other figures are those of stimulus time.
    """

    latency: RealisedLatency
    realised: tuple[RealisedQuery, ...]
    gaps: tuple[PolicyGap | None, ...]
    waits_s: FloatArray  # part of each estimate that is no queue, (q,)


def walk_scaled(deployment: Deployment, queries: tuple[str, ...], statistics: tuple[str, ...]) -> ScaledWalk:
    """Walk a deployment with scaled arrivals; the figures are of each query's statistic."""
    flowed = flow_queries(deployment)
    deployment, run = flowed.deployment, flowed.flow
    asked = list(zip(queries, statistics, strict=True))
    queues = realise(deployment, run)
    waits = query_waits(deployment)
    realised = with_waits(waits, queues)
    figures = [realised[query].statistics[statistic] for query, statistic in asked]
    estimate, low, high = (
        np.array([getattr(entry, name) for entry in figures]) for name in ("estimate_s", "low_s", "high_s")
    )
    paths_s = [flowed.value_s(query, statistic) for query, statistic in asked]
    medians_s = [queues[query].statistics[statistic].estimate_s for query, statistic in asked]
    lasting = np.array([model_error(value, path) for value, path in zip(medians_s, paths_s, strict=True)])
    whole = _spread(estimate, high) if (certain := _certain(deployment)) is None else _spread_of(certain, run, asked)
    chance = np.sqrt(np.maximum(whole**2 - lasting**2, 0.0))
    gaps = tuple(
        flowed.reporter.policy_gap(query, statistic, waits.get(query, NO_WAITS).bound_s) for query, statistic in asked
    )
    waits_s = estimate - np.array(medians_s)
    ends = [
        value if gap is None else max(value, gap.high_s(value, wait_s) or 0.0)
        for gap, value, wait_s in zip(gaps, high.tolist(), waits_s.tolist(), strict=True)
    ]
    latency = RealisedLatency(estimate, low, np.array(ends), chance, lasting)
    return ScaledWalk(latency, tuple(realised[query] for query in queries), gaps, waits_s)


def _spread(estimate_s: FloatArray, high_s: FloatArray) -> FloatArray:
    """Standard deviation of the logarithm, from a median and an upper end."""
    return np.asarray(np.log(np.maximum(high_s, _MIN_S) / np.maximum(estimate_s, _MIN_S)) / _Z)


def _spread_of(deployment: Deployment, run: Flow, asked: list[tuple[str, str]]) -> FloatArray:
    realised = realise(deployment, run, paths=_PATHS)
    figures = [realised[query].statistics[statistic] for query, statistic in asked]
    return _spread(np.array([entry.estimate_s for entry in figures]), np.array([entry.high_s for entry in figures]))


def _certain(deployment: Deployment) -> Deployment | None:
    """The deployment with its statistics taken as exact; None where they are not from a sample."""
    sampled = any(len(entry.batches) >= 2 for operator in deployment.operators for entry in operator.inputs)
    if deployment.statistics_of == THESE or not sampled:
        return None
    operators = tuple(
        replace(operator, inputs=tuple(_without_errors(entry) for entry in operator.inputs))
        for operator in deployment.operators
    )
    return replace(deployment, operators=operators)


def _without_errors(entry: Input) -> Input:
    """The input with the variation of costs that its batches show, and no batches."""
    noise = cost_noise(entry)
    slow = noise.slow > 0.0
    return replace(
        entry,
        batches=(),
        cost_cv2=noise.cv2,
        cost_dispersion=noise.cv2 + noise.slow * noise.length * OU_MEAN_VARIANCE if slow else None,
        cost_dispersion_events=noise.length if slow else None,
    )


@dataclass(eq=False)
class LatencyTable:
    """Walks by load, of the same queries; called, it reads realised latencies between them.

    A walk's excess over Mace is interpolated along the load; below the least load it stays, above the largest it goes
    on as between the last two. Without a walk latencies are those of Mace, without an interval.
    """

    queries: tuple[str, ...]
    loads: list[FloatArray] = field(default_factory=list)
    mace_s: list[FloatArray] = field(default_factory=list)
    walks: list[ScaledWalk] = field(default_factory=list)
    times: FloatArray | None = None  # of the excess, (q,), where the placement is another one
    elsewhere: ScaledWalk | None = None  # the walk of that placement

    def like(self, load: FloatArray, mace_s: FloatArray, walk: ScaledWalk) -> LatencyTable:
        """The table of another placement, in proportion to one walk of it: load and Mace of every query, (q,) each."""
        expected = self(load[None, :], mace_s[None, :]).estimate_s[0] - mace_s
        excess = walk.latency.estimate_s - mace_s
        times = np.clip(excess / np.maximum(expected, _MIN_S), *_TIMES)
        return replace(self, times=times, elsewhere=walk)

    def under_policies(self, latency_s: FloatArray) -> FloatArray:
        """Latencies by stimulus time, (n, q), under the policies in force; as they are where no factor is known.

        Of a query it is the largest factor that a walk met: wait + (latency - wait) factor.
        """
        widened = latency_s
        for walk in self.walks if self.elsewhere is None else [self.elsewhere]:
            factors = np.array([1.0 if gap is None or gap.factor is None else gap.factor for gap in walk.gaps])
            queued = np.maximum(latency_s - walk.waits_s, 0.0)
            widened = np.maximum(widened, np.minimum(latency_s, walk.waits_s) + queued * factors)
        return widened

    def add(self, load: FloatArray, mace_s: FloatArray, walk: ScaledWalk) -> None:
        """One more walk: load and Mace of every query, (q,) each."""
        self.loads.append(load)
        self.mace_s.append(mace_s)
        self.walks.append(walk)

    def __call__(self, loads: FloatArray, mace_s: FloatArray) -> RealisedLatency:
        """Realised latencies of n buckets from loads and Mace, both (n, q)."""
        nothing = np.zeros_like(mace_s)
        if not self.walks:
            return RealisedLatency(mace_s.copy(), mace_s.copy(), mace_s.copy(), nothing, nothing)
        read = RealisedLatency(*(np.zeros_like(mace_s) for _ in range(5)))
        for q in range(len(self.queries)):
            x, excess, known = self._points(q)
            at = loads[:, q]
            times = 1.0 if self.times is None else float(self.times[q])
            estimate = np.maximum(mace_s[:, q] + times * _extended(at, x, excess), _MIN_S)
            read.estimate_s[:, q] = estimate
            read.high_s[:, q] = estimate * np.exp(np.interp(at, x, np.log(known[:, 2] / known[:, 0])))
            read.low_s[:, q] = estimate * np.exp(np.interp(at, x, np.log(known[:, 1] / known[:, 0])))
            read.chance[:, q] = np.interp(at, x, known[:, 3])
            read.lasting[:, q] = np.interp(at, x, known[:, 4])
        return read

    def _points(self, q: int) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Loads ascending, excess over Mace and figures of one query; of equal loads the largest excess."""
        x = np.array([row[q] for row in self.loads])
        figures = np.array(
            [
                [
                    w.latency.estimate_s[q],
                    w.latency.low_s[q],
                    w.latency.high_s[q],
                    w.latency.chance[q],
                    w.latency.lasting[q],
                ]
                for w in self.walks
            ]
        )
        figures[:, :3] = np.maximum(figures[:, :3], _MIN_S)
        excess = figures[:, 0] - np.array([row[q] for row in self.mace_s])
        order = np.lexsort((excess, x))
        last = np.append(np.diff(x[order]) > _SAME, True)
        kept = order[last]
        return x[kept], excess[kept], figures[kept]


def _extended(at: FloatArray, x: FloatArray, y: FloatArray) -> FloatArray:
    """`y` at loads between `x`, constant before the first and as steep as at its end behind the last, if it rises."""
    values = np.interp(at, x, y)
    if len(x) > 1:
        slope = max(0.0, float((y[-1] - y[-2]) / (x[-1] - x[-2])))
        values = values + slope * np.maximum(at - x[-1], 0.0)
    return np.asarray(values)
