"""Factors that make intervals cover what they claim, from runs whose estimate was held against a measurement.

An interval has two sides. The score of a run on a side is how many of the half widths that the model stated lie between
the estimate and the realised value there, on the logarithms of both, since latencies err by ratios; it is below 0 where
the value lies on the other side. A side is multiplied with a high quantile of its past scores: split conformal
prediction, in which newer runs weigh more.

References: Tibshirani, Barber, Candes, Ramdas, Conformal prediction under covariate shift (2019), corollary 1 (weighted
quantile); Barber, Candes, Ramdas, Tibshirani, Conformal prediction beyond exchangeability (2023), section 4.1 (weights
fixed beforehand, with weight 1 at infinity for the new run) and theorem 2 (the coverage lost is at most the weighted
sum of distances between old runs and the new one); Wilks, Determination of sample sizes for setting tolerance limits
(1941).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.arrays import FloatArray, IntArray
from engine.records import Record

__all__ = [
    "AS_STATED",
    "HALF_LIFE",
    "LEVEL",
    "MAX_AGE",
    "MIN_INSTANTS",
    "PROOF_INSTANTS",
    "IntervalFactors",
    "IntervalFigures",
    "ScoredRuns",
    "interval_factors",
    "interval_figures",
    "interval_scores",
    "scale_interval",
]

LEVEL = 0.9  #: share of realised values that an interval is to hold
_SIDE = 1.0 - (1.0 - LEVEL) / 2.0

HALF_LIFE = 150.0  #: instants after which a run counts half
MAX_AGE = 750  #: instants looked at; older ones would weigh less than 1/32
_HALF_LIFE_S = 7 * 86_400.0
MIN_INSTANTS = 19.0  #: weighted instants below which no quantile exists: 19 of 20 is the first that reaches 95 %

# Narrowing is a claim that has to be proven. 60 independent runs are the first of which the largest covers 95 % with
# 95 % confidence (Wilks; 59). A narrowed side keeps, with that confidence, at least what leaves 88 % to both together.
PROOF_INSTANTS = 60.0
_KEPT_SIDE = 0.94
_CONFIDENCE_Z = 1.6448536269514722
_MIN_QUERIES, _MIN_SPAN_S = 3, 2 * 86_400.0
_BATCHES, _MIN_BATCH = 20, 3
_TAIL = 0.9

MAX_FACTOR = 100.0
MIN_FACTOR = 0.25
_MIN_HALF = math.log(1.01)  # an interval narrower than 1 % claims what no clock could show
_MAX_HALF = math.log(1000.0)
_FLOOR_S = 1e-3  # latencies are measured to about a millisecond

BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class ScoredRuns:
    """Estimates that were held against a measurement, oldest first; arrays of shape (n,), times in seconds.

    Attributes
    ----------
    at_s : array
        When each was measured; equal times are one instant.
    query : array of int
        Whose run it is.
    estimate_s, low_s, high_s : arrays
        The estimate, and its interval as the model stated it.
    shown_low_s, shown_high_s : arrays
        The interval as it was shown.
    realised_s : array
        What was measured.
    """

    at_s: FloatArray
    query: IntArray
    estimate_s: FloatArray
    low_s: FloatArray
    high_s: FloatArray
    shown_low_s: FloatArray
    shown_high_s: FloatArray
    realised_s: FloatArray

    def __len__(self) -> int:
        return len(self.at_s)


@dataclass(frozen=True, slots=True)
class IntervalFactors:
    """Factors of the two sides of an interval, on the logarithm of latency, and the runs that they rest on.

    `is_concluded` is false where there are too few runs, and nothing is scaled.
    """

    lower: float = 1.0
    upper: float = 1.0
    runs: int = 0
    is_concluded: bool = False

    def over_horizon(self, statistic: str) -> IntervalFactors:
        """The same for a statistic of the whole horizon, of which a run is a short part.

        A mean keeps both. The largest latencies of the horizon are above those of a run: runs above the interval widen
        its upper side, and neither what lies below it nor that nothing lies above it says anything.
        """
        if statistic == "mean":
            return self
        return IntervalFactors(1.0, max(1.0, self.upper), self.runs, self.is_concluded)


AS_STATED = IntervalFactors()


@dataclass(frozen=True, slots=True)
class IntervalFigures(Record):
    """Figures of intervals as the model stated them (before) and as they were shown (after); None without runs.

    Widths are medians of width over estimate; `bias` is the median of realised over estimated, 1 where they agree.
    """

    runs: int
    coverage_before: float | None = None
    coverage_after: float | None = None
    width_before: float | None = None
    width_after: float | None = None
    bias: float | None = None


def interval_scores(runs: ScoredRuns) -> tuple[FloatArray, FloatArray]:
    """Scores of the lower and the upper side, shape (n,): the value is outside if its score is above the factor."""
    estimate = np.maximum(runs.estimate_s, _FLOOR_S)
    away = np.log(np.maximum(runs.realised_s, _FLOOR_S) / estimate)
    below, above = _half_widths(estimate, runs.low_s, runs.high_s)
    return -away / below, away / above


def _half_widths(estimate: FloatArray, low_s: FloatArray, high_s: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Half widths on the logarithm, at least those of 1 %."""
    below = np.log(estimate / np.maximum(low_s, _FLOOR_S))
    above = np.log(np.maximum(high_s, _FLOOR_S) / estimate)
    return np.maximum(below, _MIN_HALF), np.maximum(above, _MIN_HALF)


def interval_factors(
    runs: ScoredRuns, *, now_s: float, half_life: float = HALF_LIFE, wider: IntervalFactors = AS_STATED
) -> IntervalFactors:
    """Factors for the next interval of a group of runs.

    Parameters
    ----------
    runs : ScoredRuns
        Of the group, oldest first.
    now_s : float
        On the clock of `runs.at_s`.
    half_life : float
        Instants after which a run counts half.
    wider : IntervalFactors
        Of a group that this one is part of: a side that is proven to be too wide there may be narrowed here.

    Returns
    -------
    IntervalFactors
        Above 1 as soon as the weighted quantile is; below 1 only as far as it is proven, and at least 1/4. With too
        few runs `AS_STATED`.

    Notes
    -----
    An instant weighs 2^(-(newer instants)/half-life - age/7 d), shared by its runs, because runs of one instant share
    a cluster and err together. With W the sum of weights, a side takes the smallest score that reaches 0.95 (W + 1):
    the new run counts as one at infinity.

    Narrowing needs 60 effective instants (Kish's number, over the variance of batch means) of three queries or of two
    days, comes in full with twice as many, and takes a higher rank: of n effective instants 0.94 + 1.645 sqrt(0.94
    0.06 / n), where a score test with 95 % confidence still leaves 94 % to the side.
    """
    weights, instants = _weights(runs, now_s, half_life)
    if weights.sum() < MIN_INSTANTS:
        return AS_STATED
    is_broad = len(np.unique(runs.query)) >= _MIN_QUERIES or runs.at_s[-1] - runs.at_s[0] >= _MIN_SPAN_S
    below, above = interval_scores(runs)
    return IntervalFactors(
        lower=_side_factor(below, weights, instants, wider.lower, is_broad=is_broad),
        upper=_side_factor(above, weights, instants, wider.upper, is_broad=is_broad),
        runs=len(runs),
        is_concluded=True,
    )


def _weights(runs: ScoredRuns, now_s: float, half_life: float) -> tuple[FloatArray, IntArray]:
    """Weight of every run, and its instant counted from the oldest."""
    moments, instants = np.unique(runs.at_s, return_inverse=True)
    newer = len(moments) - 1 - np.arange(len(moments))
    decay = 2.0 ** (-newer / half_life - np.maximum(now_s - moments, 0.0) / _HALF_LIFE_S)
    return decay[instants] / np.bincount(instants)[instants], instants


def _side_factor(scores: FloatArray, weights: FloatArray, instants: IntArray, wider: float, *, is_broad: bool) -> float:
    total = float(weights.sum())
    factor = _quantile(scores, weights, _SIDE * (total + 1.0))
    if factor >= 1.0:
        return min(factor, MAX_FACTOR)
    base = min(1.0, max(factor, wider))
    effective = _effective_instants(scores, weights, instants)
    level = _KEPT_SIDE + _CONFIDENCE_Z * math.sqrt(_KEPT_SIDE * (1.0 - _KEPT_SIDE) / effective)
    share = min(1.0, max(0.0, effective / PROOF_INSTANTS - 1.0))
    if share <= 0.0 or level >= 1.0 or not (is_broad or wider < 1.0):
        return base
    proven = min(1.0, max(factor, _quantile(scores, weights, level * total), MIN_FACTOR))
    return base + share * (proven - base)


def _quantile(scores: FloatArray, weights: FloatArray, goal: float) -> float:
    """The smallest score at which the weights up to it reach `goal`; the largest where they never do."""
    order = np.argsort(scores, kind="stable")
    at = int(np.searchsorted(np.cumsum(weights[order]), goal - 1e-9))
    return float(scores[order[min(at, len(order) - 1)]])


def _effective_instants(scores: FloatArray, weights: FloatArray, instants: IntArray) -> float:
    """Number of independent instants that the runs are worth: Kish's number, less what neighbours have in common.

    Instants are put into at most 20 batches in the order of time. Means of batches of m independent values have 1/m of
    their variance; as many times more as they have, the fewer the instants count. The values are the shares of an
    instant's runs among the tenth of largest scores, which is where the factor lies.
    """
    sums = np.bincount(instants, weights)
    kish = float(sums.sum() ** 2 / (sums**2).sum())
    is_large = scores > _quantile(scores, weights, _TAIL * float(weights.sum()))
    shares = np.bincount(instants, is_large) / np.bincount(instants)
    size = max(_MIN_BATCH, len(shares) // _BATCHES)
    batches = len(shares) // size
    spread = float(shares.var())
    if batches < 2 or spread <= 0.0:
        return kish
    batched = shares[len(shares) - batches * size :].reshape(batches, size).mean(axis=1)
    return kish / max(1.0, size * float(batched.var(ddof=1)) / spread)


def scale_interval(estimate_s: float, low_s: float, high_s: float, factors: IntervalFactors) -> tuple[float, float]:
    """Both ends of an interval, scaled on the logarithm of latency; unchanged where nothing is concluded.

    Examples
    --------
    >>> scale_interval(2.0, 1.0, 4.0, IntervalFactors(1.0, 2.0, 40, True))
    (1.0, 8.0)
    """
    if not factors.is_concluded:
        return low_s, high_s
    estimate = np.asarray(max(estimate_s, _FLOOR_S))
    below, above = _half_widths(estimate, np.asarray(low_s), np.asarray(high_s))
    low = float(estimate * np.exp(-_scaled(below, factors.lower)))
    high = float(estimate * np.exp(_scaled(above, factors.upper)))
    return (
        min(low, low_s) if factors.lower >= 1.0 else low,
        max(high, high_s) if factors.upper >= 1.0 else high,
    )


def _scaled(half: FloatArray, factor: float) -> FloatArray:
    """A half width on the logarithm; widening ends where it would say nothing any more."""
    return np.minimum(half * factor, np.maximum(half, _MAX_HALF))


def interval_figures(runs: ScoredRuns) -> IntervalFigures:
    """Coverage, width and bias of some runs."""
    if not len(runs):
        return IntervalFigures(0)
    estimate = np.maximum(runs.estimate_s, _FLOOR_S)
    return IntervalFigures(
        runs=len(runs),
        coverage_before=float(_held(runs.low_s, runs.high_s, runs.realised_s).mean()),
        coverage_after=float(_held(runs.shown_low_s, runs.shown_high_s, runs.realised_s).mean()),
        width_before=float(np.median((runs.high_s - runs.low_s) / estimate)),
        width_after=float(np.median((runs.shown_high_s - runs.shown_low_s) / estimate)),
        bias=float(np.median(runs.realised_s / estimate)),
    )


def _held(low_s: FloatArray, high_s: FloatArray, realised_s: FloatArray) -> BoolArray:
    return (low_s <= realised_s) & (realised_s <= high_s)
