"""Waits of a query: its terms, their distribution, and what they add to latencies of queues."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from engine.arrays import FloatArray, event_mean, event_quantile
from engine.estimation.noise.summary import LatencySample, RealisedQuery
from engine.estimation.waits.margins import WaitMargin, WaitMargins

__all__ = ["NO_WAITS", "QueryWaits", "WaitTerm", "independent_waits", "main_wait"]

_POINTS = 512  # quantiles that stand for a distribution where two are added
_SURE = 0.05
_WORDS = {
    "window": "the window of {}",
    "watermark": "the watermark of {}",
    "lateness": "the allowed lateness of {}",
    "trigger": "the trigger of {}",
    "batch": "the batch of {}",
    "buffer": "buffers behind {}",
    "burst": "results of {} that come at once",
    "epoch": "the epoch of {}",
}


@dataclass(frozen=True, slots=True)
class WaitTerm:
    """One term of a wait: the operator it is at, its kind, its longest and its mean, in seconds."""

    operator: str
    kind: str
    worst_s: float
    mean_s: float

    @property
    def words(self) -> str:
        """Words for it.

        Examples
        --------
        >>> WaitTerm("agg", "window", 10.0, 5.0).words
        'the window of agg'
        """
        return _WORDS[self.kind].format(self.operator)

    def part_s(self, statistic: str) -> float:
        """Its part in the mean, or the most that it is of any other statistic."""
        return self.mean_s if statistic == "mean" else self.worst_s

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {"operator": self.operator, "kind": self.kind, "worst_s": self.worst_s, "mean_s": self.mean_s}


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
    assumed: tuple[str, ...] = ()
    not_modelled: tuple[str, ...] = ()

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
        return self.quantile(values_s, events, level) - (event_quantile(values_s, events, level) or 0.0)

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
        queued, waits = _points(latency_s, weights), self._points
        sums = (queued[:, None] + waits[None, :]).ravel()
        rank = min(len(sums) - 1, max(0, round(level * len(sums) - 0.5)))
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


def _points(values: FloatArray, weights: FloatArray) -> FloatArray:
    """Values at the middles of as many equal parts of all weight, in order."""
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order])
    goals = (np.arange(_POINTS) + 0.5) / _POINTS * reached[-1]
    return np.asarray(values[order][np.minimum(np.searchsorted(reached, goals), len(values) - 1)])
