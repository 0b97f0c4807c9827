"""Losses screened by Mace: the same as every scenario on its own, and walks where an objective is in danger."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from engine.document.deployment import Deployment, Replica
from engine.estimation.query_flow import flow_queries
from engine.provisioning.answers.scenarios import SurvivalAnswer
from engine.provisioning.confirmation import realised_objectives
from engine.provisioning.survival import lose_each
from engine.provisioning.what_if import what_if
from tests.engine.provisioning.stories import document, steady
from tests.engine.provisioning.test_growth import woven
from tests.engine.provisioning.test_pools import parsed


@pytest.mark.parametrize("seed", range(6))
def test_reports_by_mace_equal_those_of_a_scenario(seed: int) -> None:
    """Links, splits, and queries that read each other; reports that are taken over from now are the same."""
    for deployment in (woven(seed, "q0.9"), parsed(seed, operators=6, nodes=5)):
        for node, outcome in lose_each(deployment, flow=False).losses.items():
            scenario = {"name": node, "changes": [{"lose_node": node}]}
            alone = what_if(deployment, [scenario], flow=False)[0]
            assert outcome.answer.to_dict() == alone.answer.to_dict()


def test_walks_are_made_only_for_losses_that_threaten_an_objective() -> None:
    # Any loss puts 12 cycles a second on a node that does 10.
    deployment = Deployment.parse(steady(document([[9.0, 9.0], [9.0, 9.0], [3.0, 3.0]], 3, bound_s=0.3)))
    every = lose_each(deployment)
    survival = lose_each(deployment, flows=1)
    asked = [node for node, outcome in survival.losses.items() if outcome.flow_s is not None]
    assert len(asked) == 1
    assert survival.losses[asked[0]].flow_s == every.losses[asked[0]].flow_s
    assert list(survival.losses) == list(every.losses)


def test_loss_that_random_costs_may_break_puts_an_objective_at_risk() -> None:
    """Two queries of 0.4 of a core each share one after a loss; at 0.8 random costs queue, the mean path does not."""
    rng = np.random.default_rng(4)
    loads = rng.poisson(4.0, (2, 240)).astype(float).tolist()
    bound_s = 1.5
    deployment = Deployment.parse(document(loads, 2, bound_s=bound_s) | {"subinterval_s": 1.0})
    now, after = (
        realised_objectives(flow_queries(placed))["q0"]
        for placed in (deployment, deployment.with_placement({"f1": (Replica("n0"),)}))
    )
    assert now.high_s < after.estimate_s
    bound_s = 0.5 * (after.estimate_s + after.high_s)
    tight = replace(deployment, objectives=tuple(replace(o, bound_s=bound_s) for o in deployment.objectives))
    survival = lose_each(tight)
    assert survival.breaks("n0") == survival.breaks("n1") == ()
    assert survival.risks("n1") == ("q0", "q1")
    assert not survival.survives
    assert "puts q0 and q1 at risk" in survival.message
    worst = survival.figures.objectives[0]
    assert worst.lost in ("n0", "n1")
    assert worst.state == "at_risk"
    plain = survival.answer.to_dict()
    assert any("Variation of the cost" in sentence for sentence in plain["assumed"])
    assert SurvivalAnswer.parse(plain).to_dict() == plain
    # A loss by Mace alone is looked at by a walk because queues grow with the load.
    assert lose_each(tight, flows=1).by_mace in (("n0",), ("n1",))
    answer = lose_each(tight, flow=False)
    assert len(answer.by_mace) == 2
    assert answer.message.endswith("2 of 2 losses by Mace alone")
