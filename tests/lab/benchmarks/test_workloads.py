"""Times of drawn events go by the same pattern as their counts."""

from __future__ import annotations

import numpy as np

from engine.workload import on_off
from lab.benchmarks.workloads import on_off_times


def test_on_off_times_and_counts_come_from_one_pattern() -> None:
    times = on_off_times(mean_rate_eps=500.0, horizon_s=300.0, seed=8)
    assert np.all(np.diff(times) >= 0) and times[0] >= 0 and times[-1] < 300.0
    counts = on_off(mean_rate_eps=500.0, horizon_s=300.0, seed=8, slice_s=10.0)
    binned = np.histogram(times, np.arange(31) * 10.0)[0]
    assert np.corrcoef(counts, binned)[0, 1] > 0.99
