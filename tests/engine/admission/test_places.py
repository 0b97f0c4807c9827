"""Admission uses the placement search: for what joins, and for a few moves of what runs."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from engine.admission.answer import AdmissionDecision, AdmissionPolicy, own_effect
from engine.admission.changes import ObjectiveChange, RateChange
from engine.admission.decision import decide
from engine.admission.evaluation import Evaluator
from engine.admission.scenario import CandidateQuestion, scenario_of
from engine.admission.screen import Screen
from engine.costream.accuracy import PredictionRecord
from engine.costream.first_placement import (
    FirstPlacement,
    PlacementPredictor,
    PlacementQuestion,
    find_first_placement,
    pins_of,
)
from engine.document.candidate import read_candidate
from engine.document.deployment import Deployment
from engine.errors import InfeasibleError
from engine.placement.extension import extend_placement
from engine.placement.greedy import place
from tests.engine.admission.stories import MEASURED, again, alternatives, codes, effect
from tests.engine.admission.stories import candidate as story_candidate
from tests.engine.admission.stories import running as story_running
from tests.engine.costream.anchors import anchor_ensemble
from tests.engine.costream.test_first_placement import CORE, candidate, running
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
        assert not broken(deployment, running | places, closed=(deployment.nodes[0].id,), fixed=tuple(running))
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
    screen = Screen(question, evaluator, base, after)
    less = scenario_of(question, [RateChange("c", 0.5)])
    expected = screen.flow_s(less)
    late = evaluator.full(less)
    worse = {query: replace(outcome, high_s=3.0 * outcome.upper_s) for query, outcome in late.outcomes.items()}
    screen.learn(less, replace(late, outcomes=worse))
    assert screen.flow_s(less) == pytest.approx(3.0 * late.outcomes["p"].upper_s / 1.6)
    assert screen.flow_s(less) > 2.0 * expected
    assert screen.flow_s(base) == pytest.approx(after.outcomes["p"].upper_s / 1.6)  # what was known stays


PROVEN = PredictionRecord(runs=40, held=36, queries=4)


def crowded(bound_s: float | None = 1.0, load: float = 0.985) -> Deployment:
    """A strong node whose only core a query fills almost wholly, and an idle weak one."""
    busy = {"from": "s", "selectivity": 1.0, "cycles_per_event": load * CORE / 100.0, "cost_cv2": 0.0}
    objectives = [] if bound_s is None else [{"query": "old", "statistic": "worst", "bound_s": bound_s}]
    return running(
        sources=[
            {
                "id": "s",
                "arrivals": [100.0] * 8,
                "dispersion": 0.0,
                "dispersion_step_s": 1.0,
                "event_fields": {"ints": 2, "strings": 2},
            }
        ],
        nodes=[
            {"id": "strong", "capacity_cps": CORE, "cores": 1, "memory_bytes": 16e9},
            {"id": "weak", "capacity_cps": CORE / 8, "memory_bytes": 2e9},
        ],
        operators=[{"id": "old/op", "query": "old", "node": "strong", "state_bytes": 1e9, "inputs": [busy]}],
        objectives=objectives,
    )


def predicted(base: Deployment, asked: dict[str, Any]) -> FirstPlacement:
    read = read_candidate(asked, base)
    question = PlacementQuestion(base, read.operators, read.sources, pins=pins_of(read.operators))
    return find_first_placement(question, anchor_ensemble(half=0.05))


def decided(base: Deployment, asked: dict[str, Any], **more: Any) -> AdmissionDecision:
    predictor = PlacementPredictor(anchor_ensemble(half=0.05))
    return decide(base, asked, prediction=predicted(base, asked), predictor=predictor, record=PROVEN, **more)


def nodes_of(decision: AdmissionDecision) -> set[str]:
    return {part.node for parts in decision.placement.values() for part in parts}


def test_option_that_would_overload_a_node_ranks_behind_those_that_would_not() -> None:
    answer = predicted(crowded(), candidate())
    assert answer.options is not None and set(answer.placement.values()) == {"weak"}
    assert len(answer.options) == answer.candidates.survivors
    assert answer.options.placements[0] == dict(answer.placement)
    assert "would overload a node" in str(answer.reason)


def test_first_placement_spares_a_neighbour_whatever_is_best_for_the_candidate_alone() -> None:
    base = crowded(load=0.6, bound_s=0.0062)  # room on the strong node, but no time: its own service takes 6 ms
    alone = predicted(base, candidate())
    assert "strong" in alone.placement.values()
    decision = decided(base, candidate(objective={"statistic": "mean", "bound_s": 3.0}))
    assert nodes_of(decision) == {"weak"} and "neighbour_breached" not in codes(decision)
    assert "placed_for_others" in codes(decision, "info")
    assert decision.prediction is not None and set(decision.prediction.placement.values()) == {"weak"}
    assert effect(decision, "new").is_predicted


def test_node_asked_for_where_neighbours_break_offers_the_placement_that_passes() -> None:
    base = crowded(load=0.6, bound_s=0.0062)
    asked = candidate(objective={"statistic": "mean", "bound_s": 3.0})
    for operator in asked["operators"]:
        operator["node"] = "strong"
    decision = decided(base, asked)
    assert decision.verdict != "admit"
    again = [found for found in decision.alternatives if found.kind == "place_again"]
    assert again and {change.node for change in again[0].changes} == {"weak"}
    assert own_effect(again[0].effects).is_predicted
    applied = decided(base, asked, changes=again[0].changes)
    assert applied.verdict == again[0].verdict and nodes_of(applied) == {"weak"}
    assert "changes_unpredicted" not in codes(applied)


def test_candidate_that_never_ran_gets_alternatives_that_are_predicted_each() -> None:
    base = crowded(load=0.985)
    asked = candidate(objective={"statistic": "mean", "bound_s": 0.001})
    decision = decided(base, asked)
    assert decision.verdict in ("review", "reject")
    assert {found.kind for found in decision.alternatives} >= {"objective"}
    assert all(own_effect(found.effects).is_predicted for found in decision.alternatives)


def test_node_without_memory_for_state_is_no_option() -> None:
    asked = candidate(objective={"statistic": "mean", "bound_s": 3.0})
    base = running(
        nodes=[
            {"id": "strong", "capacity_cps": CORE, "cores": 4, "memory_bytes": 16e9},
            {"id": "weak", "capacity_cps": CORE, "memory_bytes": 64e9},
        ]
    )
    assert set(predicted(base, asked).placement.values()) == {"strong"}
    asked["operators"][1]["state_bytes"] = 20e9
    answer = predicted(base, asked)
    assert answer.options is not None
    assert {answer.placement["new/mean"], *(option["new/mean"] for option in answer.options.placements)} == {"weak"}
    decision = decided(base, asked)
    assert decision.placement["new/mean"][0].node == "weak" and decision.verdict == "admit"
