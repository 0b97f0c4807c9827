"""Compiled moves of a placement search: what a core would cost, and the bookkeeping of a move.

Costs are in subintervals (times weight); `residual` is load less budget, so a scan needs neither of them. Every test
against a limit gives up as soon as the limit is passed, and the windows in the table refute most candidates before
that: the excess after a window is at least the residual summed over it (docs/models/placement.md).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from engine.compiled import compiled
from engine.elements import FloatArray, IntArray

__all__ = [
    "OWN",
    "WINDOWS",
    "Fixed",
    "State",
    "admissible",
    "core_cost",
    "learn",
    "members_of",
    "move",
    "open_cores",
    "open_partners",
    "rebuild",
    "residual_in",
    "scan",
    "sum_windows",
]

BoolArray = npt.NDArray[np.bool_]

# The common table, and windows of each core's own: those that refuted something for it last.
WINDOWS, OWN = 24, 4
# A full table takes a new window from every so many scans only: a change costs a pass over all items and cores.
EVERY = 16
# Room for rounding: a window refutes only what misses the limit by more than this share.
_MARGIN = 1e-9


class Fixed(NamedTuple):
    """What a search does not change. Row `m` of `load` is zeros: "no item"."""

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


class State(NamedTuple):
    """Where a search is."""

    core: IntArray  # (m,)
    residual: FloatArray  # (cores, d)
    cost: FloatArray  # (cores,)
    first: IntArray  # (cores,): first item of a core's list, -1 for none
    after: IntArray  # (m,)
    before: IntArray  # (m,)
    held: IntArray  # (groups, nodes): items of a group on a node
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


@compiled
def drain(rates: FloatArray, done: FloatArray, p: int, excess: float) -> float:
    """Subintervals it takes to work off what is left after subinterval p; the last rate holds for ever."""
    last = len(rates) - 1
    target = done[p] + excess
    q = p + 1 + np.searchsorted(done[p + 1 :], target)
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


@compiled
def heaviest(fixed: Fixed, state: State, core: int, plus: int, minus: int) -> float:
    """Weight of a core with one item more and one less."""
    if len(fixed.weight) == 0:
        return 1.0
    found = fixed.weight[plus] if plus < len(fixed.weight) else 0.0
    item = state.first[core]
    while item >= 0:
        if item != minus:
            found = max(found, fixed.weight[item])
        item = state.after[item]
    return found


@compiled
def core_cost(fixed: Fixed, state: State, core: int, plus: int, minus: int, limit: float) -> float:
    """Cost of a core with one item more and one less; infinite once above `limit`, and the window is learnt."""
    weight = heaviest(fixed, state, core, plus, minus)
    if weight == 0.0:
        return 0.0
    if limit < np.inf and _refuted_by_own(fixed, state, core, plus, minus, limit / weight):
        return np.inf
    state.counts[1] += 1
    found, begin, end = scan(
        state.residual[core],
        fixed.load[plus],
        fixed.load[minus],
        fixed.rates[core],
        fixed.done[core],
        fixed.most[core],
        limit / weight,
    )
    if found == np.inf and limit < np.inf:
        place = state.own_next[core]
        state.own_next[core] = (place + 1) % OWN
        state.own[core, place, 0], state.own[core, place, 1] = begin, end
        state.own_sum[core, place] = residual_in(state, core, begin, end)
        if state.counts[0] < WINDOWS or state.counts[1] % EVERY == 0:
            learn(fixed, state, begin, end)
    return found * weight


@compiled
def _refuted_by_own(fixed: Fixed, state: State, core: int, plus: int, minus: int, limit: float) -> bool:
    above = (limit * (1.0 + _MARGIN) + _MARGIN) * fixed.most[core]
    items = fixed.upto.shape[1]
    for r in range(OWN):
        begin, end = state.own[core, r, 0], state.own[core, r, 1]
        total = state.own_sum[core, r]
        if plus < items:
            total += fixed.upto[end, plus] - fixed.upto[begin, plus]
        if minus < items:
            total -= fixed.upto[end, minus] - fixed.upto[begin, minus]
        if total > above:
            return True
    return False


@compiled
def residual_in(state: State, core: int, begin: int, end: int) -> float:
    """Residual of a core summed over a window."""
    total = 0.0
    for p in range(begin, end):
        total += state.residual[core, p]
    return total


@compiled
def sum_windows(state: State, core: int) -> None:
    """Make the sums of a core over all its windows anew."""
    for k in range(state.counts[0]):
        state.of_core[k, core] = residual_in(state, core, state.begin[k], state.end[k])
    for r in range(OWN):
        state.own_sum[core, r] = residual_in(state, core, state.own[core, r, 0], state.own[core, r, 1])


@compiled
def open_cores(fixed: Fixed, state: State, item: int, limit: float, room: IntArray) -> int:
    """Cores that no window refutes for one item more, in ascending order in `room`; returns how many."""
    cores = len(state.cost)
    for core in range(cores):
        room[core] = core
    left = cores
    limit = _loose(fixed, item, limit)
    if limit == np.inf:
        return left
    for n in range(state.counts[0]):
        k = state.order[n]
        added, kept = state.of_item[k, item], 0
        of_core = state.of_core[k]
        for i in range(left):
            core = room[i]
            room[kept] = core
            kept += of_core[core] + added <= limit * fixed.most[core]
        _credit(state, n, left - kept)
        left = kept
    state.counts[2] += cores
    return left


@compiled
def open_partners(fixed: Fixed, state: State, item: int, limit: float, room: IntArray) -> int:
    """Items elsewhere that no window refutes for an exchange with `item`, in ascending order; returns how many."""
    items, home = len(state.core), state.core[item]
    left = 0
    for other in range(items):
        room[left] = other
        left += state.core[other] != home
    state.counts[2] += left
    at_home = limit * (1.0 + _MARGIN) + _MARGIN
    if len(fixed.weight):
        weight = heaviest(fixed, state, home, items, item)
        at_home = at_home / weight if weight > 0.0 else np.inf
    at_home *= fixed.most[home]
    for n in range(state.counts[0]):
        k = state.order[n]
        of_item, kept = state.of_item[k], 0
        most = at_home - state.of_core[k, home] + of_item[item]
        for i in range(left):
            other = room[i]
            room[kept] = other
            kept += of_item[other] <= most
        _credit(state, n, left - kept)
        left = kept
    limit = _loose(fixed, item, limit)
    kept = 0
    for i in range(left):
        other = room[i]
        core = state.core[other]
        above = limit * fixed.most[core]
        good = True
        for n in range(state.counts[0]):
            k = state.order[n]
            if state.of_core[k, core] + state.of_item[k, item] - state.of_item[k, other] > above:
                good = False
                _credit(state, n, 1)
                break
        room[kept] = other
        kept += good
    return kept


@compiled
def _loose(fixed: Fixed, item: int, limit: float) -> float:
    """Limit of the Mace of a core that gets an item, with room for rounding: it weighs as much as the item at least."""
    limit = limit * (1.0 + _MARGIN) + _MARGIN
    if len(fixed.weight) == 0:
        return limit
    return limit / fixed.weight[item] if fixed.weight[item] > 0.0 else np.inf


@compiled
def _credit(state: State, n: int, refuted: int) -> None:
    """Count what the n-th window refuted, and let it overtake the one before it."""
    k = state.order[n]
    state.hits[k] += refuted
    if n > 0 and state.hits[k] > state.hits[state.order[n - 1]]:
        state.order[n] = state.order[n - 1]
        state.order[n - 1] = k


@compiled
def learn(fixed: Fixed, state: State, begin: int, end: int) -> None:
    """Put a window into the table, in place of the least useful one."""
    known = state.counts[0]
    for k in range(known):
        if state.begin[k] == begin and state.end[k] == end:
            return
    if known < WINDOWS:
        place = known
        state.order[known] = known
        state.counts[0] = known + 1
    else:
        for n in range(WINDOWS):
            state.hits[n] //= 2
        place = state.order[WINDOWS - 1]
        # Its successor begins in the middle, so that it is not the next to go.
        for n in range(WINDOWS - 1, WINDOWS // 2, -1):
            state.order[n] = state.order[n - 1]
        state.order[WINDOWS // 2] = place
        state.hits[place] = state.hits[state.order[WINDOWS // 2 - 1]]
    state.begin[place], state.end[place] = begin, end
    if known < WINDOWS:
        state.hits[place] = 0
    for i in range(fixed.upto.shape[1]):
        state.of_item[place, i] = fixed.upto[end, i] - fixed.upto[begin, i]
    for core in range(len(state.cost)):
        state.of_core[place, core] = residual_in(state, core, begin, end)


@compiled
def members_of(state: State, core: int) -> IntArray:
    """Items of a core in ascending order."""
    count = 0
    item = state.first[core]
    while item >= 0:
        count += 1
        item = state.after[item]
    found = np.empty(count, np.int64)
    item = state.first[core]
    for n in range(count):
        found[n] = item
        item = state.after[item]
    found.sort()
    return found


@compiled
def admissible(fixed: Fixed, state: State, item: int, core: int, leaving: int) -> bool:
    """May `item` go to `core` once `leaving` (an item, or -1) has gone away from there to the core of `item`?

    The count of moves is that of both together.
    """
    if not fixed.allowed[item, core]:
        return False
    home = state.core[item]
    node, from_node = fixed.node[core], fixed.node[home]
    if leaving >= 0 and not fixed.allowed[leaving, home]:
        return False
    if node != from_node:
        for g in range(fixed.group_start[item], fixed.group_start[item + 1]):
            group = fixed.groups[g]
            if state.held[group, node] - _is_in(fixed, leaving, group) > 0:
                return False
        if leaving >= 0:
            for g in range(fixed.group_start[leaving], fixed.group_start[leaving + 1]):
                group = fixed.groups[g]
                if state.held[group, from_node] - _is_in(fixed, item, group) > 0:
                    return False
    if fixed.max_moves < 0:
        return True
    away = state.away[0] + _steps(fixed, state, item, core)
    if leaving >= 0:
        away += _steps(fixed, state, leaving, home)
    return away <= fixed.max_moves or away <= state.away[0]


@compiled
def _is_in(fixed: Fixed, item: int, group: int) -> int:
    if item >= 0:
        for g in range(fixed.group_start[item], fixed.group_start[item + 1]):
            if fixed.groups[g] == group:
                return 1
    return 0


@compiled
def _steps(fixed: Fixed, state: State, item: int, core: int) -> int:
    """By how much the count of items away from their place grows if an item goes to a core."""
    origin = fixed.origin[item]
    if origin < 0:
        return 0
    return (1 if core != origin else 0) - (1 if state.core[item] != origin else 0)


@compiled
def move(fixed: Fixed, state: State, item: int, core: int) -> None:
    """Put an item on another core; costs of the two cores are left to the caller."""
    home = state.core[item]
    if fixed.max_moves >= 0:
        state.away[0] += _steps(fixed, state, item, core)
    previous, following = state.before[item], state.after[item]
    if previous >= 0:
        state.after[previous] = following
    else:
        state.first[home] = following
    if following >= 0:
        state.before[following] = previous
    _link(fixed, state, item, core)
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


@compiled
def _link(fixed: Fixed, state: State, item: int, core: int) -> None:
    head = state.first[core]
    state.core[item] = core
    state.before[item] = -1
    state.after[item] = head
    if head >= 0:
        state.before[head] = item
    state.first[core] = item


@compiled
def rebuild(fixed: Fixed, state: State) -> None:
    """Make everything that follows from the cores of the items anew."""
    state.first[:] = -1
    state.held[:] = 0
    state.away[0] = 0
    state.dirty[:] = True
    state.residual[:] = fixed.empty
    for item in range(len(state.core)):
        core = state.core[item]
        _link(fixed, state, item, core)
        for g in range(fixed.group_start[item], fixed.group_start[item + 1]):
            state.held[fixed.groups[g], fixed.node[core]] += 1
        if 0 <= fixed.origin[item] != core:
            state.away[0] += 1
        row, load = state.residual[core], fixed.load[item]
        for p in range(len(row)):
            row[p] += load[p]
    none = len(state.core)
    for core in range(len(state.cost)):
        sum_windows(state, core)
        state.cost[core] = core_cost(fixed, state, core, none, none, np.inf)
