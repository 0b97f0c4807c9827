"""Compiled placement of few items onto loaded cores, and what every core then has to wait for.

Excess is counted in seconds of a core's mean capacity. That is Mace where the capacity is constant; where it varies the
time to drain is worked out afterwards, on what was chosen.
"""

from __future__ import annotations

import numpy as np

from engine.arrays import FloatArray, IntArray
from engine.compiler import compiled
from engine.placement.problem import BoolArray, add_loads

__all__ = ["bytes_on_nodes", "fill", "loads_on_cores", "lose_each", "peaks"]

_TIE = 1e-9


def loads_on_cores(load: FloatArray, assignment: IntArray, cores: int) -> FloatArray:
    """Load of every core, shape (cores, d)."""
    total = np.zeros((cores, load.shape[1]))
    add_loads(total, load, assignment)
    return total


@compiled
def peak(row: FloatArray, added: FloatArray, budget: FloatArray, limit: float, ceiling: float) -> tuple[float, float]:
    """Largest excess and largest load of a core with one more load.

    Both are infinite once the excess is above `limit` or the load is at `ceiling`.
    """
    left, worst, most = 0.0, 0.0, 0.0
    constant = len(budget) == 1
    for p in range(len(row)):
        here = row[p] + added[p]
        if here > most:
            most = here
            if most >= ceiling:
                return np.inf, np.inf
        left = max(0.0, left + here - (budget[0] if constant else budget[p]))
        if left > worst:
            worst = left
            if worst > limit:
                return np.inf, np.inf
    return worst, most


@compiled
def peaks(total: FloatArray, budget: FloatArray, seconds: FloatArray) -> FloatArray:
    """Largest excess of every core in seconds, shape (cores,). `seconds` are those of one cycle on each."""
    none = np.zeros(total.shape[1])
    excess = np.zeros(len(total))
    for c in range(len(total)):
        excess[c] = peak(total[c], none, budget[c], np.inf, np.inf)[0] * seconds[c]
    return excess


@compiled
def bytes_on_nodes(need: FloatArray, assignment: IntArray, node: IntArray, nodes: int) -> FloatArray:
    """Bytes of memory that items take on every node, shape (nodes,); those without a place count nowhere."""
    used = np.zeros(nodes)
    for i in range(len(assignment)):
        if assignment[i] >= 0:
            used[node[assignment[i]]] += need[i]
    return used


@compiled
def fill(
    items: IntArray,
    load: FloatArray,
    weight: FloatArray,
    total: FloatArray,
    heaviest: FloatArray,
    waiting: FloatArray,
    budget: FloatArray,
    seconds: FloatArray,
    node: IntArray,
    allowed: BoolArray,
    closed: int,
    apart: BoolArray,
    assignment: IntArray,
    need: FloatArray,
    room: FloatArray,
) -> int:
    """Place `items` one after the other where the weighted excess is least; the lower peak load breaks ties.

    Parameters
    ----------
    items : array
        In the order of placing.
    total, heaviest, waiting, assignment : arrays
        Loads (cores, d), largest weights (cores,), largest excesses in cycles (cores,) and places (items,) so far;
        changed in place.
    seconds : array, shape (cores,)
        Seconds that one cycle takes on each core, at its mean capacity.
    closed : int
        A node that takes nothing; -1 for none.
    apart : array, shape (items, items) or (0, 0)
        Which items must not share a node.
    need, room : arrays, shape (items,) and (nodes,)
        Bytes of memory that items take, and that nodes have; infinite where nobody knows.

    Returns
    -------
    int
        The first item that fits no core, -1 if all are placed.
    """
    cores = len(total)
    open_ = np.zeros(cores, np.bool_)
    barred = np.zeros(node.max() + 1 if cores else 0, np.bool_)
    used = bytes_on_nodes(need, assignment, node, len(barred))
    for i in items:
        best, best_cost, best_peak, best_excess = -1, np.inf, np.inf, 0.0
        top = load[i].argmax()
        barred[:] = False
        if len(apart):
            for other in range(len(assignment)):
                if apart[i, other] and assignment[other] >= 0:
                    barred[node[assignment[other]]] = True
        # The core that is least loaded when the item is largest goes first: it leaves most others no chance.
        first, least = -1, np.inf
        for c in range(cores):
            open_[c] = not (node[c] == closed or barred[node[c]]) and allowed[i, c]
            if open_[c] and need[i] > 0.0 and used[node[c]] + need[i] > room[node[c]]:
                open_[c] = False
            if open_[c]:
                there = (total[c, top] + load[i, top]) * seconds[c]
                if there < least:
                    first, least = c, there
        for k in range(-1, cores):
            c = first if k < 0 else k
            if c < 0 or k == first or not open_[c]:
                continue
            # Where nothing has to wait for the best so far, only a lower peak is better.
            if best_cost == 0.0 and (total[c, top] + load[i, top]) * seconds[c] >= best_peak * (1.0 - _TIE):
                continue
            heavy = max(heaviest[c], weight[i])
            scale = heavy * seconds[c]
            limit = np.inf if scale == 0.0 else best_cost * (1.0 + _TIE) / scale
            if waiting[c] > limit * (1.0 + _TIE):
                continue  # it is late without the item
            ceiling = np.inf if best_cost > 0.0 else best_peak * (1.0 - _TIE) / seconds[c]
            excess, most = peak(total[c], load[i], budget[c], limit, ceiling)
            if excess == np.inf:
                continue
            cost, share = excess * scale, most * seconds[c]
            slack = _TIE * max(1e-9, best_cost) if best >= 0 else 0.0
            if best < 0 or cost < best_cost - slack or share < best_peak * (1.0 - _TIE):
                best, best_cost, best_peak, best_excess = c, cost, share, excess
        if best < 0:
            return int(i)
        assignment[i] = best
        used[node[best]] += need[i]
        heaviest[best] = max(heaviest[best], weight[i])
        waiting[best] = best_excess
        row, added = total[best], load[i]
        for p in range(len(row)):
            row[p] += added[p]
    return -1


@compiled
def lose_each(
    nodes: IntArray,
    order: IntArray,
    load: FloatArray,
    weight: FloatArray,
    total: FloatArray,
    budget: FloatArray,
    seconds: FloatArray,
    node: IntArray,
    allowed: BoolArray,
    apart: BoolArray,
    assignment: IntArray,
    excess_s: FloatArray,
    need: FloatArray,
    room: FloatArray,
) -> tuple[IntArray, FloatArray, IntArray]:
    """Lose each of `nodes` in turn: only what was there is placed again, in the order of `order`.

    Returns
    -------
    places : array, shape (nodes, items)
    after_s : array, shape (nodes, cores)
        Largest excess of every core afterwards, in seconds; 0 on the lost node.
    stuck : array, shape (nodes,)
        The first item that fits nowhere, -1 for none.
    """
    cores, items = len(total), len(assignment)
    places = np.empty((len(nodes), items), np.int64)
    after_s = np.empty((len(nodes), cores))
    stuck = np.full(len(nodes), -1)
    none = np.zeros(total.shape[1])
    for k in range(len(nodes)):
        lost = nodes[k]
        place, after = places[k], after_s[k]
        place[:] = assignment
        after[:] = excess_s
        heaviest = np.zeros(cores)
        moving = np.empty(items, np.int64)
        count = 0
        for i in order:
            if node[assignment[i]] == lost:
                place[i] = -1
                moving[count] = i
                count += 1
            else:
                heaviest[assignment[i]] = max(heaviest[assignment[i]], weight[i])
        for c in range(cores):
            if node[c] == lost:
                after[c] = 0.0
        if not count:
            continue
        # Rows that change are put back afterwards; copying them all would cost more than the placing.
        # With capacities that vary, seconds to drain say nothing about the excess in cycles.
        waiting = excess_s / seconds if budget.shape[1] == 1 else np.zeros(cores)
        stuck[k] = fill(
            moving[:count],
            load,
            weight,
            total,
            heaviest,
            waiting,
            budget,
            seconds,
            node,
            allowed,
            lost,
            apart,
            place,
            need,
            room,
        )
        for m in range(count):
            c = place[moving[m]]
            if c >= 0:
                after[c] = peak(total[c], none, budget[c], np.inf, np.inf)[0] * seconds[c]
        for m in range(count):
            c = place[moving[m]]
            if c >= 0:
                row, added = total[c], load[moving[m]]
                for p in range(len(row)):
                    row[p] -= added[p]
    return places, after_s, stuck


@compiled
def pack(
    items: IntArray,
    load: FloatArray,
    weight: FloatArray,
    total: FloatArray,
    heaviest: FloatArray,
    budget: FloatArray,
    seconds: FloatArray,
    node: IntArray,
    allowed: BoolArray,
    apart: BoolArray,
    enough: float,
    assignment: IntArray,
    need: FloatArray,
    room: FloatArray,
) -> int:
    """Place `items` one after the other on the fullest core where no weighted excess gets above `enough`.

    What fits nowhere is left without a place. Of empty cores the slowest that will do is taken.

    Returns
    -------
    int
        How many were left out.
    """
    cores, left = len(total), 0
    constant = budget.shape[1] == 1
    barred = np.zeros(node.max() + 1 if cores else 0, np.bool_)
    used = bytes_on_nodes(need, assignment, node, len(barred))
    full = np.zeros(cores)
    for c in range(cores):
        full[c] = total[c].mean() * seconds[c]
    for i in items:
        top = load[i].argmax()
        barred[:] = False
        if len(apart):
            for other in range(len(assignment)):
                if apart[i, other] and assignment[other] >= 0:
                    barred[node[assignment[other]]] = True
        placed = False
        for c in np.argsort(-full - 1e-9 * seconds / seconds.max(), kind="mergesort"):
            if barred[node[c]] or not allowed[i, c]:
                continue
            if need[i] > 0.0 and used[node[c]] + need[i] > room[node[c]]:
                continue
            heavy = max(heaviest[c], weight[i])
            limit = np.inf if heavy == 0.0 else enough / (heavy * seconds[c])
            if total[c, top] + load[i, top] - budget[c, 0 if constant else top] > limit:
                continue
            if peak(total[c], load[i], budget[c], limit, np.inf)[0] == np.inf:
                continue
            assignment[i] = c
            used[node[c]] += need[i]
            heaviest[c] = heavy
            row, added = total[c], load[i]
            for p in range(len(row)):
                row[p] += added[p]
            full[c] = row.mean() * seconds[c]
            placed = True
            break
        if not placed:
            left += 1
    return left
