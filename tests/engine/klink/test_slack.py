"""Slack in closed form: against SciPy, and what must hold of it at every instant."""

from __future__ import annotations

import random
import subprocess
import sys
from dataclasses import replace
from math import exp, inf, isfinite, log

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import erfcx
from scipy.stats import norm, truncnorm

from engine.klink.slack import (
    expected_wait_ms,
    forecast_wait_ms,
    mean_excess,
    min_slack_ms,
    overdue_forecast,
    stream_slack_ms,
)
from engine.klink.watermarks import SweepForecast, SweepHistory

TIMES = st.floats(-1e9, 1e9)
FORECAST = SweepForecast(12_000.0, 80.0, 11_850.0, 12_150.0, 10)


@pytest.mark.parametrize("z", np.linspace(-8, 4, 25))
def test_mean_excess_equals_scipy(z):
    assert mean_excess(z) == pytest.approx(np.sqrt(2 / np.pi) / erfcx(z / np.sqrt(2)) - z, rel=1e-12)


@pytest.mark.parametrize("z", [4.999, 5.0, 5.001, 6.0, 10.0, 25.0, 100.0, 1e4])
def test_mean_excess_far_overdue_equals_the_tail_integral(z):
    """integral of Q(z + x) over x, divided by Q(z), both scaled: no difference of equal numbers."""

    def scaled(x: float) -> float:
        return erfcx((z + x) / np.sqrt(2)) * np.exp(-z * x - x * x / 2)

    area, _ = quad(scaled, 0, 40 / z, epsabs=0, epsrel=1e-13, limit=200)
    assert mean_excess(z) == pytest.approx(area / erfcx(z / np.sqrt(2)), rel=1e-12)


def test_both_forms_of_the_mean_excess_agree_at_the_switch():
    below, above = mean_excess(5.0), mean_excess(np.nextafter(5.0, 6.0))
    assert below == pytest.approx(above, rel=1e-12)


@pytest.mark.parametrize("now_ms", [11_000.0, 11_900.0, 12_000.0, 12_100.0, 12_300.0])
def test_expected_wait_is_the_truncated_normals_mean(now_ms):
    z = (now_ms - 12_000) / 80
    mean = truncnorm.mean(z, inf, loc=12_000, scale=80)
    assert expected_wait_ms(now_ms, 12_000, 80) == pytest.approx(mean - now_ms, abs=1e-8)


@settings(deadline=None)
@given(TIMES, TIMES, st.floats(0, 1e9))
def test_expected_wait_is_finite_and_never_negative_or_before_the_mean(now_ms, mean_ms, deviation_ms):
    wait_ms = expected_wait_ms(now_ms, mean_ms, deviation_ms)
    assert isfinite(wait_ms)
    assert wait_ms >= max(0.0, mean_ms - now_ms) * (1 - 1e-12)


@settings(deadline=None)
@given(TIMES, st.floats(0.001, 1e6), st.floats(-30, 60), st.floats(0.001, 10))
def test_expected_wait_falls_with_time(mean_ms, deviation_ms, z, step):
    first = expected_wait_ms(mean_ms + z * deviation_ms, mean_ms, deviation_ms)
    then = expected_wait_ms(mean_ms + (z + step) * deviation_ms, mean_ms, deviation_ms)
    assert then <= first * (1 + 1e-9) + 1e-6


def test_expected_wait_of_a_certain_overdue_watermark_is_zero():
    assert expected_wait_ms(500.0, 900.0, 0.0) == 400
    assert expected_wait_ms(1000.0, 900.0, 0.0) == 0
    assert expected_wait_ms(1000.0, 900.0, 1e-300) == 0
    assert expected_wait_ms(500.0, 900.0, 1e-300) == 400


def test_arrived_watermark_gives_negative_slack():
    assert stream_slack_ms(12_100, 200, FORECAST) == pytest.approx(
        80 * (norm.pdf(1.25) / norm.sf(1.25) - 1.25) - 200, abs=1e-9
    )
    assert stream_slack_ms(12_100, 200, FORECAST, pending_ms=12_040) == -260


def test_query_slack_is_the_minimum_of_its_streams():
    later = SweepForecast(15_000.0, 0.0, 15_000.0, 15_000.0, 5)
    assert min_slack_ms(12_000, 100, [(later, None), (FORECAST, None)]) == stream_slack_ms(12_000, 100, FORECAST)
    assert min_slack_ms(12_000, 100, [(later, 11_000.0), (FORECAST, None)]) == -1100
    assert min_slack_ms(12_000, 100, []) is None


def forecast_of(delays):
    history = SweepHistory(400)
    for number, delay in enumerate(delays):
        history.add(number * 1000.0, delay)
    return history.forecast(0.0, 0.95)


def stalled(draw):
    """A delay that one time in twenty has a stall of exponential length on top."""
    return max(0.0, draw.gauss(300.0, 40.0)) + (draw.expovariate(1 / 1000) if draw.random() < 0.05 else 0.0)


@pytest.mark.parametrize("late_ms", [450.0, 700.0, 1000.0])
def test_overdue_watermark_of_a_heavy_tail_is_expected_when_it_comes(late_ms):
    draw = random.Random(3)
    further = np.array([stalled(draw) for _ in range(200_000)])
    measured = (further[further > late_ms] - late_ms).mean()
    waits = [forecast_wait_ms(late_ms, forecast_of([stalled(draw) for _ in range(400)])) for _ in range(20)]
    assert np.mean(waits) == pytest.approx(measured, rel=0.3)
    assert measured > 800


@pytest.mark.parametrize(("late_ms", "near"), [(200.0, 1e-12), (320.0, 0.15), (360.0, 0.2), (400.0, 0.35)])
def test_overdue_watermark_of_normal_delays_is_expected_as_before(late_ms, near):
    draw = random.Random(5)
    forecast = forecast_of([draw.gauss(300.0, 60.0) for _ in range(400)])
    normal = expected_wait_ms(late_ms, forecast.mean_ms, forecast.deviation_ms)
    assert forecast_wait_ms(late_ms, forecast) == pytest.approx(normal, rel=near)


def test_a_single_late_start_does_not_make_what_is_overdue_wait():
    draw = random.Random(6)
    usual = [draw.gauss(300.0, 60.0) for _ in range(399)]
    for late_ms in (350.0, 450.0, 600.0):
        assert forecast_wait_ms(late_ms, forecast_of([12_000.0, *usual])) < 60


def test_slack_of_an_overdue_watermark_uses_past_delays():
    forecast = forecast_of([300.0 + (2000.0 if number % 10 == 0 else number % 7) for number in range(200)])
    assert stream_slack_ms(800.0, 100.0, forecast) == pytest.approx(1400)


FIVE = [20.0, 30.0, 40.0, 50.0, 60.0]


def long_tailed(draw):
    return 100 * draw.paretovariate(2)


@pytest.mark.parametrize(
    ("delay", "windows", "late_ms"),
    [(stalled, 400, 400), (stalled, 400, 450), (stalled, 400, 1000), (long_tailed, 400, 450), (long_tailed, 20, 1000)],
)
def test_interval_of_what_is_overdue_holds_it_at_its_confidence(delay, windows, late_ms):
    draw, hits, normal_hits, asked = random.Random(4), 0, 0, 100
    for _ in range(asked):
        forecast = forecast_of([delay(draw) for _ in range(windows)])
        forecast = replace(forecast, mean_ms=min(forecast.mean_ms, late_ms - 1.0))
        came = next(later for later in iter(lambda: delay(draw), None) if later > late_ms)
        overdue = overdue_forecast(late_ms, forecast, 0.9)
        assert late_ms == overdue.least_ms <= overdue.mean_ms <= overdue.most_ms
        hits += came <= overdue.most_ms
        normal_hits += came <= overdue_forecast(late_ms, replace(forecast, delays=()), 0.9).most_ms
    assert hits / asked > 0.9 - 3 * (0.9 * 0.1 / asked) ** 0.5
    assert normal_hits / asked < 0.8


def test_interval_of_what_is_overdue_is_exact_where_enough_came_later():
    forecast = forecast_of([float(delay * 147 % 400) for delay in range(400)])
    assert overdue_forecast(219.5, forecast, 0.9) == replace(forecast, least_ms=219.5, mean_ms=309.5, most_ms=382.0)
    assert overdue_forecast(forecast.mean_ms, forecast, 0.9) == forecast


@pytest.mark.parametrize(
    ("delays", "late_ms", "most_ms"),
    [
        ([10.0] * 25 + FIVE, 15.0, 15 * exp(log(20 * 30 * 40 * 50 * 60 / 15**5) * (0.05 ** (-1 / 5) - 1))),
        ([10.0] * 25 + FIVE, 45.0, 45 * exp(log(2 * 3 * 4 * 5 * 6) * (0.05 ** (-1 / 10) - 1))),
        ([0.0] * 25 + FIVE, 45.0, 45 + 200 * (0.05 ** (-1 / 10) - 1)),
        ([10.0] * 29 + [9000.0], 45.0, 9000.0),
    ],
    ids=["five came later", "fewer, so the ten latest", "from nothing: no power law", "not before the latest"],
)
def test_interval_of_what_is_later_than_most_follows_the_tail(delays, late_ms, most_ms):
    forecast = SweepForecast(1010.0, 5.0, 1000.0, 1020.0, 30, deadline_ms=1000.0, delays=tuple(delays))
    assert overdue_forecast(1000.0 + late_ms, forecast, 0.95).most_ms == pytest.approx(1000.0 + most_ms)


@pytest.mark.parametrize("z", [0.01, 1.0, 4.9, 5.1, 20.0])
def test_interval_without_a_history_is_the_truncated_normals(z):
    forecast = SweepForecast(12_000.0, 80.0, 11_850.0, 12_150.0, 10)
    now_ms = 12_000 + 80 * z
    overdue = overdue_forecast(now_ms, forecast, 0.95)
    exact_ms = norm.isf(0.05 * norm.sf(z)) * 80 + 12_000
    assert overdue.most_ms - now_ms == pytest.approx(exact_ms - now_ms, rel=0.05)
    assert overdue.mean_ms == pytest.approx(now_ms + expected_wait_ms(now_ms, 12_000, 80))


def test_interval_of_what_is_overdue_survives_any_time():
    equal, zeros = forecast_of([100.0] * 30), forecast_of([0.0] * 28 + [5.0, 7.0])
    for forecast in (equal, zeros, FORECAST, replace(FORECAST, deviation_ms=1e-300), forecast_of(range(400))):
        for now_ms in (0.0, 101.0, 12_001.0, 1e9, 1e15):
            overdue = overdue_forecast(now_ms, forecast, 0.99)
            assert isfinite(overdue.most_ms) and overdue.least_ms <= overdue.mean_ms <= overdue.most_ms
    assert overdue_forecast(500.0, equal, 0.95) == equal, "of equal delays nothing tells how late one gets"


@pytest.mark.process
def test_scheduler_modules_load_no_numeric_library():
    modules = ("slack", "watermarks", "policies")
    code = (
        f"import sys\nfor name in {modules!r}: __import__('engine.klink.' + name)\n"
        "print(sorted({'numpy', 'scipy', 'numba'} & set(sys.modules)))"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout.strip() == "[]"
