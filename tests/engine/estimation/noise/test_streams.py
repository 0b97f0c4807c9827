"""Draws that stand for a distribution with few numbers."""

from __future__ import annotations

import numpy as np
import pytest

from engine.estimation.noise.streams import SAMPLE, named_rng, spread_draws


def test_spread_draws_have_the_quantiles_of_all() -> None:
    rng = named_rng(1, "any")
    values = rng.standard_normal(SAMPLE)
    few = spread_draws(values, 32, rng)
    assert set(few) <= set(values)
    assert (few != np.sort(few)).any()
    assert np.quantile(few, [0.1, 0.5, 0.9]) == pytest.approx(np.quantile(values, [0.1, 0.5, 0.9]), abs=0.15)


def test_weights_make_draws_as_much_more_likely() -> None:
    rng = named_rng(1, "any")
    values = rng.random(SAMPLE)
    few = spread_draws(values, 64, rng, weights=np.where(values < 0.25, 3.0, 1.0))
    assert (few < 0.25).mean() == pytest.approx(0.5, abs=0.05)
