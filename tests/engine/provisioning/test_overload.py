"""Pools that never catch up: a short horizon hides it from Mace, and no size or mix is proposed because of that."""

from __future__ import annotations

from typing import Any

import pytest

from engine.document.deployment import Deployment
from engine.latency_state import ENDLESS_S
from engine.provisioning.answers.pools import PoolSize
from engine.provisioning.mix import cheapest_mix, pareto_front
from engine.provisioning.pool.curve import PoolCurve
from engine.provisioning.pool.search import smallest_pool
from engine.provisioning.question import PoolQuestion


def document(
    load: float, *, queries: int = 2, nodes: int = 2, statistic: str = "worst", **operator: Any
) -> dict[str, Any]:
    """Queries of `load` cycles a second each, on nodes of 10; a minute may be waited, of a horizon of 100 s."""
    return {
        "subinterval_s": 1.0,
        "sources": [{"id": "s", "arrivals": [load] * 100}],
        "nodes": [{"id": f"n{i}", "capacity_cps": 10.0, "price_per_hour": 1.0} for i in range(nodes)],
        "operators": [
            {
                "id": f"q{i}/a",
                "query": f"q{i}",
                "inputs": [{"from": "s", "selectivity": 1.0, "cycles_per_event": 1.0}],
                "node": f"n{i % nodes}",
                **operator,
            }
            for i in range(queries)
        ],
        "objectives": [{"query": f"q{i}", "statistic": statistic, "bound_s": 60.0} for i in range(queries)],
    }


def running(load: float, **more: Any) -> Deployment:
    return Deployment.parse(document(load, **more))


def seconds_of(size: PoolSize) -> list[float | None]:
    plain = size.to_dict()
    return [plain["worst_s"], plain["over_bound"], *plain["queries"].values()]


@pytest.mark.parametrize("statistic", ["worst", "mean", "q0.99"])
def test_sweep_says_which_queries_never_catch_up_and_for_how_many_nodes(statistic: str) -> None:
    sizes = PoolCurve(running(7.0, statistic=statistic)).sweep(1.0, [1, 2, 3])
    assert [(size.late, size.endless) for size in sizes] == [(("q0", "q1"),) * 2, ((), ()), ((), ())]
    assert seconds_of(sizes[0]) == [None] * 4  # a rank is no latency
    assert seconds_of(sizes[1]) == [0.0] * 4
    assert [size.lost and size.lost.endless for size in sizes] == [(), ("q0", "q1"), ()]
    lost = sizes[1].to_dict()["lost"]
    assert (lost["worst_s"], lost["over_bound"], lost["late"]) == (None, None, ["q0", "q1"])


def test_sweep_as_placed_says_what_never_catches_up() -> None:
    crowded = running(7.0).with_placement({"q1/a": running(7.0).operators[0].replicas})
    size = PoolCurve(crowded).sweep(1.0, [2])[0]
    assert size.endless == () and size.as_placed is not None
    assert size.as_placed.to_dict()["endless"] == ["q0", "q1"]
    assert size.as_placed.to_dict()["worst_s"] is None


def test_burst_that_ends_is_late_and_not_for_good() -> None:
    burst = document(7.0) | {"sources": [{"id": "s", "arrivals": [20.0] * 20 + [0.0] * 80}]}
    sizes = PoolCurve(Deployment.parse(burst)).sweep(1.0, [1, 2])
    assert [size.endless for size in sizes] == [(), ()]
    assert sizes[1].worst_s == pytest.approx(20.0)


def test_operator_that_alone_never_catches_up_is_split_where_it_may_be() -> None:
    """By Mace it waits 50 s of its 60 within the horizon, with half as much again as a node can do."""
    whole, cut = (PoolCurve(running(15.0, stateless=stateless)).sweep(1.0, [2, 4]) for stateless in (False, True))
    assert [size.endless for size in whole] == [("q0", "q1")] * 2
    assert [size.endless for size in cut] == [("q0", "q1"), ()]
    assert cut[1].splits == {"q0/a": 2, "q1/a": 2}


def test_smallest_pool_refuses_what_no_number_of_nodes_brings_to_catch_up() -> None:
    answer = smallest_pool(running(15.0, stateless=False), PoolQuestion(split=True), most=6)
    assert answer.nodes is None and answer.proof is not None and answer.proof.refutation is not None
    assert "gets 1.50 times its capacity, so query q0 never catches up" in answer.proof.message
    assert answer.proof.to_dict()["refutation"]["least_s"] is None
    split = smallest_pool(running(15.0, stateless=True), PoolQuestion(split=True), most=6)
    assert (split.nodes, split.confirmed) == (4, True)


def test_placement_that_catches_up_is_found_though_its_worst_case_is_higher() -> None:
    """A burst alone waits 50 s and two steady loads together 40 s, but those fall behind for good."""
    three = document(7.0)
    three["sources"].append({"id": "b", "arrivals": [60.0] * 10 + [0.0] * 90})
    three["operators"].append(
        {"id": "b/a", "query": "b", "inputs": [{"from": "b", "selectivity": 1.0, "cycles_per_event": 1.0}]}
    )
    three["objectives"].append({"query": "b", "statistic": "worst", "bound_s": 60.0})
    size = PoolCurve(Deployment.parse(three, placed=False)).sweep(1.0, [2], lose_one=False)[0]
    assert (size.endless, size.late) == ((), ())
    assert 50.0 < size.worst_s < ENDLESS_S


def test_cheapest_mix_and_front_do_not_hold_what_never_catches_up() -> None:
    types = [
        {"name": "small", "capacity_cps": 10.0, "price_per_hour": 1.0, "max": 2},
        {"name": "large", "capacity_cps": 20.0, "price_per_hour": 3.0, "max": 2},
    ]
    deployment = running(15.0, stateless=False)
    question = PoolQuestion(lose=0, keep_present=False, split=False)
    mix = cheapest_mix(deployment, types, question)
    assert mix.counts == {"small": 0, "large": 2}
    front = pareto_front(deployment, types, question)
    assert front.holding is not None and front.holding.counts == {"small": 0, "large": 2}
    cheaper = [point for point in front.points if point.cost_per_hour < 6.0]
    assert all(point.state == "breached" and point.size.to_dict()["worst_s"] is None for point in cheaper)
