"""Trust in estimates: whether the intervals that were shown lately held as often as they claim."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pydantic import computed_field

from engine.measurement.calibration import AS_STATED, HALF_LIFE, LEVEL, IntervalFactors
from engine.records import Record, Unwritten

__all__ = [
    "FALLING",
    "HOLDING",
    "LOST",
    "RECENT",
    "UNJUDGED",
    "EstimateTrust",
    "JudgedPrediction",
    "PredictionOutcome",
    "QueryCalibration",
    "judge_predictions",
    "judge_trust",
]

RECENT = 40  #: intervals that trust is judged by

#: States of trust: intervals hold; they hold too seldom and are widened faster; a person decides on what rests on them.
HOLDING, FALLING, LOST = "holding", "falling", "lost"

# Of 40 intervals that hold nine in ten times, fewer than 32 hold once in 65 draws, fewer than 28 once in 11,000.
_FALLING_BELOW, _LOST_BELOW, _REGAINED_AT = 0.8, 0.7, 0.85
_FASTER = 4.0


@dataclass(frozen=True, slots=True)
class EstimateTrust(Record):
    """Trust in a query's estimates: how many of the last intervals shown held, and the state that follows.

    A state is left only once 85 % hold again.
    """

    held: int = 0
    judged: int = 0
    state: str = HOLDING

    @property
    def coverage(self) -> float | None:
        """Share that held; None where none was judged."""
        return self.held / self.judged if self.judged else None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def score(self) -> float | None:
        """Trust from 0 to 1, which is as much as is claimed; None before `RECENT` intervals were judged."""
        return min(1.0, self.held / self.judged / LEVEL) if self.judged >= RECENT else None

    @property
    def half_life(self) -> float:
        """Instants after which a run counts half: a quarter as many where trust has fallen, to widen sooner."""
        return HALF_LIFE if self.state == HOLDING else HALF_LIFE / _FASTER


UNJUDGED = EstimateTrust()


@dataclass(frozen=True, slots=True)
class QueryCalibration:
    """Calibration of a query's next estimate: factors, the scope of the runs they are of, and the trust in it."""

    factors: IntervalFactors = AS_STATED
    scope: str = ""
    trust: EstimateTrust = UNJUDGED


def judge_trust(held: Iterable[bool]) -> EstimateTrust:
    """Judge whether intervals held, oldest first; earlier ones decide about a state that has a memory.

    Examples
    --------
    >>> judge_trust([True] * 27 + [False] * 13)
    EstimateTrust(held=27, judged=40, state='lost')
    >>> judge_trust([False] * 13 + [True] * 33).state, judge_trust([False] * 13 + [True] * 34).state
    ('lost', 'holding')
    """
    recent: deque[bool] = deque(maxlen=RECENT)
    state = HOLDING
    for value in held:
        recent.append(value)
        if len(recent) == RECENT:
            state = _next_state(state, sum(recent) / RECENT)
    return EstimateTrust(sum(recent), len(recent), state)


def _next_state(state: str, coverage: float) -> str:
    if coverage < _LOST_BELOW:
        return LOST
    if coverage >= _REGAINED_AT:
        return HOLDING
    if state == HOLDING and coverage < _FALLING_BELOW:
        return FALLING
    return state


@dataclass(frozen=True, slots=True)
class PredictionOutcome:
    """An expected and an observed value, and whether the interval shown held; None without one."""

    expected_s: float
    observed_s: float
    covered: bool | None = None

    @property
    def error_s(self) -> float:
        """Expected less observed: above 0 the estimate was too high."""
        return self.expected_s - self.observed_s


@dataclass(frozen=True, slots=True)
class JudgedPrediction(Record):
    """Figures of many outcomes. Ratios are of sums; None where there is nothing to divide by."""

    outcomes: int
    coverage: float | None
    bias: float | None  # sum of errors by sum observed
    median_error: float | None  # of |error| / observed
    expected_s: Unwritten[float]
    observed_s: Unwritten[float]


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
