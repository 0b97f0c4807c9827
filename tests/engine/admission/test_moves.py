"""Admission uses the placement search: for what joins, and for a few moves of what runs."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from engine.admission.changes import ObjectiveChange, RateChange
from engine.admission.decision import decide
from engine.admission.evaluation import Evaluator
from engine.admission.policy import AdmissionPolicy
from engine.admission.scenario import CandidateQuestion, scenario_of
from engine.admission.screen import Screen
from engine.document.candidate import read_candidate
from engine.document.deployment import Deployment
from engine.errors import InfeasibleError
from engine.placement.extension import extend_placement
from engine.placement.greedy import place
from tests.engine.admission.stories import MEASURED, again, alternatives
from tests.engine.admission.stories import candidate as story_candidate
from tests.engine.admission.stories import running as story_running
from tests.engine.placement.stories import broken, drawn, every_placement, goal

# One burst of 40 events, then nothing: a node with bursts of 1000 cycles is done 9 s after the burst's second.
BURST = [0.0, 40.0, *([0.0] * 28)]


def burst(name: str, cycles: float, **more: Any) -> dict[str, Any]:
    read = {"from": "a", "selectivity": 1.0, "cycles_per_event": cycles / 40.0, "cost_cv2": 0.0}
    return {"id": name, "inputs": [read], "evidence": MEASURED, **more}


def packed(**more: Any) -> Deployment:
    """Two nodes on which 550 + 100 and 350 + 300 run; nobody may wait longer than 9.8 s."""
    homes = {"p": (550.0, "n1"), "q": (100.0, "n1"), "r": (350.0, "n2"), "s": (300.0, "n2")}
    document = {
        "subinterval_s": 1.0,
        "sources": [{"id": "a", "arrivals": BURST, "dispersion": 0.0, "dispersion_step_s": 1.0}],
        "nodes": [{"id": name, "capacity_cps": 100.0} for name in ("n1", "n2")],
        "operators": [burst(f"{q}/op", size, node=home, query=q) for q, (size, home) in homes.items()],
        "objectives": [{"query": q, "statistic": "worst", "bound_s": 9.8} for q in homes],
    }
    return Deployment.parse(document | more)


def large() -> dict[str, Any]:
    """It needs 700, and has asked for n1. Only 700 + 300 beside 550 + 100 + 350 is in time for everybody."""
    return {
        "query": "c",
        "operators": [burst("c/op", 700.0, node="n1")],
        "objective": {"statistic": "worst", "bound_s": 9.8},
    }


def test_two_moves_are_offered_where_one_is_not_enough() -> None:
    decision = decide(packed(), large())
    assert decision.verdict == "reject"
    moves = [alternative for alternative in decision.alternatives if alternative.kind == "move"]
    assert len(moves) == 1
    assert 2 <= len(moves[0].changes) <= 3
    assert moves[0].title.startswith("Move ")
    after = again(decision, moves[0].id, packed(), large())
    assert after.verdict == "admit_with_changes"
    assert after.effects == alternatives(decision)[moves[0].id].effects


def test_offered_moves_respect_policy_and_constraints() -> None:
    kept = decide(packed(), large(), policy=AdmissionPolicy(may_move_neighbours=False))
    assert not [alternative for alternative in kept.alternatives if alternative.kind == "move"]
    pinned = packed(constraints={"pin": {"r/op": "n2", "s/op": "n2"}})
    assert not [alternative for alternative in decide(pinned, large()).alternatives if alternative.kind == "move"]
    still = packed(constraints={"max_moves": 1})
    assert not [alternative for alternative in decide(still, large()).alternatives if alternative.kind == "move"]


def joining(seed: int, **more: Any) -> tuple[Deployment, frozenset[str]]:
    """A small deployment one query of which has no place yet."""
    deployment = drawn(seed, **more)
    draw = random.Random(seed)
    query = draw.choice(deployment.queries)
    operators = tuple(replace(op, replicas=()) if op.query == query else op for op in deployment.operators)
    return replace(deployment, operators=operators), frozenset(op.id for op in operators if not op.replicas)


@pytest.mark.parametrize("links", [False, True])
@pytest.mark.parametrize("seed", range(15))
def test_extended_placement_is_no_worse_than_greedy_and_near_the_best(seed: int, links: bool) -> None:
    deployment, new = joining(seed + 500, links=links)
    # Bounds alike, so that the whole goal and that of those who join agree wherever the latter is the larger.
    deployment = replace(
        deployment, objectives=tuple(replace(objective, bound_s=1.0) for objective in deployment.objectives)
    )
    result = extend_placement(deployment).placement
    assert result == extend_placement(deployment).placement
    assert set(result) == new
    whole = {op.id: op.replicas for op in deployment.operators} | result
    assert not broken(deployment, whole)
    reached = goal(deployment, whole)
    assert reached <= goal(deployment, place(deployment)) * (1 + 1e-9)
    best = min(
        goal(deployment, places)
        for places in every_placement(deployment)
        if all(places[op.id] == op.replicas for op in deployment.operators if op.replicas)
    )
    assert reached <= 1.25 * best + 0.3


def test_extended_placement_keeps_the_constraints() -> None:
    held = 0
    for seed in range(20):
        deployment, new = joining(seed + 600, constraints=True)
        limits = replace(deployment.constraints, max_moves=None, pin={}, forbid={})
        running = {op.id: op.replicas for op in deployment.operators if op.replicas}
        apart = tuple(group for group in limits.apart if len(set(group) & set(running)) < 2)
        deployment = replace(deployment, constraints=replace(limits, apart=apart))
        try:
            places = extend_placement(deployment, closed=(deployment.nodes[0].id,)).placement
        except InfeasibleError:
            continue
        assert set(places) == new
        assert not broken(deployment, running | places, closed=(deployment.nodes[0].id,))
        held += 1
    assert held >= 10


def test_candidates_placement_does_not_depend_on_its_objective() -> None:
    deployment = packed()
    free = {"query": "c", "operators": [burst("c/op", 200.0)], "objective": {"statistic": "worst", "bound_s": 9.8}}
    question = CandidateQuestion(deployment, read_candidate(free, deployment), AdmissionPolicy())
    change = ObjectiveChange("c", "worst", 0.5)
    assert scenario_of(question).replicas_of("c") == scenario_of(question, [change]).replicas_of("c")


def test_screen_rejects_moves_that_failed_a_full_evaluation() -> None:
    deployment = story_running(1.6)
    question = CandidateQuestion(deployment, read_candidate(story_candidate(), deployment), AdmissionPolicy())
    evaluator = Evaluator(question)
    base = scenario_of(question)
    after = evaluator.full(base)
    screen = Screen(question, evaluator.before, base, after)
    less = scenario_of(question, [RateChange("c", 0.5)])
    expected = screen.flow_s(less)
    late = evaluator.full(less)
    worse = {query: replace(outcome, high_s=3.0 * outcome.upper_s) for query, outcome in late.outcomes.items()}
    screen.learn(less, replace(late, outcomes=worse))
    assert screen.flow_s(less) == pytest.approx(3.0 * late.outcomes["p"].upper_s / 1.6)
    assert screen.flow_s(less) > 2.0 * expected
    assert screen.flow_s(base) == pytest.approx(after.outcomes["p"].upper_s / 1.6)  # what was known stays
