"""Memory in answers about pools: no size, mix or loss is said to do on which state has no room."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from engine.command_options import WhatIfCommandOptions
from engine.document.deployment import Deployment
from engine.document.memory import memory_by_node
from engine.provisioning.command import command
from engine.provisioning.mix import cheapest_mix, pareto_front
from engine.provisioning.pool.curve import PoolCurve
from engine.provisioning.pool.search import smallest_pool
from engine.provisioning.question import PoolQuestion
from engine.provisioning.survival import lose_each
from engine.provisioning.what_if import what_if

GB = 1e9


def document(sizes: list[float | None], memory: float | None, nodes: int = 1, **more: Any) -> dict[str, Any]:
    """Light operators with so much state each, all on the first of some nodes alike."""
    return {
        "subinterval_s": 1.0,
        "sources": [{"id": "s", "arrivals": [10.0] * 20}],
        "nodes": [
            {"id": f"n{i}", "capacity_cps": 1e5, "memory_bytes": memory, "pool": "p", "price_per_hour": 1.0}
            for i in range(nodes)
        ],
        "operators": [
            {
                "id": f"o{i}",
                "query": f"q{i}",
                "kind": "aggregate",
                "node": "n0",
                "state_bytes": size,
                "inputs": [{"from": "s", "selectivity": 1, "cycles_per_event": 10}],
            }
            for i, size in enumerate(sizes)
        ],
        "objectives": [{"query": f"q{i}", "statistic": "worst", "bound_s": 5.0} for i in range(len(sizes))],
    } | more


def fleet(sizes: list[float | None], memory: float | None, nodes: int = 1) -> Deployment:
    return Deployment.parse(document(sizes, memory, nodes))


def over(deployment: Deployment) -> list[str]:
    return [entry.node for entry in memory_by_node(deployment).values() if entry.over_bytes > 0.0]


def test_pool_is_as_large_as_its_state_needs() -> None:
    """Ten times 50 GB on nodes of 128 GB: two fit on each."""
    answer = smallest_pool(fleet([50 * GB] * 10, 128 * GB), PoolQuestion(keep_present=False), like="n0", most=16)
    assert answer.nodes == 5
    assert answer.confirmed
    assert answer.proof is not None
    assert "fits no node" in answer.proof.message or "memory" in answer.proof.message


def test_state_of_one_operator_that_fits_no_node_is_helped_by_no_number() -> None:
    answer = smallest_pool(fleet([500 * GB], 8 * GB), PoolQuestion(keep_present=False), like="n0", most=16)
    assert answer.nodes is None
    assert answer.proof is not None
    assert answer.proof.refutation is not None
    assert answer.proof.refutation.kind == "memory"
    assert "o0" in answer.message
    assert "no number of such nodes helps" in answer.message


def test_total_state_refutes_pools_that_are_too_small() -> None:
    answer = smallest_pool(fleet([4 * GB] * 8, 8 * GB), PoolQuestion(keep_present=False), like="n0", most=16)
    assert answer.nodes == 4
    assert answer.least == 4
    assert answer.proof is not None
    assert answer.proof.refutation is not None
    assert "all state takes" in answer.proof.message


def test_loss_of_a_node_needs_the_memory_of_one_more() -> None:
    question = PoolQuestion(keep_present=False, lose=1)
    answer = smallest_pool(fleet([4 * GB] * 8, 8 * GB), question, like="n0", most=16)
    assert answer.nodes is not None
    assert answer.nodes >= 5


def test_smallest_pool_agrees_with_bin_packing_on_random_state() -> None:
    for seed in range(8):
        rng = np.random.default_rng(seed)
        sizes = [float(size) for size in rng.integers(1, 8, 6) * GB]
        answer = smallest_pool(fleet(sizes, 8 * GB), PoolQuestion(keep_present=False), like="n0", most=8)
        assert answer.nodes == _least_bins(sizes, 8 * GB), seed


def _least_bins(sizes: list[float], room: float) -> int:
    def fits(left: list[float], todo: list[float]) -> bool:
        if not todo:
            return True
        return any(
            fits([*left[:k], left[k] - todo[0], *left[k + 1 :]], todo[1:])
            for k in range(len(left))
            if left[k] >= todo[0]
        )

    return next(n for n in range(math.ceil(sum(sizes) / room), len(sizes) + 1) if fits([room] * n, sorted(sizes)[::-1]))


def test_unknown_memory_is_said_in_the_answer() -> None:
    answer = smallest_pool(fleet([4 * GB, None], None), PoolQuestion(keep_present=False), like="n0", most=4)
    assert answer.nodes == 1
    assert "Whether state fits the memory of the nodes is not known: o1 does not state" in answer.message
    assert "do not state their memory" in answer.message


def test_types_of_nodes_carry_memory_and_the_mix_has_enough() -> None:
    types = [
        {"name": "small", "capacity_cps": 1e5, "price_per_hour": 1.0, "max": 4, "memory_bytes": 8 * GB},
        {"name": "large", "capacity_cps": 1e5, "price_per_hour": 3.0, "max": 4, "memory_bytes": 64 * GB},
    ]
    question = PoolQuestion(keep_present=False)
    answer = cheapest_mix(fleet([6 * GB, 40 * GB], 8 * GB), types, question)
    assert answer.counts == {"small": 0, "large": 1}
    front = pareto_front(fleet([6 * GB, 40 * GB], 8 * GB), types, question)
    assert all(point.counts["large"] >= 1 for point in front.points)


def test_curve_of_sizes_says_what_fits_no_node() -> None:
    sizes = PoolCurve(fleet([6 * GB] * 3, 8 * GB)).sweep(1.0, range(1, 5), like="n0")
    assert [entry.stuck is None for entry in sizes] == [False, False, True, True]
    assert [entry.lost is not None and entry.lost.stuck is None for entry in sizes] == [False, False, False, True]
    assert sizes[0].as_placed is None  # it holds 18 GB now, on 8


def test_survival_tells_a_loss_after_which_state_has_no_room() -> None:
    running = document([6 * GB, 6 * GB], 8 * GB, nodes=2)
    running["operators"][1]["node"] = "n1"
    survival = lose_each(Deployment.parse(running))
    assert not survival.survives
    assert all(outcome.refusal is not None for outcome in survival.losses.values())
    running["nodes"].append({"id": "spare", "capacity_cps": 1e5, "memory_bytes": 8 * GB})
    assert lose_each(Deployment.parse(running)).survives


@pytest.mark.parametrize("place", ["fill", "search"])
def test_what_if_places_within_memory(place: str) -> None:
    running = document([3 * GB] * 4, 8 * GB, nodes=3)
    for i, item in enumerate(running["operators"]):
        item["node"] = f"n{i % 3}"
    deployment = Deployment.parse(running)
    scenario = {"name": "lost", "changes": [{"lose_node": "n0"}], "place": place}
    outcome = what_if(deployment, [scenario])[0]
    assert outcome.deployment is not None
    assert over(outcome.deployment) == []
    worse = {"name": "two lost", "changes": [{"lose_node": "n0"}, {"lose_node": "n1"}], "place": place}
    assert what_if(deployment, [worse])[0].refusal is not None


def test_command_answers_with_the_memory_of_new_nodes() -> None:
    given = document([6 * GB], 4 * GB)
    big = {"like": {"capacity_cps": 1e5, "memory_bytes": 8 * GB}, "most": 4}
    answer = command(given, WhatIfCommandOptions(find="smallest_pool", parameters=big))["answer"]
    assert answer["nodes"] == 2
    assert answer["type"]["memory_bytes"] == 8 * GB
    assert answer["placement"]["o0"][0]["node"] != "n0"
