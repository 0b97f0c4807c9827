"""The policies of `engine.klink.policies`, compiled: which stage of a node runs next. A test holds both to be the same.

Besides, for comparison: `random` (the threads of an operating system, which know nothing of windows) and the paper's
Algorithm 1, as printed and repaired.
"""

from __future__ import annotations

import math

from engine.klink.simulation.stage import (
    arrived,
    compiled_part,
    due,
    is_ready,
    is_sweepable,
    pending_work,
    slack,
    stimulus,
    work,
)
from engine.klink.simulation.world import CODES, KlinkWorld

__all__ = ["pick"]

_KLINK, _STIMULUS, _FCFS, _ROUND = CODES["klink"], CODES["stimulus-time"], CODES["fcfs"], CODES["round-robin"]
_RATE, _DEADLINE, _RESPONSE = CODES["highest-rate"], CODES["nearest-deadline"], CODES["response-ratio"]
_RANDOM, _PRINTED = CODES["random"], CODES["algorithm-1"]
_MIN_WORK = 1e-3
_SHARES, _SPREADS = (0.65, 1.25), (0.7, 1.0)
_MIN_COUNTED, _MAX_COUNTED = 8, 50
_FREES = 0.5
_PICKS, _STATE = 0, 2
_BEHIND = 10.0  # above all groups


@compiled_part
def klink(world: KlinkWorld, s: int, now: float, b: int, bound: float) -> tuple[float, float]:
    """Group and rank: what is here, by response ratio, or with a `bound` of lateness the short first; least slack."""
    row = world.stages[s]
    left, here = work(world, s), False
    patience = math.inf
    if row["swept"] >= row["windows"]:
        here = slack(world, s, now, b) <= 0.0
    elif is_sweepable(world, s):
        left, here = pending_work(world, s), True
    else:
        patience = arrived(world, s, b) + row["age"] - now - left
    if patience <= 0.0:
        return 1.0, patience / max(left, _MIN_WORK) if bound == math.inf else left
    if not here:
        return 2.0, min(patience, slack(world, s, now, b))
    late = now - due(world, s, now, b)
    if bound == math.inf:
        return 1.0, -max(0.0, late) / max(left, _MIN_WORK)
    return (0.0, -late) if late > bound else (1.0, left)


@compiled_part
def add_size(world: KlinkWorld, s: int, size: float) -> None:
    """Record the work of one more window."""
    row = world.stages[s]
    row["counted"] = min(row["counted"] + 1, _MAX_COUNTED)
    off = size - row["usual"]
    row["usual"] += off / row["counted"]
    row["varies"] += (off * (size - row["usual"]) - row["varies"]) / row["counted"]


@compiled_part
def bound_of(world: KlinkWorld, n: int, now: float) -> float:
    """Lateness that windows may have before short ones yield; infinite below saturation."""
    node, total, count, sizes, squares, chance = world.nodes[n], 0.0, 0, 0.0, 0.0, 0.0
    for s in range(node["first_stage"], node["end_stage"]):
        row = world.stages[s]
        if is_ready(world, s, now):
            total += work(world, s)
            if is_sweepable(world, s) and row["sized"] != row["swept"]:
                add_size(world, s, pending_work(world, s))
                row["sized"] = row["swept"]
        if row["counted"] >= _MIN_COUNTED:
            count, sizes, squares = count + 1, sizes + row["usual"], squares + row["usual"] ** 2
            chance += row["varies"] / (row["counted"] - 1)
    if now - node["idled"] < world.saturated:
        return math.inf
    share = _SHARES[0]
    if sizes > 0.0:
        mean = sizes / count
        spread = math.sqrt(max(0.0, (squares - chance) / count - mean * mean)) / mean
        share += min(1.0, max(0.0, (spread - _SPREADS[0]) / (_SPREADS[1] - _SPREADS[0]))) * (_SHARES[1] - _SHARES[0])
    return float(share * total / (node["end_core"] - node["first_core"]))


@compiled_part
def gain(world: KlinkWorld, s: int) -> float:
    """Events fewer after a cycle; as `engine.klink.policies.best_gain` where all wait before the first operator."""
    row = world.stages[s]
    best = 0.0
    for k in range(row["operators"]):
        last = k == row["operators"] - 1
        if last or world.keeps[s, k] < (world.keeps[s, k - 1] if k > 0 else 1.0):
            cost = world.prefix[s, k]
            moved = row["waiting"] if cost <= 0.0 else min(row["waiting"], world.cycle / cost)
            best = max(best, moved * (1.0 - world.keeps[s, k]))
    return best


@compiled_part
def freeing_rate(world: KlinkWorld, s: int) -> float:
    """Events that a millisecond of the next cycle frees."""
    return gain(world, s) / max(min(world.cycle, work(world, s)), _MIN_WORK)


@compiled_part
def most_freed(world: KlinkWorld, n: int, now: float) -> float:
    """The largest of these rates on a node."""
    most = 0.0
    for s in range(world.nodes[n]["first_stage"], world.nodes[n]["end_stage"]):
        if is_ready(world, s, now):
            most = max(most, freeing_rate(world, s))
    return most


@compiled_part
def relief(world: KlinkWorld, s: int, now: float, b: int, bound: float, most: float) -> tuple[float, float]:
    """Group and rank in memory mode, as `engine.klink.policies.Klink.order`; other policies free most."""
    if world.policy != _KLINK:
        return -gain(world, s), slack(world, s, now, b)
    group, order = klink(world, s, now, b, bound)
    row = world.stages[s]
    is_due = is_sweepable(world, s) or (row["swept"] >= row["windows"] and slack(world, s, now, b) <= 0.0)
    return (group, order) if is_due or freeing_rate(world, s) >= _FREES * most else (group + _BEHIND, order)


@compiled_part
def draw(world: KlinkWorld) -> float:
    """The next number of a sequence that looks random."""
    state = (world.counters[_STATE] * 1103515245 + 12345) % 2147483648
    world.counters[_STATE] = state
    return float(state)


@compiled_part
def rank(world: KlinkWorld, s: int, now: float, b: int, bound: float) -> tuple[float, float]:
    """Group and rank of a stage; the least goes first."""
    row = world.stages[s]
    policy = world.policy
    if policy == _KLINK:
        return klink(world, s, now, b, bound)
    if policy == _STIMULUS:
        return 0.0, stimulus(world, s, b)
    if policy == _FCFS:
        return 0.0, arrived(world, s, b)
    if policy == _ROUND:
        return (0.0 if s > world.nodes[row["node"]]["last"] else 1.0), float(s)
    if policy == _RATE:
        return 0.0, -row["rate"]
    if policy == _DEADLINE:
        return 0.0, due(world, s, now, b)
    if policy == _RESPONSE:
        return 0.0, -(now - arrived(world, s, b)) / max(work(world, s), _MIN_WORK)
    if policy == _RANDOM:
        return 0.0, draw(world)
    left = slack(world, s, now, b)
    if policy == _PRINTED and left > 0.0:  # `min_sl` = 0 leaves out every positive slack
        return 1.0, arrived(world, s, b)
    return 0.0, left


@compiled_part
def pick(world: KlinkWorld, n: int, now: float, b: int) -> int:
    """Stage of node `n` that runs next; -1 where none can."""
    bound = bound_of(world, n, now) if world.policy == _KLINK else math.inf
    relieving = world.nodes[n]["relieving"] > 0.0
    most = most_freed(world, n, now) if relieving else 0.0
    picked, group, best = -1, math.inf, math.inf
    starved, longest = -1, world.starvation
    for s in range(world.nodes[n]["first_stage"], world.nodes[n]["end_stage"]):
        if not is_ready(world, s, now):
            continue
        waited = now - max(world.stages[s]["ran"], arrived(world, s, b)) if longest < math.inf else 0.0
        if waited > longest:
            starved, longest = s, waited
        if relieving:
            mine, own = relief(world, s, now, b, bound, most)
        else:
            mine, own = rank(world, s, now, b, bound)
        if mine < group or (mine == group and own < best):
            picked, group, best = s, mine, own
    if starved >= 0:
        picked = starved
    if picked >= 0:
        world.counters[_PICKS] += 1
        world.nodes[n]["last"] = picked
        world.stages[picked]["ran"] = now
    return picked
