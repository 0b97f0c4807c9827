"""Arrays of queries have the slack each would have alone."""

from __future__ import annotations

import numpy as np
import pytest

from engine.klink import watermarks
from engine.klink.slack import expected_wait_ms, min_slack_ms
from engine.klink.watermarks import SweepForecast
from lab.klink.slack_arrays import expected_waits_ms, moments, slacks_ms


def forecast(mean_ms, deviation_ms):
    return SweepForecast(mean_ms, deviation_ms, mean_ms, mean_ms, 3)


def test_slack_arrays_equal_the_scalar_slack():
    rng = np.random.default_rng(3)
    count, streams, now_ms = 500, 3, 10_000.0
    mean_ms = rng.uniform(8_000, 14_000, (count, streams))
    deviation_ms = rng.choice([0.0, 1.0, 40.0, 500.0], (count, streams))
    pending_ms = np.where(rng.random((count, streams)) < 0.2, rng.uniform(9_000, now_ms, (count, streams)), np.nan)
    cost_ms = rng.uniform(0, 400, count)
    present = rng.random((count, streams)) < 0.8
    mean_ms[~present] = pending_ms[~present] = np.nan
    result = slacks_ms(now_ms, cost_ms, mean_ms, deviation_ms, pending_ms)
    for row in range(count):
        own = [
            (
                forecast(mean_ms[row, j], deviation_ms[row, j]),
                None if np.isnan(pending_ms[row, j]) else pending_ms[row, j],
            )
            for j in range(streams)
            if present[row, j]
        ]
        alone = min_slack_ms(now_ms, cost_ms[row], own)
        assert (np.isnan(result[row]) and alone is None) or result[row] == pytest.approx(alone, rel=1e-12, abs=1e-9)


def test_expected_wait_arrays_equal_the_scalar_wait_at_all_times():
    z = np.concatenate([np.linspace(-60, 60, 2401), [-1e12, -1e3, 1e3, 1e12]])
    result = expected_waits_ms(0.0, -80.0 * z, np.full(z.shape, 80.0))
    alone = [expected_wait_ms(0.0, -80.0 * value, 80.0) for value in z]
    np.testing.assert_allclose(result, alone, rtol=1e-12)


def test_moment_arrays_of_padded_histories_equal_the_scalar_moments():
    rng = np.random.default_rng(4)
    mu, chi = np.full((20, 30), np.nan), np.full((20, 30), np.nan)
    for row in range(1, 20):
        delays = rng.uniform(100, 900, (row, 5))
        mu[row, :row], chi[row, :row] = delays.mean(1), (delays**2).mean(1)
    mean, variance = moments(mu, chi)
    assert np.isnan(mean[0])
    for row in range(1, 20):
        alone = watermarks.moments(list(mu[row, :row]), list(chi[row, :row]))
        assert (mean[row], variance[row]) == pytest.approx(alone, rel=1e-9)
