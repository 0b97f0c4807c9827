"""Time to saturation: the first bucket of a forecast in which a server of a query is full."""

from __future__ import annotations

import numpy as np

from engine.capacity.outlook import saturation_forecasts
from tests.engine.capacity.test_saturation import steady


def test_first_full_bucket_is_the_time_to_saturation() -> None:
    # 20 events/s now, 50 sustained: full at 2.5 times the rate
    mean = np.linspace(1.0, 4.0, 301)[:, None]
    found = saturation_forecasts(steady(), mean, 1.25 * mean, starts_s=1000.0, bucket_s=60.0)["q"]
    assert (found.at_s, found.earliest_at_s, found.server) == (150 * 60.0, 100 * 60.0, "B")
    assert (found.starts_at_s, found.horizon_s) == (1000.0, 301 * 60.0)


def test_forecast_that_fills_no_server_has_no_time() -> None:
    flat = np.ones((100, 1))
    found = saturation_forecasts(steady(), flat, 2.0 * flat, starts_s=0.0, bucket_s=60.0, unforecast=("s", "t"))["q"]
    assert (found.at_s, found.earliest_at_s, found.server, found.unforecast) == (None, None, None, ("s",))
