"""Waits of a query: its terms, their distribution and margins, and what they add to latencies of queues."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from engine.arrays import FloatArray, event_mean, event_quantile
from engine.estimation.noise.summary import LEVEL, LatencySample, RealisedQuery, RealisedStatistic
from engine.records import Fact, Record, Sentence

__all__ = [
    "NO_WAITS",
    "BatchVariation",
    "PhaseWaits",
    "QueryWaits",
    "WaitMargin",
    "WaitMargins",
    "WaitTerm",
    "independent_waits",
    "main_wait",
]


_NORMAL = NormalDist()
_LOW, _HIGH = (1.0 - LEVEL) / 2.0, (1.0 + LEVEL) / 2.0
_Z = _NORMAL.inv_cdf(_HIGH)


class WaitMargin(NamedTuple):
    """By how many seconds a realised statistic lies higher, and its interval below and above that."""

    shift_s: float
    below_s: float
    above_s: float

    def widen(self, figures: RealisedStatistic) -> RealisedStatistic:
        """Realised figures of queues and waits with this margin, which is independent of theirs.

        Examples
        --------
        >>> WaitMargin(1.0, 3.0, 4.0).widen(RealisedStatistic(10.0, 6.0, 13.0))
        RealisedStatistic(estimate_s=11.0, low_s=6.0, high_s=16.0)
        """
        middle_s = figures.estimate_s + self.shift_s
        return RealisedStatistic(
            middle_s,
            max(0.0, middle_s - math.hypot(figures.estimate_s - figures.low_s, self.below_s)),
            middle_s + math.hypot(figures.high_s - figures.estimate_s, self.above_s),
        )


@dataclass(frozen=True, eq=False)
class PhaseWaits:
    """Waits of the events of one way in each phase that was looked at.

    Attributes
    ----------
    events : float
        Events that come by this way.
    waits_s : array, shape (phases, n)
        Waits of as many even shares of the events.
    worst_s : array, shape (phases,)
        Longest wait.
    bound_s : float, optional
        Longest wait of any phase, where those that were looked at hardly ever reach it.
    """

    events: float
    waits_s: FloatArray
    worst_s: FloatArray
    bound_s: float | None = None


@dataclass(frozen=True, slots=True)
class BatchVariation:
    """Variation of the lengths of micro-batches.

    `deviation_s` of a batch's length from batch to batch, `error_s` by the sampling error of mean costs, which all
    batches have in common; so many `batches` in a horizon, of which `longest` are about as long as the longest.
    """

    deviation_s: float
    error_s: float
    batches: float
    longest: float


@dataclass(frozen=True, eq=False)
class WaitMargins:
    """Margins of the realised waits of a query.

    Three causes, added in quadrature: the phase of windows and triggers at the beginning of the horizon; which of the
    waits its events happen to have, since so many events are a sample; batches whose work is random.
    """

    ways: Sequence[PhaseWaits] = ()
    batch: BatchVariation | None = None

    def of_statistic(self, statistic: str, points_s: FloatArray) -> WaitMargin:
        """Margin of a statistic, where `points_s` are evenly spaced quantiles of all waits, shape (n,)."""
        if not self.ways:
            return WaitMargin(0.0, 0.0, 0.0)
        if statistic == "worst":
            causes = [self._worst_phase(), self._longest_batch()]
        elif statistic == "mean":
            causes = [self._mean_phase(), self._sampled_mean(points_s), self._batch_error(all_batches=True)]
        else:
            level = float(statistic[1:])
            causes = [self._quantile_phase(level), self._sampled_quantile(points_s, level), self._batch_error()]
        return WaitMargin(
            sum(cause.shift_s for cause in causes),
            math.hypot(*(cause.below_s for cause in causes)),
            math.hypot(*(cause.above_s for cause in causes)),
        )

    @property
    def _events(self) -> float:
        return sum(way.events for way in self.ways)

    def _mean_phase(self) -> WaitMargin:
        below_s = above_s = 0.0
        for way in self.ways:
            means = way.waits_s.mean(axis=1)
            share, middle = way.events / self._events, float(means.mean())
            below_s += share * (middle - float(means.min()))
            above_s += share * (float(means.max()) - middle)
        return WaitMargin(0.0, below_s, above_s)

    def _quantile_phase(self, level: float) -> WaitMargin:
        below_s = above_s = 0.0
        for way in self.ways:
            values, middle = np.quantile(way.waits_s, level, axis=1), float(np.quantile(way.waits_s, level))
            below_s = max(below_s, middle - float(values.min()))
            above_s = max(above_s, float(values.max()) - middle)
        return WaitMargin(0.0, below_s, above_s)

    def _worst_phase(self) -> WaitMargin:
        """A window that the horizon cuts may not be held for as long as a whole one; buffers hardly ever all are."""
        longest = max(self.ways, key=lambda way: way.bound_s or float(way.worst_s.max()))
        if longest.bound_s is not None:
            low_s, middle_s, high_s = np.quantile(longest.worst_s, [0.0, 0.5, 1.0]).tolist()
            return WaitMargin(middle_s - longest.bound_s, middle_s - low_s, high_s - middle_s)
        longest_s = max(float(way.worst_s.max()) for way in self.ways)
        least_s = max(float(way.worst_s.min()) for way in self.ways)
        return WaitMargin(0.0, longest_s - least_s, 0.0)

    def _sampled_mean(self, points_s: FloatArray) -> WaitMargin:
        error_s = _Z * float(points_s.std()) / math.sqrt(max(self._events, 1.0))
        return WaitMargin(0.0, error_s, error_s)

    def _sampled_quantile(self, points_s: FloatArray, level: float) -> WaitMargin:
        apart = _Z * math.sqrt(level * (1.0 - level) / max(self._events, 1.0))
        levels = [max(0.0, level - apart), level, min(1.0, level + apart)]
        low_s, middle_s, high_s = np.quantile(points_s, levels).tolist()
        return WaitMargin(0.0, middle_s - low_s, high_s - middle_s)

    def _batch_error(self, *, all_batches: bool = False) -> WaitMargin:
        if self.batch is None:
            return WaitMargin(0.0, 0.0, 0.0)
        alike = math.sqrt(self.batch.batches) if all_batches else 1.0
        error_s = _Z * math.hypot(self.batch.deviation_s / alike, self.batch.error_s)
        return WaitMargin(0.0, error_s, error_s)

    def _longest_batch(self) -> WaitMargin:
        """The longest batch: the largest of so many normal variables."""
        if self.batch is None:
            return WaitMargin(0.0, 0.0, 0.0)
        root = 1.0 / self.batch.longest
        low, middle, high = (_NORMAL.inv_cdf(share**root) for share in (_LOW, 0.5, _HIGH))
        own, common_s = self.batch.deviation_s, _Z * self.batch.error_s
        return WaitMargin(
            own * max(0.0, middle),
            math.hypot(own * (middle - low), common_s),
            math.hypot(own * (high - middle), common_s),
        )


_POINTS = 512  # quantiles that stand for a distribution where two are added
_SURE = 0.05


@dataclass(frozen=True, slots=True)
class WaitTerm(Record):
    """One term of a wait: the operator it is at, its kind, its longest and its mean, in seconds."""

    operator: str
    kind: str
    worst_s: float
    mean_s: float

    @property
    def words(self) -> Fact:
        """Clause about it.

        Examples
        --------
        >>> WaitTerm("agg", "window", 10.0, 5.0).words
        the window of agg
        """
        return Fact(f"estimation.wait_{self.kind}", self.operator)

    def part_s(self, statistic: str) -> float:
        """Its part in the mean, or the most that it is of any other statistic."""
        return self.mean_s if statistic == "mean" else self.worst_s


def main_wait(terms: Sequence[WaitTerm], estimate_s: float, statistic: str) -> WaitTerm | None:
    """The longest of the waits that make up at least half of an estimate; None where queues make up more.

    Examples
    --------
    >>> window = WaitTerm("agg", "window", 10.0, 5.0)
    >>> main_wait([window], 12.0, "worst") == window, main_wait([window], 12.0, "mean")
    (True, None)
    """
    if not terms or 2.0 * sum(term.part_s(statistic) for term in terms) < estimate_s:
        return None
    return max(terms, key=lambda term: term.part_s(statistic))


@dataclass(frozen=True, eq=False)
class QueryWaits:
    """Waits of a query's events beside its queues.

    Attributes
    ----------
    terms : tuple of WaitTerm
        Each once; on one way their means add up.
    worst_s : array, shape (d,)
        Longest wait of the events that arrive in each subinterval.
    waits_s, weights : arrays, shape (n,)
        Distribution of the waits of all events.
    margins : WaitMargins
        How far realised waits may lie from that distribution.
    is_bounded : bool
        Whether no event can wait longer: what it waits for comes by the clock.
    assumed, not_modelled : tuples of str
        Sentences about what the numbers rest on, and what they leave out.
    """

    terms: tuple[WaitTerm, ...]
    worst_s: FloatArray
    waits_s: FloatArray
    weights: FloatArray
    margins: WaitMargins = field(default_factory=WaitMargins)
    is_bounded: bool = True
    assumed: tuple[Sentence, ...] = ()
    not_modelled: tuple[Sentence, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.terms)

    @cached_property
    def longest_s(self) -> float:
        """Longest wait of any event."""
        return float(self.worst_s.max(initial=0.0))

    @property
    def bound_s(self) -> float:
        """Seconds that no event waits longer than; infinite where nothing is proven."""
        return self.longest_s if self.is_bounded else math.inf

    @cached_property
    def mean_s(self) -> float:
        """Mean wait of all events."""
        return event_mean(self.waits_s, self.weights) or 0.0

    def own_s(self, statistic: str) -> float:
        """A statistic of the waits alone."""
        if statistic == "mean":
            return self.mean_s
        level = 1.0 if statistic == "worst" else float(statistic[1:])
        return self.quantile(np.zeros(1), np.ones(1), level)

    def series(self, latency_s: FloatArray) -> FloatArray:
        """Largest latencies slice by slice, shape (d * K,), with the longest waits."""
        if not self:
            return latency_s
        return np.asarray(latency_s + np.repeat(self.worst_s, len(latency_s) // len(self.worst_s)))

    def added_s(
        self, latency_s: FloatArray, weights: FloatArray, statistic: str, sample: LatencySample | None = None
    ) -> float:
        """Seconds that the waits add to a statistic of latencies.

        Queues and waits are taken to be independent, but that the worst case pairs them slice by slice.

        Parameters
        ----------
        latency_s, weights : arrays, shape (d * K,)
            Largest latency of each slice, and its events; a slice without events has no latency.
        statistic : str
            ``worst``, ``mean`` or a quantile such as ``q0.99``.
        sample : LatencySample, optional
            Realised latencies, of which quantiles are taken in the place of those by slice.
        """
        if not self or not weights.any():
            return 0.0
        if statistic == "mean":
            return self.mean_s
        if statistic == "worst":
            return float(self.series(latency_s)[weights > 0.0].max()) - float(latency_s.max())
        values_s, events = (latency_s, weights) if sample is None else (sample.values_s, sample.weights)
        level = float(statistic[1:])
        if level >= 1.0:
            return self.longest_s
        queued = _points(values_s, events)  # with waits and without by the same points: what is added is never below 0
        return self._quantile_of(queued, level) - float(queued[_rank(level, len(queued))])

    def least_worst_s(self, events: float) -> float:
        """Wait that the longest of so many events exceeds in 19 of 20 cases."""
        if not self or not events > 0.0:
            return 0.0
        return event_quantile(self.waits_s, self.weights, _SURE ** (1.0 / events)) or 0.0

    def margin(self, statistic: str) -> WaitMargin:
        """Margin of a realised statistic."""
        return self.margins.of_statistic(statistic, self._points)

    def widen(self, realised: RealisedQuery) -> RealisedQuery:
        """Realised figures that these waits are part of, with what is not known of the waits."""
        margins = {name: self.margin(name) for name in realised.statistics}
        statistics = {name: margins[name].widen(figures) for name, figures in realised.statistics.items()}
        longest = margins["worst"]
        return replace(
            realised, statistics=statistics, under_s=realised.under_s + max(0.0, longest.shift_s) + longest.above_s
        )

    def and_then(self, more: QueryWaits) -> QueryWaits:
        """These waits, and others that are independent of them, whose margins are counted elsewhere."""
        if not self or not more:
            return self or more
        sums = (self._points[:, None] + more._points[None, :]).ravel()
        return QueryWaits(
            terms=(*self.terms, *more.terms),
            worst_s=self.worst_s + more.longest_s,
            waits_s=sums,
            weights=np.ones(len(sums)),
            margins=self.margins,
            is_bounded=self.is_bounded and more.is_bounded,
            assumed=(*self.assumed, *more.assumed),
            not_modelled=(*self.not_modelled, *more.not_modelled),
        )

    def quantile(self, latency_s: FloatArray, weights: FloatArray, level: float) -> float:
        """Quantile of the sum of a latency and a wait that is independent of it."""
        if not self:
            return event_quantile(latency_s, weights, level) or 0.0
        if level >= 1.0:
            return float(latency_s[weights > 0.0].max(initial=0.0)) + self.longest_s
        return self._quantile_of(_points(latency_s, weights), level)

    def _quantile_of(self, queued: FloatArray, level: float) -> float:
        """The same of a latency's points."""
        sums = (queued[:, None] + self._points[None, :]).ravel()
        rank = _rank(level, len(sums))
        return float(np.partition(sums, rank)[rank])

    @cached_property
    def _points(self) -> FloatArray:
        return _points(self.waits_s, self.weights)


NO_WAITS = QueryWaits((), np.zeros(1), np.zeros(1), np.ones(1))


def independent_waits(parts: Sequence[tuple[str, str, FloatArray]]) -> QueryWaits:
    """Waits that add up one after the other, of (operator, kind, every wait alike, shape (n,)).

    Examples
    --------
    >>> waits = independent_waits([("agents", "epoch", np.ones(1)), ("stream", "trigger", np.linspace(0.0, 2.0, 101))])
    >>> waits.longest_s, waits.mean_s, [term.kind for term in waits.terms]
    (3.0, 2.0, ['epoch', 'trigger'])
    """
    found = NO_WAITS
    for operator, kind, waits_s in parts:
        longest_s = float(waits_s.max(initial=0.0))
        if longest_s > 0.0:
            term = WaitTerm(operator, kind, longest_s, float(waits_s.mean()))
            found = found.and_then(QueryWaits((term,), np.full(1, longest_s), waits_s, np.ones(len(waits_s))))
    return found


def _rank(level: float, count: int) -> int:
    """Position of a quantile among so many values in their order."""
    return min(count - 1, max(0, round(level * count - 0.5)))


def _points(values: FloatArray, weights: FloatArray) -> FloatArray:
    """Values at the middles of as many equal parts of all weight, in order."""
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order])
    goals = (np.arange(_POINTS) + 0.5) / _POINTS * reached[-1]
    return np.asarray(values[order][np.minimum(np.searchsorted(reached, goals), len(values) - 1)])
