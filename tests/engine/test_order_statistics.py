"""Maximum of normal draws: known values, the simulated mean, and Gumbel's limit beside it."""

from __future__ import annotations

import numpy as np
import pytest

from engine.order_statistics import gumbel_maximum, normal_maximum


def test_maximum_of_two_draws_is_the_known_closed_form():
    mean, deviation = normal_maximum(2)
    assert mean == pytest.approx(1 / np.sqrt(np.pi), abs=1e-10)
    assert deviation == pytest.approx(np.sqrt(1 - 1 / np.pi), abs=1e-10)


def test_maximum_agrees_with_drawn_numbers():
    largest = np.random.default_rng(1).standard_normal((40_000, 20)).max(axis=1)
    mean, deviation = normal_maximum(20)
    assert mean == pytest.approx(largest.mean(), abs=4 * deviation / 200)
    assert deviation == pytest.approx(largest.std(), rel=0.02)


def test_gumbel_limit_is_high_and_has_no_meaning_for_one_draw():
    assert gumbel_maximum(1) is None
    for draws in (4, 20, 40):
        limit = gumbel_maximum(draws)
        assert limit is not None
        assert limit[0] > normal_maximum(draws)[0]
        assert limit[1] > normal_maximum(draws)[1]
