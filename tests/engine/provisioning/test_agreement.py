"""Pools and mixes of one type agree; splits, budgets, objectives left out, and the way of large deployments."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.document.deployment import Deployment
from engine.estimation.mace import mace
from engine.provisioning.answers.pools import MixAnswer
from engine.provisioning.mix import cheapest_mix
from engine.provisioning.pool import large
from engine.provisioning.pool.bounds import splits_of
from engine.provisioning.pool.curve import PoolCurve
from engine.provisioning.pool.judge import operator_weights
from engine.provisioning.pool.large import LargeSolver
from engine.provisioning.pool.problem import pool_problem
from engine.provisioning.pool.search import smallest_pool
from engine.provisioning.question import PoolQuestion
from engine.provisioning.what_if import mace_by_query
from engine.sample_fleet import FleetPlan, make_fleet
from tests.engine.provisioning.stories import bursty, document

TYPE = {"name": "new", "capacity_cps": 10.0, "cores": 1, "price_per_hour": 2.0}


def alone(stateless: bool | None, may_split: list[str] | None = None) -> Deployment:
    """One operator that no core keeps in time, and a small one."""
    base: dict[str, Any] = document([[5.0, 35.0, 0.0], [1.0, 1.0, 1.0]], 1)
    if stateless is not None:
        base["operators"][0]["stateless"] = stateless
    if may_split is not None:
        base["constraints"] = {"may_split": may_split}
    return Deployment.parse(base)


def rank(answer: MixAnswer) -> tuple[bool, bool, float]:
    """The better answer first."""
    return not answer.is_sufficient, not answer.confirmed, inf if answer.cost_per_hour is None else answer.cost_per_hour


@settings(max_examples=20, deadline=None)
@example(340, 0, 0.85, True)  # its walks find the same placement at risk in the pool and late in the mix
@given(st.integers(0, 10_000), st.integers(0, 1), st.sampled_from([0.35, 0.85]), st.booleans())
def test_a_pool_and_a_mix_of_one_type_agree(seed: int, lose: int, bound_s: float, keep: bool) -> None:
    deployment = Deployment.parse(bursty(seed, operators=4, nodes=1, bound_s=bound_s))
    options = {"lose": lose, "keep_present": keep}
    like = {name: value for name, value in TYPE.items() if name != "name"}
    present = 1 if keep else 0
    pool = smallest_pool(deployment, PoolQuestion(**options), like=like, most=present + 5)  # type: ignore[arg-type]
    mix = cheapest_mix(deployment, [TYPE | {"max": 5}], PoolQuestion(**options))  # type: ignore[arg-type]
    assert (mix.counts or {}).get("new") == pool.added
    other = TYPE | {"name": "dear", "price_per_hour": 50.0, "max": 2}
    both = cheapest_mix(deployment, [TYPE | {"max": 5}, other], PoolQuestion(**options))  # type: ignore[arg-type]
    assert rank(both) <= rank(mix), "another type can only help"
    against = [proof.cost_per_hour for proof in both.proofs if proof.cost_per_hour is not None]
    assert all(cost < rank(both)[-1] for cost in against), "of cheaper mixes"


class TestSplits:
    def test_stateless_operator_is_split_to_keep_its_objective(self) -> None:
        result = smallest_pool(alone(True), most=6)
        assert result.nodes is not None
        assert result.confirmed
        assert result.splits == {"f0": len(result.placement["f0"])}
        assert 2 <= result.splits["f0"] <= 8
        assert "Split: f0 in" in result.message
        assert sum(replica.fraction for replica in result.placement["f0"]) == pytest.approx(1.0)

    @pytest.mark.parametrize(
        ("stateless", "may_split", "why"),
        [
            (False, None, "it has state that is not by key, so it cannot be split"),
            (None, None, "nobody knows whether it has state that is not by key"),
            (True, [], "it is not among those that may be split"),
        ],
    )
    def test_operator_that_cannot_be_split_proves_the_pool_impossible(
        self, stateless: bool | None, may_split: list[str] | None, why: str
    ) -> None:
        result = smallest_pool(alone(stateless, may_split), most=6)
        assert result.nodes is None
        assert result.proof is not None
        assert result.proof.refutation is not None
        assert why in result.message

    def test_splitting_can_be_switched_off(self) -> None:
        result = smallest_pool(alone(True), PoolQuestion(split=False), most=6)
        assert result.nodes is None
        assert "splitting was not asked for" in result.message

    def test_mixes_and_pool_curve_split_operators(self) -> None:
        mix = cheapest_mix(alone(True), [TYPE | {"max": 5}])
        assert mix.splits.keys() == {"f0"}
        assert mix.counts == {"new": smallest_pool(alone(True), like={"capacity_cps": 10.0}, most=6).added}
        sizes = PoolCurve(alone(True)).sweep(1.0, [1, 4])
        assert sizes[1].late == ()
        assert sizes[1].splits.keys() == {"f0"}
        assert sizes[0].as_placed is not None
        assert sizes[0].as_placed.queries["q0"] > sizes[1].queries["q0"]
        assert sizes[1].as_placed is None

    def test_objectives_that_no_pool_keeps_may_be_left_out(self) -> None:
        result = smallest_pool(alone(False), PoolQuestion(leave_out=True), most=6)
        assert result.nodes is not None
        assert [miss.query for miss in result.beyond] == ["q0"]
        assert result.message.startswith("1 objective is kept by no number of such nodes")
        assert result.to_dict()["beyond"][0]["operator"] == "f0"


class TestLarge:
    """The way of large deployments, on one small enough to look at."""

    @pytest.fixture
    def fleet(self, monkeypatch: pytest.MonkeyPatch) -> Deployment:
        monkeypatch.setattr(large, "_LARGE", 100)
        return Deployment.parse(make_fleet(FleetPlan(nodes=12, operators=60, subintervals=120, seed=3)))

    def test_spare_node_survives_every_loss(self, fleet: Deployment) -> None:
        shares: list[float] = []
        result = smallest_pool(
            fleet,
            PoolQuestion(lose=1, factor=1.1, mace_every=4, leave_out=True),
            most=40,
            progress=lambda share, _: shares.append(share),
        )
        assert result.nodes is not None
        assert result.best is not None
        assert shares == sorted(shares)
        assert "realised latencies in steps of 1 s" in result.confirmation
        whole = fleet.with_placement({})
        assert splits_of(whole, result.placement) == result.splits

    def test_losses_equal_those_of_a_full_enumeration(self, fleet: Deployment) -> None:
        coarse = fleet.coarsened(4)
        problem = pool_problem(coarse, operator_weights(coarse))
        solver = LargeSolver(problem, lose_one=True)
        best = solver.solve_jointly(12)
        assert best.lost is not None
        used = np.unique(problem.node[best.assignment])
        places, after_s, stuck = solver.losses(12, best.assignment, used)
        assert (stuck < 0).all()
        for place, after, lost in zip(places, after_s, used, strict=True):
            assert not (problem.node[place] == lost).any()
            exact = mace(coarse.with_placement(problem.placement(place))).worst_s[: len(after)]
            assert after == pytest.approx(exact, abs=1e-9)
            series = mace_by_query(mace(coarse.with_placement(problem.placement(place))))
            assert max(row.max() for row in series.values()) <= best.lost.worst_s + 1e-9

    def test_exhausted_budget_returns_a_bracket(self, fleet: Deployment) -> None:
        result = smallest_pool(fleet, PoolQuestion(factor=1.6, mace_every=4, leave_out=True, budget_s=1e-9), most=60)
        assert not result.complete
        assert result.nodes is None or result.least <= result.nodes
