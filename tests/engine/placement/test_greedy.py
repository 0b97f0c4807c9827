"""Greedy placement: where operators go, what holds them off, and that the answer is always the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.document.deployment import Deployment
from engine.errors import InfeasibleError
from engine.estimation.mace import mace
from engine.placement.greedy import place
from engine.placement.problem import loaded_peaks


def operator(name: str, cost: float, source: str = "s", **more: Any) -> dict[str, Any]:
    return {"id": name, "inputs": [{"from": source, "selectivity": 1.0, "cycles_per_event": cost}], **more}


def fleet(operators: list[dict[str, Any]], nodes: list[dict[str, Any]], **more: Any) -> Deployment:
    document = {
        "subinterval_s": 1.0,
        "sources": [{"id": "s", "arrivals": [10.0, 0.0, 10.0]}, {"id": "t", "arrivals": [0.0, 10.0, 0.0]}],
        "nodes": nodes,
        "operators": operators,
    }
    return Deployment.parse(document | more, placed=False)


def node(name: str, capacity: float = 100.0, cores: int = 1) -> dict[str, Any]:
    return {"id": name, "capacity_cps": capacity, "cores": cores}


def homes(deployment: Deployment, **options: Any) -> dict[str, str]:
    return {name: parts[0].node for name, parts in place(deployment, **options).items()}


class TestPlace:
    def test_placed_deployment_needs_no_placement(self) -> None:
        assert place(fleet([operator("a", 1.0, node="n")], [node("n")])) == {}

    def test_largest_operator_goes_first_to_the_largest_node(self) -> None:
        deployment = fleet([operator("small", 2.0), operator("large", 15.0)], [node("n"), node("m", 200.0)])
        # large: excess 50 of 100 on n, none on m. small: 20/100 on n against 170/200 on m.
        assert homes(deployment) == {"large": "m", "small": "n"}

    def test_operators_with_peaks_at_different_times_share_a_node(self) -> None:
        deployment = fleet(
            [operator("a", 10.0), operator("b", 10.0, "s"), operator("c", 9.0, "t")], [node("n"), node("m", 99.0)]
        )
        # a fills n whenever s arrives, b overfills m a little; c works only when both idle, so no excess comes of it.
        result = homes(deployment)
        assert result["a"] == "n"
        assert result["b"] == "m"
        assert result["c"] == "n"

    def test_cores_of_a_node_are_filled_separately(self) -> None:
        deployment = fleet([operator("a", 10.0), operator("b", 9.0)], [node("n", cores=2)])
        assert [parts[0].core for parts in place(deployment).values()] == [0, 1]

    def test_listing_order_breaks_ties(self) -> None:
        assert homes(fleet([operator("a", 1.0)], [node("n"), node("m")])) == {"a": "n"}

    def test_node_of_the_same_query_breaks_ties(self) -> None:
        operators = [
            operator("other", 1.0, node="n", query="p"),
            operator("mine", 1.0, node="m", query="q"),
            operator("new", 1.0, query="q"),
        ]
        assert homes(fleet(operators, [node("n"), node("m")])) == {"new": "m"}

    def test_delay_keeps_a_query_together(self) -> None:
        operators = [operator("a", 1.0, node="n", query="q"), operator("b", 1.0, "a", query="q")]
        links = [{"from": "n", "to": "m", "delay_s": 0.5}]
        assert homes(fleet(operators, [node("n"), node("m")])) == {"b": "m"}
        assert homes(fleet(operators, [node("n"), node("m")], links=links)) == {"b": "n"}

    def test_a_narrow_link_keeps_a_query_together(self) -> None:
        operators = [operator("a", 1.0, node="n", bytes_per_event=10.0), operator("b", 1.0, "a")]
        wide, narrow = ([{"from": "n", "to": "m", "bandwidth_bytes_s": rate}] for rate in (100.0, 50.0))
        # 10 events of 10 bytes a second: 100 bytes/s fit the first link, not the second.
        assert homes(fleet(operators, [node("n"), node("m")], links=wide)) == {"b": "m"}
        assert homes(fleet(operators, [node("n"), node("m")], links=narrow)) == {"b": "n"}

    def test_greedy_respects_varying_capacity(self) -> None:
        varying = {"id": "n", "capacity_series_cps": [10.0, 300.0, 100.0]}
        assert homes(fleet([operator("a", 9.0)], [varying, node("m", 95.0)])) == {"a": "m"}
        assert homes(fleet([operator("a", 9.0, "t")], [varying, node("m", 95.0)])) == {"a": "n"}

    def test_coarse_subintervals_smooth_peaks(self) -> None:
        deployment = fleet([operator("a", 15.0)], [node("n", 100.0), node("m", 100.0)])
        assert place(deployment, coarse=3)["a"][0].node == "n"


class TestConstraints:
    def test_pinned_and_forbidden_nodes_are_respected(self) -> None:
        operators = [operator("a", 1.0), operator("b", 1.0)]
        limits = {"pin": {"a": "m"}, "forbid": {"b": ["n"]}}
        assert homes(fleet(operators, [node("n"), node("m", 50.0)], constraints=limits)) == {"a": "m", "b": "m"}

    def test_anti_affinity_is_respected(self) -> None:
        operators = [operator("a", 1.0), operator("b", 1.0)]
        deployment = fleet(operators, [node("n", 1000.0), node("m", 10.0)], constraints={"apart": [["a", "b"]]})
        assert sorted(homes(deployment).values()) == ["m", "n"]

    def test_most_constrained_operator_goes_first(self) -> None:
        operators = [operator("large", 5.0), operator("pinned", 1.0)]
        limits = {"apart": [["large", "pinned"]], "pin": {"pinned": "n"}}
        deployment = fleet(operators, [node("n", 1000.0), node("m", 100.0)], constraints=limits)
        assert homes(deployment) == {"pinned": "n", "large": "m"}

    def test_closed_nodes_take_nothing_new(self) -> None:
        operators = [operator("old", 1.0, node="n"), operator("new", 1.0)]
        assert homes(fleet(operators, [node("n"), node("m", 10.0)]), closed={"n"}) == {"new": "m"}

    def test_every_operator_without_a_node_is_reported_with_its_reason(self) -> None:
        operators = [operator("a", 1.0), operator("b", 1.0), operator("c", 1.0, node="m"), operator("d", 1.0)]
        limits = {"pin": {"a": "n"}, "forbid": {"b": ["m"]}, "apart": [["c", "d"]]}
        with pytest.raises(InfeasibleError) as caught:
            place(fleet(operators, [node("n"), node("m")], constraints=limits), closed={"n"})
        assert [fault.path for fault in caught.value.faults] == [f"operators[{i}].node" for i in (0, 1, 3)]
        first, second, third = (fault.message for fault in caught.value.faults)
        assert "n takes nothing new" in first
        assert "it is pinned to n" in first
        assert "m is forbidden to it" in second
        assert "m holds c, from which it must stay apart" in third

    def test_fleet_without_nodes_is_infeasible(self) -> None:
        with pytest.raises(InfeasibleError, match="1 operator fits no node"):
            place(fleet([operator("a", 1.0)], []))


@st.composite
def deployments(draw: st.DrawFn) -> Deployment:
    names = [f"o{i}" for i in range(draw(st.integers(1, 8)))]
    nodes = [node(f"n{i}", draw(st.sampled_from([50.0, 100.0, 150.0])), draw(st.integers(1, 2))) for i in range(3)]
    operators = []
    for i, name in enumerate(names):
        source = draw(st.sampled_from(["s", "t", *names[:i]]))
        fixed = {"node": "n0"} if draw(st.booleans()) else {}
        operators.append(
            operator(name, draw(st.just(0.0) | st.floats(1e-6, 20.0)), source, query="q", bytes_per_event=5.0, **fixed)
        )
    links = [{"from": "n0", "to": "n1", "bandwidth_bytes_s": 40.0, "delay_s": 0.1}]
    forbid = {name: ["n2"] for name in names if draw(st.booleans())}
    return fleet(operators, nodes, links=links, constraints={"forbid": forbid})


@settings(max_examples=40, deadline=None)
@given(deployments())
def test_greedy_keeps_constraints_and_is_deterministic(deployment: Deployment) -> None:
    result = place(deployment)
    missing = {op.id for op in deployment.operators if not op.replicas}
    assert set(result) == missing
    assert place(deployment) == result
    for name, parts in result.items():
        assert parts[0].node not in deployment.constraints.forbid.get(name, ())
    mace(deployment.with_placement(result))  # complete and valid


def test_greedy_looks_at_few_cores_of_a_large_fleet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that may be best for one of 200 operators, and not all 50 cores for each."""
    looks: list[int] = []

    def counted(loads: Any, own: Any, budget: Any) -> Any:
        looks.append(len(loads))
        return loaded_peaks(loads, own, budget)

    monkeypatch.setattr("engine.placement.greedy.loaded_peaks", counted)
    rng = np.random.default_rng(1)
    document = {
        "subinterval_s": 1.0,
        "sources": [{"id": f"s{q}", "arrivals": rng.poisson(100.0, 1000).astype(float)} for q in range(20)],
        "nodes": [node(f"n{i}", 1e6) for i in range(50)],
        "operators": [
            operator(f"{q}/{k}", 2000.0, f"s{q}" if k == 0 else f"{q}/{k - 1}", query=f"q{q}")
            for q in range(20)
            for k in range(10)
        ],
    }
    deployment = Deployment.parse(document, placed=False)
    result = place(deployment)
    assert max(looks) <= 16
    assert sum(looks) < 0.7 * 50 * 200
    assert mace(deployment.with_placement(result)).worst == 0.0
