"""Margins of waits: how far what is realised may lie from the waits of all phases, events and mean costs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from engine.arrays import FloatArray
from engine.estimation.noise.summary import LEVEL, RealisedStatistic

__all__ = ["BatchVariation", "PhaseWaits", "WaitMargin", "WaitMargins"]

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
