"""Costs that fall with the load: told by two loads, and an interval of what is possible under one."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from engine.connectors.marginal_costs import LoadPoint, count_loads, with_marginal_cost
from engine.connectors.picture import VertexSample
from engine.document.elements import Batch

FIXED, COST_S = 0.04, 0.6e-3


def points(*rates: float, count: int = 12, seed: int = 1, error: float = 0.02) -> Iterator[LoadPoint]:
    """Stretches of five seconds of a thread that works for 4 % of the time however many come."""
    chance = random.Random(seed)
    for rate in rates:
        for _ in range(count):
            came = rate * chance.uniform(0.9, 1.1)
            yield LoadPoint(5.0, came, (FIXED + COST_S * came) * chance.uniform(1.0 - error, 1.0 + error), 5.0)


def sample(rate: float) -> VertexSample:
    """Statistics at a mean rate."""
    cost_s = COST_S + FIXED / rate
    batches = (Batch(100.0, 100.0, 100.0 * cost_s * 1e9),) * 2
    return VertexSample("v", 9e3, cost_s, 1.0, batches, 60.0, busy_share=rate * cost_s)


@pytest.mark.parametrize("seed", range(5))
def test_two_loads_tell_what_one_more_event_costs(seed: int) -> None:
    found = with_marginal_cost(sample(300.0), points(150.0, 450.0, seed=seed))
    marginal = found.marginal
    assert marginal is not None and marginal.is_measured and found.cost_s is not None
    assert marginal.share * found.cost_s == pytest.approx(COST_S, rel=0.05)
    assert marginal.low * found.cost_s <= COST_S <= marginal.high * found.cost_s * 1.03


def test_cost_is_that_of_the_present_rate() -> None:
    found = with_marginal_cost(sample(300.0), points(150.0, 450.0), rate_now=150.0)
    assert found.cost_s is not None and found.cost_s == pytest.approx(COST_S + FIXED / 150.0, rel=0.05)
    assert found.batches[0].cycles == pytest.approx(100.0 * found.cost_s * 1e9)


def test_one_load_leaves_a_fall_possible_and_measures_none() -> None:
    found = with_marginal_cost(sample(150.0), points(150.0))
    marginal = found.marginal
    assert found.cost_s == sample(150.0).cost_s and marginal is not None and not marginal.is_measured
    assert (marginal.low, marginal.high) == (
        pytest.approx(1.0 - 0.05 / 0.13),
        1.0,
    ) and marginal.low < marginal.share < 1.0


def test_thread_that_is_busy_has_little_left_to_fall() -> None:
    half, full = (with_marginal_cost(sample(rate), points(rate)).marginal for rate in (800.0, 1600.0))
    assert half is not None and half.low > 0.9 and full is None


def test_loads_whose_work_tells_nothing_count_as_one() -> None:
    found = with_marginal_cost(sample(300.0), points(150.0, 450.0, error=0.95))
    assert found.marginal is not None and not found.marginal.is_measured


def test_work_that_grows_with_the_rate_alone_does_not_fall() -> None:
    rows = [LoadPoint(10.0, rate, rate * 1e-3, 10.0) for rate in (100.0, 300.0) for _ in range(6)]
    marginal = with_marginal_cost(sample(200.0), rows).marginal
    assert marginal is not None and marginal.share == pytest.approx(1.0)


def test_odd_stretch_is_no_load_of_its_own() -> None:
    assert count_loads([100.0] * 9 + [400.0]) == 1
    assert count_loads([100.0] * 3 + [200.0] * 3 + [500.0] * 3) == 3
