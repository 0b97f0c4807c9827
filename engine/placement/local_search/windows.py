"""Windows that refute a move: they show that a core would cost too much, without a scan.

The excess after a window is at least the residual summed over it, so one sum refutes a candidate for good
(docs/models/placement.md). Two tables of windows are kept: a common one, and a short one per core.
"""

from __future__ import annotations

import numpy as np

from engine.arrays import FloatArray, IntArray
from engine.compiler import compiled, inner
from engine.placement.local_search.state import OWN, WINDOWS, SearchArrays, SearchState, heaviest, link, scan

__all__ = ["core_cost", "open_cores", "open_partners", "rebuild", "sum_windows"]

# A full table takes a new window from every so many scans only: a change costs a pass over all items and cores.
_EVERY = 16
# Room for rounding: a window refutes only what misses the limit by more than this share.
_MARGIN = 1e-9


@inner
def core_cost(fixed: SearchArrays, state: SearchState, core: int, plus: int, minus: int, limit: float) -> float:
    """Cost of a core with one item more and one less; infinite once above `limit`, and the window is learnt."""
    weight = heaviest(fixed.weight, state.first[core], state.after, plus, minus)
    if weight == 0.0:
        return 0.0
    if limit < np.inf:
        above = (limit / weight * (1.0 + _MARGIN) + _MARGIN) * fixed.most[core]
        if _refuted(fixed.upto, state.own[core], state.own_sum[core], plus, minus, above):
            return np.inf
    state.counts[1] += 1
    excess, begin, end = scan(
        state.residual[core],
        fixed.load[plus],
        fixed.load[minus],
        fixed.rates[core],
        fixed.done[core],
        fixed.most[core],
        limit / weight,
    )
    if excess == np.inf and limit < np.inf:
        place = state.own_next[core]
        state.own_next[core] = (place + 1) % OWN
        state.own[core, place, 0], state.own[core, place, 1] = begin, end
        state.own_sum[core, place] = _residual_in(state.residual[core], begin, end)
        if state.counts[0] < WINDOWS or state.counts[1] % _EVERY == 0:
            _learn(fixed, state, begin, end)
    return excess * weight


@inner
def _refuted(upto: FloatArray, windows: IntArray, sums: FloatArray, plus: int, minus: int, above: float) -> bool:
    items = upto.shape[1]
    for r in range(OWN):
        begin, end = windows[r, 0], windows[r, 1]
        total = sums[r]
        if plus < items:
            total += upto[end, plus] - upto[begin, plus]
        if minus < items:
            total -= upto[end, minus] - upto[begin, minus]
        if total > above:
            return True
    return False


@inner
def open_cores(fixed: SearchArrays, state: SearchState, item: int, limit: float, room: IntArray) -> int:
    """Cores that no window refutes for one item more, in ascending order in `room`; returns how many."""
    cores = len(state.cost)
    for core in range(cores):
        room[core] = core
    left = cores
    limit = _loose(fixed.weight, item, limit)
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
        _credit(state.order, state.hits, n, left - kept)
        left = kept
    state.counts[2] += cores
    return left


@inner
def open_partners(fixed: SearchArrays, state: SearchState, item: int, limit: float, room: IntArray) -> int:
    """Items elsewhere that no window refutes for an exchange with `item`, in ascending order; returns how many."""
    items, home = len(state.core), state.core[item]
    left = 0
    for other in range(items):
        room[left] = other
        left += state.core[other] != home
    state.counts[2] += left
    at_home = limit * (1.0 + _MARGIN) + _MARGIN
    if len(fixed.weight):
        weight = heaviest(fixed.weight, state.first[home], state.after, items, item)
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
        _credit(state.order, state.hits, n, left - kept)
        left = kept
    limit = _loose(fixed.weight, item, limit)
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
                _credit(state.order, state.hits, n, 1)
                break
        room[kept] = other
        kept += good
    return kept


@inner
def _loose(weight: FloatArray, item: int, limit: float) -> float:
    """Limit of the Mace of a core that gets an item, with room for rounding: it weighs as much as the item at least."""
    limit = limit * (1.0 + _MARGIN) + _MARGIN
    if len(weight) == 0:
        return limit
    return limit / weight[item] if weight[item] > 0.0 else np.inf


@inner
def _credit(order: IntArray, hits: IntArray, n: int, refuted: int) -> None:
    """Count what the n-th window refuted, and let it overtake the one before it."""
    k = order[n]
    hits[k] += refuted
    if n > 0 and hits[k] > hits[order[n - 1]]:
        order[n] = order[n - 1]
        order[n - 1] = k


@inner
def _learn(fixed: SearchArrays, state: SearchState, begin: int, end: int) -> None:
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
        state.of_core[place, core] = _residual_in(state.residual[core], begin, end)


@inner
def _residual_in(row: FloatArray, begin: int, end: int) -> float:
    """Residual of a core summed over a window."""
    total = 0.0
    for p in range(begin, end):
        total += row[p]
    return total


@inner
def sum_windows(state: SearchState, core: int) -> None:
    """Make the sums of a core over all its windows anew."""
    for k in range(state.counts[0]):
        state.of_core[k, core] = _residual_in(state.residual[core], state.begin[k], state.end[k])
    for r in range(OWN):
        state.own_sum[core, r] = _residual_in(state.residual[core], state.own[core, r, 0], state.own[core, r, 1])


@compiled
def rebuild(fixed: SearchArrays, state: SearchState) -> None:
    """Make everything that follows from the cores of the items anew."""
    state.first[:] = -1
    state.held[:] = 0
    state.used[:] = 0.0
    state.away[0] = 0
    state.dirty[:] = True
    for core in range(len(state.cost)):
        row, empty = state.residual[core], fixed.empty[core]
        for p in range(len(row)):
            row[p] = empty[p]
    for item in range(len(state.core)):
        core = state.core[item]
        link(state.first, state.after, state.before, item, core)
        state.used[fixed.node[core]] += fixed.need[item]
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
