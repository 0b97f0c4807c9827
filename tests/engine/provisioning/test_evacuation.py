"""Evacuations: what is on the nodes moves and nothing else, what cannot is named, and losses meanwhile are told."""

from __future__ import annotations

from typing import Any

import pytest

from engine.document.deployment import Deployment
from engine.errors import DocumentError
from engine.provisioning.answers.evacuations import EvacuationPlan
from engine.provisioning.evacuation import evacuate
from engine.provisioning.survival import lose_each
from tests.engine.provisioning.stories import document, steady

QUICK: dict[str, Any] = {"budget_s": None, "rounds": 5, "walks": False}


def four(bound_s: float = 1.0, load: float = 3.0, **more: Any) -> Deployment:
    """Four queries on four nodes that do 10 cycles/s; nodes n0 to n2 share a rack, n3 has none."""
    told = steady(document([[load] * 4] * 4, 4, bound_s=bound_s))
    for node in told["nodes"][:3]:
        node["labels"] = {"rack": "r0"}
    return Deployment.parse(told | more)


def test_only_what_is_on_the_nodes_moves() -> None:
    plan = evacuate(four(), [["n0", "n1"]], **QUICK)
    assert plan.is_possible
    assert {move.operator for move in plan.steps[0].moves} == {"f0", "f1"}
    assert {replica.node for move in plan.steps[0].moves for replica in move.after} <= {"n2", "n3"}
    assert plan.breaks == ()
    assert EvacuationPlan.parse(plan.to_dict()) == plan


def test_pinned_operator_makes_a_step_impossible_and_is_named() -> None:
    plan = evacuate(four(constraints={"pin": {"f0": "n0"}}), [["n0"], ["n1"]], **QUICK)
    first, second = plan.steps
    assert first.refusal is not None and not first.moves and not plan.is_possible
    assert "'f0'" in first.refusal.faults[0]["message"] and "pinned to n0" in first.refusal.faults[0]["message"]
    assert second.refusal is None and [move.operator for move in second.moves] == ["f1"]


def test_load_of_the_hour_decides_what_breaks() -> None:
    """At three times the load two queries do not fit one node; what is forecast counts, for private copies as well."""
    assert evacuate(four(), [["n0", "n1", "n2"]], **QUICK).breaks == ("q0", "q1", "q2", "q3")
    assert evacuate(four(load=1.0), [["n0", "n1", "n2"]], **QUICK).breaks == ()
    tripled = evacuate(four(load=1.0), [["n0", "n1", "n2"]], factors={f"s{k}": 3.0 for k in range(4)}, **QUICK)
    assert tripled.breaks == ("q0", "q1", "q2", "q3")
    assert tripled.factors == {f"s{k}": 3.0 for k in range(4)}


def test_losses_meanwhile_are_those_that_break_something_with_the_nodes_away() -> None:
    """Three operators fit a node, four do not: with two nodes away the loss of either other one breaks them all."""
    deployment = four()
    assert lose_each(deployment, flow=False).survives
    step = evacuate(deployment, [["n0", "n1"]], **QUICK).steps[0]
    assert {loss.node: loss.breaks for loss in step.losses} == dict.fromkeys(("n2", "n3"), ("q0", "q1", "q2", "q3"))
    assert evacuate(deployment, [["n0"]], **QUICK).steps[0].losses == ()


def test_operators_stay_where_a_step_put_them_unless_they_come_back() -> None:
    steps = [["n0"], ["n1"], ["n2"]]
    assert [len(step.moves) for step in evacuate(four(), steps, **QUICK).steps] == [1, 1, 1]
    stays = evacuate(four(), steps, back=False, **QUICK)
    assert sum(len(step.moves) for step in stays.steps) > 3
    assert stays.lasts_s == 0.0


def test_faults_of_steps_are_told_all_at_once() -> None:
    with pytest.raises(DocumentError) as refused:
        evacuate(four(), [["n0", "n9"], [], ["n0"], ["n0", "n1", "n2", "n3"]], **QUICK)
    assert [fault.path for fault in refused.value.faults][:4] == ["steps[0][1]", "steps[1]", "steps[2][0]", "steps[3]"]


def test_survival_loses_failure_domains_together() -> None:
    """Any one node can be lost; a rack with three of them cannot."""
    deployment = four()
    survival = lose_each(deployment, domain="rack", flow=False)
    assert list(survival.losses) == ["rack=r0", "n3"]
    assert survival.breaks("rack=r0") == ("q0", "q1", "q2", "q3")
    assert "the loss of rack=r0 breaks" in survival.message
    answer = survival.answer.to_dict()
    assert [loss["lost"] for loss in answer["losses"]] == [["n0", "n1", "n2"], ["n3"]]
    alone = lose_each(deployment, domain="zone", flow=False)
    assert list(alone.losses) == ["n0", "n1", "n2", "n3"] and alone.survives
