"""Conditions of upper bounds: for each a system that takes longer without it, and what a result says there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.document.deployment import Deployment
from engine.estimation.bounds import visit_bounds
from engine.estimation.estimate import estimate
from engine.estimation.mace import mace
from engine.measurement.microbatch import batch_upper_s
from engine.simulation import simulate
from tests.engine.estimation.test_theorem2 import bursts_in_turn, random_single_source_system
from tests.engine.simulation.stories import deployment, exact, operator


def told(system: Deployment) -> dict[str, Any]:
    return estimate(system, intervals=False).answer().to_dict()


def one_node(arrivals: list[float], cost: float = 0.01) -> Deployment:
    return deployment(
        [operator("a", ("s", 1, cost), node="n0", query="q")],
        {"s": arrivals},
        nodes=[{"id": "n0", "capacity_cps": 1.0}],
    )


def test_one_node_with_one_source_and_even_arrivals_keeps_the_bound():
    system = one_node([200.0] * 5 + [0.0] * 10)
    result, worst_s = told(system), simulate(system, exact()).worst_s
    assert result["bounds"]["theorems_hold"]
    assert worst_s <= result["upper_wc"] + 1e-9
    assert worst_s <= result["bounds"]["proven_s"] + 1e-9
    assert result["bounds"]["words"].startswith("The upper ends of theorems 2 and 3 hold for mean costs")


@pytest.mark.parametrize("nodes", [2, 3, 4])
def test_several_sources_on_several_servers_exceed_theorem_2_and_say_so(nodes):
    system = bursts_in_turn(nodes)
    result, worst_s = told(system), simulate(system, exact()).worst_s
    assert worst_s > 1.5 * result["upper_wc"]
    assert not result["bounds"]["theorems_hold"]
    assert f"{nodes} sources share {nodes} servers" in result["bounds"]["words"]
    assert worst_s <= result["bounds"]["proven_s"]


def test_live_bound_is_none_where_the_theorem_does_not_hold():
    alone, several = mace(one_node([100.0] * 5)), mace(bursts_in_turn(2))
    assert np.isfinite(batch_upper_s(alone, {0: 2.0})).all()
    assert np.isinf(batch_upper_s(several, {0: 2.0})).all()


def test_burst_inside_a_subinterval_exceeds_theorem_2_and_keeps_the_proven_bound():
    """100 events come as the first second ends, 200 as the next begins: 3 s of work at once, of which 2 count."""
    system = one_node([100.0, 200.0, 0.0, 0.0])
    times_s = {"s": np.concatenate([np.full(100, 0.999), np.full(200, 1.0)])}
    result, worst_s = told(system), simulate(system, exact(), times_s=times_s).worst_s
    assert worst_s > result["upper_wc"]
    assert worst_s <= result["bounds"]["proven_s"]
    assert "even arrivals" in result["bounds"]["words"]


def test_random_costs_exceed_every_bound():
    """One event of many costs more than all that the bounds know of: they are for mean costs, and say so."""
    system = one_node([1.0] * 100, cost=0.5)
    result = told(system)
    worst_s = max(simulate(system, exact(cost_cv=3.0, seed=seed)).worst_s for seed in range(5))
    assert worst_s > 10.0 * max(result["bounds"]["proven_s"], result["upper_wc"])
    assert "for mean costs" in result["bounds"]["words"]


def test_random_costs_are_in_the_level_that_latencies_are_said_to_be_under():
    document = one_node([10.0] * 50, cost=0.05).to_document()
    document["operators"][0]["inputs"][0]["cost_cv2"] = 9.0
    system = Deployment.parse(document)
    under_s = estimate(system).queries["q"].under_s
    worst = [simulate(system, exact(cost_cv=3.0, seed=seed)).worst_s for seed in range(20)]
    assert under_s is not None
    assert sum(worst_s <= under_s for worst_s in worst) >= 18


def test_delays_of_links_are_no_part_of_theorem_2():
    nodes = [{"id": "n0", "capacity_cps": 1.0}, {"id": "n1", "capacity_cps": 1.0}]
    operators = [operator("a", ("s", 1, 0.001), node="n0"), operator("b", ("a", 1, 0.001), node="n1", query="q")]
    links = [{"from": "n0", "to": "n1", "delay_s": 5.0}]
    system = deployment(operators, {"s": [10.0] * 5}, nodes=nodes, links=links)
    result, worst_s = told(system), simulate(system, exact()).worst_s
    assert result["upper_wc"] < worst_s <= result["bounds"]["proven_s"]
    assert "links have delays" in result["bounds"]["words"]


@pytest.mark.parametrize("policy", ["round-robin", "klink"])
def test_policy_without_a_bound_has_none_in_any_field(policy):
    system = Deployment.parse(one_node([200.0] * 5).to_document() | {"scheduling": policy})
    result = told(system)
    assert result["upper_wc"] is result["bounds"]["proven_s"] is None
    assert result["queries"]["q"]["scheduling"]["upper_s"] is None
    assert "no upper bound is proven" in result["bounds"]["words"]


def test_round_robin_exceeds_the_published_looser_bound():
    over = []
    for seed in range(60):
        system = random_single_source_system(seed)
        worst_s = simulate(system, exact("round-robin")).worst_s
        over.append(worst_s / mace(system).loose_upper_s.max())
    assert max(over) > 1.1


@pytest.mark.parametrize("policy", ["stimulus-time", "fifo"])
@pytest.mark.parametrize("seed", range(5))
def test_proven_bound_holds_wherever_events_fall_within_subintervals(policy, seed):
    system = random_single_source_system(seed, nodes=1 + seed % 3)
    document = system.to_document() | ({} if policy == "stimulus-time" else {"scheduling": "fcfs"})
    bound_s = visit_bounds(mace(Deployment.parse(document))).max()
    rng = np.random.default_rng(seed)
    for _ in range(3):
        counts = system.arrivals[0].astype(int)
        ends = rng.choice([0.0, 0.5, 0.999], len(counts))
        times_s = {"s": np.repeat(np.arange(len(counts)) + ends, counts)}
        assert simulate(system, exact(policy), times_s=times_s).worst_s <= bound_s + 1e-9


@pytest.mark.parametrize(
    "more",
    [
        {"window": {"policy": "count", "type": "tumbling", "size": 100}},
        {"window": {"policy": "time", "type": "tumbling", "size": 10.0, "watermark_delay_s": 1.0}},
        {"trigger": {"interval_s": 5.0}},
    ],
)
def test_waits_that_events_decide_have_no_proven_bound(more):
    document = one_node([50.0] * 20).to_document()
    document["operators"][0] |= more
    assert told(Deployment.parse(document))["bounds"]["proven_s"] is None


def test_window_by_the_clock_is_part_of_the_proven_bound():
    document = one_node([50.0] * 20).to_document()
    document["operators"][0]["window"] = {"policy": "time", "type": "tumbling", "size": 10.0}
    with_window = told(Deployment.parse(document))["bounds"]["proven_s"]
    assert with_window == pytest.approx(told(one_node([50.0] * 20))["bounds"]["proven_s"] + 10.0)


def test_loads_that_are_not_sums_have_no_proven_bound():
    document = one_node([50.0] * 20).to_document() | {"combine": {"kind": "interference", "alpha": 0.1}}
    result = told(Deployment.parse(document))["bounds"]
    assert (result["theorems_hold"], result["proven_s"]) == (False, None)
    assert "loads are not sums" in result["words"]
