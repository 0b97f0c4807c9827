"""Forecasts of load: bands, backtests, gaps, short histories, the wall clock."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from engine.errors import InfeasibleError
from engine.forecasts.forecast import forecast
from engine.forecasts.history import prepare, wall_clock

HOUR_S = 3600.0


def load(weeks: int, *, growth: float = 0.02, noise: float = 0.05, seed: int = 1, ahead: int = 0) -> np.ndarray:
    """Hours of a source with a day, a weekend and growth; `ahead` more weeks follow with the same seed."""
    n = (weeks + ahead) * 168
    t = np.arange(n)
    day = 1.0 - 0.5 * (0.5 - 0.5 * np.cos(2 * np.pi * (t % 24 - 14) / 24))
    week = np.where((t // 24) % 7 >= 5, 0.7, 1.0)
    rng = np.random.default_rng(seed)
    return np.round(5e5 * day * week * (1 + growth) ** (t / 168) * np.exp(rng.normal(0.0, noise, n)))


def test_seasonal_load_is_forecast_and_its_band_keeps_its_coverage() -> None:
    whole = load(8, ahead=4)
    result = forecast(whole[:1344], bucket_s=HOUR_S, horizon=672)
    future = whole[1344:]
    assert np.mean(np.abs(result.mean - future) / future) < 0.08
    inside = np.mean((result.low <= future) & (future <= result.high))
    assert 0.84 <= inside <= 0.97
    assert "24 and 168" in str(result.model)


def test_the_backtest_reports_errors_and_coverage_against_repeating_the_last_week() -> None:
    tested = forecast(load(8), bucket_s=HOUR_S, horizon=336).backtest
    total = tested.total
    assert total is not None
    assert tested.n_origins >= 4
    assert total.median_ape < total.naive_median_ape
    assert abs(total.coverage - 0.9) < 0.06
    assert [band.ahead for band in tested.bands] == ["up to a day", "a day to a week", "a week to two", "all horizons"]
    assert sum(band.n for band in tested.bands[:-1]) == total.n


def test_the_same_seed_gives_the_same_forecast_and_another_one_other_futures() -> None:
    history = load(4)
    one, two, other = (forecast(history, bucket_s=HOUR_S, horizon=48, seed=seed) for seed in (7, 7, 8))
    assert np.array_equal(one.paths, two.paths)
    assert np.array_equal(one.high, two.high)
    assert not np.array_equal(one.paths, other.paths)


def test_sources_of_equal_length_draw_the_same_days() -> None:
    """Correlated sources stay correlated: a copy of a source has perfectly correlated futures."""
    history = load(4, noise=0.1)
    one, twice = (forecast(history * by, bucket_s=HOUR_S, horizon=48, seed=3) for by in (1.0, 2.0))
    np.testing.assert_allclose(twice.paths, 2 * one.paths, rtol=1e-3)


def test_gaps_are_filled_reported_and_hardly_move_the_forecast() -> None:
    history = load(6, noise=0.02)
    holes = history.copy()
    holes[300:330] = np.nan
    holes[700] = np.nan
    whole, filled = (forecast(one, bucket_s=HOUR_S, horizon=168) for one in (history, holes))
    assert any("31 of 1008 buckets were missing (2 gaps, the longest of 30 h)" in str(note) for note in filled.notes)
    assert np.abs(filled.mean / whole.mean - 1).max() < 0.05


def test_less_than_two_weeks_give_a_simpler_model_that_says_so() -> None:
    result = forecast(load(8)[:240], bucket_s=HOUR_S, horizon=48)
    assert "24 buckets" in str(result.model)
    assert "168" not in str(result.model)
    assert any("no week more than twice" in str(note) for note in result.notes)


def test_less_than_two_days_give_a_level() -> None:
    result = forecast(load(1)[:30], bucket_s=HOUR_S, horizon=12)
    assert str(result.model).startswith("ETS")
    assert any("neither a day nor a week" in str(note) for note in result.notes)
    assert np.isfinite(result.high).all()


def test_noise_without_a_day_has_no_season() -> None:
    history = np.random.default_rng(0).poisson(1000.0, 700).astype(float)
    assert prepare(history, bucket_s=HOUR_S).seasons == ()


@pytest.mark.parametrize(
    ("history", "said"),
    [
        ([5.0] * 8, "8 buckets of 3600 s; allowed: at least 16"),
        ([np.nan] * 20 + [5.0] * 20, "50 % of its 40 buckets are missing"),
        ([0.0] * 40, "holds no event"),
        ([5.0] * 30 + [-1.0], "below 0"),
    ],
)
def test_unusable_history_is_refused_with_the_reason(history: list[float], said: str) -> None:
    with pytest.raises(InfeasibleError) as refused:
        forecast(np.array(history), bucket_s=HOUR_S, horizon=10)
    assert said in refused.value.message
    assert refused.value.faults[0].path == "history"


def test_a_source_with_quiet_hours_stays_above_zero() -> None:
    history = load(4)
    history[np.arange(len(history)) % 24 < 6] = 0.0
    result = forecast(history, bucket_s=HOUR_S, horizon=72)
    assert (result.low >= 0.0).all()
    assert result.mean[np.arange(72) % 24 < 6].max() < 0.02 * result.mean.max()


def test_clock_set_back_keeps_the_peak_at_its_hour() -> None:
    zone = ZoneInfo("Europe/Berlin")
    start_s = datetime(2026, 10, 23, tzinfo=UTC).timestamp()  # clocks go back on the 25th
    hours = np.array([datetime.fromtimestamp(start_s + i * 3600, zone).hour for i in range(120)], dtype=float)
    local, places = wall_clock(hours[:96], start_s, HOUR_S, 24, zone)
    assert len(local) == 95  # one hour came twice
    assert np.array_equal(local, (2 + np.arange(95)) % 24)
    assert np.array_equal(places, np.arange(24))


def test_clock_set_forward_leaves_a_gap() -> None:
    zone = ZoneInfo("Europe/Berlin")
    start_s = datetime(2026, 3, 28, tzinfo=UTC).timestamp()  # clocks go forward on the 29th at 1:00 UTC
    local, _ = wall_clock(np.arange(48.0), start_s, HOUR_S, 4, zone)
    assert np.flatnonzero(np.isnan(local)).tolist() == [25]
    _, places = wall_clock(np.arange(24.0), start_s, HOUR_S, 4, zone)
    assert places.tolist() == [0, 2, 3, 4]
