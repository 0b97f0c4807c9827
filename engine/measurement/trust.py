"""Trust in estimates: coverage and bias of the past, and the factor that makes intervals honest again.

The factor is that of split conformal prediction: errors of recent estimates, each in units of the half width it had
stated, are sorted; the one that 90 % of them (with the usual correction for their number) do not exceed is what a half
width has to be multiplied with to have covered them.

References: Vovk, Gammerman, Shafer, Algorithmic Learning in a Random World (2005); Lei et al., Distribution-free
predictive inference for regression (2018), section 2.2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = [
    "LEVEL",
    "MIN_OUTCOMES",
    "RECENT",
    "EstimateTrust",
    "JudgedPrediction",
    "PredictionOutcome",
    "judge_predictions",
    "judge_trust",
    "widen_interval",
]

LEVEL = 0.9
MIN_OUTCOMES = 20  # outcomes below which nothing is concluded
RECENT = 200  # outcomes looked at: the system of long ago is another one
MAX_FACTOR = 100.0


@dataclass(frozen=True, slots=True)
class PredictionOutcome:
    """An expected and an observed value. `half_s` is half the interval before any widening; None without an
    interval.
    """

    expected_s: float
    observed_s: float
    half_s: float | None
    covered: bool | None = None  # by the interval that was shown

    @property
    def error_s(self) -> float:
        """Expected less observed: above 0 the estimate was too high."""
        return self.expected_s - self.observed_s


@dataclass(frozen=True, slots=True)
class EstimateTrust:
    """`score` from 0 to 1 is the share of a widened half width that was stated; 1 where nothing has to be widened.

    `half_s` is the half width for estimates that have none of their own; None with fewer than `MIN_OUTCOMES` outcomes.
    """

    factor: float
    score: float
    outcomes: int
    half_s: float | None
    concluded: bool


@dataclass(frozen=True, slots=True)
class JudgedPrediction:
    """Figures of many outcomes. Ratios are of sums; None where there is nothing to divide by."""

    outcomes: int
    coverage: float | None
    bias: float | None  # sum of errors by sum observed
    median_error: float | None  # of |error| / observed
    expected_s: float
    observed_s: float


def judge_trust(recent: Sequence[PredictionOutcome]) -> EstimateTrust:
    """Judge the newest outcomes (at most `RECENT`, newest last).

    Notes
    -----
    The factor never narrows an interval. Outcomes of neighbouring intervals resemble each other, so that 90 % are
    reached in the long run and not in every part of it.
    """
    newest = list(recent)[-RECENT:]
    scores = [abs(outcome.error_s) / outcome.half_s for outcome in newest if outcome.half_s]
    errors = [abs(outcome.error_s) for outcome in newest]
    half_s = _covering(errors) if len(errors) >= MIN_OUTCOMES else None
    if len(scores) < MIN_OUTCOMES:
        return EstimateTrust(1.0, 1.0, len(newest), half_s, False)
    factor = min(MAX_FACTOR, max(1.0, _covering(scores)))
    return EstimateTrust(factor, 1.0 / factor, len(newest), half_s, True)


def _covering(scores: Sequence[float]) -> float:
    """The ceil(0.9 (n + 1))-th smallest; the largest where there are not so many."""
    ordered = sorted(scores)
    rank = math.ceil(LEVEL * (len(ordered) + 1) - 1e-9)
    return ordered[min(rank, len(ordered)) - 1]


def widen_interval(
    estimate_s: float, interval_s: tuple[float, float] | None, past_trust: EstimateTrust
) -> tuple[float, float] | None:
    """The interval that the estimate is shown with, each side wider by the factor; None where even the past has none.

    Examples
    --------
    >>> widen_interval(2.0, (1.5, 3.0), EstimateTrust(3.0, 1 / 3, 50, None, True))
    (0.5, 5.0)
    """
    if interval_s is None:
        half = past_trust.half_s
        return None if half is None else (max(0.0, estimate_s - half), estimate_s + half)
    low, high = ((end - estimate_s) * past_trust.factor for end in interval_s)
    return max(0.0, estimate_s + low), estimate_s + high


def judge_predictions(outcomes: Sequence[PredictionOutcome]) -> JudgedPrediction:
    """Coverage by the intervals shown, bias and median relative error."""
    shown = [outcome.covered for outcome in outcomes if outcome.covered is not None]
    expected = math.fsum(outcome.expected_s for outcome in outcomes)
    observed = math.fsum(outcome.observed_s for outcome in outcomes)
    relative = sorted(abs(outcome.error_s) / outcome.observed_s for outcome in outcomes if outcome.observed_s > 0.0)
    return JudgedPrediction(
        outcomes=len(outcomes),
        coverage=sum(shown) / len(shown) if shown else None,
        bias=(expected - observed) / observed if observed > 0.0 else None,
        median_error=_median(relative) if relative else None,
        expected_s=expected,
        observed_s=observed,
    )


def _median(ordered: Sequence[float]) -> float:
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
