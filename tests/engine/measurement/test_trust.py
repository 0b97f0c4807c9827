"""Trust falls with intervals that do not hold, and comes back later than it went."""

from __future__ import annotations

import numpy as np
import pytest

from engine.measurement.calibration import HALF_LIFE
from engine.measurement.trust import FALLING, HOLDING, LOST, PredictionOutcome, judge_predictions, judge_trust


def test_few_intervals_give_no_score() -> None:
    found = judge_trust([False] * 39)
    assert (found.state, found.score, found.judged, found.coverage) == (HOLDING, None, 39, 0.0)
    assert judge_trust([]).coverage is None


def test_score_is_coverage_by_what_is_claimed() -> None:
    assert judge_trust([True] * 27 + [False] * 13).score == pytest.approx(0.75)
    assert judge_trust([True] * 40).score == 1.0


@pytest.mark.parametrize(("held", "state"), [(40, HOLDING), (32, HOLDING), (31, FALLING), (28, FALLING), (27, LOST)])
def test_state_follows_the_last_forty_intervals(held: int, state: str) -> None:
    assert judge_trust([True] * 50 + [False] * (40 - held) + [True] * held).state == state


def test_fallen_trust_returns_at_85_percent_alone() -> None:
    """33 of 40 would not have let it fall, and do not bring it back."""
    fallen = [True] * 40 + [False] * 9
    assert judge_trust(fallen + [True] * 33).state == FALLING
    assert judge_trust(fallen + [True] * 34).state == HOLDING
    lost = [True] * 40 + [False] * 13
    assert judge_trust(lost + [True] * 33).state == LOST
    assert judge_trust(lost + [True] * 34).state == HOLDING


def test_fallen_trust_makes_runs_age_faster() -> None:
    assert judge_trust([True] * 40).half_life == HALF_LIFE
    assert judge_trust([True] * 30 + [False] * 10).half_life == HALF_LIFE / 4


def test_right_intervals_seldom_lose_trust() -> None:
    """Of 200 queries, each over ten hours."""
    rng = np.random.default_rng(1)
    lost = 0
    for _ in range(200):
        held = (rng.random(1200) < 0.9).tolist()
        lost += any(judge_trust(held[max(0, i - 120) : i]).state == LOST for i in range(40, 1200, 40))
    assert lost <= 4


def test_bias_and_coverage_are_ratios_of_sums() -> None:
    result = judge_predictions(
        [PredictionOutcome(3.0, 2.0, True), PredictionOutcome(1.0, 4.0, False), PredictionOutcome(1.0, 1.0)]
    )
    assert (result.outcomes, result.coverage) == (3, 0.5)
    assert result.bias == pytest.approx((5 - 7) / 7)
    assert result.median_error == 0.5
    assert judge_predictions([]).bias is None and judge_predictions([]).coverage is None
