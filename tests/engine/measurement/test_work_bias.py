"""Bias of estimated work by kind: the ratio, its interval, and what it proves."""

from __future__ import annotations

import numpy as np
import pytest

from engine.measurement.work_bias import MIN_INSTANTS, NO_BIAS, WorkBias, work_bias


def measured(bias: float, instants: int, *, keep: float = 0.0, spread: float = 0.2, seed: int = 1) -> WorkBias:
    """Work of 100 cycles/s on average, measured at `bias` times with errors that keep a share of themselves."""
    rng = np.random.default_rng(seed)
    expected = rng.uniform(50.0, 150.0, instants)
    errors = np.empty(instants)
    errors[0] = rng.standard_normal()
    for i in range(1, instants):
        errors[i] = keep * errors[i - 1] + np.sqrt(1.0 - keep**2) * rng.standard_normal()
    return work_bias(30.0 * np.arange(instants), expected, bias * expected * (1.0 + spread * errors))


def test_ratio_is_one_of_sums() -> None:
    assert work_bias([0.0, 30.0], [100.0, 900.0], [200.0, 900.0]).ratio == pytest.approx(1.1)


def test_without_runs_or_estimated_work_there_is_no_ratio() -> None:
    assert work_bias([], [], []) == NO_BIAS
    idle = work_bias([0.0], [0.0], [5.0])
    assert (idle.ratio, idle.runs, idle.is_proven) == (None, 1, False)


def test_too_few_instants_have_a_ratio_without_an_interval() -> None:
    few = measured(2.0, MIN_INSTANTS - 1)
    assert few.ratio == pytest.approx(2.0, rel=0.2) and few.low is None and not few.is_proven
    assert measured(2.0, MIN_INSTANTS).low is not None


def test_runs_of_one_instant_count_as_one() -> None:
    assert work_bias(np.zeros(100), np.ones(100), np.ones(100)).instants == 1


def test_large_bias_is_proven_and_a_small_one_is_not() -> None:
    assert measured(1.5, 200).is_proven and measured(0.6, 200).is_proven
    assert not measured(1.03, 2000, spread=0.05).is_proven and not measured(1.0, 200).is_proven


@pytest.mark.parametrize("keep", [0.0, 0.8])
def test_interval_holds_the_true_bias_of_independent_and_of_correlated_runs(keep: float) -> None:
    intervals = [measured(1.3, 400, keep=keep, seed=i) for i in range(300)]
    held = [(found.low or 0.0) <= 1.3 <= (found.high or 0.0) for found in intervals]
    assert 0.91 <= np.mean(held) <= 0.98
