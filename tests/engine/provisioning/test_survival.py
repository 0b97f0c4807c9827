"""Losses screened by Mace: the same as every scenario on its own, and Flow where an objective is in danger."""

from __future__ import annotations

import pytest

from engine.document.deployment import Deployment
from engine.provisioning.survival import lose_each
from engine.provisioning.what_if import what_if
from tests.engine.provisioning.stories import document
from tests.engine.provisioning.test_growth import woven
from tests.engine.provisioning.test_pools import parsed


@pytest.mark.parametrize("seed", range(6))
def test_reports_by_mace_equal_those_of_a_scenario(seed: int) -> None:
    """Links, splits, and queries that read each other; reports that are taken over from now are the same."""
    for deployment in (woven(seed, "q0.9"), parsed(seed, operators=6, nodes=5)):
        for node, outcome in lose_each(deployment, flow=False).losses.items():
            scenario = {"name": node, "changes": [{"lose_node": node}]}
            alone = what_if(deployment, [scenario], flow=False)[0]
            assert outcome.to_dict() == alone.to_dict()


def test_flow_runs_only_for_losses_that_threaten_an_objective() -> None:
    # Any loss puts 12 cycles a second on a node that does 10.
    deployment = Deployment.parse(document([[9.0, 9.0], [9.0, 9.0], [3.0, 3.0]], 3, bound_s=0.3))
    every = lose_each(deployment)
    survival = lose_each(deployment, flows=1)
    asked = [node for node, outcome in survival.losses.items() if outcome.flow_s is not None]
    assert len(asked) == 1
    assert survival.losses[asked[0]].flow_s == every.losses[asked[0]].flow_s
    assert list(survival.losses) == list(every.losses)
