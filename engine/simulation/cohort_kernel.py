"""Compiled loop of the cohort simulation: a query's run in short steps, tuples of a step moving together as a cohort.

A cohort is a number of tuples with three mean times: when it is at hand, when its oldest input was ingested, and when
that input was made at the broker. A step takes the operators in topological order, so that what is not held up crosses
the whole chain within the step; times are continuous, so that latencies do not depend on the step.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from engine.arrays import FloatArray, IntArray
from engine.compiler import compiled, inner

__all__ = ["run_cohorts"]

SeedArray = npt.NDArray[np.uint64]

# kinds of operators, and windows
SOURCE, FILTER, JOIN, AGGREGATION, SINK = 0, 1, 2, 3, 4
NO_WINDOW, BY_COUNT, BY_TIME = 0, 1, 2
# columns of `operators`
RATE, W_IN, W_OUT, W_SCAN, W_FIRE, SELECTIVITY, SIZE, SLIDE, STATE_0, STATE_1, HEAP, WIRE = range(12)
# columns of `wiring`
KIND, NEXT, SLOT, HOST, IS_REMOTE, POLICY = range(6)
# columns of `hosts`
CORE, QUOTA, COMFORT, LIMIT, BANDWIDTH, LATENCY, RESIDENT = range(7)
# columns of `settings`
(
    STEP_S, BLOCK_S, PERIOD_S, QUEUE, SEND_QUEUE, LOCAL_HOP_S, REMOTE_HOP_S, FETCH_S, BURST, BURST_KEEP, SWAP,
    PAUSE_S, MARK_BPS, MAX_STALL_S, TAIL,
) = range(15)  # fmt: skip
# entries of the totals
DELIVERED, LP_S, LE_S, BACKLOG, CRASH_S, SECONDS = range(6)
# columns of the counts
TAKEN_0, TAKEN_1, EMITTED, QUEUED_0, QUEUED_1, SENDING, WAITING = range(7)

_RING = 256  # cohorts a queue holds apart; fuller ones merge neighbours
_AMOUNT, _READY, _INGESTED, _MADE = range(4)
_DUST = 1e-9  # tuples; below it a rest is rounding
_FLUID = 16.0  # tuples a step; above it counts are taken for their mean
_BUSY = 0.9  # utilisation above which waiting is in the queues' cohorts, not in the formula

_STEP, _MIX_1, _MIX_2 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_SHIFT_30, _SHIFT_27, _SHIFT_31, _SHIFT_11 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)
_UNIT = 2.0**-53


@inner
def _uniform(random: SeedArray, lane: int) -> float:
    """A number in (0, 1) of the lane's stream (splitmix64)."""
    random[lane] += _STEP
    z = random[lane]
    z = (z ^ (z >> _SHIFT_30)) * _MIX_1
    z = (z ^ (z >> _SHIFT_27)) * _MIX_2
    z ^= z >> _SHIFT_31
    return (np.float64(z >> _SHIFT_11) + 0.5) * _UNIT


@inner
def _gaussian(random: SeedArray, lane: int) -> float:
    radius = math.sqrt(-2.0 * math.log(_uniform(random, lane)))
    return radius * math.cos(2.0 * math.pi * _uniform(random, lane))


@inner
def _poisson(random: SeedArray, lane: int, mean: float) -> float:
    if mean > _FLUID:
        return max(0.0, math.floor(mean + math.sqrt(mean) * _gaussian(random, lane) + 0.5))
    bound, product, count = math.exp(-mean), _uniform(random, lane), 0.0
    while product > bound:
        count += 1.0
        product *= _uniform(random, lane)
    return count


@inner
def _thin(random: SeedArray, hazards: FloatArray, i: int, mean: float) -> float:
    """Whole tuples of an expected number: where few are expected, a Poisson process says which step gets one."""
    if mean > _FLUID:
        return mean
    hazards[i, 0] += mean
    count = 0.0
    while hazards[i, 0] >= hazards[i, 1]:
        count += 1.0
        hazards[i, 1] -= math.log(_uniform(random, i + 1))
    return count


@inner
def _push(
    ring: FloatArray, heads: IntArray, amounts: FloatArray, q: int, bound: float, n: float, row: FloatArray
) -> None:
    """Append a cohort; a queue with many merges it into its last one."""
    head, size = heads[q, 0], heads[q, 1]
    amounts[q] += n
    if size > 0:
        last = ring[q, (head + size - 1) % _RING]
        if size >= _RING - 1 or (size > _RING // 2 and last[_AMOUNT] < 2.0 * bound / _RING):
            share = n / (last[_AMOUNT] + n)
            last[_AMOUNT] += n
            for column in range(_READY, _MADE + 1):
                last[column] += share * (row[column] - last[column])
            return
    place = ring[q, (head + size) % _RING]
    place[_AMOUNT] = n
    for column in range(_READY, _MADE + 1):
        place[column] = row[column]
    heads[q, 1] = size + 1


@inner
def _ready_amount(ring: FloatArray, heads: IntArray, amounts: FloatArray, q: int, end: float) -> float:
    """Tuples of a queue that are at hand before `end`; the others are on their way."""
    amount, head, j = amounts[q], heads[q, 0], heads[q, 1] - 1
    while j >= 0:
        cohort = ring[q, (head + j) % _RING]
        if cohort[_READY] < end:
            break
        amount -= cohort[_AMOUNT]
        j -= 1
    return max(amount, 0.0) if j >= 0 else 0.0


@inner
def _fair_level(demands: FloatArray, places: IntArray, column: int, place: int, total: float) -> float:
    """Water level of max-min sharing: each gets its demand up to the level, and all of it is given."""
    left, n, level = total, 0, 0.0
    for i in range(len(demands)):
        if places[i, column] == place and demands[i] > 0.0:
            n += 1
    while n > 0:
        raised = left / n
        rest, waiting = total, 0
        for i in range(len(demands)):
            if places[i, column] == place and demands[i] > 0.0:
                if demands[i] <= raised:
                    rest -= demands[i]
                else:
                    waiting += 1
        if waiting == n or waiting == 0:
            return raised
        left, n, level = rest, waiting, raised
    return level


@inner
def _time_of(counts: FloatArray, pointers: IntArray, row: int, target: float, step: int, step_s: float) -> float:
    """When the row's count of arrivals reached `target`; targets of one row never fall."""
    p = pointers[row]
    while p < step and counts[row, p + 1] < target:
        p += 1
    pointers[row] = p
    width = counts[row, p + 1] - counts[row, p]
    share = (target - counts[row, p]) / width if width > 0.0 else 1.0
    return (p + min(max(share, 0.0), 1.0)) * step_s


@inner
def _count_at(counts: FloatArray, row: int, time: float, step: int, step_s: float) -> float:
    """Arrivals of the row until `time`."""
    if time <= 0.0:
        return 0.0
    x = time / step_s
    p = min(int(x), step)
    return counts[row, p] + min(x - p, 1.0) * (counts[row, p + 1] - counts[row, p])


@compiled
def run_cohorts(
    operators: FloatArray,
    wiring: IntArray,
    hosts: FloatArray,
    settings: FloatArray,
    steps: int,
    random: SeedArray,
) -> tuple[FloatArray, FloatArray]:
    """Run a query for `steps` steps.

    Parameters
    ----------
    operators, wiring
        Float and int tables [n, columns above] of operators in topological order.
    hosts
        Float table [h, columns above].
    settings
        Constants of the world, in the order above.
    steps
        Number of steps.
    random
        uint64[1 + n]: states of streams of random numbers, of slow bursts and of each operator: a run on another
        placement meets the same tuples.

    Returns
    -------
    tuple
        Totals: tuples delivered, sums of their latencies (s), mean backlog at the brokers in the last `TAIL` of the
        run, time of a crash (-1: none), seconds run. And tuples per operator [n, columns above], which add up.
    """
    n, n_hosts = len(operators), len(hosts)
    dt = settings[STEP_S]
    block_steps, period_steps = round(settings[BLOCK_S] / dt), round(settings[PERIOD_S] / dt)
    bound, send_bound = settings[QUEUE], settings[SEND_QUEUE]
    totals, counts = np.zeros(6), np.zeros((n, 7))
    # queues: 2 i + slot before operator i, 2 n + i behind it on its way to another host
    ring, heads = np.empty((3 * n, _RING, 4)), np.zeros((3 * n, 2), np.int64)
    amounts, drained, row = np.zeros(3 * n), np.zeros(3 * n), np.empty(4)
    brokers, pollers, arrivals = np.zeros((n, 2)), np.zeros(n, np.int64), np.empty((n, steps))
    factors, waves, hazards = np.ones(n), np.zeros(n), np.zeros((n, 2))
    # windows: arrivals counted at the end of each step, and mean lags of those that came in a step, per input
    history = np.zeros((2 * n, 1))
    lags = np.zeros((2, 2 * n, 1))
    windowed = False
    for i in range(n):
        hazards[i, 1] = -math.log(_uniform(random, i + 1))
        waves[i] = _gaussian(random, 0)
        windowed |= wiring[i, POLICY] != NO_WINDOW
    if windowed:
        history = np.empty((2 * n, steps + 1))
        lags = np.empty((2, 2 * n, steps + 1))
        history[:, 0] = 0.0
        lags[:, :, 0] = 0.0
    pointers, fired = np.zeros(2 * n, np.int64), np.zeros(n)
    # outputs of a window that is being evaluated: cycles left, tuples left, and their times
    work, outputs, pending = np.zeros(n), np.zeros(n), np.zeros((n, 3))
    demands, asked, inflows = np.zeros(n), np.zeros(n), np.zeros(n)
    habits = np.zeros((n, 3))  # running means per step: cycles, cycles of windows, tuples passed on
    sends, send_habits = np.zeros(n), np.zeros(n)
    budgets, stalls, pauses, slowness = np.zeros(n_hosts), np.zeros(n_hosts), np.zeros(n_hosts), np.ones(n_hosts)
    allocated, levels, spares, threads = np.zeros(n_hosts), np.zeros(n_hosts), np.zeros(n_hosts), np.zeros(n_hosts)
    up_levels, up_spares, live = np.zeros(n_hosts), np.zeros(n_hosts), np.zeros(n_hosts)
    tail_from, tail_n = steps - max(1, int(settings[TAIL] * steps)), 0
    totals[CRASH_S] = -1.0
    levels[:] = math.inf

    for k in range(steps):
        start, end = k * dt, (k + 1) * dt
        for i in range(n):
            if wiring[i, KIND] == SOURCE:
                if k % block_steps == 0:
                    keep = settings[BURST_KEEP]
                    waves[i] = keep * waves[i] + math.sqrt(1.0 - keep * keep) * _gaussian(random, 0)
                    factors[i] = math.exp(settings[BURST] * (waves[i] - 0.5 * settings[BURST]))
                arrivals[i, k] = _poisson(random, i + 1, operators[i, RATE] * factors[i] * dt)
                brokers[i, 0] += arrivals[i, k]

        # memory: live bytes, collections, swap, crash
        if k % block_steps == 0:
            for h in range(n_hosts):
                live[h] = hosts[h, RESIDENT]
            for i in range(n):
                h = wiring[i, HOST]
                tuples = amounts[2 * i] * operators[i, STATE_0] + amounts[2 * i + 1] * operators[i, STATE_1]
                tuples += (amounts[2 * n + i] + outputs[i]) * operators[i, HEAP]
                for slot in range(2 if wiring[i, KIND] == JOIN else 1):
                    if wiring[i, POLICY] == BY_COUNT:
                        tuples += min(history[2 * i + slot, k], operators[i, SIZE]) * operators[i, STATE_0 + slot]
                    elif wiring[i, POLICY] == BY_TIME:
                        opened = _count_at(history, 2 * i + slot, start - operators[i, SIZE], k - 1, dt)
                        tuples += (history[2 * i + slot, k] - opened) * operators[i, STATE_0 + slot]
                live[h] += tuples
            for h in range(n_hosts):
                comfort, limit = hosts[h, COMFORT], hosts[h, LIMIT]
                over = max(0.0, live[h] - comfort) / comfort
                slowness[h] = 1.0 + settings[SWAP] * over
                free = max(limit - live[h], 0.02 * limit)
                if allocated[h] > 0.3 * free:
                    share = min(1.0, 0.03 + max(0.0, live[h] / limit - 0.4) * 1.7)
                    pause = settings[PAUSE_S] + share * live[h] / settings[MARK_BPS]
                    stalls[h] += pause * allocated[h] / (0.3 * free)
                    allocated[h] = 0.0
                if live[h] > limit or stalls[h] > settings[MAX_STALL_S]:
                    totals[CRASH_S] = start
            if totals[CRASH_S] >= 0.0:
                break

        # shares of CPU and uplinks
        for h in range(n_hosts):
            if k % period_steps == 0:
                # what was shared out but not used in a scarce step is not lost
                carried = min(budgets[h], 0.1 * hosts[h, QUOTA] * settings[PERIOD_S]) if levels[h] < math.inf else 0.0
                budgets[h] = hosts[h, QUOTA] * settings[PERIOD_S] + carried
            pauses[h] = min(stalls[h], dt)
            stalls[h] -= pauses[h]
            threads[h] = hosts[h, CORE] * (dt - pauses[h]) / slowness[h]
            spares[h] = levels[h] = up_levels[h] = math.inf
            up_spares[h] = hosts[h, BANDWIDTH] * dt
        # what an operator asks for depends on what those before it on its host are given: again where CPU is short
        for attempt in range(3):
            is_scarce = False
            for i in range(n):
                inflows[i] = 0.0
            for h in range(n_hosts):
                spares[h] = budgets[h] / slowness[h] if threads[h] > 0.0 else 0.0
            for i in range(n):
                h, kind, cost = wiring[i, HOST], wiring[i, KIND], operators[i, W_IN]
                if kind == FILTER:
                    cost += operators[i, SELECTIVITY] * operators[i, W_OUT]
                if attempt == 0:
                    asked[i] = work[i] + outputs[i] * operators[i, W_OUT]
                    if kind == SOURCE:
                        asked[i] += brokers[i, 0] * cost
                    elif wiring[i, POLICY] == NO_WINDOW:
                        asked[i] += _ready_amount(ring, heads, amounts, 2 * i, end) * cost
                    else:
                        ready = _ready_amount(ring, heads, amounts, 2 * i, end)
                        if kind == JOIN:
                            ready += _ready_amount(ring, heads, amounts, 2 * i + 1, end)
                        asked[i] += ready * cost + habits[i, 1]
                demands[i] = min(asked[i] + inflows[i] * cost, threads[h])
                spares[h] -= demands[i]
                if wiring[i, NEXT] >= 0 and not wiring[i, IS_REMOTE]:
                    passed = habits[i, 2]
                    if wiring[i, POLICY] == NO_WINDOW:
                        passed = min(demands[i], levels[h]) / cost
                        if kind == FILTER:
                            passed *= operators[i, SELECTIVITY]
                    inflows[wiring[i, NEXT]] += passed
            for h in range(n_hosts):
                if spares[h] < 0.0 or levels[h] < math.inf:
                    is_scarce = True
                    total = budgets[h] / slowness[h] if threads[h] > 0.0 else 0.0
                    levels[h] = _fair_level(demands, wiring, HOST, h, total)
                    spares[h] = 0.0
            if not is_scarce:
                break
        for i in range(n):
            if wiring[i, IS_REMOTE]:
                sends[i] = amounts[2 * n + i] * operators[i, WIRE] + send_habits[i]
                up_spares[wiring[i, HOST]] -= sends[i]
        for h in range(n_hosts):
            if up_spares[h] < 0.0:
                up_levels[h] = _fair_level(sends, wiring, HOST, h, hosts[h, BANDWIDTH] * dt)
                up_spares[h] = 0.0

        for i in range(n):
            kind, h, policy, q = wiring[i, KIND], wiring[i, HOST], wiring[i, POLICY], 2 * i
            w_in, w_out, selectivity = operators[i, W_IN], operators[i, W_OUT], operators[i, SELECTIVITY]
            granted = min(demands[i], levels[h])
            share = min(granted + spares[h], threads[h])
            is_contended = levels[h] < math.inf
            begin = start + pauses[h]
            speed = share / max(dt - pauses[h], _DUST) if is_contended else hosts[h, CORE] / slowness[h]
            speed = max(speed, 1.0)
            busy = min(_BUSY, max(habits[i, 0], demands[i] if is_contended else 0.0) / max(threads[h], 1.0))
            # seconds per cycle of one tuple: it runs on a whole core when it runs; what it waits for is in the queue
            stretch = (1.0 + 0.5 * busy / (1.0 - busy)) * slowness[h] / hosts[h, CORE]
            used = 0.0
            space, target = math.inf, -1
            if kind != SINK:
                target = 2 * n + i if wiring[i, IS_REMOTE] else 2 * wiring[i, NEXT] + wiring[i, SLOT]
                space = max(0.0, (send_bound if wiring[i, IS_REMOTE] else bound) + drained[target] - amounts[target])
            out = sum_ready = sum_ingested = sum_made = taken = firings = 0.0

            for phase in range(2):  # what an earlier step left of a window; then, after the inputs, this step's firing
                if work[i] > 0.0 or outputs[i] > 0.0:
                    paid = min(work[i], share - used)
                    work[i] -= paid
                    used += paid
                    if work[i] <= 0.0:
                        m = min(outputs[i], (share - used) / w_out, space)
                        if m > 0.0:
                            used += m * w_out
                            if phase == 0:
                                moment = max(pending[i, 0], begin + (used - 0.5 * m * w_out) / speed)
                            else:  # evaluations lie between the inputs, not behind them
                                moment = max(
                                    pending[i, 0] + 0.5 * m / firings * w_out * stretch, begin + 0.5 * used / speed
                                )
                            space -= m
                            out += m
                            sum_ready += m * moment
                            sum_ingested += m * pending[i, 1]
                            sum_made += m * pending[i, 2]
                            outputs[i] = outputs[i] - m if outputs[i] - m > _DUST else 0.0
                if phase == 1:
                    break
                is_free = work[i] <= 0.0 and outputs[i] <= 0.0

                if kind == SOURCE:
                    left = min(brokers[i, 0], (share - used) / w_in, space)
                    while left > _DUST:
                        p = pollers[i]
                        m = min(arrivals[i, p] - brokers[i, 1], left)
                        if m > 0.0:
                            made = (p + 0.5) * dt
                            moment = max(made + settings[FETCH_S], begin + (used + 0.5 * m * w_in) / speed)
                            used += m * w_in
                            out += m
                            sum_ready += m * (moment + w_in * stretch)
                            sum_ingested += m * moment
                            sum_made += m * made
                            left -= m
                            brokers[i, 0] -= m
                            brokers[i, 1] += m
                        if arrivals[i, p] - brokers[i, 1] <= _DUST:
                            if p == k:
                                break
                            pollers[i] = p + 1
                            brokers[i, 1] = 0.0
                    taken = out
                    counts[i, TAKEN_0] += out
                    break  # a source has no window

                # inputs: both sides of a join in proportion to what waits there
                cost = w_in + selectivity * w_out if kind == FILTER else w_in
                ready_0 = _ready_amount(ring, heads, amounts, q, end) if is_free else 0.0
                ready_1 = _ready_amount(ring, heads, amounts, q + 1, end) if is_free and kind == JOIN else 0.0
                room = (share - used) / cost
                if kind == FILTER:
                    room = min(room, space / selectivity)
                part = min(1.0, max(room, 0.0) / max(ready_0 + ready_1, _DUST))
                moment_sum = 0.0
                for slot in range(2 if kind == JOIN else 1):
                    left = part * (ready_0 if slot == 0 else ready_1)
                    side, lag_ingested, lag_made = 0.0, 0.0, 0.0
                    drained[q + slot] = left
                    while left > _DUST and heads[q + slot, 1] > 0:
                        cohort = ring[q + slot, heads[q + slot, 0]]
                        m = min(cohort[_AMOUNT], left)
                        moment = max(cohort[_READY], begin + (used + 0.5 * m * cost) / speed)
                        used += m * cost
                        if policy == NO_WINDOW:
                            moment += cost * stretch
                            sum_ready += m * moment
                            sum_ingested += m * cohort[_INGESTED]
                            sum_made += m * cohort[_MADE]
                        else:
                            moment += cost * stretch
                            moment_sum += m * moment
                            lag_ingested += m * (moment - cohort[_INGESTED])
                            lag_made += m * (moment - cohort[_MADE])
                        side += m
                        left -= m
                        amounts[q + slot] -= m
                        cohort[_AMOUNT] -= m
                        if cohort[_AMOUNT] <= _DUST:
                            amounts[q + slot] -= cohort[_AMOUNT]
                            heads[q + slot, 0] = (heads[q + slot, 0] + 1) % _RING
                            heads[q + slot, 1] -= 1
                    taken += side
                    counts[i, TAKEN_0 + slot] += side
                    if policy != NO_WINDOW:
                        history[q + slot, k + 1] = history[q + slot, k] + side
                        before = max(k - 1, 0)
                        lags[0, q + slot, k] = lag_ingested / side if side > 0.0 else lags[0, q + slot, before]
                        lags[1, q + slot, k] = lag_made / side if side > 0.0 else lags[1, q + slot, before]
                if policy == NO_WINDOW:
                    out = taken
                    break

                # a window that is due is evaluated when nothing of an earlier one is left
                if not is_free:
                    break
                n_sides = 2 if kind == JOIN else 1
                size, slide, fire_s = operators[i, SIZE], operators[i, SLIDE], 0.0
                clock = end
                if policy == BY_TIME:
                    firings = math.floor(end / slide + 1e-9) - fired[i]
                    if firings > 0.0:
                        if slide >= dt:  # one after the other; windows shorter than a step are taken together
                            firings = 1.0
                        fired[i] += firings
                        clock = fire_s = fired[i] * slide
                else:
                    total = history[q, k + 1] + (history[q + 1, k + 1] if kind == JOIN else 0.0)
                    every = slide * n_sides
                    firings = math.floor(total / every + 1e-9) - fired[i]
                    if firings > 0.0:
                        middle = total - (fired[i] + 0.5 * (firings + 1.0)) * every  # tuples since the mean firing
                        behind = min(1.0, middle / taken) if taken > 0.0 else 0.0
                        clock = end - behind * dt
                        fire_s = (moment_sum / taken if taken > 0.0 else end) + (0.5 - behind) * dt * (
                            1.0 - 1.0 / max(taken, 1.0)
                        )
                        fired[i] += firings
                if firings <= 0.0:
                    break
                contents, product, oldest_ingested, oldest_made = 0.0, 1.0, math.inf, math.inf
                for slot in range(n_sides):
                    arrived = _count_at(history, q + slot, clock, k, dt)
                    if policy == BY_TIME:
                        content = arrived - _count_at(history, q + slot, clock - size, k, dt)
                        age = min(size, clock) * content / (content + 1.0)
                    else:
                        content = min(arrived, size)
                        age = clock - _time_of(history, pointers, q + slot, max(arrived - content + 1.0, 0.5), k, dt)
                    if content < 0.5:
                        content = 0.0
                    age = max(age, 0.0)
                    p = min(max(int((clock - age) / dt), 0), k)
                    oldest_ingested = min(oldest_ingested, fire_s - age - lags[0, q + slot, p])
                    oldest_made = min(oldest_made, fire_s - age - lags[1, q + slot, p])
                    contents += content
                    product *= content
                if product > 0.0:
                    expected = firings * selectivity * product
                    if kind == JOIN:
                        expected = _thin(random, hazards, i, expected)
                    else:
                        expected = max(firings, expected)
                    work[i] = firings * (operators[i, W_FIRE] + operators[i, W_SCAN] * contents)
                    outputs[i] = expected
                    pending[i, 0] = fire_s + work[i] / firings * stretch
                    pending[i, 1], pending[i, 2] = oldest_ingested, oldest_made

            # a filter's share goes on; a sink counts; the others pass on what they made
            if kind == SINK:
                totals[DELIVERED] += out
                totals[LP_S] += sum_ready - sum_ingested
                totals[LE_S] += sum_ready - sum_made
            elif out > 0.0:
                row[_READY], row[_INGESTED], row[_MADE] = sum_ready / out, sum_ingested / out, sum_made / out
                if kind == FILTER:
                    out = _thin(random, hazards, i, out * selectivity)
                if out > 0.0:
                    counts[i, EMITTED] += out
                    if not wiring[i, IS_REMOTE]:
                        row[_READY] += settings[LOCAL_HOP_S]
                    _push(ring, heads, amounts, target, bound, out, row)
            allocated[h] += taken * operators[i, STATE_0] + out * operators[i, HEAP]
            spares[h] = max(0.0, spares[h] + granted - used)
            budgets[h] = max(0.0, budgets[h] - used * slowness[h])
            habits[i, 0] += 0.3 * (used - habits[i, 0])
            if policy != NO_WINDOW:
                habits[i, 1] += 0.3 * (used - taken * w_in - habits[i, 1])
                habits[i, 2] += 0.3 * (out - habits[i, 2])

            # the way to another host
            if wiring[i, IS_REMOTE]:
                q, goal = 2 * n + i, 2 * wiring[i, NEXT] + wiring[i, SLOT]
                granted = min(sends[i], up_levels[h])
                share, wire, used = granted + up_spares[h], operators[i, WIRE], 0.0
                reach = drained[goal] * (1.0 + hosts[h, LATENCY] / dt)
                ready = _ready_amount(ring, heads, amounts, q, end)
                left = min(ready, share / wire, max(0.0, bound + reach - amounts[goal]))
                speed = share / dt if up_levels[h] < math.inf else hosts[h, BANDWIDTH]
                busy = min(_BUSY, send_habits[i] / (hosts[h, BANDWIDTH] * dt))
                stretch = (1.0 + 0.5 * busy / (1.0 - busy)) / hosts[h, BANDWIDTH]
                drained[q] = left
                while left > _DUST and heads[q, 1] > 0:
                    cohort = ring[q, heads[q, 0]]
                    m = min(cohort[_AMOUNT], left)
                    moment = max(cohort[_READY], start + (used + 0.5 * m * wire) / max(speed, 1.0))
                    used += m * wire
                    row[_READY] = moment + wire * stretch + hosts[h, LATENCY] + settings[REMOTE_HOP_S]
                    row[_INGESTED], row[_MADE] = cohort[_INGESTED], cohort[_MADE]
                    _push(ring, heads, amounts, goal, bound, m, row)
                    left -= m
                    amounts[q] -= m
                    cohort[_AMOUNT] -= m
                    if cohort[_AMOUNT] <= _DUST:
                        amounts[q] -= cohort[_AMOUNT]
                        heads[q, 0] = (heads[q, 0] + 1) % _RING
                        heads[q, 1] -= 1
                up_spares[h] = max(0.0, up_spares[h] + granted - used)
                send_habits[i] += 0.3 * (used - send_habits[i])

        totals[SECONDS] = end
        if k >= tail_from:
            tail_n += 1
            for i in range(n):
                totals[BACKLOG] += brokers[i, 0]

    if tail_n > 0:
        totals[BACKLOG] /= tail_n
    else:
        for i in range(n):
            totals[BACKLOG] += brokers[i, 0]
    for i in range(n):
        counts[i, QUEUED_0], counts[i, QUEUED_1] = amounts[2 * i], amounts[2 * i + 1]
        counts[i, SENDING], counts[i, WAITING] = amounts[2 * n + i], brokers[i, 0]
    return totals, counts
