"""Pick of a first placement: neighbours first, and what passes elsewhere is offered."""

from __future__ import annotations

from typing import Any

from engine.admission.answer import AdmissionDecision, own_effect
from engine.admission.decision import decide
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
from tests.engine.admission.stories import codes, effect
from tests.engine.costream.anchors import anchor_ensemble
from tests.engine.costream.test_first_placement import CORE, candidate, running

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
    assert "would overload a node" in answer.reason


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
