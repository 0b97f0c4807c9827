"""Placements that never catch up are not proposed where another one does, whatever the horizon shows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.document.deployment import Deployment
from engine.placement import network
from engine.placement.extension import extend_placement
from engine.placement.problem import PlacementProblem, value_of
from engine.placement.proposal import place
from tests.engine.placement.stories import drawn, endless, fleet, node, operator, places_of

QUICK: dict[str, Any] = {"budget_s": None, "rounds": 20, "flow": False}
SUBINTERVALS = 100
SOURCES = [
    {"id": "burst", "arrivals": [60.0] * 10 + [0.0] * 90},
    {"id": "steady", "arrivals": [7.0] * SUBINTERVALS},
]


def three(at: dict[str, str] | None = None, **more: Any) -> Deployment:
    """A burst that waits 50 s alone, and two steady loads that wait 40 s together, for they get 1.4 of a node."""
    places = at or {}
    operators = [
        operator(name, 10.0, source, **({"node": places[name]} if name in places else {}))
        for name, source in (("p/burst", "burst"), ("q/one", "steady"), ("r/two", "steady"))
    ]
    return fleet(operators, [node("n"), node("m")], **({"sources": SOURCES} | more))


@pytest.mark.parametrize("small", [True, False])
def test_placement_that_catches_up_is_proposed_though_its_worst_case_is_higher(
    small: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not small:
        monkeypatch.setattr(network, "_SMALL", 1)
    report = place(three(), **QUICK).report.to_dict()
    assert endless(three(), places_of(report)) == 0
    assert report["value_after"] == pytest.approx(57.0)
    assert report["trace"][-1][1] == pytest.approx(57.0)


def test_move_that_ends_lasting_overload_is_proposed_and_said() -> None:
    now = three({"p/burst": "n", "q/one": "m", "r/two": "m"})
    report = place(now, **QUICK).report.to_dict()
    assert endless(now, places_of(report)) == 0 and len(report["moves"]) == 1
    assert (report["value_before"], report["value_after"]) == (pytest.approx(50.0), pytest.approx(57.0))
    assert "Where everything is now, m never catches up; as proposed, all does." in report["messages"]


def test_placement_that_catches_up_is_kept_where_another_would_only_seem_faster() -> None:
    now = three({"p/burst": "n", "q/one": "n", "r/two": "m"})
    report = place(now, **QUICK, tolerance=0.2).report.to_dict()
    assert endless(now, places_of(report)) == 0 and report["moves"] == []


def test_overload_that_no_placement_ends_is_said() -> None:
    steady = [{"id": "burst", "arrivals": [15.0] * SUBINTERVALS}, SOURCES[1]]
    report = place(three(sources=steady), **QUICK).report.to_dict()
    assert "No placement was found that catches up" in " ".join(report["messages"])
    assert "times its capacity" in report["messages"][0]


def test_query_that_joins_is_placed_where_it_catches_up() -> None:
    """On the node of the steady load it would seem to wait less than behind the burst."""
    now = three({"p/burst": "n", "q/one": "m"})
    extension = extend_placement(now)
    assert extension.placement["r/two"][0].node == "n"
    assert endless(now, extension.placement) == 0


@pytest.mark.parametrize("links", [False, True])
def test_no_placement_is_proposed_that_lasts_over_capacity_while_the_present_one_does_not(links: bool) -> None:
    looked_at = 0
    for seed in range(40):
        deployment = drawn(seed, links=links)
        before = endless(deployment, {op.id: op.replicas for op in deployment.operators})
        after = endless(deployment, places_of(place(deployment, **QUICK).report.to_dict()))
        looked_at += not before
        assert after <= before, seed
    assert looked_at > 5


def test_held_on_problem_costs_more_for_what_lasts_than_for_any_burst() -> None:
    load = np.array([[*[60.0] * 10, *[0.0] * 90], [7.0] * 100, [7.0] * 100])
    problem = PlacementProblem(load, np.full((2, 1), 10.0), np.array([0, 1]), np.ones((3, 2), dtype=bool), width_s=1.0)
    apart, together = np.array([0, 0, 1]), np.array([0, 1, 1])
    assert value_of(problem, together) < value_of(problem, apart)
    assert value_of(problem.held_on(), together) > 1e5 > value_of(problem.held_on(), apart)
    assert problem.may_catch_up()
    assert not PlacementProblem(load * 2, problem.budget, problem.core_node, problem.allowed).may_catch_up()
