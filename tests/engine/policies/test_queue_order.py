from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.policies.queue_order import QueuedEntry, may_start, queue_order
from engine.policies.quotas import TeamDemand

CAPACITIES = {"cores": 10.0}
OVERDUE_S, STEP_S, SERVICE_S = 50.0, 1.0, 3.0


def entry(key: str, rank: int, team: str, asked_s: float, cores: float = 1.0) -> QueuedEntry:
    return QueuedEntry(key, rank, team, asked_s, TeamDemand({"cores": cores}))


def test_class_comes_before_share_and_share_before_age() -> None:
    rows = [entry("old", 0, "big", 0.0), entry("small", 0, "tiny", 5.0), entry("high", 9, "big", 9.0)]
    order = queue_order(rows, {"big": TeamDemand({"cores": 6.0})}, CAPACITIES, 10.0, OVERDUE_S)
    assert [row.key for row in order] == ["high", "small", "old"]
    late = queue_order(rows, {"big": TeamDemand({"cores": 6.0})}, CAPACITIES, OVERDUE_S, OVERDUE_S)
    assert [row.key for row in late] == ["old", "high", "small"]


def pair(key: str, rank: int, asked_s: float, cores: Mapping[str, float]) -> QueuedEntry:
    """A group with a member of each of two teams."""
    (team, own), (other, beside) = cores.items()
    return QueuedEntry(key, rank, team, asked_s, TeamDemand({"cores": own}), {other: TeamDemand({"cores": beside})})


def test_group_counts_by_the_largest_share_of_its_teams() -> None:
    """Company of a small team does not get a large one ahead; a group is charged to both."""
    usage = {"big": TeamDemand({"cores": 6.0})}
    group = pair("group", 0, 0.0, {"tiny": 0.5, "big": 0.5})
    order = queue_order([group, entry("mid", 0, "mid", 5.0)], usage, CAPACITIES, 10.0, OVERDUE_S)
    assert [row.key for row in order] == ["mid", "group"]
    rows = [pair("group", 0, 0.0, {"a": 3.0, "b": 3.0}), entry("b", 0, "b", 1.0), entry("c", 0, "c", 2.0)]
    order = queue_order(rows, {}, CAPACITIES, 10.0, OVERDUE_S)
    assert [row.key for row in order] == ["group", "c", "b"]


@pytest.mark.parametrize(
    "victim",
    [entry("victim", -1, "z", 0.0, 9.5), pair("victim", -1, 0.0, {"z": 5.0, "y": 4.5})],
    ids=["alone", "group"],
)
@settings(max_examples=20, deadline=None)
@given(
    arrivals=st.lists(
        st.lists(st.tuples(st.integers(0, 9), st.sampled_from("abc"), st.sampled_from([0.5, 1.0, 9.0])), max_size=3),
        min_size=60,
        max_size=60,
    )
)
def test_nobody_starves_whoever_else_comes(victim: QueuedEntry, arrivals: list[list[tuple[int, str, float]]]) -> None:
    """An entry of the lowest class that needs almost all of a cluster, against whatever is sent to keep it out.

    Every other one that comes is a group.
    """
    waiting, running = [victim], list[tuple[float, float]]()
    for step, wave in enumerate([[(9, "a", 9.0)] * 3, *arrivals]):
        now = step * STEP_S
        for i, (rank, team, cores) in enumerate(wave):
            both = {team: cores / 2, "d": cores / 2}
            waiting.append(
                pair(f"{step}.{i}", rank, now, both) if i % 2 else entry(f"{step}.{i}", rank, team, now, cores)
            )
        running = [(ends, cores) for ends, cores in running if ends > now]
        order = queue_order(waiting, {}, CAPACITIES, now, OVERDUE_S)
        for row in order:
            ahead = [other for other in order[: order.index(row)] if other in waiting]
            used, cores = (
                sum(cores for _, cores in running),
                sum(demand.amounts["cores"] for demand in row.demands.values()),
            )
            if may_start(len(ahead), [*ahead, row], now, OVERDUE_S) and used + cores <= CAPACITIES["cores"]:
                running.append((now + SERVICE_S, cores))
                waiting.remove(row)
        if victim not in waiting:
            return
        assert now < OVERDUE_S + SERVICE_S  # nothing may overtake it any more, and what runs has ended by then
