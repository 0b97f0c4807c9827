"""Memory in admission: no candidate goes where its state does not fit, and what nobody knows is said once."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from engine.admission.answer import AdmissionDecision, AdmissionPolicy
from engine.admission.decision import decide
from engine.admission.scenario import CandidateQuestion, scenario_of
from engine.document.candidate import read_candidate
from engine.document.deployment import Deployment
from engine.document.memory import memory_by_node

GB = 1e9
AT_ONCE = {"statistic": "worst", "bound_s": 5.0}


def operator(name: str, cost: float = 10.0, **more: Any) -> dict[str, Any]:
    return {"id": name, "inputs": [{"from": "s", "selectivity": 1, "cycles_per_event": cost}], **more}


def running(nodes: list[dict[str, Any]], operators: list[dict[str, Any]] | None = None, **more: Any) -> Deployment:
    document = {
        "subinterval_s": 1.0,
        "sources": [{"id": "s", "arrivals": [10.0] * 20}],
        "nodes": nodes,
        "operators": operators or [operator("run", query="old", node=nodes[-1]["id"], kind="filter")],
    }
    return Deployment.parse(document | more)


def node(name: str, memory: float | None, capacity: float = 1e5) -> dict[str, Any]:
    return {"id": name, "capacity_cps": capacity, "memory_bytes": memory}


def candidate(*operators: dict[str, Any]) -> dict[str, Any]:
    return {"query": "new", "objective": AT_ONCE, "operators": list(operators)}


def reasons(decision: AdmissionDecision, code: str) -> list[Any]:
    return [reason for reason in decision.reasons if reason.code == code]


SMALL_AND_BIG = [node("small", 8 * GB, 1e6), node("big", 1000 * GB)]


def test_state_goes_where_its_memory_is_and_not_where_capacity_is() -> None:
    """200 GB of state beside a faster node of 8 GB."""
    decision = decide(running(SMALL_AND_BIG), candidate(operator("agg", 100.0, kind="aggregate", state_bytes=200 * GB)))
    assert decision.verdict == "admit"
    assert [part.node for part in decision.placement["agg"]] == ["big"]
    assert not reasons(decision, "memory_unknown")


def test_candidate_asked_for_on_a_node_without_the_memory_is_rejected_with_a_place_that_has_it() -> None:
    asked = candidate(operator("agg", 100.0, kind="aggregate", state_bytes=200 * GB, node="small"))
    decision = decide(running(SMALL_AND_BIG), asked)
    assert decision.verdict == "reject"
    assert "small has too little memory: it would hold 186" in decision.headline.replace("\u00a0", " ")
    (reason,) = reasons(decision, "memory_exceeded")
    assert (reason.id, reason.value, reason.bound, reason.unit) == ("small", 200 * GB, 8 * GB, "B")
    moves = [change for choice in decision.alternatives for change in choice.changes if change.kind == "move"]
    assert moves
    assert {change.node for change in moves} == {"big"}
    assert {choice.kind for choice in decision.alternatives} <= {"move", "place_again"}  # rate and time cure nothing


def test_candidate_that_fits_nowhere_is_rejected_by_name_and_size() -> None:
    decision = decide(running(SMALL_AND_BIG), candidate(operator("agg", kind="aggregate", state_bytes=2000 * GB)))
    assert decision.verdict == "reject"
    assert decision.placement == {}
    assert "agg" in decision.headline
    assert "memory" in decision.headline
    assert not any(choice.kind == "add_node" for choice in decision.alternatives)  # none like these has it either


def test_new_node_is_like_one_whose_memory_is_enough() -> None:
    full = [node("small", 8 * GB, 1e6), node("big", 300 * GB)]
    held = [operator("run", query="old", node="big", kind="aggregate", state_bytes=250 * GB)]
    asked = candidate(operator("agg", kind="aggregate", state_bytes=200 * GB))
    decision = decide(running(full, held), asked)
    assert decision.verdict == "reject"
    added = [c for choice in decision.alternatives for c in choice.changes if c.kind == "add_node"]
    assert added
    assert {change.like for change in added} == {"big"}


def test_operators_of_one_candidate_count_together() -> None:
    """Each fits a node alone; the three together fit only one way."""
    nodes = [node("a", 5 * GB), node("b", 3 * GB)]
    run = [operator("run", query="old", node="a", kind="filter")]
    sizes = {"x": 4 * GB, "y": 3 * GB, "z": 1 * GB}
    asked = candidate(*(operator(name, kind="aggregate", state_bytes=size) for name, size in sizes.items()))
    decision = decide(running(nodes, run), asked)
    assert {name: parts[0].node for name, parts in decision.placement.items()} == {"x": "a", "y": "b", "z": "a"}


@pytest.mark.parametrize("missing", ["state", "memory"])
def test_unknown_memory_is_said_once_and_blocks_nothing(missing: str) -> None:
    state = {} if missing == "state" else {"state_bytes": 200 * GB}
    nodes = [node("n", 8 * GB if missing == "state" else None)]
    decision = decide(running(nodes), candidate(operator("agg", kind="aggregate", **state)))
    assert decision.verdict == "admit"
    (reason,) = reasons(decision, "memory_unknown")
    assert ("agg" if missing == "state" else "n does not state its memory") in reason.message


def test_candidate_without_state_may_join_a_node_that_is_over_already() -> None:
    held = [operator("run", query="old", node="n", kind="aggregate", state_bytes=9 * GB)]
    decision = decide(running([node("n", 8 * GB)], held), candidate(operator("f", kind="filter")))
    assert decision.verdict == "admit"
    (reason,) = reasons(decision, "memory_over_already")
    assert (reason.severity, reason.id) == ("info", "n")


def test_state_on_disk_needs_no_memory() -> None:
    asked = candidate(operator("agg", kind="aggregate", state_bytes=200 * GB, state_on_disk=True))
    assert decide(running([node("n", 8 * GB)]), asked).verdict == "admit"


def _fits(free: list[float], needs: list[float]) -> bool:
    return any(
        all(sum(need for need, k in zip(needs, places, strict=True) if k == i) <= free[i] for i in range(len(free)))
        for places in product(range(len(free)), repeat=len(needs))
    )


def test_no_placement_or_alternative_ever_exceeds_known_memory() -> None:
    """Random fleets: a candidate is placed exactly where some placement fits, and everything offered fits."""
    seen = set()
    for seed in range(40):
        rng = np.random.default_rng(seed)
        memory = [float(size) for size in rng.integers(1, 7, int(rng.integers(1, 4))) * GB]
        nodes = [node(f"n{i}", size, float(rng.choice([1e3, 1e5]))) for i, size in enumerate(memory)]
        held = [
            operator(f"r{i}", query="old", node=f"n{i}", kind="aggregate", state_bytes=float(rng.integers(0, 3)) * GB)
            for i in range(len(nodes))
        ]
        deployment = running(nodes, held, objectives=[{"query": "old", **AT_ONCE}])
        needs = [float(size) for size in rng.integers(0, 4, int(rng.integers(1, 4))) * GB]
        asked = candidate(*(operator(f"c{i}", kind="join", state_bytes=size) for i, size in enumerate(needs)))
        decision = decide(deployment, asked)
        free = [entry.free_bytes or 0.0 for entry in memory_by_node(deployment).values()]
        assert bool(decision.placement) == _fits(free, needs), seed
        scenarios = [decision.placement] if decision.placement else []
        for placement in scenarios:
            used = {f"n{i}": 0.0 for i in range(len(nodes))}
            for name, parts in placement.items():
                used[parts[0].node] += needs[int(name[1:])]
            assert all(used[f"n{i}"] <= free[i] + 1.0 for i in range(len(nodes))), seed
        for choice in decision.alternatives:
            question = CandidateQuestion(deployment, read_candidate(asked, deployment), AdmissionPolicy())
            after = scenario_of(question, choice.changes).deployment
            was = memory_by_node(deployment)
            assert all(
                entry.over_bytes <= (was[name].over_bytes if name in was else 0.0)
                for name, entry in memory_by_node(after).items()
            ), (seed, choice.id)
        seen.add(bool(decision.placement))
    assert seen == {True, False}
