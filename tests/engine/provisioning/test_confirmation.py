"""Answers confirmed by realised latencies: pools, mixes, fronts and growth where costs and arrivals are random."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from engine.document.deployment import Deployment
from engine.provisioning.answers.pools import PoolAnswer
from engine.provisioning.confirmation import confirm_objectives, on_nodes
from engine.provisioning.growth import headroom_by_query
from engine.provisioning.mix import cheapest_mix, pareto_front
from engine.provisioning.nodes import lose_nodes, pool_of
from engine.provisioning.pool.problem import Placement
from engine.provisioning.pool.search import smallest_pool
from engine.provisioning.question import PoolQuestion
from engine.records import Record
from engine.simulation import SimulationSettings, simulate
from tests.engine.provisioning.stories import document, queueing, steady

NEW = PoolQuestion(keep_present=False)
TYPES = [
    {"name": "small", "capacity_cps": 1.0, "price_per_hour": 1.0, "max": 12},
    {"name": "large", "capacity_cps": 2.0, "price_per_hour": 1.9, "max": 6},
]


def read_back(answer: Record) -> None:
    """Assert that JSON of an answer is read as it was written."""
    plain = answer.to_dict()
    assert type(answer).parse(json.loads(json.dumps(plain, allow_nan=False))).to_dict() == plain


def pool(base: Deployment, question: PoolQuestion = NEW, most: int = 20) -> PoolAnswer:
    return smallest_pool(base, question, like="n0", most=most)


def placed_on_new_nodes(base: Deployment, placement: Placement, nodes: int) -> Deployment:
    bare = lose_nodes(base, {"n0"})
    grown = pool_of(bare, nodes, replace(base.nodes[0], id="", pool=None)).deployment
    return on_nodes(grown, placement, [node.id for node in grown.nodes])


def simulated_worst_s(base: Deployment, seed: int) -> list[float]:
    """Worst case of every query with exponential costs and events at random inside their slices."""
    rng = np.random.default_rng(seed)
    w = base.subinterval_s
    times = {
        source.id: np.concatenate([(p + np.sort(rng.random(int(n)))) * w for p, n in enumerate(source.arrivals)])
        for source in base.sources
    }
    result = simulate(base, SimulationSettings(seed=seed, cost_cv=1.0), times_s=times)
    return [float(result.latency_s[result.chosen(query)].max()) for query in base.queries]


class TestSmallestPool:
    def test_pool_that_holds_for_mean_costs_alone_is_not_the_answer(self) -> None:
        """Twelve queries at a quarter of a core: three cores for mean costs, more for events that queue."""
        base = Deployment.parse(queueing(12))
        flowing = Deployment.parse(steady(queueing(12), events=50))
        answer, mean = pool(base), pool(flowing)
        assert mean.nodes is not None and answer.nodes is not None
        assert mean.nodes < answer.nodes
        assert answer.confirmed
        assert answer.figures.at_risk == ()
        assert all(entry.high_s <= 0.5 for entry in answer.figures.objectives)

    def test_answer_holds_and_one_node_less_does_not_in_simulations(self) -> None:
        """At most a tenth of 12 queries in 15 simulations are later than the bound; with one node less more are."""
        base = Deployment.parse(queueing(12))
        answer = pool(base)
        assert answer.nodes is not None
        whole = placed_on_new_nodes(base, answer.placement, answer.nodes)
        late = np.mean([np.array(simulated_worst_s(whole, seed)) > 0.5 for seed in range(15)])
        assert late <= 0.1
        fewer = pool(base, replace(NEW, confirm=0), most=answer.nodes - 1)
        assert not fewer.confirmed
        assert fewer.nodes is not None
        whole = placed_on_new_nodes(base, fewer.placement, fewer.nodes)
        assert np.mean([np.array(simulated_worst_s(whole, seed)) > 0.5 for seed in range(15)]) > late

    def test_proof_against_one_node_less_has_realised_figures(self) -> None:
        answer = pool(Deployment.parse(queueing(12)))
        assert answer.proof is not None
        miss = answer.proof.counterexample
        assert miss is not None and miss.realised is not None
        assert miss.realised.high_s > 0.5
        counterexample = answer.to_dict()["proof"]["counterexample"]
        assert counterexample["low_s"] < counterexample["value_s"] < counterexample["high_s"]
        assert counterexample["state"] in ("at_risk", "breached")
        assert f"[{counterexample['low_s']:.2g}".rstrip("0") in answer.message
        read_back(answer)

    def test_loss_of_a_node_is_confirmed_by_realised_figures_too(self) -> None:
        base = Deployment.parse(queueing(6))
        alone, lost = pool(base), pool(base, replace(NEW, lose=1))
        assert alone.nodes is not None and lost.nodes is not None
        assert lost.nodes > alone.nodes
        assert lost.confirmed
        assert {entry.lost for entry in lost.figures.objectives} - {None}

    def test_objective_at_risk_on_any_number_of_nodes_is_named(self) -> None:
        """One event takes 12.5 ms in the mean; alone the latest of 3,000 takes 0.13 s, in one of 20 horizons 0.2 s."""
        answer = pool(Deployment.parse(queueing(3, bound_s=0.16)))
        assert answer.confirmed
        assert answer.figures.at_risk
        assert "in the median only" in answer.message
        assert "More nodes do not help: alone it takes" in answer.message
        assert answer.to_dict()["at_risk"] == [entry.query for entry in answer.figures.at_risk]

    def test_objective_that_no_number_of_nodes_keeps_ends_the_search_or_is_left_out(self) -> None:
        story = queueing(4)
        story["objectives"][0]["bound_s"] = 0.05
        answer = pool(Deployment.parse(story))
        assert answer.nodes is None and not answer.confirmed
        assert "alone on the best core it may have: no number of such nodes helps" in answer.message
        others = pool(Deployment.parse(story), replace(NEW, leave_out=True))
        assert others.nodes is not None and others.confirmed
        assert [refutation.query for refutation in others.beyond] == ["q0"]
        assert {entry.query for entry in others.figures.objectives} == {"q1", "q2", "q3"}

    def test_steps_used_up_leave_the_answer_unconfirmed(self) -> None:
        answer = pool(Deployment.parse(queueing(12)), replace(NEW, confirm=0))
        assert answer.nodes is not None and not answer.confirmed
        assert answer.miss is not None and answer.miss.realised is not None
        assert "not confirmed" in answer.message

    def test_counts_per_five_minutes_are_said_to_hide_bursts(self) -> None:
        base = Deployment.parse(queueing(2, bound_s=400.0, d=2400, arrivals_step_s=300.0))
        answer = pool(base)
        assert answer.figures.coarse_sources == ("s0", "s1")
        said = answer.message.replace("\u00a0", " ")
        assert "Arrivals of s0 and s1 are known as counts per 5 min, which hide bursts" in said
        assert any("inside 5\u00a0min" in sentence for sentence in answer.to_dict()["assumed"])

    def test_equal_questions_get_equal_answers(self) -> None:
        base = Deployment.parse(queueing(6))
        assert pool(base).to_dict() == pool(base).to_dict()


class TestCheapestMix:
    def test_mix_that_random_costs_may_break_is_not_the_answer(self) -> None:
        random, mean = (
            cheapest_mix(Deployment.parse(story), TYPES, NEW)
            for story in (queueing(12, bound_s=0.22), steady(queueing(12, bound_s=0.22), events=50))
        )
        assert random.cost_per_hour is not None and mean.cost_per_hour is not None
        assert random.confirmed
        assert random.cost_per_hour > mean.cost_per_hour
        assert all(entry.state == "holds" for entry in random.figures.objectives)
        read_back(random)

    def test_one_type_gives_the_answer_of_the_smallest_pool(self) -> None:
        base = Deployment.parse(queueing(12))
        assert cheapest_mix(base, TYPES[:1], replace(NEW, confirm=12)).counts == {"small": pool(base).nodes}


class TestFront:
    def test_cheapest_point_that_holds_is_named_with_its_figures(self) -> None:
        front = pareto_front(Deployment.parse(queueing(8)), TYPES, NEW)
        states = [point.state for point in front.points]
        point = front.holding
        assert point is not None
        assert set(states[: states.index("holds")]) <= {"breached", "at_risk"}
        assert "The cheapest point that keeps every objective" in front.message
        read_back(front)
        document_ = next(entry for entry in front.to_dict()["points"] if entry["state"] == "holds")
        assert len(document_["objectives"]) == 8


@pytest.fixture(scope="module")
def base() -> Deployment:
    return Deployment.parse(queueing(2, bound_s=2.0))


class TestGrowth:
    def test_factor_ends_where_the_upper_end_meets_the_bound(self, base: Deployment) -> None:
        by_mace, growth = headroom_by_query(base, flow=False), headroom_by_query(base)
        factor, nearest = growth.together.factor, growth.together.nearest
        assert by_mace.together.factor is not None and factor is not None and nearest is not None
        assert factor < by_mace.together.factor
        assert growth.together.confirmed
        assert nearest.state == "holds" and nearest.over > 0.6
        assert growth.together.miss is not None
        read_back(growth)

    def test_objective_at_risk_as_it_is_has_to_keep_its_median(self, base: Deployment) -> None:
        figures = headroom_by_query(base).figures.objectives[0]
        bound_s = 0.5 * (figures.estimate_s + figures.high_s)
        objectives = tuple(replace(entry, bound_s=bound_s) for entry in base.objectives)
        growth = headroom_by_query(replace(base, objectives=objectives))
        assert growth.together.factor is not None and growth.together.factor >= 1.0
        assert growth.figures.at_risk
        assert any("At risk" in sentence for sentence in growth.to_dict()["notes"])

    def test_objective_broken_as_it_is_leaves_no_factor(self, base: Deployment) -> None:
        objectives = tuple(replace(entry, bound_s=0.05) for entry in base.objectives)
        growth = headroom_by_query(replace(base, objectives=objectives))
        assert growth.together.factor is None
        assert growth.together.miss is not None and growth.together.miss.realised is not None


class TestScreen:
    late = Deployment.parse(document([[30.0, 30.0, 0.0]], 1))

    def test_mean_path_over_the_bound_is_refused_without_a_walk(self) -> None:
        found = confirm_objectives(self.late, mace_every=1)
        assert found.miss is not None and found.miss.realised is None
        assert (found.miss.by, found.objectives) == ("flow", {})
        assert "with mean costs" in found.miss.message

    def test_figures_in_full_walk_all_the_same(self) -> None:
        found = confirm_objectives(self.late, mace_every=1, in_full=True)
        assert found.miss is not None and found.miss.realised is not None
        assert found.miss.realised.state == "breached"

    def test_objective_at_risk_passes_only_where_it_is_accepted(self) -> None:
        base = Deployment.parse(queueing(2, bound_s=2.0))
        figures = confirm_objectives(base, mace_every=1).objectives["q0"]
        bound_s = 0.5 * (figures.estimate_s + figures.high_s)
        tight = replace(base, objectives=tuple(replace(entry, bound_s=bound_s) for entry in base.objectives))
        refused = confirm_objectives(tight, mace_every=1)
        assert refused.miss is not None
        assert (refused.miss.state, refused.miss.noisy) == ("at_risk", frozenset({"q0", "q1"}))
        assert "is at risk at" in refused.miss.message
        assert confirm_objectives(tight, mace_every=1, accepted={"q0", "q1"}).miss is None


def test_figures_of_an_answer_come_with_the_most_threatened_first() -> None:
    answer: dict[str, Any] = pool(Deployment.parse(queueing(4))).to_dict()
    over = [entry["high_s"] / entry["bound_s"] for entry in answer["objectives"]]
    assert over == sorted(over, reverse=True)
    assert {entry["state"] for entry in answer["objectives"]} == {"holds"}


def test_miss_among_threatened_queries_ends_the_walk_and_no_miss_goes_on_to_all() -> None:
    base = Deployment.parse(queueing(3))
    whole = confirm_objectives(base, mace_every=1, in_full=True)
    late, *_ = sorted(whole.objectives.values(), key=lambda entry: -entry.over)
    tight = replace(base, objectives=tuple(replace(o, bound_s=late.high_s / 2.0) for o in base.objectives))
    refused = confirm_objectives(tight, mace_every=1, threatened={late.query})
    assert refused.miss is not None and refused.miss.query == late.query
    assert set(refused.objectives) == {late.query}
    loose = replace(base, objectives=tuple(replace(o, bound_s=late.high_s * 2.0) for o in base.objectives))
    passed = confirm_objectives(loose, mace_every=1, threatened={late.query})
    assert passed.miss is None
    assert passed.objectives == confirm_objectives(loose, mace_every=1).objectives
