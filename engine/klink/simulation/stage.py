"""A stage as a policy sees it, compiled: its work, its watermarks and its slack."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

from engine.klink.simulation.world import CODES, KlinkWorld

__all__ = [
    "arrived",
    "compiled_part",
    "due",
    "front",
    "has_work",
    "is_ready",
    "is_sweepable",
    "pending_at",
    "pending_work",
    "slack",
    "stimulus",
    "work",
]

Function = TypeVar("Function", bound=Callable[..., Any])

_UNKNOWN, _MIN_EPOCHS = 1000.0, 3
_TAIL, _DEPTH = 5.0, 25


def compiled_part(function: Function) -> Function:
    """Compile `function` for other compiled functions; without reference counts, as `engine.compiler`."""
    return cast(Function, njit(nogil=True, _nrt=False)(function))


@compiled_part
def front(world: KlinkWorld, s: int, b: int) -> int:
    """First bin of a stage, up to `b`, with events that wait; b + 1 where there is none."""
    h = world.stages[s]["head"]
    while h <= b and world.arriving[s, h] <= 0.0:
        h += 1
    return h


@compiled_part
def is_sweepable(world: KlinkWorld, s: int) -> bool:
    """Whether watermarks of all streams have passed its next deadline, so only work before them is left."""
    row = world.stages[s]
    w = row["swept"]
    if w >= row["windows"]:
        return False
    least = w + 1
    for j in range(row["streams"]):
        least = min(least, world.ingested[s, j])
    return bool(least > w)


@compiled_part
def has_work(world: KlinkWorld, s: int) -> bool:
    """Events wait, or a watermark that sweeps."""
    return world.stages[s]["waiting"] > 0.0 or is_sweepable(world, s)


@compiled_part
def is_ready(world: KlinkWorld, s: int, now: float) -> bool:
    """Whether a core could take the stage."""
    row = world.stages[s]
    return bool(row["taken"] == 0 and row["free_at"] <= now and has_work(world, s))


@compiled_part
def pending_at(world: KlinkWorld, s: int) -> float:
    """Arrival of the last stream's watermark that sweeps the next window."""
    row = world.stages[s]
    latest = -math.inf
    for j in range(row["streams"]):
        latest = max(latest, world.marks[s, row["swept"], j])
    return latest


@compiled_part
def work(world: KlinkWorld, s: int) -> float:
    """CPU time for everything that waits."""
    row = world.stages[s]
    return float(row["waiting"] * (row["cost"] + row["further"]))


@compiled_part
def pending_work(world: KlinkWorld, s: int) -> float:
    """CPU time for what lies before the watermark that sweeps the next window."""
    row = world.stages[s]
    before = max(0.0, world.position[s, row["swept"]] - row["gone"])
    return float(min(before, row["waiting"]) * (row["cost"] + row["further"]))


@compiled_part
def arrived(world: KlinkWorld, s: int, b: int) -> float:
    """Arrival of the oldest waiting event, or of a watermark where nothing else waits."""
    return float(front(world, s, b) * world.tick) if world.stages[s]["waiting"] > 0.0 else pending_at(world, s)


@compiled_part
def stimulus(world: KlinkWorld, s: int, b: int) -> float:
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


_PRINTED, _REPAIRED = CODES["algorithm-1"], CODES["algorithm-1-repaired"]


@compiled_part
def hazard(z: float) -> float:
    """Mean of a standard normal that is at least z."""
    return math.sqrt(2.0 / math.pi) * math.exp(-z * z / 2.0) / math.erfc(z * math.sqrt(0.5))


@compiled_part
def wait(now: float, mean: float, deviation: float) -> float:
    """E[w - t | w >= t]; as `engine.klink.slack.expected_wait_ms`."""
    if deviation <= 0.0:
        return max(0.0, mean - now)
    z = (now - mean) / deviation
    if z <= _TAIL:
        return mean - now + deviation * hazard(z)
    fraction = z
    for i in range(_DEPTH - 1):
        fraction = z + (_DEPTH - i) / fraction
    return deviation / fraction


@compiled_part
def interval(world: KlinkWorld, s: int, j: int, w: int) -> tuple[float, float]:
    """Mean and deviation of when the watermark of window `w` comes; the period alone below three epochs."""
    row = world.stages[s]
    deadline = row["first"] + w * row["period"]
    known = min(world.ingested[s, j], world.history)
    if known < _MIN_EPOCHS or row["known"] == 0:
        return deadline, 0.0
    mean = world.sums[s, j, 0] / known
    variance = world.sums[s, j, 2] / known - mean * mean
    if world.policy == _PRINTED:  # equation 6
        variance = (world.sums[s, j, 2] - world.sums[s, j, 1]) / (known * known)
    return deadline + mean, math.sqrt(max(0.0, variance))


@compiled_part
def above(z: float) -> float:
    """P(X >= z) of a standard normal."""
    return 0.5 * math.erfc(z * math.sqrt(0.5))


@compiled_part
def algorithm_1(world: KlinkWorld, now: float, mean: float, deviation: float, cost: float) -> float:
    """The paper's loop; repaired, what is overdue or certain has the slack of the closed form."""
    if deviation <= 0.0 or (world.policy == _REPAIRED and now > mean + 2.0 * deviation):
        return wait(now, mean, deviation) - cost
    x, most, sum_ = max(now, mean - 2.0 * deviation), mean + 2.0 * deviation, 0.0
    beyond = above((now - mean) / deviation)
    while x <= most and beyond > 0.0:
        chance = (above((x - mean) / deviation) - above((x + world.cycle - mean) / deviation)) / beyond
        sum_ += chance * (x + world.cycle - now - cost)
        x += world.cycle
    return sum_


@compiled_part
def slack(world: KlinkWorld, s: int, now: float, b: int) -> float:
    """Least of the streams' slacks; without windows, as if events might wait a second."""
    row = world.stages[s]
    w, total = row["swept"], work(world, s)
    if w >= row["windows"]:
        return arrived(world, s, b) + _UNKNOWN - now - total
    least = math.inf
    for j in range(row["streams"]):
        here = world.ingested[s, j]
        if world.policy == _PRINTED:  # an epoch begins once the last watermark has come, processed or not
            mean, deviation = interval(world, s, j, here)
            value = algorithm_1(world, now, mean, deviation, total)
        elif here > w:
            before = pending_work(world, s) if is_sweepable(world, s) else total
            value = world.marks[s, w, j] - now - before
        else:
            mean, deviation = interval(world, s, j, w)
            if world.policy == _REPAIRED:
                value = algorithm_1(world, now, mean, deviation, total)
            else:
                value = wait(now, mean, deviation) - total
        least = min(least, value)
    return least


@compiled_part
def due(world: KlinkWorld, s: int, now: float, b: int) -> float:
    """Next deadline; without windows the end of the slack."""
    row = world.stages[s]
    if row["swept"] >= row["windows"]:
        return arrived(world, s, b) + _UNKNOWN
    return float(row["first"] + row["swept"] * row["period"])
