"""What a policy sees of a stage, compiled."""

from __future__ import annotations

import math

from engine.klink.simulation_compiled import part
from engine.klink.simulation_world import World

__all__ = ["arrived", "front", "has_work", "pending_at", "pending_work", "ready", "stimulus", "sweepable", "work"]


@part
def front(world: World, s: int, b: int) -> int:
    """First bin of a stage, up to `b`, with events that wait; b + 1 where there is none."""
    h = world.stages[s]["head"]
    while h <= b and world.arriving[s, h] <= 0.0:
        h += 1
    return h


@part
def sweepable(world: World, s: int) -> bool:
    """Whether watermarks of all streams passed its next deadline: nothing but what waits before them is left to do."""
    row = world.stages[s]
    w = row["swept"]
    if w >= row["windows"]:
        return False
    least = w + 1
    for j in range(row["streams"]):
        least = min(least, world.ingested[s, j])
    return bool(least > w)


@part
def has_work(world: World, s: int) -> bool:
    """Events wait, or a watermark that sweeps."""
    return world.stages[s]["waiting"] > 0.0 or sweepable(world, s)


@part
def ready(world: World, s: int, now: float) -> bool:
    """Whether a core could take the stage."""
    row = world.stages[s]
    return bool(row["taken"] == 0 and row["free_at"] <= now and has_work(world, s))


@part
def pending_at(world: World, s: int) -> float:
    """When the last stream's watermark came that sweeps the next window."""
    row = world.stages[s]
    latest = -math.inf
    for j in range(row["streams"]):
        latest = max(latest, world.marks[s, row["swept"], j])
    return latest


@part
def work(world: World, s: int) -> float:
    """CPU time for everything that waits."""
    row = world.stages[s]
    return float(row["waiting"] * (row["cost"] + row["further"]))


@part
def pending_work(world: World, s: int) -> float:
    """CPU time for what lies before the watermark that sweeps the next window."""
    row = world.stages[s]
    before = max(0.0, world.position[s, row["swept"]] - row["gone"])
    return float(min(before, row["waiting"]) * (row["cost"] + row["further"]))


@part
def arrived(world: World, s: int, b: int) -> float:
    """When what has waited longest came: an event, or a watermark where nothing else waits."""
    return float(front(world, s, b) * world.tick) if world.stages[s]["waiting"] > 0.0 else pending_at(world, s)


@part
def stimulus(world: World, s: int, b: int) -> float:
    """Earliest event time that waits."""
    row = world.stages[s]
    if row["waiting"] <= 0.0:
        return float(row["first"] + row["swept"] * row["period"])
    if row["oldest"] < row["head"]:
        best = -1
        for h in range(row["head"], b + 1):
            if world.arriving[s, h] > 0.0 and (best < 0 or world.stimulus[s, h] < world.stimulus[s, best]):
                best = h
        row["oldest"] = best
    return float(world.stimulus[s, row["oldest"]])
