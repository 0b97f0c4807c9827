"""An estimate held against simulations: statistics, work of operators, horizons that are cut."""

from __future__ import annotations

from typing import Any

import pytest

from engine.document.deployment import Deployment
from engine.simulation.comparison import compare_with_simulations


def deployment(statistic: str = "worst") -> Deployment:
    """A filter before a sink on one node, at a load of 60 %."""
    return Deployment.parse(
        {
            "subinterval_s": 0.25,
            "sources": [{"id": "clicks", "arrivals": [25.0] * 240}],
            "nodes": [{"id": "n", "capacity_cps": 1000.0}],
            "operators": [
                {"id": "q/keep", "query": "q", "node": "n", "inputs": [_input("clicks", 0.5, 4.0)]},
                {"id": "q/write", "query": "q", "node": "n", "inputs": [_input("q/keep", 1.0, 4.0)]},
            ],
            "objectives": [{"query": "q", "statistic": statistic, "bound_s": 2.0}],
        }
    )


def _input(source: str, selectivity: float, cycles: float) -> dict[str, Any]:
    return {"from": source, "selectivity": selectivity, "cycles_per_event": cycles, "cost_cv2": 1.0}


def test_every_seed_has_a_run_with_the_work_of_every_operator() -> None:
    found = compare_with_simulations(deployment(), [1, 2, 3], mace_every=4)
    assert [run.seed for run in found.runs] == [1, 2, 3] and len({run.observed_s for run in found.runs}) == 3
    assert (found.is_cut, found.horizon_s, found.cost_cv) == (False, 60.0, 1.0)
    for run in found.runs:
        assert run.work == {"q/keep": pytest.approx(400.0, rel=0.1), "q/write": pytest.approx(200.0, rel=0.15)}
        assert 0.2 * found.estimate.queries["q"].estimate_s < run.observed_s < 5.0


def test_same_seed_gives_the_same_run() -> None:
    assert compare_with_simulations(deployment(), [7]).runs == compare_with_simulations(deployment(), [7]).runs


def test_statistic_is_that_of_the_objective() -> None:
    worst, high, mean = (
        compare_with_simulations(deployment(name), [1]).runs[0].observed_s for name in ("worst", "q0.99", "mean")
    )
    assert mean < high < worst


def test_horizon_with_too_many_events_is_cut_to_its_beginning() -> None:
    found = compare_with_simulations(deployment(), [1, 2], mace_every=4, max_events=12_000)
    assert found.is_cut and found.horizon_s < 30.0 and found.horizon_s % 1.0 == 0.0
    assert found.estimate.coarse.subintervals == found.horizon_s
    assert len(found.runs) == 2


@pytest.mark.parametrize(("size_s", "left_out"), [(30.0, []), (31.0, ["q"])])
def test_query_with_a_window_that_does_not_close_twice_is_left_out(size_s: float, left_out: list[str]) -> None:
    document = deployment().to_document()
    document["operators"][1]["window"] = {"policy": "time", "type": "tumbling", "size": size_s}
    found = compare_with_simulations(Deployment.parse(document), [1])
    assert found.left_out == left_out and len(found.runs) == 1 - len(left_out)


def test_query_without_results_has_no_run() -> None:
    silent = deployment().with_arrivals({"clicks": [0.0] * 240})
    assert compare_with_simulations(silent, [1]).runs == []
