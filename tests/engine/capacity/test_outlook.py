"""Time to saturation: the first bucket of a forecast in which a server of a query is full."""

from __future__ import annotations

import numpy as np

from engine.capacity.outlook import saturation_forecasts
from tests.engine.capacity.test_saturation import measured, steady
from tests.engine.samples import entry


def test_first_full_bucket_is_the_time_to_saturation() -> None:
    # 20 events/s now, 50 sustained: full at 2.5 times the rate
    mean = np.linspace(1.0, 4.0, 301)[:, None]
    forecasts = saturation_forecasts(steady(), mean, 1.25 * mean, 0.8 * mean, starts_s=1000.0, bucket_s=60.0)
    found = forecasts.queries["q"]
    assert (found.earliest_at_s, found.at_s, found.latest_at_s) == (100 * 60.0, 150 * 60.0, 213 * 60.0)
    assert found.server == "B" and forecasts.cluster == found
    assert (found.starts_at_s, found.horizon_s) == (1000.0, 301 * 60.0)


def test_forecast_that_fills_no_server_has_no_time() -> None:
    flat = np.ones((100, 1))
    forecasts = saturation_forecasts(
        steady(), flat, 2.0 * flat, flat, starts_s=0.0, bucket_s=60.0, unforecast=("s", "t")
    )
    found = forecasts.queries["q"]
    assert (found.at_s, found.earliest_at_s, found.server, found.unforecast) == (None, None, None, ("s",))


def test_time_to_saturation_of_a_query_with_an_unknown_cost_is_not_told() -> None:
    unknown = measured("f", "A", {"from": "s", "selectivity": 0.5}) | {"evidence": {"kind": "unknown", "events": 5000}}
    running = steady(operators=[unknown, measured("g", "B", entry("f", 1.0, 4.0))])
    flat = np.ones((100, 1))
    found = saturation_forecasts(running, flat, flat, flat, starts_s=0.0, bucket_s=60.0)
    assert (found.queries, found.cluster) == ({}, None)
