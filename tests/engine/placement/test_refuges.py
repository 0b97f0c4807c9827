"""Refuges are where the placement of the whole puts what was on a lost node."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.document.deployment import Deployment
from engine.errors import InfeasibleError
from engine.placement.greedy import CoreLoads, place
from engine.placement.refuges import Refuges
from engine.provisioning.nodes import lose_nodes
from tests.engine.estimation.clusters import random_cluster
from tests.engine.samples import deployment as document
from tests.engine.samples import entry, operator


@settings(max_examples=60, derandomize=True)
@given(st.integers(0, 2**32 - 1))
def test_refuges_of_any_node_are_those_of_the_placement_without_it(seed: int) -> None:
    rng = np.random.default_rng(seed)
    found = random_cluster(rng, load=float(rng.choice([0.3, 0.9, 1.5])), nodes=int(rng.integers(2, 7)))
    if rng.random() < 0.5:
        found["links"] = []
    for each in found["operators"]:
        if rng.random() < 0.1:
            each["state_bytes"] = 10.0
    deployment = Deployment.parse(found).without_backlogs()
    every = int(rng.choice([1, 4]))
    refuges, closed = Refuges(deployment, ["n1"], every), {"n1"}
    before = refuges.core_loads.server_load.copy()
    for node in deployment.nodes:
        lost = lose_nodes(deployment, {node.id})
        try:
            placement = place(lost, closed=closed - {node.id}, coarse=every)
        except InfeasibleError:
            with pytest.raises(InfeasibleError):
                refuges.of(node.id)
            continue
        refuge, after = refuges.of(node.id), lost.with_placement(placement)
        assert [op.replicas for op in refuge.after.operators] == [op.replicas for op in after.operators]
        whole = CoreLoads(after, every).server_load
        names = {server.name: i for i, server in enumerate(deployment.servers)}
        for i, server in enumerate(after.servers):
            row = refuge.loads.get(names[server.name], before[names[server.name]])
            assert row == pytest.approx(whole[i], rel=1e-9, abs=1e-9), server.name
    assert np.array_equal(refuges.core_loads.server_load, before)


def test_node_whose_operators_fit_nowhere_else_is_refused_and_leaves_no_trace() -> None:
    nodes = [{"id": name, "capacity_cps": 100.0} for name in ("a", "b", "c")]
    operators = [operator(f"q.{name}", name, entry("s", 1.0, 2.0), query="q") for name in ("a", "b")]
    apart = {"constraints": {"pin": {"q.a": "a"}}}
    sources = [{"id": "s", "arrivals": [10.0] * 20}]
    refuges = Refuges(Deployment.parse(document(sources=sources, nodes=nodes, operators=operators) | apart))
    with pytest.raises(InfeasibleError, match=r"q\.a"):
        refuges.of("a")
    assert refuges.of("b").placement["q.b"][0].node == "c"
