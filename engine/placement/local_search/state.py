"""Compiled state of a local search: the scan over a core's load, what is allowed, and a move."""

from __future__ import annotations

from typing import NamedTuple, cast

import numpy as np
import numpy.typing as npt

from engine.arrays import FloatArray, IntArray
from engine.compiler import compiled, inner

__all__ = [
    "NONE",
    "OWN",
    "WINDOWS",
    "BoolArray",
    "SearchArrays",
    "SearchState",
    "admissible",
    "heaviest",
    "link",
    "members_of",
    "move",
    "reaching",
    "scan",
    "steps",
]

BoolArray = npt.NDArray[np.bool_]

# The common table, and windows of each core's own: those that refuted something for it last.
WINDOWS, OWN = 24, 4
# "No item" or "no core" in variables of compiled code: a plain -1 is a type of its own, for which every function that
# gets the variable would be compiled once more.
NONE = cast(int, np.int64(-1))


class SearchArrays(NamedTuple):
    """Constant arrays of a local search. Row `m` of `load` is zeros: "no item"."""

    load: FloatArray  # (m + 1, d)
    upto: FloatArray  # (d + 1, m): sums of the items' loads before each subinterval
    empty: FloatArray  # (cores, d): base load less budget
    rates: FloatArray  # (cores, d) or (cores, 1): budgets
    done: FloatArray  # sums of rates
    most: FloatArray  # (cores,): highest rate
    node: IntArray  # (cores,)
    allowed: BoolArray  # (m, cores)
    weight: FloatArray  # (m,); empty if the cost of a core is its Mace
    group_start: IntArray  # (m + 1,)
    groups: IntArray  # groups of item i are groups[group_start[i]:group_start[i + 1]]
    origin: IntArray  # (m,)
    max_moves: int
    need: FloatArray  # (m,): bytes of memory
    room: FloatArray  # (nodes,): bytes, infinite without a limit


class SearchState(NamedTuple):
    """State of a local search: the places of items, and sums kept up with each move."""

    core: IntArray  # (m,)
    residual: FloatArray  # (cores, d)
    cost: FloatArray  # (cores,)
    first: IntArray  # (cores,): first item of a core's list, -1 for none
    after: IntArray  # (m,)
    before: IntArray  # (m,)
    held: IntArray  # (groups, nodes): items of a group on a node
    used: FloatArray  # (nodes,): bytes of the items on a node
    begin: IntArray  # (WINDOWS,)
    end: IntArray  # (WINDOWS,)
    hits: IntArray  # (WINDOWS,)
    order: IntArray  # (WINDOWS,): most useful first
    of_item: FloatArray  # (WINDOWS, m + 1)
    of_core: FloatArray  # (WINDOWS, cores)
    own: IntArray  # (cores, OWN, 2): windows that refuted something for this core lately
    own_sum: FloatArray  # (cores, OWN): residual in them
    own_next: IntArray  # (cores,)
    away: IntArray  # (1,): items that are not where they were
    dirty: BoolArray  # (cores,): changed since the last mark
    counts: IntArray  # (3,): windows known, scans, candidates


@inner
def reaching(values: FloatArray, begin: int, target: float) -> int:
    """The first of ascending values from `begin` on that is no less than a target (searchsorted compiles for long)."""
    end = len(values)
    while begin < end:
        middle = (begin + end) // 2
        if values[middle] < target:
            begin = middle + 1
        else:
            end = middle
    return begin


@inner
def drain(rates: FloatArray, done: FloatArray, p: int, excess: float) -> float:
    """Subintervals needed to process the excess after subinterval p; the last rate holds for ever."""
    last = len(rates) - 1
    target = done[p] + excess
    q = reaching(done, p + 1, target)
    return (q - 1 - p) + (target - done[min(q, last + 1) - 1]) / rates[min(q, last)]


@compiled
def scan(
    row: FloatArray, add: FloatArray, take: FloatArray, rates: FloatArray, done: FloatArray, most: float, limit: float
) -> tuple[float, int, int]:
    """Mace of a core with one item more and one less, and the window it comes from; infinite once above `limit`."""
    constant = len(rates) == 1
    above = limit * most
    excess, highest, worst = 0.0, 0.0, 0.0
    start, begin, end = 0, 0, 0
    for p in range(len(row)):
        excess += row[p] + add[p] - take[p]
        if excess <= 0.0:
            excess = 0.0
            start = p + 1
        elif excess > highest:
            if excess > above:
                return np.inf, start, p + 1
            if constant:
                highest = excess
                begin, end = start, p + 1
            else:
                time = drain(rates, done, p, excess)
                if time > limit:
                    return np.inf, start, p + 1
                if time > worst:
                    worst = time
                    begin, end = start, p + 1
    return highest / most if constant else worst, begin, end


@inner
def heaviest(weight: FloatArray, first: int, after: IntArray, plus: int, minus: int) -> float:
    """Weight of a core with one item more and one less; `first` is the head of its list."""
    if len(weight) == 0:
        return 1.0
    highest = weight[plus] if plus < len(weight) else 0.0
    item = first
    while item >= 0:
        if item != minus:
            highest = max(highest, weight[item])
        item = after[item]
    return highest


@inner
def members_of(first: int, after: IntArray) -> IntArray:
    """Items of a core in ascending order; `first` is the head of its list."""
    count = 0
    item = first
    while item >= 0:
        count += 1
        item = after[item]
    members = np.empty(count, np.int64)
    item = first
    for n in range(count):
        at = n
        while at > 0 and members[at - 1] > item:
            members[at] = members[at - 1]
            at -= 1
        members[at] = item
        item = after[item]
    return members


@inner
def admissible(fixed: SearchArrays, state: SearchState, item: int, core: int, leaving: int) -> bool:
    """Whether `item` may go to `core` once `leaving` (an item, or -1) has gone from there to the core of `item`.

    The count of moves is that of both together.
    """
    if not fixed.allowed[item, core]:
        return False
    home = state.core[item]
    node, from_node = fixed.node[core], fixed.node[home]
    if leaving >= 0 and not fixed.allowed[leaving, home]:
        return False
    if node != from_node:
        gone = fixed.need[leaving] if leaving >= 0 else 0.0
        if fixed.need[item] > gone and state.used[node] + fixed.need[item] - gone > fixed.room[node]:
            return False
        if gone > fixed.need[item] and state.used[from_node] + gone - fixed.need[item] > fixed.room[from_node]:
            return False
        for g in range(fixed.group_start[item], fixed.group_start[item + 1]):
            group = fixed.groups[g]
            if state.held[group, node] - _is_in(fixed.group_start, fixed.groups, leaving, group) > 0:
                return False
        if leaving >= 0:
            for g in range(fixed.group_start[leaving], fixed.group_start[leaving + 1]):
                group = fixed.groups[g]
                if state.held[group, from_node] - _is_in(fixed.group_start, fixed.groups, item, group) > 0:
                    return False
    if fixed.max_moves < 0:
        return True
    away = state.away[0] + steps(fixed.origin[item], home, core)
    if leaving >= 0:
        away += steps(fixed.origin[leaving], state.core[leaving], home)
    return away <= fixed.max_moves or away <= state.away[0]


@inner
def _is_in(group_start: IntArray, groups: IntArray, item: int, group: int) -> int:
    if item >= 0:
        for g in range(group_start[item], group_start[item + 1]):
            if groups[g] == group:
                return 1
    return 0


@inner
def steps(origin: int, home: int, core: int) -> int:
    """Growth of the number of items away from their origin if an item goes from home to a core."""
    if origin < 0:
        return 0
    return (1 if core != origin else 0) - (1 if home != origin else 0)


@inner
def move(fixed: SearchArrays, state: SearchState, item: int, core: int) -> None:
    """Put an item on another core; costs of the two cores are left to the caller."""
    home = state.core[item]
    if fixed.max_moves >= 0:
        state.away[0] += steps(fixed.origin[item], home, core)
    previous, following = state.before[item], state.after[item]
    if previous >= 0:
        state.after[previous] = following
    else:
        state.first[home] = following
    if following >= 0:
        state.before[following] = previous
    link(state.first, state.after, state.before, item, core)
    state.core[item] = core
    state.used[fixed.node[home]] -= fixed.need[item]
    state.used[fixed.node[core]] += fixed.need[item]
    for g in range(fixed.group_start[item], fixed.group_start[item + 1]):
        state.held[fixed.groups[g], fixed.node[home]] -= 1
        state.held[fixed.groups[g], fixed.node[core]] += 1
    load, old, new = fixed.load[item], state.residual[home], state.residual[core]
    for p in range(len(load)):
        old[p] -= load[p]
        new[p] += load[p]
    for k in range(state.counts[0]):
        state.of_core[k, home] -= state.of_item[k, item]
        state.of_core[k, core] += state.of_item[k, item]
    for r in range(OWN):
        state.own_sum[home, r] -= fixed.upto[state.own[home, r, 1], item] - fixed.upto[state.own[home, r, 0], item]
        state.own_sum[core, r] += fixed.upto[state.own[core, r, 1], item] - fixed.upto[state.own[core, r, 0], item]
    state.dirty[home] = True
    state.dirty[core] = True


@inner
def link(first: IntArray, after: IntArray, before: IntArray, item: int, core: int) -> None:
    """Put an item at the head of a core's list."""
    head = first[core]
    before[item] = -1
    after[item] = head
    if head >= 0:
        before[head] = item
    first[core] = item
