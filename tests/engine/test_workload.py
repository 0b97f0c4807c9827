"""Workload generators: rates, shapes, seeds, and what they refuse."""

import numpy as np
import pytest

from engine import workload
from engine.workload import WorkloadError, event_times, whole_counts

GRID = {"mean_rate_eps": 50.0, "horizon_s": 2000.0, "slice_s": 0.25}


@pytest.mark.parametrize("name", sorted(workload.GENERATORS))
def test_generators_are_seeded_and_whole(name):
    generate = workload.GENERATORS[name]
    first, again, other = generate(**GRID, seed=3), generate(**GRID, seed=3), generate(**GRID, seed=4)
    assert first.shape == (8000,) and first.dtype == np.float64
    assert np.array_equal(first, again) and not np.array_equal(first, other)
    assert np.array_equal(first, np.round(first)) and first.min() >= 0


def test_poisson_has_its_mean_and_variance():
    counts = workload.poisson(mean_rate_eps=40.0, horizon_s=10_000.0, slice_s=1.0, seed=1)
    assert counts.mean() == pytest.approx(40.0, rel=0.01)
    assert counts.var() == pytest.approx(40.0, rel=0.05)


def test_on_off_with_fixed_periods_shows_both_rates():
    counts = workload.on_off(
        mean_rate_eps=1000.0, horizon_s=4000.0, slice_s=1.0, high_period_s=10.0, fixed_periods=True, seed=2
    )
    high = counts > 500
    assert counts.mean() == pytest.approx(1000.0, rel=0.01)
    assert high.mean() == pytest.approx(0.25, abs=0.005)  # a high period is a third of a low one
    assert counts[high].mean() / counts[~high].mean() == pytest.approx(100.0, rel=0.03)


def test_on_off_keeps_its_long_run_mean_with_random_periods():
    counts = workload.on_off(mean_rate_eps=10.0, horizon_s=400_000.0, slice_s=10.0, seed=5)
    assert counts.sum() / 400_000 == pytest.approx(10.0, rel=0.05)


def test_on_off_of_ratio_one_is_poisson():
    counts = workload.on_off(mean_rate_eps=100.0, horizon_s=5000.0, slice_s=1.0, ratio=1.0, seed=5)
    assert counts.var() == pytest.approx(100.0, rel=0.1)


def test_diurnal_peaks_where_it_should():
    counts = workload.diurnal(
        mean_rate_eps=100.0, horizon_s=86_400.0, slice_s=600.0, swing=0.5, peak_s=6 * 3600.0, noise=False
    )
    assert counts.sum() == pytest.approx(100.0 * 86_400, rel=1e-9)
    assert np.argmax(counts) in (35, 36) and np.argmin(counts) in (107, 108)
    assert counts.max() == pytest.approx(150.0 * 600, rel=1e-3)


def test_second_harmonic_gives_two_peaks():
    counts = workload.diurnal(
        mean_rate_eps=1.0, horizon_s=240.0, slice_s=1.0, swing=0.0, second_swing=0.9, second_peak_s=60.0,
        day_s=240.0, noise=False,
    )  # fmt: skip
    tops = [i for i in range(1, 239) if counts[i] > counts[i - 1] and counts[i] >= counts[i + 1]]
    assert all(any(abs(top - peak) <= 1 for peak in (59.5, 179.5)) for top in tops) and len(tops) >= 2


def test_even_times_start_with_the_slice():
    assert event_times(np.array([4.0, 0.0, 2.0]), 2.0).tolist() == [0.0, 0.5, 1.0, 1.5, 4.0, 5.0]


def test_drawn_times_stay_in_their_slice():
    times = event_times(np.array([30.0, 0.0, 20.0]), 2.0, np.random.default_rng(1))
    assert np.histogram(times, [0, 2, 4, 6])[0].tolist() == [30, 0, 20] and np.all(np.diff(times) >= 0)


def test_fractions_of_events_are_carried_over():
    assert whole_counts(np.full(20, 0.1)).tolist() == ([0] * 9 + [1]) * 2
    assert whole_counts(np.array([1.5, 1.5, 0.25])).tolist() == [1, 2, 0]


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        ({"mean_rate_eps": -1.0}, ["mean_rate_eps"]),
        ({"mean_rate_eps": float("nan"), "slice_s": 0.0}, ["mean_rate_eps", "slice_s"]),
        ({"horizon_s": 1.1}, ["horizon_s"]),
        ({"ratio": 0.5, "duration_ratio": 0.0}, ["ratio", "duration_ratio"]),
        ({"high_period_s": float("inf")}, ["high_period_s"]),
        ({"seed": -1}, ["seed"]),
    ],
)
def test_bad_parameters_are_named_with_value_and_limit(changes, fields):
    with pytest.raises(WorkloadError) as refusal:
        workload.on_off(**{**GRID, **changes})
    assert list(refusal.value.faults) == fields
    for field in fields:
        assert "allowed" in refusal.value.faults[field] and field in str(refusal.value)
        if field != "horizon_s":
            assert repr(changes[field]) in refusal.value.faults[field]


def test_diurnal_refuses_a_negative_rate():
    with pytest.raises(WorkloadError, match=r"second_swing: 0\.6 is refused; allowed: between 0 and 0\.4"):
        workload.diurnal(**GRID, swing=0.6, second_swing=0.6)


@pytest.mark.parametrize("name", sorted(workload.GENERATORS))
def test_counts_beyond_whole_numbers_are_refused(name):
    with pytest.raises(WorkloadError, match="events in a slice; allowed: at most 1e\\+15"):
        workload.GENERATORS[name](mean_rate_eps=1e12, horizon_s=1e6, slice_s=1e5)
