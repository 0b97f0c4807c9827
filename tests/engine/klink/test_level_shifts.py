"""A history forgets what is over: stalls, and levels that the stream has left."""

from __future__ import annotations

import random

import pytest

from engine.klink.watermarks import SweepHistory, SweepPrior, _is_significant, find_level_shift, stalled_epochs

PERIOD_MS = 1000.0


def usual(count: int, seed: int = 1, mean_ms: float = 300.0) -> list[float]:
    draw = random.Random(seed)
    return [draw.gauss(mean_ms, 40.0) for _ in range(count)]


def filled(delays: list[float], prior: SweepPrior | None = None) -> SweepHistory:
    history = SweepHistory(400, prior)
    for number, delay in enumerate(delays):
        history.add(number * PERIOD_MS, delay)
    return history


@pytest.mark.parametrize("before", [60, 150, 400])
@pytest.mark.parametrize("confidence", [0.95, 0.99])
def test_estimate_is_back_50_windows_after_a_stall_of_ten(before: int, confidence: float) -> None:
    stall = [10_000.0 - 900.0 * window for window in range(10)]
    forecast = filled([*usual(before), *stall, *usual(50, seed=2)]).forecast(0.0, confidence)
    assert forecast.mean_ms == pytest.approx(300.0, abs=15.0)
    assert forecast.deviation_ms == pytest.approx(40.0, abs=15.0)
    assert forecast.most_ms < 600.0


@pytest.mark.parametrize("step_ms", [1000.0, -1000.0])
@pytest.mark.parametrize("before", [60, 150, 400])
def test_estimate_is_at_the_new_level_50_windows_after_a_step(before: int, step_ms: float) -> None:
    forecast = filled([*usual(before, mean_ms=1300.0), *usual(50, seed=2, mean_ms=1300.0 + step_ms)]).forecast(
        0.0, 0.95
    )
    assert forecast.mean_ms == pytest.approx(1300.0 + step_ms, abs=20.0)
    assert 1300.0 + step_ms - 200.0 < forecast.least_ms < forecast.most_ms < 1300.0 + step_ms + 200.0


def test_step_makes_the_prior_of_the_old_level_void() -> None:
    prior = SweepPrior(300.0, 1600.0, 100)
    forecast = filled([*usual(60), *usual(20, mean_ms=1300.0)], prior).forecast(0.0, 0.95)
    assert forecast.mean_ms == pytest.approx(1300.0, abs=30.0)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ["normal", "tail", "two values", "constant"])
def test_stream_without_change_keeps_its_history(kind: str, seed: int) -> None:
    draw = random.Random(seed)
    delays = {
        "normal": usual(1200, seed),
        "tail": [300.0 + draw.gauss(0, 40.0) + 1000.0 * (draw.random() < 0.05) for _ in range(1200)],
        "two values": [draw.choice([0.0, 1000.0]) for _ in range(1200)],
        "constant": [250.0] * 1200,
    }[kind]
    assert len(filled(delays)) == 400
    assert not stalled_epochs(delays) or kind == "tail"


def test_stall_that_goes_on_is_no_part_of_the_level_yet() -> None:
    forecast = filled([*usual(100), *[8000.0] * 5]).forecast(0.0, 0.95)
    assert forecast.mean_ms == pytest.approx(300.0, abs=15.0)


def test_short_history_has_no_shift() -> None:
    assert find_level_shift([*[1.0] * 10, *[1000.0] * 20]) is None


@pytest.mark.parametrize(("delay", "is_significant"), [(13.0, False), (15.0, True)])
def test_rank_sum_is_significant_from_four_and_a_half_deviations(delay: float, is_significant: bool) -> None:
    """U = 366 and 367 of 400 pairs: z = (U / 400 - 1/2) sqrt(12 400 / 41) = 4.491 and 4.518."""
    older = [2.0 * number for number in range(1, 21)]
    assert _is_significant([*older, *[100.0] * 18, delay, 0.0], 20) is is_significant
