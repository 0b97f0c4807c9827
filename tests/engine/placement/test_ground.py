"""Places sought on what runs as it is kept are those that the whole deployment leads to."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.document.deployment import Deployment
from engine.estimation.mace import mace
from engine.placement import ground as ground_module
from engine.placement.extension import extend_placement
from engine.placement.ground import RunningGround
from tests.engine.estimation.clusters import random_cluster
from tests.engine.samples import entry, operator


def drawn(seed: int, nodes: int) -> tuple[Deployment, Deployment]:
    """A random cluster, and the same with a query of two operators that have no place."""
    rng = np.random.default_rng(seed)
    running = Deployment.parse(random_cluster(rng, load=float(rng.choice([0.4, 0.9])), queries=8, nodes=nodes))
    running = replace(running, combine=replace(running.combine, kind="sum", alpha=None))
    source = running.sources[0].id
    own = [
        operator("new.0", None, entry(source, 1.0, float(rng.uniform(0.5, 3.0))), query="new"),
        operator("new.1", None, entry("new.0", 0.5, float(rng.uniform(0.5, 3.0))), query="new"),
    ]
    joining = Deployment.parse(
        {
            "subinterval_s": running.subinterval_s,
            "sources": [{"id": source, "arrivals": running.sources[0].arrivals}],
            "nodes": [{"id": "any", "capacity_cps": 1.0}],
            "operators": [{key: value for key, value in item.items() if key != "node"} for item in own],
        },
        placed=False,
    )
    return running, replace(running, operators=(*running.operators, *joining.operators))


def worst_s(whole: Deployment, ground: RunningGround | None) -> float:
    """Largest Mace with the query where it is put."""
    return mace(whole.with_placement(extend_placement(whole, ground=ground).placement)).worst


@settings(max_examples=15, derandomize=True)
@given(st.integers(0, 2**32 - 1))
def test_places_on_what_is_kept_are_those_of_the_whole(seed: int) -> None:
    running, whole = drawn(seed, nodes=6)
    ground = RunningGround(running, mace(running))
    assert ground.is_under(whole)
    assert extend_placement(whole, ground=ground) == extend_placement(whole)


def test_places_on_the_roomiest_nodes_cost_no_more_than_on_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ground_module, "_FEW_NODES", 4)
    monkeypatch.setattr(ground_module, "_NODES_EACH", 3)
    for seed in range(10):
        running, whole = drawn(seed, nodes=12)
        ground = RunningGround(running, mace(running))
        assert len(ground.near(whole, ()).nodes) < 12
        assert worst_s(whole, ground) <= worst_s(whole, None) * 1.05


def test_closed_nodes_are_not_among_the_roomiest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ground_module, "_FEW_NODES", 4)
    monkeypatch.setattr(ground_module, "_NODES_EACH", 3)
    running, whole = drawn(3, nodes=12)
    ground = RunningGround(running, mace(running))
    closed = [node.id for node in ground.near(whole, ()).nodes]
    placed = extend_placement(whole, closed=closed, ground=ground).placement
    assert not {part.node for parts in placed.values() for part in parts} & {*closed}


def test_ground_is_not_under_what_runs_elsewhere() -> None:
    running, whole = drawn(1, nodes=6)
    first = replace(whole.operators[0], bytes_per_event=77.0)
    moved = replace(whole, operators=(first, *whole.operators[1:]))
    assert not RunningGround(running, mace(running)).is_under(moved)
