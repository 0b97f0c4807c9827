"""The policies of `engine.klink.policies`, compiled: which stage of a node runs next. A test holds both to be the same.

Besides, for comparison: `random` (the threads of an operating system, which know nothing of windows) and the paper's
Algorithm 1, as printed and repaired.
"""

from __future__ import annotations

import math

from engine.klink.simulation_compiled import part
from engine.klink.simulation_world import CODES, World

__all__ = ["front", "has_work", "interval", "pick", "slack", "sweepable"]

_KLINK, _STIMULUS, _FCFS, _ROUND = CODES["klink"], CODES["stimulus-time"], CODES["fcfs"], CODES["round-robin"]
_LEAST_SLACK, _RATE = CODES["least-slack"], CODES["highest-rate"]
_DEADLINE, _RESPONSE, _RANDOM = CODES["nearest-deadline"], CODES["response-ratio"], CODES["random"]
_PRINTED, _REPAIRED = CODES["algorithm-1"], CODES["algorithm-1-repaired"]
_UNKNOWN, _LEAST_WORK, _LEAST_EPOCHS = 1000.0, 1e-3, 3
_SHARES, _SPREADS = (0.65, 1.25), (0.5, 0.9)
_LEAST_COUNTED, _MOST_COUNTED = 3, 50
_TAIL, _DEPTH = 5.0, 25
_PICKS, _STATE = 0, 2


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


@part
def klink(world: World, s: int, now: float, b: int, bound: float) -> tuple[float, float]:
    """Group and rank: what is here, by response ratio, or with a `bound` of lateness the short first; least slack."""
    row = world.stages[s]
    left, here = work(world, s), False
    patience = math.inf
    if row["swept"] >= row["windows"]:
        here = slack(world, s, now, b) <= 0.0
    elif sweepable(world, s):
        left, here = pending_work(world, s), True
    else:
        patience = arrived(world, s, b) + row["age"] - now - left
    if patience <= 0.0:
        return 1.0, patience / max(left, _LEAST_WORK) if bound == math.inf else left
    if not here:
        return 2.0, min(patience, slack(world, s, now, b))
    late = now - due(world, s, now, b)
    if bound == math.inf:
        return 1.0, -max(0.0, late) / max(left, _LEAST_WORK)
    return (0.0, -late) if late > bound else (1.0, left)


@part
def ready(world: World, s: int, now: float) -> bool:
    """Whether a core could take the stage."""
    row = world.stages[s]
    return bool(row["taken"] == 0 and row["free_at"] <= now and has_work(world, s))


@part
def add_size(world: World, s: int, size: float) -> None:
    """One window more of which the work is known."""
    row = world.stages[s]
    row["counted"] = min(row["counted"] + 1, _MOST_COUNTED)
    off = size - row["usual"]
    row["usual"] += off / row["counted"]
    row["varies"] += (off * (size - row["usual"]) - row["varies"]) / row["counted"]


@part
def bound_of(world: World, n: int, now: float) -> float:
    """By how much windows may be late before the short ones yield; infinite below saturation."""
    node, total, count, sizes, squares, chance = world.nodes[n], 0.0, 0, 0.0, 0.0, 0.0
    for s in range(node["first_stage"], node["end_stage"]):
        row = world.stages[s]
        if ready(world, s, now):
            total += work(world, s)
            if sweepable(world, s) and row["sized"] != row["swept"]:
                add_size(world, s, pending_work(world, s))
                row["sized"] = row["swept"]
        if row["counted"] >= _LEAST_COUNTED:
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


@part
def gain(world: World, s: int) -> float:
    """Events fewer after a cycle; as `engine.klink.memory.best_gain` where all wait before the first operator."""
    row = world.stages[s]
    best = 0.0
    for k in range(row["operators"]):
        last = k == row["operators"] - 1
        if last or world.keeps[s, k] < (world.keeps[s, k - 1] if k > 0 else 1.0):
            cost = world.prefix[s, k]
            moved = row["waiting"] if cost <= 0.0 else min(row["waiting"], world.cycle / cost)
            best = max(best, moved * (1.0 - world.keeps[s, k]))
    return best


@part
def draw(world: World) -> float:
    """The next number of a sequence that looks random."""
    state = (world.counters[_STATE] * 1103515245 + 12345) % 2147483648
    world.counters[_STATE] = state
    return float(state)


@part
def rank(world: World, s: int, now: float, b: int, bound: float) -> tuple[float, float]:
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
        return 0.0, -(now - arrived(world, s, b)) / max(work(world, s), _LEAST_WORK)
    if policy == _RANDOM:
        return 0.0, draw(world)
    left = slack(world, s, now, b)
    if policy == _PRINTED and left > 0.0:  # `min_sl` = 0 leaves out every positive slack
        return 1.0, arrived(world, s, b)
    return 0.0, left


@part
def pick(world: World, n: int, now: float, b: int) -> int:
    """Stage of node `n` that runs next; -1 where none can."""
    bound = bound_of(world, n, now) if world.policy == _KLINK else math.inf
    relieving = world.nodes[n]["relieving"] > 0.0
    found, group, best = -1, math.inf, math.inf
    starved, longest = -1, world.starvation
    for s in range(world.nodes[n]["first_stage"], world.nodes[n]["end_stage"]):
        if not ready(world, s, now):
            continue
        waited = now - max(world.stages[s]["ran"], arrived(world, s, b)) if longest < math.inf else 0.0
        if waited > longest:
            starved, longest = s, waited
        if relieving:
            mine, own = -gain(world, s), slack(world, s, now, b)
        else:
            mine, own = rank(world, s, now, b, bound)
        if mine < group or (mine == group and own < best):
            found, group, best = s, mine, own
    if starved >= 0:
        found = starved
    if found >= 0:
        world.counters[_PICKS] += 1
        world.nodes[n]["last"] = found
        world.stages[found]["ran"] = now
    return found
