"""Slack of a stage, compiled: the closed form of `engine.klink.slack`, and the paper's Algorithm 1."""

from __future__ import annotations

import math

from engine.klink.simulation_compiled import part
from engine.klink.simulation_stage import arrived, pending_work, sweepable, work
from engine.klink.simulation_world import CODES, World

__all__ = ["due", "interval", "slack"]

_PRINTED, _REPAIRED = CODES["algorithm-1"], CODES["algorithm-1-repaired"]
_UNKNOWN, _LEAST_EPOCHS = 1000.0, 3
_TAIL, _DEPTH = 5.0, 25


@part
def hazard(z: float) -> float:
    """Mean of a standard normal that is at least z."""
    return math.sqrt(2.0 / math.pi) * math.exp(-z * z / 2.0) / math.erfc(z * math.sqrt(0.5))


@part
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


@part
def interval(world: World, s: int, j: int, w: int) -> tuple[float, float]:
    """Mean and deviation of when the watermark of window `w` comes; the period alone below three epochs."""
    row = world.stages[s]
    deadline = row["first"] + w * row["period"]
    known = min(world.ingested[s, j], world.history)
    if known < _LEAST_EPOCHS or row["known"] == 0:
        return deadline, 0.0
    mean = world.sums[s, j, 0] / known
    variance = world.sums[s, j, 2] / known - mean * mean
    if world.policy == _PRINTED:  # equation 6
        variance = (world.sums[s, j, 2] - world.sums[s, j, 1]) / (known * known)
    return deadline + mean, math.sqrt(max(0.0, variance))


@part
def above(z: float) -> float:
    """P(X >= z) of a standard normal."""
    return 0.5 * math.erfc(z * math.sqrt(0.5))


@part
def algorithm_1(world: World, now: float, mean: float, deviation: float, cost: float) -> float:
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


@part
def slack(world: World, s: int, now: float, b: int) -> float:
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
            before = pending_work(world, s) if sweepable(world, s) else total
            value = world.marks[s, w, j] - now - before
        else:
            mean, deviation = interval(world, s, j, w)
            if world.policy == _REPAIRED:
                value = algorithm_1(world, now, mean, deviation, total)
            else:
                value = wait(now, mean, deviation) - total
        least = min(least, value)
    return least


@part
def due(world: World, s: int, now: float, b: int) -> float:
    """Next deadline; without windows the end of the slack."""
    row = world.stages[s]
    if row["swept"] >= row["windows"]:
        return arrived(world, s, b) + _UNKNOWN
    return float(row["first"] + row["swept"] * row["period"])
