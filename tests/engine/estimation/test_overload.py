"""Overload that never ends, and bursts that do, within horizons that end too soon."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.document.deployment import Deployment
from engine.estimation.estimate import estimate
from engine.estimation.mace import mace
from engine.estimation.overload import lasting_growth, lasting_overloads, still_growing
from tests.engine.samples import entry, operator


def one_node(arrivals: list[float], statistic: str = "worst", bound_s: float = 60.0, **node: Any) -> Deployment:
    return Deployment.parse(
        {
            "subinterval_s": 1,
            "sources": [{"id": "s", "arrivals": arrivals}],
            "nodes": [{"id": "n", "capacity_cps": 100} | node],
            "operators": [operator("o", "n", entry("s", 1.0, 1.0), query="q")],
            "objectives": [{"query": "q", "statistic": statistic, "bound_s": bound_s}],
        }
    )


def grows(arrivals: list[float]) -> bool:
    return bool(lasting_overloads(mace(one_node(arrivals))))


@pytest.mark.parametrize(
    ("statistic", "after_s"),
    [("mean", 240.0), ("worst", 120.0), ("q0.9", 133.0), ("q0.5", 240.0)],  # 0.5 s later every second
)
def test_overload_of_a_short_horizon_is_breached_and_says_after_how_long(statistic: str, after_s: float) -> None:
    report = estimate(one_node([150.0] * 100, statistic)).queries["q"]
    assert report.estimate_s < 60.0
    assert (report.state, report.headroom_s) == ("breached", None)
    assert report.standing.kind == "never_catches_up"
    assert report.standing.growth == pytest.approx(0.5)
    assert report.standing.load == pytest.approx(1.5)
    assert report.standing.breaks_after_s == pytest.approx(after_s, rel=0.02)
    assert "never catches up: n gets 1.50 times its capacity" in report.standing.sentence


@pytest.mark.parametrize("length", [3, 10, 100, 1000])
def test_answer_does_not_depend_on_the_length_of_the_horizon(length: int) -> None:
    assert estimate(one_node([150.0] * length)).queries["q"].state == "breached"
    assert estimate(one_node([90.0] * length), intervals=False).queries["q"].state == "holds"


@pytest.mark.parametrize(
    "arrivals",
    [
        [101.0] * 200,
        [20.0] * 100 + [150.0] * 100,  # a step
        np.linspace(0.0, 200.0, 200).tolist(),  # a trend
        [300.0, 0.0] * 100,  # on and off
        [300.0] * 10 + [0.0] * 5 + [300.0] * 5 + [0.0] * 2 + [200.0] * 80,
    ],
)
def test_load_above_capacity_in_the_long_run_never_catches_up(arrivals: list[float]) -> None:
    assert grows(arrivals)


@pytest.mark.parametrize(
    "arrivals",
    [
        [20.0] * 280 + [300.0] * 20,  # a burst near the end
        [20.0] * 270 + [150.0] * 30,
        [20.0] * 100 + [300.0] * 20 + [20.0] * 180,
        [900.0] * 60 + [20.0] * 240,  # more than the horizon takes, but it falls
        [90.0, 110.0] * 100,
        [100.0] * 200,
        [0.0] * 50,
    ],
)
def test_burst_that_the_long_run_takes_is_no_lasting_overload(arrivals: list[float]) -> None:
    assert not grows(arrivals)


def test_burst_at_the_end_still_grows_there() -> None:
    assert still_growing(mace(one_node([20.0] * 280 + [300.0] * 20))).tolist() == [0]
    assert not still_growing(mace(one_node([20.0] * 100 + [300.0] * 20 + [20.0] * 180))).size


def test_what_a_change_left_empty_does_not_count() -> None:
    result = mace(one_node([0.0] * 280 + [300.0] * 20))
    assert not lasting_overloads(result)
    assert lasting_overloads(result, begin=280)[0].growth == pytest.approx(2.0)


def test_growth_of_more_load_is_never_less() -> None:
    growths = []
    for rate in (90.0, 101.0, 120.0, 150.0, 400.0):
        load = np.full((1, 60), rate)
        excess = np.maximum.accumulate(np.cumsum(load - 100.0, axis=1).clip(min=0.0), axis=1)
        growths.append(float(lasting_growth(load, np.array([[100.0]]), excess)[0]))
    assert growths == sorted(growths)
    assert growths[0] == 0.0


def test_capacity_that_falls_away_counts_as_overload() -> None:
    series = {"capacity_series_cps": [100.0] * 50 + [50.0] * 50, "capacity_cps": None}
    document = one_node([80.0] * 100).to_document()
    document["nodes"][0] = {"id": "n", "capacity_series_cps": series["capacity_series_cps"]}
    assert estimate(Deployment.parse(document)).queries["q"].standing.is_endless
