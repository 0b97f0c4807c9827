"""Losses of nodes: those that a candidate does not concern are as they were, and neighbours' loads count."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.admission.answer import AdmissionPolicy
from engine.admission.decision import decide, open_decision
from engine.admission.evaluation import Evaluator
from engine.admission.losses import ClusterLosses, JudgedLoss, LossJudge, cluster_losses, lose_nodes
from engine.admission.scenario import CandidateQuestion, scenario_of
from engine.document.candidate import read_candidate
from engine.document.deployment import Deployment
from engine.provisioning.survival import lose_each
from tests.engine.estimation.clusters import random_cluster
from tests.thoroughness import examples

SEEDS = st.integers(0, 2**32 - 1)
ALL = 1000


def quiet(share: float, step: str) -> None:
    """Nobody is told."""


def drawn(seed: int) -> tuple[Evaluator, Any]:
    """A random cluster and a candidate on one or two of its cores."""
    rng = np.random.default_rng(seed)
    load = float(rng.choice([0.2, 0.5, 0.9, 1.3]))
    found = random_cluster(rng, load=load, queries=int(rng.integers(3, 16)), nodes=int(rng.integers(3, 10)))
    if rng.random() < 0.5:
        found["links"] = []
    for objective in found["objectives"]:
        objective["bound_s"] = float(rng.choice([0.5, 2.0, 5.0]))
    running = Deployment.parse(found).without_backlogs()
    own, above = [], "s0"
    for i in range(int(rng.integers(1, 3))):
        inputs = [{"from": above, "selectivity": 1.0, "cycles_per_event": float(rng.uniform(0.01, 2.0))}]
        above = f"c/{i}"
        own.append({"id": above, "inputs": inputs, "node": running.nodes[int(rng.integers(len(running.nodes)))].id})
    candidate = {"query": "c", "operators": own, "objective": {"statistic": "worst", "bound_s": 3.0}}
    question = CandidateQuestion(
        running, read_candidate(candidate, running), AdmissionPolicy(), int(rng.choice([1, 4]))
    )
    return Evaluator(question), scenario_of(question)


def check_losses(seed: int) -> tuple[int, int]:
    """Losses with those that are known are all losses; how many were known, and there were."""
    evaluator, scenario = drawn(seed)
    question, after = evaluator.question, evaluator.full(scenario)
    running = LossJudge(question.running, evaluator.before.outcomes, question.mace_every, ())
    losses = lose_nodes(running, evaluator.base, {}, quiet, confirmed=ALL)
    cluster = ClusterLosses(losses)
    known = cluster.untouched(scenario.deployment, after.concerned)
    judge = LossJudge(scenario.deployment, after.outcomes, question.mace_every, ())
    every = lose_nodes(judge, evaluator.base, {}, quiet, confirmed=ALL)
    found = lose_nodes(judge, evaluator.base, known, quiet, confirmed=ALL)
    assert {node: (loss.breaks, loss.is_refused) for node, loss in found.items()} == {
        node: (loss.breaks, loss.is_refused) for node, loss in every.items()
    }
    for node, loss in known.items():
        assert loss.servers == every[node].servers
    return len(known), len(every)


@settings(max_examples=6, derandomize=True)
@given(SEEDS)
def test_losses_beside_a_candidate_are_all_losses(seed: int) -> None:
    check_losses(seed)


@pytest.mark.slow
@settings(max_examples=examples(200), derandomize=True)
@given(SEEDS)
def test_losses_beside_any_candidate_are_all_losses(seed: int) -> None:
    check_losses(seed)


def chains(count: int) -> dict[str, Any]:
    """Queries of one operator, each on a node of its own, at a tenth of what it can do."""
    operators = [
        {
            "id": f"q{i}.0",
            "query": f"q{i}",
            "node": f"n{i:02}",
            "inputs": [{"from": "s", "selectivity": 1.0, "cycles_per_event": 1.0 + 0.01 * i}],
        }
        for i in range(count)
    ]
    return {
        "subinterval_s": 1.0,
        "sources": [{"id": "s", "arrivals": [10.0] * 20}],
        "nodes": [{"id": f"n{i:02}", "capacity_cps": 100.0} for i in range(count)],
        "operators": operators,
        "objectives": [{"query": f"q{i}", "statistic": "worst", "bound_s": 2.0} for i in range(count)],
    }


def joining(node: str, cycles: float = 1.0) -> dict[str, Any]:
    own = {"id": "c/0", "node": node, "inputs": [{"from": "s", "selectivity": 1.0, "cycles_per_event": cycles}]}
    return {"query": "c", "operators": [own], "objective": {"statistic": "worst", "bound_s": 2.0}}


def test_only_losses_that_a_candidate_concerns_are_judged_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operators of any node would go to n00, the emptiest, and those of n00 to n01."""
    running = Deployment.parse(chains(8))
    evaluator = Evaluator(CandidateQuestion(running, read_candidate(joining("n05"), running), AdmissionPolicy()))
    kept = cluster_losses(evaluator, quiet)
    assert kept.losses["n05"].servers == {"n00"}
    judged: list[str] = []
    lose = LossJudge.lose

    def counted(judge: LossJudge, node: str) -> JudgedLoss:
        judged.append(node)
        return lose(judge, node)

    monkeypatch.setattr(LossJudge, "lose", counted)
    opened = open_decision(running, joining("n05"))
    opened.compute("robustness")
    assert judged == ["n05"]
    assert opened.robustness is not None
    assert opened.robustness.nodes == 8
    judged.clear()
    open_decision(running, joining("n00")).compute("robustness")
    assert judged == [f"n{i:02}" for i in range(8)]


def test_load_of_queries_that_share_nothing_with_the_candidate_counts_where_it_would_go() -> None:
    """The candidate alone is on n00; were that lost, it would go where q1 leaves it no room."""
    found = chains(2)
    found["operators"] = [
        {**found["operators"][1], "inputs": [{"from": "s", "selectivity": 1.0, "cycles_per_event": 6.0}]}
    ]
    found["objectives"] = found["objectives"][1:]
    robustness = decide(Deployment.parse(found), joining("n00", 6.0)).robustness
    assert robustness is not None
    assert {node.node: set(node.breaks) for node in robustness.lost_nodes} == {"n00": {"q1", "c"}, "n01": {"q1", "c"}}


@pytest.mark.parametrize("seed", range(6))
def test_losses_agree_with_the_survival_of_a_plan(seed: int) -> None:
    """Where every loss is realised, both say which objectives break."""
    evaluator, _ = drawn(seed)
    question = evaluator.question
    running = replace(question.running, combine=Deployment.parse(chains(2)).combine)
    own = Evaluator(replace(question, running=running))
    judge = LossJudge(running, own.before.outcomes, question.mace_every, ())
    losses = lose_nodes(judge, own.base, {}, quiet, confirmed=ALL)
    survival = lose_each(running, nodes=[*losses], mace_every=question.mace_every)
    for node, loss in losses.items():
        assert loss.is_refused == (survival.losses[node].refusal is not None)
        if not loss.is_refused:
            assert set(loss.breaks) <= set(survival.breaks(node))
            missed = set(survival.breaks(node)) - set(loss.breaks)
            assert not missed, (node, missed)
