"""History of a stream's watermarks: moments, intervals, and odd clocks."""

from __future__ import annotations

import random
from math import inf, isfinite, nan, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from engine.klink.watermarks import SweepHistory, SweepPrior, deviations, empirical_interval, moments

PERIOD_MS = 1000.0


def filled(delays, length=400, prior=None):
    history = SweepHistory(length, prior)
    for number, delay in enumerate(delays):
        history.add(number * PERIOD_MS, delay)
    return history


def test_moments_pool_all_delays():
    rng = np.random.default_rng(1)
    epochs = rng.uniform(50, 900, (40, 25))
    mean, variance = moments(list(epochs.mean(1)), list((epochs**2).mean(1)))
    assert (mean, variance) == pytest.approx((epochs.mean(), epochs.var()), rel=1e-9)


def test_equation_6_variance_is_that_of_the_mean():
    mu, chi = [100.0, 300.0, 200.0], [10_400.0, 90_900.0, 40_100.0]
    assert moments(mu, chi, "eq6")[1] == pytest.approx((400 + 900 + 100) / 9)


def test_large_delays_of_little_spread_keep_their_variance():
    assert filled([1e9, 1e9 + 1, 1e9 + 2]).forecast(0.0, 0.95).deviation_ms == pytest.approx(sqrt(2 / 3))


def test_forecast_uses_only_the_period_before_three_epochs():
    for delays in ([], [500.0], [500.0, 700.0]):
        forecast = filled(delays).forecast(9000.0, 0.95)
        assert (forecast.mean_ms, forecast.deviation_ms, forecast.least_ms, forecast.most_ms) == (9000, 0, 9000, 9000)
        assert forecast.epochs == len(delays)
    assert filled([500.0, 700.0, 600.0]).forecast(9000.0, 0.95).mean_ms == 9600


def test_interval_is_normal_for_short_and_empirical_for_long_histories():
    short = filled([100.0, 200.0, 300.0]).forecast(0.0, 0.95)
    half = norm.ppf(0.975) * np.std([100, 200, 300])
    assert (short.least_ms, short.most_ms) == pytest.approx((200 - half, 200 + half))
    long = filled([float(delay * 37 % 100) for delay in range(100)]).forecast(0.0, 0.95)
    assert (long.least_ms, long.most_ms) == (0, 96)


@pytest.mark.parametrize("confidence", [0.8, 0.9, 0.95, 0.99])
def test_interval_covers_the_next_delay_at_its_confidence(confidence):
    """Delays of few values and a long tail, for which the normal interval is wrong."""
    rng = np.random.default_rng(7)
    draws = rng.zipf(1.99, 60_000).clip(1, 100) * 10 + rng.uniform(0, 1, 60_000)
    known, asked = 400, 0
    hits = 0
    for start in range(0, len(draws) - known - 1, 150):
        interval = empirical_interval(sorted(draws[start : start + known]), confidence)
        assert interval is not None
        hits += interval[0] <= draws[start + known] <= interval[1]
        asked += 1
    assert abs(hits / asked - confidence) < 4 * sqrt(confidence * (1 - confidence) / asked)


def test_old_epochs_leave_no_trace():
    history = filled([1e9] * 5 + [1.0, 2.0, 3.0], length=3)
    forecast = history.forecast(0.0, 0.95)
    assert (len(history), forecast.mean_ms, forecast.deviation_ms) == (3, 2, pytest.approx(sqrt(2 / 3)))
    assert history.sums == (6, 14, 14)


def test_late_start_does_not_shift_what_is_expected():
    draw = random.Random(7)
    usual = [max(0.0, draw.gauss(300.0, 60.0)) for _ in range(399)]
    plain, started = filled(usual).forecast(0.0, 0.95), filled([12_000.0, *usual]).forecast(0.0, 0.95)
    assert abs(started.mean_ms - plain.mean_ms) < 2.0  # of 29 ms by the plain mean
    assert started.deviation_ms == pytest.approx(plain.deviation_ms, rel=0.05)  # of 590 ms


@pytest.mark.parametrize("late_ms", [7_000.0, 12_000.0])
def test_late_start_does_not_shift_any_of_the_first_windows_much(late_ms):
    draw = random.Random(7)
    usual = [max(0.0, draw.gauss(300.0, 60.0)) for _ in range(400)]
    plain, started = SweepHistory(400), SweepHistory(400)
    shifts = []
    for number, delay in enumerate(usual):
        plain.add(number * PERIOD_MS, delay)
        started.add(number * PERIOD_MS, delay if number else late_ms)
        if number >= 2:
            shifts.append(started.forecast(0.0, 0.95).mean_ms - plain.forecast(0.0, 0.95).mean_ms)
    assert sum(map(abs, shifts)) / len(shifts) < 10.0  # of 100 ms and more by the plain mean
    assert max(map(abs, shifts)) < 60.0  # one deviation


@pytest.mark.parametrize("late_ms", [7_000.0, 12_000.0])
def test_late_start_does_not_shift_what_was_learned_elsewhere(late_ms):
    draw = random.Random(9)
    usual = [max(0.0, draw.gauss(300.0, 60.0)) for _ in range(60)]
    prior = SweepPrior(300.0, 3600.0, 400)
    for count in (1, 2, 3, 5, 10, 20, 30, 60):
        started, plain = (filled([first, *usual[1:count]], prior=prior).forecast(0.0, 0.95)
                          for first in (late_ms, usual[0]))  # fmt: skip
        assert abs(started.mean_ms - plain.mean_ms) < 7.0  # of 110 to 390 ms by the plain mean
        assert started.deviation_ms < 75.0
    slow = filled([late_ms, late_ms], prior=prior).forecast(0.0, 0.95)
    assert slow.mean_ms == pytest.approx((2 * late_ms + 28 * 300) / 30), "two are no single start"


def test_an_outlier_is_not_told_by_a_prior_of_few_windows_or_without_spread():
    for prior in (SweepPrior(300.0, 3600.0, 5), SweepPrior(300.0, 0.0, 400)):
        borrowed = min(prior.epochs, 30) - 1
        expected = (7000.0 + borrowed * 300.0) / (borrowed + 1)
        assert filled([7000.0], prior=prior).forecast(0.0, 0.95).mean_ms == pytest.approx(expected)


@pytest.mark.parametrize("count", [3, 5, 10, 19, 40, 400])
def test_moments_of_delays_without_an_outlier_are_the_plain_ones(count):
    draw = random.Random(count)
    for kind in (lambda: draw.gauss(300.0, 60.0), lambda: draw.expovariate(1 / 300)):
        plain = robust = 0.0
        for _ in range(100):
            delays = [max(0.0, kind()) for _ in range(count)]
            plain += sum(delays) / count
            robust += filled(delays).forecast(0.0, 0.95).mean_ms
        assert robust == pytest.approx(plain, rel=0.03)


def test_tail_that_belongs_to_the_stream_counts():
    draw = random.Random(8)
    heavy = [draw.gauss(300.0, 20.0) if draw.random() < 0.95 else 3000.0 for _ in range(400)]
    assert filled(heavy).forecast(0.0, 0.95).mean_ms == pytest.approx(sum(heavy) / 400)
    skewed = [draw.lognormvariate(5.0, 1.0) for _ in range(400)]
    assert filled(skewed).forecast(0.0, 0.95).mean_ms == pytest.approx(sum(skewed) / 400, rel=0.05)
    assert filled([100.0] * 300 + [5000.0]).forecast(0.0, 0.95).mean_ms > 100.0  # nothing tells what is usual


def test_odd_delays_are_counted_and_left_out():
    history = filled([100.0, 100.0, 100.0])
    assert not history.add(nan, 1.0)
    assert not history.add(9000.0, nan)
    assert not history.add(9000.0, inf)
    assert not history.add(9000.0, 1e200)
    assert not history.add(9000.0, 100.0, 50.0)
    assert history.refused == 5
    assert not history.add(2000.0, 5.0)
    assert not history.add(1000.0, 5.0)
    assert history.add(9000.0, -40.0)
    assert (history.clamped, len(history)) == (1, 4)
    assert history.forecast(0.0, 0.95).mean_ms == 75


def test_zero_variance_gives_a_point_forecast():
    forecast = filled([100.0] * 10).forecast(1000.0, 0.95)
    assert (forecast.mean_ms, forecast.deviation_ms, forecast.least_ms, forecast.most_ms) == (1100, 0, 1100, 1100)


def test_prior_counts_until_own_epochs_suffice():
    prior = SweepPrior(400.0, 2500.0, 200, (0.05, 0.5, 0.9, 0.99), (320.0, 400.0, 470.0, 560.0))
    fresh = filled([], prior=prior).forecast(0.0, 0.945)
    assert (fresh.mean_ms, fresh.deviation_ms, fresh.epochs) == (400, pytest.approx(50), 30)
    assert (fresh.least_ms, fresh.most_ms) == (320, pytest.approx(515))
    assert filled([100.0] * 15, prior=prior).forecast(0.0, 0.95).mean_ms == 250
    own = filled([100.0] * 30, prior=prior).forecast(0.0, 0.95)
    assert (own.mean_ms, own.most_ms) == (100, 100)


def test_what_is_overdue_has_a_priors_quantiles_until_own_delays_suffice():
    levels, values = (0.0, 0.5, 0.9, 1.0), (200.0, 300.0, 400.0, 3000.0)
    prior = SweepPrior(400.0, 250_000.0, 200, levels, values)
    delays = filled([310.0] * 10, prior=prior).forecast(0.0, 0.95).delays
    assert len(delays) == 30 and delays == tuple(sorted(delays)) and delays.count(310.0) == 10
    assert delays[-1] == pytest.approx(400 + (0.975 - 0.9) / 0.1 * 2600)
    assert filled([310.0] * 30, prior=prior).forecast(0.0, 0.95).delays == (310.0,) * 30
    short = SweepPrior(400.0, 250_000.0, 200, levels[:3], values[:3])
    assert filled([310.0] * 10, prior=short).forecast(0.0, 0.95).delays == ()


def test_changed_settings_keep_the_history():
    history = filled([100.0, 200.0, 300.0, 400.0])
    history.adopt(3, None)
    assert (len(history), history.forecast(0.0, 0.95).mean_ms) == (3, 300)
    history.adopt(400, SweepPrior(700.0, 0.0, 6))
    assert (len(history), history.forecast(0.0, 0.95).mean_ms) == (3, 500)
    assert not history.add(2000.0, 100.0)


def test_interval_is_normal_when_quantiles_do_not_reach_the_confidence():
    prior = SweepPrior(400.0, 2500.0, 200, (0.05, 0.9), (320.0, 470.0))
    assert filled([], prior=prior).forecast(0.0, 0.95).most_ms == pytest.approx(400 + deviations(0.95) * 50)


ANY = st.floats(allow_nan=True, allow_infinity=True)


@settings(deadline=None)
@given(st.lists(st.tuples(ANY, ANY, st.none() | ANY), max_size=60))
def test_history_survives_any_sample(samples):
    history = SweepHistory(10)
    for sample in samples:
        history.add(*sample)
    forecast = history.forecast(0.0, 0.95)
    assert all(map(isfinite, (forecast.mean_ms, forecast.deviation_ms, forecast.least_ms, forecast.most_ms)))
    assert forecast.deviation_ms >= 0
