"""Compiled local search: hill climbing off the bottleneck, exchanges, perturbations and restarts."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from engine.arrays import FloatArray, IntArray
from engine.compiler import compiled, inner
from engine.placement.local_search.state import NONE, SearchArrays, SearchState, admissible, members_of, move, reaching
from engine.placement.local_search.windows import core_cost, open_cores, open_partners, rebuild, sum_windows

__all__ = ["KICKS", "RANDOM", "RESTARTS", "BestPlacements", "advance", "draw", "keep", "shuffle"]

# What a round is: a kick and a climb with exchanges, a random placement and a published climb, a random placement.
KICKS, RESTARTS, RANDOM = 0, 1, 2
# A step has to be better by this share, so that rounding cannot make a climb go round in circles.
_STEP = 1e-10


class BestPlacements(NamedTuple):
    """Best placement of a local search, to restart from, and the best ends of its climbs."""

    core: IntArray  # (m,)
    residual: FloatArray  # (cores, d)
    cost: FloatArray  # (cores,)
    value: FloatArray  # (1,)
    ends: IntArray  # (finalists, m)
    end_values: FloatArray  # (finalists,): best first, infinite where there is none
    rounds: IntArray  # (2,): rounds done, 1 once a climb is under way
    random: np.ndarray[tuple[int, ...], np.dtype[np.uint64]]  # (1,)


@inner
def draw(random: np.ndarray[tuple[int, ...], np.dtype[np.uint64]], below: int) -> int:
    """Draw a number from 0 to below - 1 (splitmix64)."""
    random[0] += np.uint64(0x9E3779B97F4A7C15)
    z = random[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return int(z >> np.uint64(11)) % below


@compiled
def keep(fixed: SearchArrays, state: SearchState, best: BestPlacements) -> None:
    """Make the present placement the one to go back to; rows are added up anew, so that rounding does not pile up."""
    for core in range(len(state.cost)):
        if state.dirty[core]:
            row, empty, kept = state.residual[core], fixed.empty[core], best.residual[core]
            for p in range(len(row)):
                row[p] = empty[p]
            for item in members_of(state.first[core], state.after):
                load = fixed.load[item]
                for p in range(len(row)):
                    row[p] += load[p]
            for p in range(len(row)):
                kept[p] = row[p]
            best.cost[core] = state.cost[core]
            state.dirty[core] = False
    _copy(state.core, best.core)
    best.value[0] = best.cost[_highest(best.cost)]


@inner
def _go_back(fixed: SearchArrays, state: SearchState, best: BestPlacements) -> None:
    for item in range(len(state.core)):
        if state.core[item] != best.core[item]:
            move(fixed, state, item, best.core[item])
    for core in range(len(state.cost)):
        if state.dirty[core]:
            row, kept = state.residual[core], best.residual[core]
            for p in range(len(row)):
                row[p] = kept[p]
            state.cost[core] = best.cost[core]
            sum_windows(state, core)
            state.dirty[core] = False


@inner
def _settle(fixed: SearchArrays, state: SearchState, core: int) -> None:
    none = len(state.core)
    state.cost[core] = core_cost(fixed, state, core, none, none, np.inf)


@inner
def _move_off(fixed: SearchArrays, state: SearchState, bottleneck: int) -> bool:
    """Make the single move that lowers the larger of the two costs most."""
    none = len(state.core)
    limit = state.cost[bottleneck] * (1.0 - _STEP)
    room = np.empty(len(state.cost), np.int64)
    best_item, best_core = NONE, NONE
    for item in members_of(state.first[bottleneck], state.after):
        left = core_cost(fixed, state, bottleneck, none, item, limit)
        if left >= limit:
            continue
        for n in range(open_cores(fixed, state, item, limit, room)):
            core = room[n]
            if core == bottleneck or not admissible(fixed, state, item, core, NONE):
                continue
            cost = max(left, core_cost(fixed, state, core, item, none, limit))
            if cost < limit:
                limit = cost
                best_item, best_core = item, core
                if cost <= left:
                    break
    if best_item < 0:
        return False
    move(fixed, state, best_item, best_core)
    _settle(fixed, state, bottleneck)
    _settle(fixed, state, best_core)
    return True


@inner
def _published_move(fixed: SearchArrays, state: SearchState, bottleneck: int) -> bool:
    """The first item of the bottleneck whose best target lowers the larger of the two costs (Figure 11)."""
    none = len(state.core)
    limit = state.cost[bottleneck] * (1.0 - _STEP)
    room = np.empty(len(state.cost), np.int64)
    for item in members_of(state.first[bottleneck], state.after):
        left = core_cost(fixed, state, bottleneck, none, item, limit)
        if left >= limit:
            continue
        best_cost, best_core = limit, NONE
        for n in range(open_cores(fixed, state, item, best_cost, room)):
            core = room[n]
            if core == bottleneck or not admissible(fixed, state, item, core, NONE):
                continue
            cost = core_cost(fixed, state, core, item, none, best_cost)
            if cost < best_cost:
                best_cost, best_core = cost, core
        if best_core >= 0:
            move(fixed, state, item, best_core)
            _settle(fixed, state, bottleneck)
            _settle(fixed, state, best_core)
            return True
    return False


@inner
def _exchange(fixed: SearchArrays, state: SearchState, bottleneck: int) -> bool:
    """The exchange of an item of the bottleneck with one elsewhere that lowers the larger of the two costs most."""
    limit = state.cost[bottleneck] * (1.0 - _STEP)
    best_item, best_other = NONE, NONE
    room = np.empty(len(state.core), np.int64)
    for item in members_of(state.first[bottleneck], state.after):
        for n in range(open_partners(fixed, state, item, limit, room)):
            other = room[n]
            core = state.core[other]
            if not admissible(fixed, state, item, core, other):
                continue
            cost = core_cost(fixed, state, bottleneck, other, item, limit)
            if cost >= limit:
                continue
            cost = max(cost, core_cost(fixed, state, core, item, other, limit))
            if cost < limit:
                limit = cost
                best_item, best_other = item, other
    if best_item < 0:
        return False
    core = state.core[best_other]
    move(fixed, state, best_item, core)
    move(fixed, state, best_other, bottleneck)
    _settle(fixed, state, bottleneck)
    _settle(fixed, state, core)
    return True


@inner
def _kick(fixed: SearchArrays, state: SearchState, best: BestPlacements, bottleneck: int) -> None:
    """Perturb: move some items, mostly of the bottleneck, to random cores, in exchange if need be."""
    members = members_of(state.first[bottleneck], state.after)
    most = 3 if draw(best.random, 16) else 8
    for _ in range(1 + draw(best.random, most)):
        item = members[draw(best.random, len(members))] if len(members) else 0
        if len(members) == 0 or draw(best.random, 8) == 0:
            item = draw(best.random, len(state.core))
        core, home = draw(best.random, len(state.cost)), state.core[item]
        if core == home:
            continue
        if admissible(fixed, state, item, core, NONE):
            move(fixed, state, item, core)
        else:
            others = members_of(state.first[core], state.after)
            other = others[draw(best.random, len(others))] if len(others) else NONE
            if other < 0 or not admissible(fixed, state, item, core, other):
                continue
            move(fixed, state, item, core)
            move(fixed, state, other, home)
        _settle(fixed, state, home)
        _settle(fixed, state, core)


@inner
def shuffle(fixed: SearchArrays, state: SearchState, best: BestPlacements) -> None:
    """Put every item on a random core, chances by capacity; with constraints, as far as they allow."""
    reach = np.empty(len(fixed.most))
    total = 0.0
    for core in range(len(reach)):
        total += fixed.most[core]
        reach[core] = total
    for item in range(len(state.core)):
        for _ in range(8):
            at = draw(best.random, 1 << 53) / (1 << 53) * reach[-1]
            core = min(reaching(reach, 0, at), len(reach) - 1)
            if core == state.core[item]:
                break
            if admissible(fixed, state, item, core, NONE):
                state.used[fixed.node[state.core[item]]] -= fixed.need[item]
                state.used[fixed.node[core]] += fixed.need[item]
                for g in range(fixed.group_start[item], fixed.group_start[item + 1]):
                    state.held[fixed.groups[g], fixed.node[state.core[item]]] -= 1
                    state.held[fixed.groups[g], fixed.node[core]] += 1
                if fixed.origin[item] >= 0:
                    state.away[0] += (core != fixed.origin[item]) - (state.core[item] != fixed.origin[item])
                state.core[item] = core
                break
    rebuild(fixed, state)


@inner
def _highest(values: FloatArray) -> int:
    """The first of the largest."""
    at = 0
    for n in range(1, len(values)):
        if values[n] > values[at]:
            at = n
    return at


@inner
def _keep_end(core: IntArray, value: float, ends: IntArray, end_values: FloatArray) -> None:
    """Remember where a climb ended if it is among the best and new."""
    last = len(end_values) - 1
    if not value < end_values[last]:
        return
    for n in range(last + 1):
        if end_values[n] == value:
            row, at = ends[n], 0
            while at < len(row) and row[at] == core[at]:
                at += 1
            if at == len(row):
                return
    n = last
    while n > 0 and end_values[n - 1] > value:
        end_values[n] = end_values[n - 1]
        _copy(ends[n - 1], ends[n])
        n -= 1
    end_values[n] = value
    _copy(core, ends[n])


@inner
def _copy(values: IntArray, to: IntArray) -> None:
    for n in range(len(values)):
        to[n] = values[n]


def advance(
    fixed: SearchArrays, state: SearchState, best: BestPlacements, mode: int, rounds: int, bound: float, work: int
) -> bool:
    """Continue for about `work` steps of a scan or up to `rounds` rounds; True if nothing is left to do."""
    if mode == KICKS:
        return _kicks(fixed, state, best, rounds, bound, work)
    return _restarts(fixed, state, best, mode == RESTARTS, rounds, bound, work)


@inner
def _steps(counts: IntArray, d: int) -> int:
    """Work done so far, in steps of a scan."""
    return counts[1] * d + counts[2] * 4


@inner
def _end_round(state: SearchState, best: BestPlacements, value: float) -> None:
    _keep_end(state.core, value, best.ends, best.end_values)
    best.rounds[0] += 1
    best.rounds[1] = 0


@compiled
def _kicks(fixed: SearchArrays, state: SearchState, best: BestPlacements, rounds: int, bound: float, work: int) -> bool:
    """Run rounds of one perturbation and one climb."""
    d = fixed.load.shape[1]
    until = _steps(state.counts, d) + work
    while best.rounds[0] < rounds and best.value[0] > bound:
        if _steps(state.counts, d) >= until:
            return False
        bottleneck = _highest(state.cost)
        value = state.cost[bottleneck]
        if value < best.value[0]:
            keep(fixed, state, best)
        if best.rounds[1] == 0:
            if best.rounds[0] > 0:
                if value <= best.value[0]:
                    keep(fixed, state, best)
                else:
                    _go_back(fixed, state, best)
                _kick(fixed, state, best, _highest(state.cost))
            best.rounds[1] = 1
        elif not _move_off(fixed, state, bottleneck) and not _exchange(fixed, state, bottleneck):
            _end_round(state, best, value)
    return True


@compiled
def _restarts(
    fixed: SearchArrays, state: SearchState, best: BestPlacements, climbing: bool, rounds: int, bound: float, work: int
) -> bool:
    """A random placement and, if `climbing`, a published climb a round."""
    d = fixed.load.shape[1]
    until = _steps(state.counts, d) + work
    while best.rounds[0] < rounds and best.value[0] > bound:
        if _steps(state.counts, d) >= until:
            return False
        if best.rounds[1] == 0:
            shuffle(fixed, state, best)
            best.rounds[1] = 1
            continue
        # A start that a random placement is about to replace does not count.
        bottleneck = _highest(state.cost)
        value = state.cost[bottleneck]
        if value < best.value[0]:
            keep(fixed, state, best)
        if not climbing or not _published_move(fixed, state, bottleneck):
            _end_round(state, best, value)
    return True
