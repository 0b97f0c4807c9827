"""Remedies of a late query: what is found, what it does to others, and what is said where nothing helps."""

from __future__ import annotations

from typing import Any

import pytest

from engine.admission.answer import AdmissionPolicy
from engine.document.deployment import Deployment
from engine.document.elements import Replica
from engine.estimation.base import EstimateBase
from engine.parallelism.job import document_job
from engine.remedies.answer import QueryRemedies, Remedy
from engine.remedies.search import find_remedies


def operator(name: str, query: str, above: str, cost: float, node: str, **more: Any) -> dict[str, Any]:
    """An operator with measured costs that differ by 2 %."""
    batches = [{"events": 100, "outputs": 100, "cycles": 100 * cost * share} for share in (0.98, 1.02, 1.0, 1.0)]
    entry = {"from": above, "selectivity": 1.0, "cycles_per_event": cost, "batches": batches}
    evidence = {"kind": "measured", "events": 1e5}
    stated = {"stateless": True, "evidence": evidence, "inputs": [entry]} | more
    return {"id": f"{query}/{name}", "query": query, "node": node, **stated}


def crowded(bound_s: float = 0.5, **more: Any) -> Deployment:
    """`late` and `cheap`, of lower priority, share node a, which together they fill; b has room, c is small."""
    document = {
        "subinterval_s": 0.5,
        "sources": [{"id": "s", "arrivals": [200.0] * 120}, {"id": "t", "arrivals": [200.0] * 120}],
        "nodes": [
            {"id": "a", "capacity_cps": 1000.0, "price_per_hour": 2.0},
            {"id": "b", "capacity_cps": 1000.0},
            {"id": "c", "capacity_cps": 10.0},
        ],
        "operators": [
            operator("count", "late", "s", 1.4, "a", state_bytes=1e6),
            operator("sum", "cheap", "t", 1.4, "a", state_bytes=1e6),
        ],
        "objectives": [
            {"query": "late", "statistic": "q0.99", "bound_s": bound_s},
            {"query": "cheap", "statistic": "q0.99", "bound_s": 60.0},
        ],
        "priorities": {"late": 5, "cheap": 1},
    }
    return Deployment.parse(document | more)


def remedies_of(deployment: Deployment, query: str = "late", **asked: Any) -> QueryRemedies:
    base = EstimateBase.of(deployment, 1)
    return find_remedies(base, query, job=document_job(deployment, query), **asked)


def by_kind(answer: QueryRemedies) -> dict[str, Remedy]:
    """The first remedy of each kind."""
    return {remedy.kind: remedy for remedy in reversed(answer.remedies)}


@pytest.fixture(scope="module")
def found() -> QueryRemedies:
    return remedies_of(crowded())


def test_a_move_to_a_free_node_comes_first(found: QueryRemedies) -> None:
    first = found.remedies[0]
    assert (found.state, first.kind, first.is_enough) == ("breached", "move", True)
    assert [replica.node for replicas in first.placement.values() for replica in replicas] == ["b"]
    assert first.estimate_s < 0.5 and first.preview == "placement" and first.cost and first.risk


def test_each_kind_is_estimated_with_its_effect_on_others(found: QueryRemedies) -> None:
    remedies = by_kind(found)
    assert {"move", "scale_rate", "stop", "objective"} <= remedies.keys() | {row.kind for row in found.tried}
    stop = remedies["stop"]
    assert stop.changes == ({"remove_query": "cheap"},)
    assert [(e.query, e.after_state) for e in stop.effects[1:]] == [("cheap", "stopped")]
    assert all(remedy.effects[0].query == "late" for remedy in found.remedies)
    assert all(remedy.state in ("holds", "at_risk", "breached") for remedy in found.remedies)


def test_a_looser_objective_is_the_last_and_wins_nothing() -> None:
    answer = remedies_of(
        crowded(
            sources=[{"id": "s", "arrivals": [200.0] * 120}, {"id": "t", "arrivals": [150.0] * 120}],
            objectives=[{"query": "late", "statistic": "q0.99", "bound_s": 0.001}],
        )
    )
    last = answer.remedies[-1]
    assert (last.kind, last.won_s, last.is_enough) == ("objective", 0.0, True)
    assert not any(remedy.is_enough for remedy in answer.remedies[:-1])  # they help in part, and say so
    assert all(remedy.won_s > 0.0 for remedy in answer.remedies[:-1] if remedy.won_s is not None)


def test_nothing_of_the_same_priority_is_stopped() -> None:
    answer = remedies_of(crowded(priorities={"late": 1, "cheap": 1}))
    assert "stop" not in by_kind(answer)
    assert any(row.kind == "stop" and "lower priority" in str(row.why) for row in answer.tried)


def test_pins_and_draining_nodes_are_respected() -> None:
    pinned = crowded(constraints={"pin": {"late/count": "a", "cheap/sum": "a"}})
    assert "move" not in by_kind(remedies_of(pinned))
    draining = remedies_of(crowded(), policy=AdmissionPolicy(closed_nodes=("b",)))
    places = {r.node for remedy in draining.remedies for replicas in remedy.placement.values() for r in replicas}
    assert "b" not in places


def test_plan_that_was_compared_on_a_node_that_is_draining_by_now_is_none() -> None:
    deployment, plan = crowded(), crowded().with_placement({"late/count": [Replica("b")]})
    assert "plan" in by_kind(remedies_of(deployment, plans={"v2": plan}))
    draining = remedies_of(deployment, plans={"v2": plan}, policy=AdmissionPolicy(closed_nodes=("b",)))
    assert "plan" not in by_kind(draining)
    assert any(row.kind == "plan" and "keep from it" in str(row.why) for row in draining.tried)


def test_what_holds_needs_none() -> None:
    answer = remedies_of(crowded(sources=[{"id": s, "arrivals": [20.0] * 120} for s in "st"]))
    assert answer.remedies == () and answer.tried == ()


def test_unknown_cost_is_said_first() -> None:
    document = crowded().to_document()
    operators: Any = document["operators"]
    for entry in operators[0]["inputs"]:
        entry.pop("batches", None), entry.pop("cycles_per_event")
    operators[0]["evidence"] = {"kind": "unknown", "events": 1e5}
    answer = remedies_of(Deployment.parse(document))
    assert answer.unknown and "late/count" in str(answer.unknown[0])
    assert not any(remedy.is_enough for remedy in answer.remedies)


def test_same_question_gets_the_same_answer(found: QueryRemedies) -> None:
    assert remedies_of(crowded()).to_dict() == found.to_dict()
    assert QueryRemedies.parse(found.to_dict()).to_dict() == found.to_dict()
