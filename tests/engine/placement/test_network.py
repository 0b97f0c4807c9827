"""Links and delays, splitting and merging: worked out by hand on small fleets, and against every placement."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from engine.document.deployment import Deployment
from engine.estimation.mace import mace
from engine.placement import network
from engine.placement.goal import goal_of, measure
from engine.placement.items import items_of
from engine.placement.limits import limits_of
from engine.placement.network import NetworkProblem
from engine.placement.proposal import place
from tests.engine.placement.stories import broken, drawn, endless, fleet, goal, least, node, operator, places_of

QUICK: dict[str, Any] = {"budget_s": None, "rounds": 20, "flow": False}


def linked(pairs: list[tuple[str, str]], bandwidth: float | None = None, delay_s: float = 0.0) -> list[dict[str, Any]]:
    return [{"from": a, "to": b, "bandwidth_bytes_s": bandwidth, "delay_s": delay_s} for a, b in pairs]


BOTH = [("n", "m"), ("m", "n")]


def test_longer_queue_is_accepted_to_avoid_a_slow_link() -> None:
    """Apart the two would not queue, but 1,000 bytes over 100 bytes/s take 9 s: together they wait 0.6 s."""
    chain = [operator("p/a", 8.0, node="n", bytes_per_event=100.0), operator("p/b", 8.0, "p/a", node="m")]
    slow = fleet(chain, [node("n"), node("m")], links=linked(BOTH, 100.0))
    report = place(slow, **QUICK).report.to_dict()
    assert report["value_before"] > 9.0
    assert report["value_after"] == pytest.approx(0.6)
    assert len({parts[0]["node"] for parts in report["placement"].values()}) == 1
    assert {row["server"] for row in report["links"]} == {"n->m", "m->n"}
    free = fleet(chain, [node("n"), node("m")])
    assert place(free, **QUICK).report.to_dict()["value_after"] == 0.0


@pytest.mark.parametrize(("delay_s", "nodes"), [(0.5, 2), (0.7, 1)])
def test_link_delay_is_weighed_against_queueing(delay_s: float, nodes: int) -> None:
    """Together the chain waits 0.6 s; apart it waits for the link alone."""
    chain = [operator("p/a", 8.0), operator("p/b", 8.0, "p/a")]
    bursts = [{"id": "s", "arrivals": [10.0, 0.0, 10.0, 0.0]}]
    deployment = fleet(chain, [node("n"), node("m")], links=linked(BOTH, None, delay_s), sources=bursts)
    report = place(deployment, **QUICK).report.to_dict()
    assert report["value_after"] == pytest.approx(min(delay_s, 0.6))
    assert len({parts[0]["node"] for parts in report["placement"].values()}) == nodes


@pytest.mark.parametrize("objective", ["worst", "objectives"])
@pytest.mark.parametrize("seed", range(20))
def test_network_problem_values_a_placement_as_the_estimate_does(seed: int, objective: str) -> None:
    deployment = drawn(seed, links=True)
    items = items_of(deployment, 1, {})
    board = NetworkProblem(items, limits_of(deployment, (), ()), goal_of(deployment, objective))
    draw = np.random.default_rng(seed)
    for _ in range(5):
        at = draw.integers(0, len(items.cores), len(items.load))
        places = items.placement(at)
        measured = measure(items.placed(at), goal_of(deployment, objective))
        assert board.value(at) == pytest.approx(goal(deployment, places, objective))
        assert measured.value == pytest.approx(goal(deployment, places, objective))


def test_excess_drains_with_later_capacities() -> None:
    nodes = [{"id": "n", "capacity_series_cps": [50.0, 0.0, 0.0, 30.0, 90.0, 90.0]}, node("m", 40.0)]
    sources = [{"id": "s", "arrivals": [9.0, 3.0, 0.0, 4.0, 0.0, 0.0]}]
    deployment = fleet([operator("p/a", 10.0), operator("q/b", 4.0)], nodes, sources=sources)
    items = items_of(deployment, 1, {})
    board = NetworkProblem(items, limits_of(deployment, (), ()), goal_of(deployment, "worst"))
    for at in itertools.product((0, 1), repeat=2):
        expected = mace(deployment.with_placement(items.placement(np.array(at)))).worst
        assert board.value(np.array(at)) == pytest.approx(expected)


def test_climb_never_worsens_and_mostly_reaches_the_optimum(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without trying every placement: from what the search of the cores found, climbing on the whole goal."""
    monkeypatch.setattr(network, "_SMALL", 1)
    exact = 0
    for seed in range(30):
        deployment = drawn(seed, links=True, constraints=True)
        best = least(deployment)
        if best is None:
            continue
        report = place(deployment, **QUICK).report.to_dict()
        assert not broken(deployment, places_of(report))
        assert report["value_after"] == pytest.approx(goal(deployment, places_of(report)))
        assert report["value_after"] >= best - 1e-9
        if report["value_before"] is not None:
            start = {op.id: op.replicas for op in deployment.operators}
            now = endless(deployment, start), report["value_before"] * (1 + 1e-12)
            assert (endless(deployment, places_of(report)), report["value_after"]) <= now
        exact += report["value_after"] <= best + 1e-9
    assert exact >= 20


class TestSplitting:
    def large(self, **more: Any) -> Deployment:
        """One operator needs 240 of 100 cycles in a burst; two nodes have nothing else to do."""
        op = operator("p/a", 24.0, node="n", **more)
        return fleet(
            [op], [node("n"), node("m"), node("k")], **({"constraints": {"may_split": ["p/a"]}} if more else {})
        )

    def test_stateless_bottleneck_operator_is_split(self) -> None:
        report = place(self.large(stateless=True), **QUICK).report.to_dict()
        assert report["value_before"] == pytest.approx(1.8)  # 140 left, 40 left, 180 left
        parts = report["placement"]["p/a"]
        assert [part["fraction"] for part in parts] == pytest.approx([1 / 3] * 3)
        assert report["value_after"] == 0.0
        assert [move["kind"] for move in report["moves"]] == ["split"]
        assert not broken(self.large(stateless=True), places_of(report))

    def test_split_that_is_not_allowed_is_only_suggested(self) -> None:
        deployment = fleet([operator("p/a", 24.0, node="n", stateless=True)], [node("n"), node("m"), node("k")])
        report = place(deployment, **QUICK).report.to_dict()
        assert report["moves"] == []
        (alone,) = report["alone"]
        assert alone["operator"] == "p/a"
        assert alone["own_s"] == pytest.approx(1.8)
        assert alone["load_share"] == pytest.approx(1.6)
        assert alone["parts"] == 3
        assert alone["split_value"] == 0.0
        assert any("it is not among those that may be split" in words for words in report["messages"])

    def test_stateful_operator_is_not_split(self) -> None:
        deployment = fleet([operator("p/a", 24.0, node="n", stateless=False)], [node("n"), node("m")])
        report = place(deployment, **QUICK).report.to_dict()
        assert report["alone"][0]["split_value"] is None
        assert "It has state that is not by key, so it cannot be split." in report["messages"][-1]

    def test_larger_core_gets_the_larger_share_of_a_split(self) -> None:
        """Parts that meet on one core are merged: shares follow the sizes of the cores."""
        deployment = fleet(
            [operator("p/a", 24.0, node="n", stateless=True)],
            [node("n", 60.0), node("m", 180.0)],
            constraints={"may_split": ["p/a"]},
        )
        report = place(deployment, **QUICK).report.to_dict()
        shares = {part["node"]: part["fraction"] for part in report["placement"]["p/a"]}
        assert shares == {"n": pytest.approx(0.25), "m": pytest.approx(0.75)}
        assert report["value_after"] == 0.0

    def test_replicas_on_one_core_are_merged(self) -> None:
        split = operator("p/a", 6.0, stateless=True) | {
            "split": [{"node": "n", "fraction": 0.5}, {"node": "m", "fraction": 0.5}]
        }
        busy = operator("q/b", 9.0, node="m")
        report = place(fleet([split, busy], [node("n"), node("m")]), **QUICK).report.to_dict()
        assert report["placement"]["p/a"] == [{"node": "n", "core": 0, "fraction": 1.0}]
        assert [move["kind"] for move in report["moves"]] == ["merge"]

    @pytest.mark.parametrize("most", [0, 1, 2])
    def test_splits_count_as_moves(self, most: int) -> None:
        deployment = fleet(
            [operator("p/a", 24.0, node="n", stateless=True)],
            [node("n"), node("m"), node("k")],
            constraints={"may_split": ["p/a"], "max_moves": most},
        )
        report = place(deployment, **QUICK).report.to_dict()
        assert not broken(deployment, places_of(report))
        assert len(report["placement"]["p/a"]) == 1 + most
