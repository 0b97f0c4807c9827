"""Intervals that were too narrow are widened until they cover what they claim; honest ones are left alone."""

from __future__ import annotations

import numpy as np
import pytest

from engine.measurement.trust import MIN_OUTCOMES, PredictionOutcome, judge_predictions, judge_trust, widen_interval


def _outcomes(count: int, *, claimed: float, real: float, bias: float = 0.0, seed: int = 1) -> list[PredictionOutcome]:
    """Normal errors of spread `real`, with half widths that would be right for `claimed`."""
    rng = np.random.default_rng(seed)
    return [PredictionOutcome(5.0 + bias + real * e, 5.0, 1.645 * claimed) for e in rng.standard_normal(count).tolist()]


def stated(outcome: PredictionOutcome) -> tuple[float, float]:
    assert outcome.half_s is not None
    return outcome.expected_s - outcome.half_s, outcome.expected_s + outcome.half_s


@pytest.mark.parametrize(("claimed", "real", "bias"), [(0.1, 0.3, 0.0), (0.05, 0.5, 0.0), (0.2, 0.2, 0.6)])
def test_widened_intervals_cover_nine_tenths(claimed: float, real: float, bias: float) -> None:
    shares, honest = [], []
    for seed in range(60):
        past, after = (
            _outcomes(n, claimed=claimed, real=real, bias=bias, seed=100 * k + seed) for k, n in enumerate((200, 500))
        )
        result = judge_trust(past)
        inside = [widen_interval(outcome.expected_s, stated(outcome), result) for outcome in after]
        shares.append(
            np.mean([low <= outcome.observed_s <= high for (low, high), outcome in zip(inside, after, strict=True)])
        )
        honest.append(np.mean([abs(outcome.error_s) <= outcome.half_s for outcome in after]))
    assert np.mean(honest) < 0.8
    assert np.mean(shares) == pytest.approx(0.9, abs=0.015)


def test_honest_intervals_keep_their_width() -> None:
    result = judge_trust(_outcomes(200, claimed=0.6, real=0.3))
    assert (result.factor, result.score) == (1.0, 1.0)
    assert widen_interval(5.0, (4.5, 6.0), result) == (4.5, 6.0)


def test_factor_is_a_rank_of_past_errors() -> None:
    past = [PredictionOutcome(float(i), 0.0, 1.0) for i in range(1, 100)]
    result = judge_trust(past)
    assert result.factor == 90.0 and result.score == pytest.approx(1 / 90)
    assert judge_trust(past[::-1]).factor == 90.0


def test_few_outcomes_leave_the_factor_at_one() -> None:
    result = judge_trust(_outcomes(MIN_OUTCOMES - 1, claimed=0.01, real=1.0))
    assert not result.concluded and result.factor == 1.0 and result.half_s is None
    assert widen_interval(3.0, None, result) is None


def test_only_the_newest_outcomes_count() -> None:
    bad, good = _outcomes(300, claimed=0.01, real=1.0), _outcomes(200, claimed=1.0, real=0.1)
    assert judge_trust(bad + good).factor == 1.0 and judge_trust(good + bad).factor > 10


def test_estimate_without_interval_gets_the_interval_of_past_errors() -> None:
    past = [PredictionOutcome(2.0 + 0.01 * i, 2.0, None) for i in range(100)]
    result = judge_trust(past)
    assert not result.concluded and result.half_s == pytest.approx(0.9)
    assert widen_interval(0.5, None, result) == (0.0, pytest.approx(1.4))


def test_bias_and_coverage_are_ratios_of_sums() -> None:
    result = judge_predictions(
        [
            PredictionOutcome(3.0, 2.0, 1.0, True),
            PredictionOutcome(1.0, 4.0, 1.0, False),
            PredictionOutcome(1.0, 1.0, None),
        ]
    )
    assert (result.outcomes, result.coverage) == (3, 0.5)
    assert result.bias == pytest.approx((5 - 7) / 7)
    assert result.median_error == 0.5
    assert judge_predictions([]).bias is None and judge_predictions([]).coverage is None
