"""Memory in placements: what is proposed fits, and moves are made in an order in which it fits meanwhile."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from engine.document.deployment import Deployment
from engine.document.memory import memory_by_node
from engine.errors import InfeasibleError
from engine.placement.answer import OverMemory
from engine.placement.greedy import place as place_greedily
from engine.placement.proposal import place

GB = 1e9


def deployment(
    sizes: list[float], memory: list[float | None], at: list[str] | None = None, **more: Any
) -> dict[str, Any]:
    """Operators with so much state, each of another load, on nodes `n0`, `n1` … ; placed where `at` says."""
    return {
        "subinterval_s": 1.0,
        "sources": [{"id": "s", "arrivals": [10.0, 40.0, 10.0, 10.0]}],
        "nodes": [{"id": f"n{i}", "capacity_cps": 100.0, "memory_bytes": size} for i, size in enumerate(memory)],
        "operators": [
            {
                "id": f"o{i}",
                "kind": "aggregate",
                "state_bytes": size,
                "inputs": [{"from": "s", "selectivity": 1, "cycles_per_event": 1.0 + 0.3 * i}],
                **({"node": at[i]} if at else {}),
            }
            for i, size in enumerate(sizes)
        ],
    } | more


def proposed(document: dict[str, Any], **options: Any) -> Any:
    return place(Deployment.parse(document, placed=False), budget_s=None, rounds=4, flow=False, **options)


def fits_somehow(sizes: list[float], memory: list[float | None]) -> bool:
    rooms = [np.inf if size is None else size for size in memory]
    return any(
        all(sum(size for size, k in zip(sizes, where, strict=True) if k == i) <= room for i, room in enumerate(rooms))
        for where in product(range(len(memory)), repeat=len(sizes))
    )


@pytest.mark.parametrize("algorithm", ["search", "greedy"])
def test_every_algorithm_keeps_memory_and_finds_a_placement_where_there_is_one(algorithm: str) -> None:
    seen = set()
    for seed in range(10):
        rng = np.random.default_rng(seed)
        sizes = [float(size) for size in rng.integers(0, 5, 6) * GB]
        memory: list[float | None] = [float(size) for size in rng.integers(2, 8, 3) * GB]
        if seed % 3 == 0:
            memory[0] = None
        possible = fits_somehow(sizes, memory)
        seen.add(possible)
        try:
            result = proposed(deployment(sizes, memory), algorithm=algorithm)
        except InfeasibleError:
            assert not possible, (seed, algorithm)
            continue
        assert possible
        assert all(entry.over_bytes == 0.0 for entry in memory_by_node(result.placed()).values()), (seed, algorithm)
    assert seen == {True, False}


def test_greedy_placement_finds_the_only_way_that_fits() -> None:
    """By load o3 would go first; only with the largest states first does everything find room."""
    document = deployment([6 * GB, 4 * GB, 3 * GB, 1 * GB], [7 * GB, 7 * GB])
    placement = place_greedily(Deployment.parse(document, placed=False))
    used = {"n0": 0.0, "n1": 0.0}
    for i, size in enumerate([6, 4, 3, 1]):
        used[placement[f"o{i}"][0].node] += size
    assert used == {"n0": 7, "n1": 7}


def test_running_placement_over_memory_is_mended_and_said() -> None:
    result = proposed(deployment([4 * GB, 4 * GB], [6 * GB, 6 * GB], ["n0", "n0"]))
    assert {parts[0].node for parts in result.placement.values()} == {"n0", "n1"}
    assert result.report.value_before is None  # what runs is no placement that may be kept
    said = " ".join(map(str, result.report.messages)).replace("\u00a0", " ")
    assert "Before: n0 holds 7.5 GiB of state, its memory is 5.6 GiB." in said
    assert [entry.state for entry in result.report.memory.nodes] == ["fits", "fits"]


def test_state_that_fits_no_node_is_refused_with_sizes() -> None:
    with pytest.raises(InfeasibleError) as refusal:
        proposed(deployment([9 * GB], [8 * GB, 8 * GB]))
    assert "its state takes 8.4" in refusal.value.faults[0].message
    with pytest.raises(InfeasibleError) as refusal:
        proposed(deployment([5 * GB] * 4, [8 * GB, 8 * GB]))
    words = refusal.value.faults[0].message.replace("\u00a0", " ")
    assert "the memory of the nodes (state takes 18.6 GiB in all and they have 14.9 GiB together)" in words


def test_unknown_memory_is_said_and_blocks_nothing() -> None:
    result = proposed(deployment([9 * GB], [None]))
    assert str(result.report.messages[-1]).startswith(
        "Whether state fits the memory of the nodes is not known: n0 does"
    )


def test_moves_are_ordered_so_that_old_and_new_place_hold_the_state_meanwhile() -> None:
    """o0 can only come to n1 once o1 has left it, whatever their loads."""
    pins = {"constraints": {"pin": {"o0": "n1", "o1": "n2"}}}
    document = deployment([5 * GB, 5 * GB], [8 * GB] * 3, ["n0", "n1"], **pins)
    moves = proposed(document).report.moves
    assert [(move.operator, move.over_memory) for move in moves] == [("o1", ()), ("o0", ())]


def test_exchange_without_room_for_both_says_what_is_over_while_it_is_made() -> None:
    pins = {"constraints": {"pin": {"o0": "n1", "o1": "n0"}}}
    result = proposed(deployment([5 * GB, 5 * GB], [8 * GB] * 2, ["n0", "n1"], **pins))
    first, second = result.report.moves
    assert first.over_memory == (OverMemory(first.after[0].node, 2 * GB),)
    assert second.over_memory == ()
    assert any("stop the operator first" in str(message) for message in result.report.messages)
