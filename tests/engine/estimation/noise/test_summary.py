"""Summaries of paths and of histograms."""

from __future__ import annotations

import math

import numpy as np
import pytest

from engine.estimation.noise.summary import histogram_quantiles, summarise_paths


def test_equal_paths_leave_the_error_of_flow() -> None:
    summary = summarise_paths(np.full(16, 2.0), flow_s=2.0)
    assert summary.estimate_s == pytest.approx(2.0)
    assert summary.high_s == pytest.approx(2.0 * math.exp(1.75 * 0.02))
    assert summary.low_s == pytest.approx(2.0 * math.exp(-1.75 * 0.02))


def test_what_is_noise_alone_has_the_error_of_the_walk_too() -> None:
    summary = summarise_paths(np.full(16, 2.0), flow_s=0.0)
    assert summary.high_s == pytest.approx(2.0 * math.exp(1.75 * math.hypot(0.02, 0.12)))


def test_skewed_paths_reach_further_up_than_down() -> None:
    summary = summarise_paths(np.exp(np.random.default_rng(1).exponential(0.5, 32)), flow_s=1.0)
    assert math.log(summary.high_s / summary.estimate_s) > 1.2 * math.log(summary.estimate_s / summary.low_s)


def test_no_end_is_below_the_floor() -> None:
    summary = summarise_paths(np.array([0.5, 1.0, 2.0]), floor_s=1.2)
    assert summary.low_s == 1.2
    assert summary.estimate_s == 1.2
    assert summarise_paths(np.zeros(4), floor_s=0.3).high_s == 0.3


def test_quantiles_are_found_inside_bins() -> None:
    bins = np.array([[10.0, 10.0, 0.0], [0.0, 0.0, 4.0], [0.0, 0.0, 0.0]])
    edges = np.array([0.0, 1.0, 2.0, 4.0])
    lower, upper = histogram_quantiles(bins, edges, [0.25, 0.75])
    assert lower.tolist()[:2] == [0.5, 2.5]
    assert upper.tolist()[:2] == [1.5, 3.5]
    assert np.isfinite(upper).all()
