"""Compiled loop of the cohort simulation: a query's run in short steps, tuples of a step moving together as a cohort.

A step takes the operators in topological order, so that what is not held up crosses the whole chain within the step;
times are continuous, so that latencies do not depend on the step.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.compiler import compiled_uncounted, spliced
from engine.simulation.cohort_tables import CohortTables

__all__ = ["run_cohorts"]

SOURCE, FILTER, JOIN, AGGREGATION, SINK = 0, 1, 2, 3, 4
NO_WINDOW, BY_COUNT, BY_TIME = 0, 1, 2
DELIVERED, LP_S, LE_S, BACKLOG, CRASH_S, SECONDS = range(6)

_RING = 256
_DUST = 1e-9  # tuples; below it a rest is rounding
_FLUID = 16.0  # tuples a step; above it counts are taken for their mean
_BUSY = 0.9  # utilisation above which waiting shows in the queues, not in the formula
_SMOOTH = 0.3  # weight of the last step in running means
_CARRY = 0.1  # of a period's quota: what was shared out but not used where CPU was short
_COLLECT, _YOUNG, _OLD_FROM, _OLD_SLOPE = 0.3, 0.03, 0.4, 1.7  # of the free heap; share of live bytes that are marked

# splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014)
_GOLDEN, _FIRST, _SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31, _S11 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)

Rows = NDArray[Any]
SeedArray = NDArray[np.uint64]


@compiled_uncounted
def _uniform(random: SeedArray, lane: int) -> float:
    """A number in (0, 1) of the lane's stream."""
    random[lane] += _GOLDEN
    z = random[lane]
    z = (z ^ (z >> _S30)) * _FIRST
    z = (z ^ (z >> _S27)) * _SECOND
    z ^= z >> _S31
    return (np.float64(z >> _S11) + 0.5) * 2.0**-53


@compiled_uncounted
def _normal(random: SeedArray, lane: int) -> float:
    radius = math.sqrt(-2.0 * math.log(_uniform(random, lane)))
    return radius * math.cos(2.0 * math.pi * _uniform(random, lane))


@spliced
def _poisson(random: SeedArray, lane: int, mean: float) -> float:
    count = 0.0
    if mean > _FLUID:
        count = max(0.0, math.floor(mean + math.sqrt(mean) * _normal(random, lane) + 0.5))
    else:
        bound, product = math.exp(-mean), _uniform(random, lane)
        while product > bound:
            count += 1.0
            product *= _uniform(random, lane)
    return count


@compiled_uncounted
def _thin(tables: CohortTables, i: int, mean: float) -> float:
    """Whole tuples of an expected number: where few are expected, a Poisson process says which step gets one."""
    if mean > _FLUID:
        return mean
    row = tables.operators[i]
    row["hazard"] += mean
    count = 0.0
    while row["hazard"] >= row["threshold"]:
        count += 1.0
        row["threshold"] -= math.log(_uniform(tables.random, i + 1))
    return count


@compiled_uncounted
def _push(tables: CohortTables, q: int, n: float, ready: float, ingested: float, made: float) -> None:
    """Append a cohort; a queue with many merges it into its last one."""
    queue, ring = tables.queues[q], tables.ring
    queue["amount"] += n
    size = queue["size"]
    if size > 0:
        last = ring[q, (queue["head"] + size - 1) % _RING]
        is_small = last["amount"] < 2.0 * tables.constants.queue_tuples / _RING
        if size >= _RING - 1 or (size > _RING // 2 and is_small):
            share = n / (last["amount"] + n)
            last["amount"] += n
            last["ready"] += share * (ready - last["ready"])
            last["ingested"] += share * (ingested - last["ingested"])
            last["made"] += share * (made - last["made"])
            return
    place = ring[q, (queue["head"] + size) % _RING]
    place["amount"] = n
    place["ready"] = ready
    place["ingested"] = ingested
    place["made"] = made
    queue["size"] = size + 1


@compiled_uncounted
def _pop(tables: CohortTables, q: int, m: float) -> None:
    """Take `m` tuples, at most all, from the first cohort."""
    queue = tables.queues[q]
    cohort = tables.ring[q, queue["head"]]
    queue["amount"] -= m
    cohort["amount"] -= m
    if cohort["amount"] <= _DUST:
        queue["amount"] -= cohort["amount"]
        queue["head"] = (queue["head"] + 1) % _RING
        queue["size"] -= 1


@compiled_uncounted
def _ready_amount(tables: CohortTables, q: int, end: float) -> float:
    """Tuples of a queue that are at hand before `end`; the others are on their way."""
    queue = tables.queues[q]
    amount, head, j = queue["amount"], queue["head"], queue["size"] - 1
    while j >= 0:
        cohort = tables.ring[q, (head + j) % _RING]
        if cohort["ready"] < end:
            break
        amount -= cohort["amount"]
        j -= 1
    return max(amount, 0.0) if j >= 0 else 0.0


@compiled_uncounted
def _fair_level(operators: Rows, host: int, total: float, is_uplink: bool) -> float:
    """Water level of max-min sharing: each gets its demand up to the level, and all of `total` is given."""
    left, n, level = total, 0, 0.0
    for row in operators:
        n += row["host"] == host and (row["sending"] if is_uplink else row["demand"]) > 0.0
    while n > 0:
        raised, rest, waiting = left / n, total, 0
        for row in operators:
            demand = row["sending"] if is_uplink else row["demand"]
            if row["host"] == host and demand > 0.0:
                if demand <= raised:
                    rest -= demand
                else:
                    waiting += 1
        if waiting in (0, n):
            return raised
        left, n, level = rest, waiting, raised
    return level


@compiled_uncounted
def _count_at(tables: CohortTables, q: int, time: float, step: int) -> float:
    """Tuples that came in until `time`."""
    if time <= 0.0:
        return 0.0
    x = time / tables.constants.step_s
    p = min(int(x), step)
    before = tables.history[q, p]
    return before + min(x - p, 1.0) * (tables.history[q, p + 1] - before)


@spliced
def _time_of(tables: CohortTables, q: int, target: float, step: int) -> float:
    """When the number of tuples that came in reached `target`; targets of one queue never fall."""
    p = tables.queues[q]["cursor"]
    while p < step and tables.history[q, p + 1] < target:
        p += 1
    tables.queues[q]["cursor"] = p
    width = tables.history[q, p + 1] - tables.history[q, p]
    share = (target - tables.history[q, p]) / width if width > 0.0 else 1.0
    return (p + min(max(share, 0.0), 1.0)) * tables.constants.step_s


@spliced
def _arrive(tables: CohortTables, k: int) -> None:
    """Tuples of this step, at the brokers."""
    constants = tables.constants
    for i, row in enumerate(tables.operators):
        if row["kind"] == SOURCE:
            if k % constants.block_steps == 0:
                keep = constants.burst_keep
                row["wave"] = keep * row["wave"] + math.sqrt(1.0 - keep * keep) * _normal(tables.random, 0)
                row["burst"] = math.exp(constants.burst * (row["wave"] - 0.5 * constants.burst))
            arrived = _poisson(tables.random, i + 1, row["rate"] * row["burst"] * constants.step_s)
            tables.arrivals[i, k] = arrived
            row["backlog"] += arrived


@spliced
def _kept_bytes(tables: CohortTables, i: int, k: int) -> float:
    """Bytes that operator `i` keeps: queues, what waits to be sent, and windows."""
    row = tables.operators[i]
    start, n = k * tables.constants.step_s, len(tables.operators)
    total = (tables.queues[2 * n + i]["amount"] + row["outputs"]) * row["heap"]
    for slot in range(2 if row["kind"] == JOIN else 1):
        q, bytes_each = 2 * i + slot, row["kept_0"] if slot == 0 else row["kept_1"]
        tuples = tables.queues[q]["amount"]
        if row["policy"] == BY_COUNT:
            tuples += min(tables.history[q, k], row["window"])
        elif row["policy"] == BY_TIME:
            tuples += tables.history[q, k] - _count_at(tables, q, start - row["window"], k - 1)
        total += tuples * bytes_each
    return total


@spliced
def _account_memory(tables: CohortTables, k: int) -> bool:
    """Collections and their pauses, swapping; whether a host ran out of memory."""
    constants, has_crashed = tables.constants, False
    for host in tables.hosts:
        host["live"] = host["resident"]
    for i, row in enumerate(tables.operators):
        tables.hosts[row["host"]]["live"] += _kept_bytes(tables, i, k)
    for host in tables.hosts:
        live, limit = host["live"], host["limit"]
        host["slowness"] = 1.0 + constants.swap_slowness * max(0.0, live - host["comfort"]) / host["comfort"]
        young = _COLLECT * max(limit - live, 0.02 * limit)
        if host["allocated"] > young:
            marked = min(1.0, _YOUNG + _OLD_SLOPE * max(0.0, live / limit - _OLD_FROM))
            host["stall"] += (constants.pause_s + marked * live / constants.mark_bps) * host["allocated"] / young
            host["allocated"] = 0.0
        has_crashed |= live > limit or host["stall"] > constants.max_stall_s
    return has_crashed


@spliced
def _refill(tables: CohortTables, k: int) -> None:
    """Quotas at the beginning of a period, and what pauses leave of the step."""
    constants = tables.constants
    for host in tables.hosts:
        if k % constants.period_steps == 0:
            quota = host["quota"] * constants.period_s
            carried = min(host["budget"], _CARRY * quota) if host["level"] < math.inf else 0.0
            host["budget"] = quota + carried
        host["pause"] = min(host["stall"], constants.step_s)
        host["stall"] -= host["pause"]
        host["thread"] = host["core"] * (constants.step_s - host["pause"]) / host["slowness"]
        host["level"] = host["up_level"] = math.inf
        host["up_spare"] = host["bandwidth"] * constants.step_s


@spliced
def _ask(tables: CohortTables, end: float) -> None:
    """Cycles for what lies before each operator; what comes in during the step is added by the rounds of sharing."""
    for i, row in enumerate(tables.operators):
        asked = row["work"] + row["outputs"] * row["make"]
        if row["kind"] == SOURCE:
            asked += row["backlog"] * row["take"]
        else:
            ready = _ready_amount(tables, 2 * i, end)
            if row["kind"] == JOIN:
                ready += _ready_amount(tables, 2 * i + 1, end)
            asked += ready * _tuple_cycles(row) + row["window_mean"]
        row["asked"] = asked


@spliced
def _tuple_cycles(row: Any) -> float:
    return row["take"] + (row["selectivity"] * row["make"] if row["kind"] == FILTER else 0.0)


@spliced
def _share_cpu(tables: CohortTables) -> None:
    """Max-min shares of each host; what an operator asks for depends on what those before it on its host are given."""
    for _ in range(3):
        is_short = False
        for host in tables.hosts:
            host["spare"] = host["budget"] / host["slowness"] if host["thread"] > 0.0 else 0.0
        for row in tables.operators:
            row["inflow"] = 0.0
        for row in tables.operators:
            host, cycles = tables.hosts[row["host"]], _tuple_cycles(row)
            row["demand"] = min(row["asked"] + row["inflow"] * cycles, host["thread"])
            host["spare"] -= row["demand"]
            if row["reader"] >= 0 and row["is_remote"] == 0:
                passed = row["passed_mean"]
                if row["policy"] == NO_WINDOW:
                    passed = min(row["demand"], host["level"]) / cycles
                    if row["kind"] == FILTER:
                        passed *= row["selectivity"]
                tables.operators[row["reader"]]["inflow"] += passed
        for h, host in enumerate(tables.hosts):
            if host["spare"] < 0.0 or host["level"] < math.inf:
                is_short = True
                total = host["budget"] / host["slowness"] if host["thread"] > 0.0 else 0.0
                host["level"] = _fair_level(tables.operators, h, total, False)
                host["spare"] = 0.0
        if not is_short:
            break


@spliced
def _share_uplinks(tables: CohortTables) -> None:
    n = len(tables.operators)
    for i, row in enumerate(tables.operators):
        if row["is_remote"] == 1:
            row["sending"] = tables.queues[2 * n + i]["amount"] * row["wire"] + row["sent_mean"]
            tables.hosts[row["host"]]["up_spare"] -= row["sending"]
    for h, host in enumerate(tables.hosts):
        if host["up_spare"] < 0.0:
            total = host["bandwidth"] * tables.constants.step_s
            host["up_level"] = _fair_level(tables.operators, h, total, True)
            host["up_spare"] = 0.0


@spliced
def _begin(tables: CohortTables, i: int, target: int, start: float) -> None:
    """Cycles and room that operator `i` may use in this step."""
    constants, row = tables.constants, tables.operators[i]
    host = tables.hosts[row["host"]]
    step_s = max(constants.step_s - host["pause"], _DUST)
    is_short = host["level"] < math.inf
    share = min(min(row["demand"], host["level"]) + host["spare"], host["thread"])
    busy = max(row["used_mean"], row["demand"] if is_short else 0.0) / max(host["thread"], 1.0)
    busy = min(_BUSY, busy)
    row["share"] = share
    row["begin"] = start + host["pause"]
    row["speed"] = max(share / step_s if is_short else host["core"] / host["slowness"], 1.0)
    # seconds per cycle of one tuple: it runs on a whole core when it runs; what it waits for is in the queue
    row["stretch"] = (1.0 + 0.5 * busy / (1.0 - busy)) * host["slowness"] / host["core"]
    row["space"] = math.inf
    if target >= 0:
        bound = constants.send_tuples if row["is_remote"] == 1 else constants.queue_tuples
        queue = tables.queues[target]
        row["space"] = max(0.0, bound + queue["drained"] - queue["amount"])
    row["used"] = row["out"] = row["taken"] = row["firings"] = 0.0
    row["sum_ready"] = row["sum_ingested"] = row["sum_made"] = row["sum_moment"] = 0.0


@spliced
def _poll(tables: CohortTables, i: int, k: int) -> None:
    """A source takes tuples from its broker, oldest first."""
    constants, row = tables.constants, tables.operators[i]
    take = row["take"]
    left = min(row["backlog"], (row["share"] - row["used"]) / take, row["space"])
    while left > _DUST:
        p = row["poller"]
        rest = tables.arrivals[i, p] - row["polled"]
        m = min(rest, left)
        if m > 0.0:
            made = (p + 0.5) * constants.step_s
            moment = max(made + constants.fetch_s, row["begin"] + (row["used"] + 0.5 * m * take) / row["speed"])
            row["used"] += m * take
            row["out"] += m
            row["sum_ready"] += m * (moment + take * row["stretch"])
            row["sum_ingested"] += m * moment
            row["sum_made"] += m * made
            row["backlog"] -= m
            row["polled"] += m
            left -= m
        if rest - m <= _DUST:
            if p == k:
                break
            row["poller"] = p + 1
            row["polled"] = 0.0
    row["taken"] = row["out"]
    row["taken_0"] += row["out"]


@spliced
def _take(tables: CohortTables, i: int, k: int, is_free: bool) -> None:
    """An operator takes what its queues have at hand: both sides of a join in proportion."""
    row, end = tables.operators[i], (k + 1) * tables.constants.step_s
    cycles, sides = _tuple_cycles(row), 2 if row["kind"] == JOIN else 1
    ready_0 = _ready_amount(tables, 2 * i, end) if is_free else 0.0
    ready_1 = _ready_amount(tables, 2 * i + 1, end) if is_free and sides == 2 else 0.0
    room = (row["share"] - row["used"]) / cycles
    if row["kind"] == FILTER:
        room = min(room, row["space"] / row["selectivity"])
    part = min(1.0, max(room, 0.0) / max(ready_0 + ready_1, _DUST))
    for slot in range(sides):
        q = 2 * i + slot
        queue = tables.queues[q]
        left = part * (ready_0 if slot == 0 else ready_1)
        queue["drained"] = left
        taken, lag_ingested, lag_made = 0.0, 0.0, 0.0
        while left > _DUST and queue["size"] > 0:
            cohort = tables.ring[q, queue["head"]]
            m = min(cohort["amount"], left)
            moment = max(cohort["ready"], row["begin"] + (row["used"] + 0.5 * m * cycles) / row["speed"])
            moment += cycles * row["stretch"]
            row["used"] += m * cycles
            row["sum_moment"] += m * moment
            lag_ingested += m * (moment - cohort["ingested"])
            lag_made += m * (moment - cohort["made"])
            taken += m
            left -= m
            _pop(tables, q, m)
        row["taken"] += taken
        if slot == 0:
            row["taken_0"] += taken
        else:
            row["taken_1"] += taken
        if row["policy"] == NO_WINDOW:
            row["out"] = taken
            row["sum_ready"] = row["sum_moment"]
            row["sum_ingested"] = row["sum_moment"] - lag_ingested
            row["sum_made"] = row["sum_moment"] - lag_made
        else:
            tables.history[q, k + 1] = tables.history[q, k] + taken
            lags, before = tables.lags, max(k - 1, 0)
            lags[q, k, 0] = lag_ingested / taken if taken > 0.0 else lags[q, before, 0]
            lags[q, k, 1] = lag_made / taken if taken > 0.0 else lags[q, before, 1]


@spliced
def _due_time(tables: CohortTables, i: int, k: int) -> tuple[float, float]:
    """Time of the evaluations that are due, by the clock of arrivals and in truth; `firings` says how many."""
    constants, row = tables.constants, tables.operators[i]
    end, slide = (k + 1) * constants.step_s, row["slide"]
    clock = fire_s = end
    if row["policy"] == BY_TIME:
        row["firings"] = math.floor(end / slide + 1e-9) - row["fired"]
        if row["firings"] > 0.0:
            if slide >= constants.step_s:  # one after the other; windows shorter than a step are taken together
                row["firings"] = 1.0
            clock = fire_s = (row["fired"] + row["firings"]) * slide
    else:
        total = tables.history[2 * i, k + 1]
        if row["kind"] == JOIN:
            total += tables.history[2 * i + 1, k + 1]
            slide *= 2.0
        row["firings"] = math.floor(total / slide + 1e-9) - row["fired"]
        if row["firings"] > 0.0:
            since = total - (row["fired"] + 0.5 * (row["firings"] + 1.0)) * slide  # tuples since the mean evaluation
            taken = row["taken"]
            behind = min(1.0, since / taken) if taken > 0.0 else 0.0
            clock = end - behind * constants.step_s
            width = constants.step_s * (1.0 - 1.0 / max(taken, 1.0))
            fire_s = (row["sum_moment"] / taken if taken > 0.0 else end) + (0.5 - behind) * width
    return clock, fire_s


@spliced
def _fire(tables: CohortTables, i: int, k: int) -> None:
    """Evaluate what is due of a window; its cycles and outputs are left in the operator's row."""
    row, sides = tables.operators[i], 2 if tables.operators[i]["kind"] == JOIN else 1
    clock, fire_s = _due_time(tables, i, k)
    if row["firings"] > 0.0:
        row["fired"] += row["firings"]
        contents, product, oldest_ingested, oldest_made = 0.0, 1.0, math.inf, math.inf
        for slot in range(sides):
            q = 2 * i + slot
            content = arrived = _count_at(tables, q, clock, k)
            if row["policy"] == BY_TIME:
                content -= _count_at(tables, q, clock - row["window"], k)
                age = min(row["window"], clock) * content / (content + 1.0)
            else:
                content = min(arrived, row["window"])
                age = clock - _time_of(tables, q, max(arrived - content + 1.0, 0.5), k)
            if content < 0.5:
                content = 0.0
            age = max(age, 0.0)
            p = min(max(int((clock - age) / tables.constants.step_s), 0), k)
            oldest_ingested = min(oldest_ingested, fire_s - age - tables.lags[q, p, 0])
            oldest_made = min(oldest_made, fire_s - age - tables.lags[q, p, 1])
            contents += content
            product *= content
        if product > 0.0:
            expected = row["firings"] * row["selectivity"] * product
            row["outputs"] = _thin(tables, i, expected) if sides == 2 else max(row["firings"], expected)
            row["work"] = row["firings"] * (row["evaluate"] + row["scan"] * contents)
            row["ready"] = fire_s + (row["evaluate"] + row["scan"] * contents) * row["stretch"]
            row["ingested"] = oldest_ingested
            row["made"] = oldest_made


@compiled_uncounted
def _evaluate(row: Any, is_new: bool) -> None:
    """Pay for the cycles left of an evaluation, then put out what it found, as far as CPU and room allow."""
    paid = min(row["work"], row["share"] - row["used"])
    row["work"] -= paid
    row["used"] += paid
    if row["work"] <= 0.0:
        m = min(row["outputs"], (row["share"] - row["used"]) / row["make"], row["space"])
        if m > 0.0:
            row["used"] += m * row["make"]
            if is_new:  # evaluations lie between the inputs, not behind them
                moment = row["ready"] + 0.5 * m / row["firings"] * row["make"] * row["stretch"]
                moment = max(moment, row["begin"] + 0.5 * row["used"] / row["speed"])
            else:
                moment = max(row["ready"], row["begin"] + (row["used"] - 0.5 * m * row["make"]) / row["speed"])
            row["space"] -= m
            row["out"] += m
            row["sum_ready"] += m * moment
            row["sum_ingested"] += m * row["ingested"]
            row["sum_made"] += m * row["made"]
            row["outputs"] = row["outputs"] - m if row["outputs"] - m > _DUST else 0.0


@spliced
def _pass_on(tables: CohortTables, i: int, target: int) -> None:
    """Put what an operator made into the next queue; a sink counts it."""
    row, totals = tables.operators[i], tables.totals
    host, out = tables.hosts[row["host"]], row["out"]
    if row["kind"] == SINK:
        totals[DELIVERED] += out
        totals[LP_S] += row["sum_ready"] - row["sum_ingested"]
        totals[LE_S] += row["sum_ready"] - row["sum_made"]
    elif out > 0.0:
        ready = row["sum_ready"] / out + (0.0 if row["is_remote"] == 1 else tables.constants.local_hop_s)
        ingested, made = row["sum_ingested"] / out, row["sum_made"] / out
        if row["kind"] == FILTER:
            out = _thin(tables, i, out * row["selectivity"])
        if out > 0.0:
            row["emitted"] += out
            _push(tables, target, out, ready, ingested, made)
    host["allocated"] += row["taken"] * row["kept_0"] + out * row["heap"]
    host["spare"] = max(0.0, host["spare"] + min(row["demand"], host["level"]) - row["used"])
    host["budget"] = max(0.0, host["budget"] - row["used"] * host["slowness"])
    row["used_mean"] += _SMOOTH * (row["used"] - row["used_mean"])
    if row["policy"] != NO_WINDOW:
        row["window_mean"] += _SMOOTH * (row["used"] - row["taken"] * row["take"] - row["window_mean"])
        row["passed_mean"] += _SMOOTH * (out - row["passed_mean"])


@spliced
def _send(tables: CohortTables, i: int, k: int) -> None:
    """The way to another host: the uplink that all of a host's streams share, then the latency."""
    constants, row = tables.constants, tables.operators[i]
    host, wire, start = tables.hosts[row["host"]], row["wire"], k * constants.step_s
    q, goal = 2 * len(tables.operators) + i, 2 * row["reader"] + row["slot"]
    queue, reader = tables.queues[q], tables.queues[goal]
    granted = min(row["sending"], host["up_level"])
    share = granted + host["up_spare"]
    on_the_way = reader["drained"] * (1.0 + host["latency"] / constants.step_s)
    room = max(0.0, constants.queue_tuples + on_the_way - reader["amount"])
    left = min(_ready_amount(tables, q, start + constants.step_s), share / wire, room)
    speed = max(share / constants.step_s if host["up_level"] < math.inf else host["bandwidth"], 1.0)
    busy = min(_BUSY, row["sent_mean"] / (host["bandwidth"] * constants.step_s))
    delay = wire * (1.0 + 0.5 * busy / (1.0 - busy)) / host["bandwidth"] + host["latency"] + constants.remote_hop_s
    queue["drained"] = left
    used = 0.0
    while left > _DUST and queue["size"] > 0:
        cohort = tables.ring[q, queue["head"]]
        m = min(cohort["amount"], left)
        moment = max(cohort["ready"], start + (used + 0.5 * m * wire) / speed)
        used += m * wire
        _push(tables, goal, m, moment + delay, cohort["ingested"], cohort["made"])
        left -= m
        _pop(tables, q, m)
    host["up_spare"] = max(0.0, host["up_spare"] + granted - used)
    row["sent_mean"] += _SMOOTH * (used - row["sent_mean"])


@spliced
def _operate(tables: CohortTables, i: int, k: int) -> None:
    """One step of one operator and of its stream to another host."""
    row = tables.operators[i]
    target = -1
    if row["kind"] != SINK:
        target = 2 * len(tables.operators) + i if row["is_remote"] == 1 else 2 * row["reader"] + row["slot"]
    _begin(tables, i, target, k * tables.constants.step_s)
    if row["kind"] == SOURCE:
        _poll(tables, i, k)
    else:
        if row["work"] > 0.0 or row["outputs"] > 0.0:
            _evaluate(row, False)
        is_free = row["work"] <= 0.0 and row["outputs"] <= 0.0
        _take(tables, i, k, is_free)
        if row["policy"] != NO_WINDOW and is_free:
            _fire(tables, i, k)
            if row["work"] > 0.0:
                _evaluate(row, True)
    _pass_on(tables, i, target)
    if row["is_remote"] == 1:
        _send(tables, i, k)


@compiled_uncounted
def run_cohorts(tables: CohortTables) -> None:
    """Run a query to the end of its time, or until a host runs out of memory.

    `totals` then has the tuples delivered, the sums of their latencies (s), the mean backlog at the brokers from the
    step `tail_step` on, the time of a crash (-1: none) and the seconds that ran.
    """
    constants, totals = tables.constants, tables.totals
    totals[CRASH_S] = -1.0
    for i, row in enumerate(tables.operators):
        row["threshold"] = -math.log(_uniform(tables.random, i + 1))
        row["wave"] = _normal(tables.random, 0)
    for host in tables.hosts:
        host["slowness"] = 1.0
        host["level"] = math.inf
    for k in range(constants.steps):
        _arrive(tables, k)
        if k % constants.block_steps == 0 and _account_memory(tables, k):
            totals[CRASH_S] = k * constants.step_s
            break
        _refill(tables, k)
        _ask(tables, (k + 1) * constants.step_s)
        _share_cpu(tables)
        _share_uplinks(tables)
        for i in range(len(tables.operators)):
            _operate(tables, i, k)
        totals[SECONDS] = (k + 1) * constants.step_s
        if k >= constants.tail_step:
            for row in tables.operators:
                totals[BACKLOG] += row["backlog"]
    if totals[CRASH_S] < 0.0:
        totals[BACKLOG] /= constants.steps - constants.tail_step
    else:
        totals[BACKLOG] = 0.0
        for row in tables.operators:
            totals[BACKLOG] += row["backlog"]
