"""Margins of waits: phases, samples of events, batches whose work is random."""

from __future__ import annotations

import numpy as np
import pytest

from engine.estimation.noise.summary import RealisedStatistic
from engine.estimation.waits.summary import BatchVariation, PhaseWaits, WaitMargin, WaitMargins
from tests.engine.estimation.waits.systems import TUMBLING, deployment, operator, waits_of

EVENLY = np.linspace(0.0, 10.0, 512)


def alike(events: float) -> PhaseWaits:
    return PhaseWaits(events, np.tile(EVENLY, (4, 1)), np.full(4, 10.0))


def test_mean_of_events_that_fall_anywhere_has_their_standard_error() -> None:
    margin = WaitMargins((alike(10_000.0),)).of_statistic("mean", EVENLY)
    drawn = np.random.default_rng(1).uniform(0.0, 10.0, (2000, 10_000)).mean(axis=1)
    low, high = np.quantile(drawn, [0.05, 0.95]) - 5.0
    assert (-margin.below_s, margin.above_s) == pytest.approx((low, high), rel=0.05)


def test_quantile_of_events_that_fall_anywhere_has_that_of_order_statistics() -> None:
    margin = WaitMargins((alike(1_000.0),)).of_statistic("q0.9", EVENLY)
    drawn = np.quantile(np.random.default_rng(1).uniform(0.0, 10.0, (4000, 1000)), 0.9, axis=1)
    low, high = np.quantile(drawn, [0.05, 0.95]) - 9.0
    assert (-margin.below_s, margin.above_s) == pytest.approx((low, high), rel=0.1)


def test_longest_of_random_batches_is_longer_than_the_usual_one() -> None:
    margin = WaitMargins((alike(1e9),), BatchVariation(0.5, 0.0, 24.0, 24.0)).of_statistic("worst", EVENLY)
    drawn = np.random.default_rng(1).normal(0.0, 0.5, (20_000, 24)).max(axis=1)
    low, middle, high = np.quantile(drawn, [0.05, 0.5, 0.95])
    assert margin == pytest.approx((middle, middle - low, high - middle), rel=0.03)


def test_error_of_a_sample_is_the_same_for_all_batches() -> None:
    def mean(deviation_s: float, error_s: float) -> float:
        batch = BatchVariation(deviation_s, error_s, 100.0, 100.0)
        return WaitMargins((alike(1e12),), batch).of_statistic("mean", EVENLY).above_s

    assert mean(1.0, 0.0) == pytest.approx(0.1645, rel=1e-3)
    assert mean(0.0, 1.0) == pytest.approx(1.645, rel=1e-3)


def test_window_longer_than_the_horizon_may_hardly_hold_its_events() -> None:
    window = {**TUMBLING, "size": 600.0}
    waits = waits_of(deployment([operator("w", "s", window=window)], s=[100.0] * 60))
    assert waits.longest_s == pytest.approx(600.0, abs=20.0)
    figures = waits.margin("worst").widen(RealisedStatistic(waits.longest_s, waits.longest_s, waits.longest_s))
    assert figures.low_s < 100.0 and figures.high_s == figures.estimate_s
    assert waits.margin("mean").below_s > 200.0 and waits.margin("mean").above_s > 200.0


def test_phase_of_windows_is_no_matter_over_whole_ones() -> None:
    whole = waits_of(deployment([operator("w", "s", window=TUMBLING)], s=[1e6] * 60)).margin("mean")
    broken = waits_of(deployment([operator("w", "s", window=TUMBLING)], s=[1e6] * 65)).margin("mean")
    assert max(whole.below_s, whole.above_s) < 0.02
    assert min(broken.below_s, broken.above_s) > 0.05


def test_query_that_waits_for_nothing_has_no_margin() -> None:
    assert WaitMargins().of_statistic("worst", np.zeros(1)) == WaitMargin(0.0, 0.0, 0.0)
