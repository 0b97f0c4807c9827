"""The autoscaler's rule: factors, limits, and alignment with key groups."""

from __future__ import annotations

import pytest

from engine.parallelism.autoscaler import AutoscalerOptions, ObservedOperator, is_outside, scaled_parallelism

OPTIONS = AutoscalerOptions()


def operator(busy: float, parallelism: int = 1, **fields: float) -> ObservedOperator:
    return ObservedOperator(parallelism=parallelism, rate_per_s=1000.0, busy=busy, **fields)  # type: ignore[arg-type]


def test_target_counts_lag_restart_and_utilisation() -> None:
    # 1000 events a second: / 0.7, and what comes in 300 s of restart, and 180,000 that wait, over 1,800 s each
    target = operator(0.8, lag=180_000.0).target_per_s(0.7, OPTIONS, restarts=True)
    assert target == pytest.approx(1000.0 / 0.7 + 1000.0 * 300.0 / 1800.0 + 100.0)


@pytest.mark.parametrize(
    ("busy", "parallelism", "divisor", "expected"),
    [
        (0.8, 1, 0, 2),  # 1.595 * 0.8 = 1.28 threads
        (2.0, 2, 0, 4),  # 3.19
        (2.0, 2, 128, 4),
        (2.6, 3, 128, 8),  # 4.15: 5, and the next that divides 128
        (0.2, 4, 0, 2),  # 0.32 of a thread, but no step down takes more than 60 %
        (0.2, 4, 128, 2),
    ],
)
def test_parallelism_follows_busy_threads_limits_and_key_groups(
    busy: float, parallelism: int, divisor: int, expected: int
) -> None:
    assert scaled_parallelism(operator(busy, parallelism, divisor=divisor), OPTIONS) == expected


def test_parallelism_stays_within_key_groups() -> None:
    assert scaled_parallelism(operator(90.0, 64, divisor=128, max_parallelism=128), OPTIONS) == 128
    assert scaled_parallelism(operator(1.0, 1, max_parallelism=1), OPTIONS) == 1


def test_autoscaler_acts_outside_of_its_bounds_only() -> None:
    assert not is_outside(operator(0.7), OPTIONS)
    assert is_outside(operator(1.1), OPTIONS)
    assert is_outside(operator(0.1), OPTIONS)
