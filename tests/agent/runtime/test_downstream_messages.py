"""Messages between agent and relay are checked strictly, and wrong ones harm nothing."""

from __future__ import annotations

import math
from typing import Any

import pytest

from agent.runtime.downstream import DELAY, FORWARDED, Delay, cost_notes, read_costs, read_delays

FULL = Delay(period_s=5.0, epochs=40, mean_s=0.5, variance_s2=0.04)
PERIOD_ALONE = Delay(period_s=5.0, epochs=2)


def test_delays_are_read_as_they_were_sent() -> None:
    says = {"probes": FULL, "acks": PERIOD_ALONE}
    assert read_delays({DELAY: {stream: delay.note() for stream, delay in says.items()}}) == (says, 0)
    assert read_delays({"watermarks": {"0": 1}}) == ({}, 0), "an agent that tells nothing"
    assert PERIOD_ALONE.note() == {"period_s": 5.0, "epochs": 2}


@pytest.mark.parametrize(
    "wrong",
    [
        {"period_s": 0.0},
        {"period_s": -1.0},
        {"period_s": None},
        {"period_s": "5"},
        {"period_s": True},
        {"epochs": -1},
        {"epochs": 1.5},
        {"epochs": None},
        {"mean_s": -0.1},
        {"mean_s": math.nan},
        {"mean_s": 1e10},
        {"mean_s": None},
        {"variance_s2": math.inf},
        {"variance_s2": -1e-9},
        {"variance_s2": None},
    ],
)
def test_impossible_delay_is_left_out_and_counted(wrong: dict[str, Any]) -> None:
    says = {"probes": FULL.note(), "acks": FULL.note() | wrong}
    assert read_delays({DELAY: says}) == ({"probes": FULL}, 1)


@pytest.mark.parametrize("wrong", [[], "x", 7, {str(i): FULL.note() for i in range(17)}])
def test_delays_of_another_shape_count_as_one(wrong: Any) -> None:
    assert read_delays({DELAY: wrong}) == ({}, 1)
    assert read_delays({DELAY: {"probes": wrong}}) == ({}, 1)


def test_costs_are_read_as_they_were_sent() -> None:
    says = cost_notes([("eu/a", "p1", "pairs", 1e-6), ("eu/b", "p2", "sums", 0.0)])
    assert says[0] == {"query": "eu/a", "plan": "p1", "cost:pairs": 1e-6}
    assert read_costs({FORWARDED: says}) == ({("eu/a", "p1"): 1e-6, ("eu/b", "p2"): 0.0}, 0)
    both = {"query": "eu/a", "plan": "p1", "cost:pairs": 1e-6, "cost:top": 3e-6}
    assert read_costs({FORWARDED: [both]}) == ({("eu/a", "p1"): 4e-6}, 0), "two operators further up"
    assert read_costs({"accepted_seq": 1}) == ({}, 0), "no costs are told"


@pytest.mark.parametrize(
    "wrong",
    [
        7,
        None,
        {"query": "eu/a", "plan": "p1"},
        {"query": "eu/a", "plan": "p1", "cost:pairs": -1e-6},
        {"query": "eu/a", "plan": "p1", "cost:pairs": "1"},
        {"query": "eu/a", "plan": "p1", "cost:pairs": math.nan},
        {"query": "eu/a", "plan": "p1", "cost:pairs": 1e-6, "cost:top": None},
        {"query": 3, "plan": "p1", "cost:pairs": 1e-6},
        {"plan": "p1", "cost:pairs": 1e-6},
    ],
)
def test_impossible_cost_is_left_out_and_counted(wrong: Any) -> None:
    right = {"query": "eu/b", "plan": "p2", "cost:sums": 2e-6}
    assert read_costs({FORWARDED: [wrong, right]}) == ({("eu/b", "p2"): 2e-6}, 1)


@pytest.mark.parametrize("wrong", [{}, "x", 7, [{}] * 1001])
def test_costs_of_another_shape_count_as_one(wrong: Any) -> None:
    assert read_costs({FORWARDED: wrong}) == ({}, 1)


def test_a_forecast_is_from_the_deadline_on() -> None:
    found = FULL.forecast(10_000_000)
    assert (found.mean_ms, found.deviation_ms, found.epochs) == (10_500.0, pytest.approx(200.0), 40)
    assert (PERIOD_ALONE.forecast(10_000_000).mean_ms, PERIOD_ALONE.forecast(10_000_000).deviation_ms) == (10_000.0, 0)
