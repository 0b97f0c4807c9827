"""Moves: their order, how long they take, what they cost queries meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from engine.document.deployment import Deployment, Replica
from engine.placement.goal import goal_of
from engine.placement.migration import (
    DEFAULT_BANDWIDTH_BYTES_S,
    MigrationPauses,
    MigrationStep,
    changes_of,
    duration_s,
    order_moves,
)
from engine.placement.proposal import place
from engine.records import Fact
from tests.engine.placement.stories import drawn, fleet, node, operator


def steps_of(deployment: Deployment, homes: dict[str, str]) -> list[MigrationStep]:
    places = {name: (Replica(home),) for name, home in homes.items()}
    return order_moves(deployment, goal_of(deployment, "worst"), changes_of(deployment, places))


def test_moves_off_the_bottleneck_come_first() -> None:
    crowd = [operator("p/0", 3.0, node="m"), *(operator(f"p/{k}", 6.0, node="n") for k in range(1, 4))]
    deployment = fleet(crowd, [node("n"), node("m"), node("k")])
    steps = steps_of(deployment, {"p/0": "k", "p/1": "m"})
    assert [step.operator.id for step in steps] == ["p/1", "p/0"]
    assert [step.mace_s for step in steps] == pytest.approx([0.2, 0.2])
    relieved = "takes 0.33 of the load of n away, whose longest delay falls from 0.8\u00a0s to 0.2\u00a0s"
    words = Fact("placement.move", **vars(steps[0].effects), over=steps[0].over)
    assert words == f"{relieved}; m goes to 0.90 of its capacity at peak"


def test_target_is_emptied_before_it_is_filled() -> None:
    """`p/0` comes to m, which `p/1` leaves: the other order would overload m for a while."""
    crowd = [operator("p/0", 9.0, node="n"), operator("p/1", 9.0, node="m")]
    deployment = fleet(crowd, [node("n"), node("m"), node("k")])
    steps = steps_of(deployment, {"p/0": "m", "p/1": "k"})
    assert [step.operator.id for step in steps] == ["p/1", "p/0"]
    assert [step.mace_s for step in steps] == [0.0, 0.0]


def test_exchange_takes_the_order_with_less_excess() -> None:
    crowd = [operator("p/0", 9.0, node="n"), operator("p/1", 6.0, node="m")]
    deployment = fleet(crowd, [node("n"), node("m", 120.0)])
    steps = steps_of(deployment, {"p/0": "m", "p/1": "n"})
    assert [step.operator.id for step in steps] == ["p/0", "p/1"]  # 150 of 120 rather than 150 of 100
    assert steps[0].mace_s == pytest.approx(0.25)


def test_order_of_moves_keeps_anti_affinity() -> None:
    crowd = [operator("p/0", 2.0, node="n"), operator("p/1", 1.0, node="m")]
    apart = {"constraints": {"apart": [["p/0", "p/1"]]}}
    deployment = fleet(crowd, [node("n"), node("m"), node("k")], **apart)
    steps = steps_of(deployment, {"p/0": "m", "p/1": "k"})
    assert [step.operator.id for step in steps] == ["p/1", "p/0"]


@pytest.mark.parametrize("seed", range(5))
def test_moves_in_order_end_in_the_proposed_placement(seed: int) -> None:
    deployment = drawn(seed + 300)
    target = {op.id: deployment.nodes[k % len(deployment.nodes)].id for k, op in enumerate(deployment.operators)}
    at = {op.id: op.replicas for op in deployment.operators}
    for step in steps_of(deployment, target):
        assert at[step.operator.id] == step.old
        at[step.operator.id] = step.new
    assert {name: parts[0].node for name, parts in at.items()} == target


class TestDurations:
    def moved(self, state_bytes: float | None, **link: Any) -> float:
        links = [{"from": "n", "to": "m"} | link] if link else []
        op = operator("p/a", 1.0, node="n", **({} if state_bytes is None else {"state_bytes": state_bytes}))
        deployment = fleet([op], [node("n", cores=2), node("m")], links=links)
        step = MigrationStep(deployment.operators[0], (Replica("n"),), (Replica("m"),), 0.0)
        return duration_s(deployment, step)

    def test_move_takes_state_size_over_bandwidth(self) -> None:
        assert self.moved(5e6, bandwidth_bytes_s=1e6, delay_s=0.25) == pytest.approx(5.25)

    def test_default_bandwidth_applies_without_a_link_limit(self) -> None:
        assert self.moved(5e8) == pytest.approx(5e8 / DEFAULT_BANDWIDTH_BYTES_S)
        assert self.moved(5e8, delay_s=0.5) == pytest.approx(5e8 / DEFAULT_BANDWIDTH_BYTES_S + 0.5)

    def test_stateless_operator_moves_without_pause(self) -> None:
        assert self.moved(None, bandwidth_bytes_s=1.0) == 0.0
        assert self.moved(0.0, bandwidth_bytes_s=1.0) == 0.0

    def test_move_within_a_node_transfers_no_state(self) -> None:
        deployment = fleet([operator("p/a", 1.0, node="n", state_bytes=1e9)], [node("n", cores=2)])
        step = MigrationStep(deployment.operators[0], (Replica("n"),), (Replica("n", 1),), 0.0)
        assert duration_s(deployment, step) == 0.0


class TestMigrationPauses:
    """Ten events of five cycles in every second, on 100 cycles/s: half of the node is free."""

    def steady(self, **more: Any) -> Deployment:
        sources = [{"id": name, "arrivals": [10.0] * 40} for name in ("s", "t")]
        crowd = [operator("p/a", 5.0, node="n", state_bytes=1e9), operator("q/b", 2.0, "t", node="m")]
        return fleet(crowd, [node("n"), node("m")], sources=sources, **more)

    def bump(self, deployment: Deployment, lasts_s: float) -> tuple[float, str | None]:
        op = deployment.operators[0]
        return MigrationPauses(deployment)(1, MigrationStep(op, op.replicas, (Replica("m"),), 0.0), lasts_s)

    def test_first_event_of_a_pause_waits_for_all_of_it(self) -> None:
        extra, query = self.bump(self.steady(), 3.0)
        # It is let go 3 s late and takes its own 0.5 s then, as it would have anyhow.
        assert query == "p"
        assert extra == pytest.approx(3.0, abs=0.5)

    def test_partial_slices_count_in_proportion(self) -> None:
        whole, _ = self.bump(self.steady(), 1.0)
        assert self.bump(self.steady(), 0.25)[0] == pytest.approx(whole / 4)

    def test_neighbours_wait_for_the_burst_after_a_pause(self) -> None:
        sources = [{"id": name, "arrivals": [10.0] * 40} for name in ("s", "t")]
        crowd = [operator("p/a", 5.0, node="n", state_bytes=1e9), operator("q/b", 4.0, "t", node="m")]
        bumps = MigrationPauses(fleet(crowd, [node("n"), node("m")], sources=sources))
        op = bumps.deployment.operators[0]
        extra, _ = bumps(1, MigrationStep(op, op.replicas, (Replica("m"),), 0.0), 4.0)
        # Both queries are late until 200 cycles of backlog are worked off at 10 a second.
        assert extra >= 3.5

    def test_move_without_state_has_no_pause_latency(self) -> None:
        assert self.bump(self.steady(), 0.0) == (0.0, None)

    @pytest.mark.parametrize("seed", range(6))
    def test_proposal_states_durations_and_pause_latencies(self, seed: int) -> None:
        deployment = drawn(seed + 400, links=seed % 2 == 0)
        document = deployment.to_document()
        for op in document["operators"]:
            op |= {"state_bytes": 300.0, "stateless": False}
        report = place(Deployment.parse(document), budget_s=None, rounds=5).report.to_dict()
        for number, move in enumerate(report["moves"], 1):
            assert move["n"] == number
            assert move["duration_s"] >= 0.0
            assert move["bump_s"] >= 0.0
            assert (move["bump_query"] is None) == (move["bump_s"] == 0.0)
