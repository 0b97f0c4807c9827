"""Scheduling policies: which waiting event a free server takes.

A policy has two parts: how events line up in an operator's queue (`order`) and which operator is served (`choice`). A
new choice is a number here, a branch in `rank` (an operator's priority, kept in a heap) or in `pick` (a search).
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.simulation.compiled import spliced
from engine.simulation.queues import heap_top
from engine.simulation.rows import World

__all__ = ["POLICIES", "Policy", "pick", "rank"]

STIMULUS, ARRIVAL = 0, 1
EARLIEST, ROTATE, LONGEST = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy by name, its queue order and its choice of operator."""

    name: str
    label: str
    order: int
    choice: int


POLICIES = {
    policy.name: policy
    for policy in (
        Policy(
            "stimulus-time", "Stimulus time: the operator holding the event of earliest stimulus", STIMULUS, EARLIEST
        ),
        Policy("fifo", "FIFO: the event that has waited longest", ARRIVAL, EARLIEST),
        Policy("round-robin", "Round robin: operators in turn, one event each", ARRIVAL, ROTATE),
        Policy("longest-queue", "Longest queue: the operator with most events waiting", ARRIVAL, LONGEST),
    )
}


@spliced
def rank(world: World, station: int) -> int:
    """Priority of a station with waiting events; the lowest number is served first."""
    if world.choice == LONGEST:
        return int(-world.stations[station]["length"])
    return int(world.ready.keys[heap_top(world.ready, station)])


@spliced
def pick(world: World, server: int) -> int:
    """The station to serve next; -1 when nothing waits."""
    if world.choice != ROTATE:
        return heap_top(world.active, server)
    row = world.servers[server]
    count = row["last_station"] - row["first_station"]
    for step in range(count):
        turn = (row["cursor"] + step) % count
        if world.stations[row["first_station"] + turn]["length"] > 0:
            row["cursor"] = (turn + 1) % count
            return int(row["first_station"] + turn)
    return -1
