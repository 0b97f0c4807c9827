"""Compiled walks: hill climbing off the bottleneck, exchanges, kicks and restarts.

`advance` may be left and resumed at any step, so a walk cut by a budget of time is the beginning of the longer walk.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from engine.compiled import compiled
from engine.elements import FloatArray, IntArray
from engine.placement.kernels import Fixed, State, admissible, members_of, move
from engine.placement.windows import core_cost, open_cores, open_partners, rebuild, sum_windows

__all__ = ["KICKS", "RANDOM", "RESTARTS", "Best", "advance", "draw", "keep", "shuffle"]

# What a round is: a kick and a climb with exchanges, a random placement and a published climb, a random placement.
KICKS, RESTARTS, RANDOM = 0, 1, 2
# A step has to be better by this share, so that rounding cannot make a climb go round in circles.
_STEP = 1e-10


class Best(NamedTuple):
    """What a walk goes back to, and the best ends of its climbs."""

    core: IntArray  # (m,)
    residual: FloatArray  # (cores, d)
    cost: FloatArray  # (cores,)
    value: FloatArray  # (1,)
    ends: IntArray  # (finalists, m)
    end_values: FloatArray  # (finalists,): best first, infinite where there is none
    rounds: IntArray  # (2,): rounds done, 1 once a climb is under way
    random: np.ndarray[tuple[int, ...], np.dtype[np.uint64]]  # (1,)


@compiled
def draw(random: np.ndarray[tuple[int, ...], np.dtype[np.uint64]], below: int) -> int:
    """A number from 0 to below - 1 (splitmix64)."""
    random[0] += np.uint64(0x9E3779B97F4A7C15)
    z = random[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return int(z >> np.uint64(11)) % below


@compiled
def keep(fixed: Fixed, state: State, best: Best) -> None:
    """Make the present placement the one to go back to; rows are added up anew, so that rounding does not pile up."""
    for core in range(len(state.cost)):
        if state.dirty[core]:
            row = state.residual[core]
            row[:] = fixed.empty[core]
            for item in members_of(state, core):
                load = fixed.load[item]
                for p in range(len(row)):
                    row[p] += load[p]
            best.residual[core] = row
            best.cost[core] = state.cost[core]
            state.dirty[core] = False
    best.core[:] = state.core
    best.value[0] = best.cost.max()


@compiled
def _go_back(fixed: Fixed, state: State, best: Best) -> None:
    for item in range(len(state.core)):
        if state.core[item] != best.core[item]:
            move(fixed, state, item, best.core[item])
    for core in range(len(state.cost)):
        if state.dirty[core]:
            state.residual[core] = best.residual[core]
            state.cost[core] = best.cost[core]
            sum_windows(state, core)
            state.dirty[core] = False


@compiled
def _settle(fixed: Fixed, state: State, core: int) -> None:
    none = len(state.core)
    state.cost[core] = core_cost(fixed, state, core, none, none, np.inf)


@compiled
def _move_off(fixed: Fixed, state: State, bottleneck: int) -> bool:
    """The single move that lowers the larger of the two costs most."""
    none = len(state.core)
    limit = state.cost[bottleneck] * (1.0 - _STEP)
    room = np.empty(len(state.cost), np.int64)
    best_item, best_core = -1, -1
    for item in members_of(state, bottleneck):
        left = core_cost(fixed, state, bottleneck, none, item, limit)
        if left >= limit:
            continue
        for n in range(open_cores(fixed, state, item, limit, room)):
            core = room[n]
            if core == bottleneck or not admissible(fixed, state, item, core, -1):
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


@compiled
def _published_move(fixed: Fixed, state: State, bottleneck: int) -> bool:
    """The first item of the bottleneck whose best target lowers the larger of the two costs (Figure 11)."""
    none = len(state.core)
    limit = state.cost[bottleneck] * (1.0 - _STEP)
    room = np.empty(len(state.cost), np.int64)
    for item in members_of(state, bottleneck):
        left = core_cost(fixed, state, bottleneck, none, item, limit)
        if left >= limit:
            continue
        best_cost, best_core = limit, -1
        for n in range(open_cores(fixed, state, item, best_cost, room)):
            core = room[n]
            if core == bottleneck or not admissible(fixed, state, item, core, -1):
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


@compiled
def _exchange(fixed: Fixed, state: State, bottleneck: int) -> bool:
    """The exchange of an item of the bottleneck with one elsewhere that lowers the larger of the two costs most."""
    limit = state.cost[bottleneck] * (1.0 - _STEP)
    best_item, best_other = -1, -1
    room = np.empty(len(state.core), np.int64)
    for item in members_of(state, bottleneck):
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


@compiled
def _kick(fixed: Fixed, state: State, best: Best, bottleneck: int) -> None:
    """Some items, mostly of the bottleneck, go to random cores, in exchange for one from there if need be."""
    members = members_of(state, bottleneck)
    most = 3 if draw(best.random, 16) else 8
    for _ in range(1 + draw(best.random, most)):
        item = members[draw(best.random, len(members))] if len(members) else 0
        if len(members) == 0 or draw(best.random, 8) == 0:
            item = draw(best.random, len(state.core))
        core, home = draw(best.random, len(state.cost)), state.core[item]
        if core == home:
            continue
        if admissible(fixed, state, item, core, -1):
            move(fixed, state, item, core)
        else:
            others = members_of(state, core)
            other = others[draw(best.random, len(others))] if len(others) else -1
            if other < 0 or not admissible(fixed, state, item, core, other):
                continue
            move(fixed, state, item, core)
            move(fixed, state, other, home)
        _settle(fixed, state, home)
        _settle(fixed, state, core)


@compiled
def shuffle(fixed: Fixed, state: State, best: Best) -> None:
    """Every item on a random core, chances by capacity; with constraints, as far as they allow it from where it is."""
    reach = np.cumsum(fixed.most)
    for item in range(len(state.core)):
        for _ in range(8):
            at = draw(best.random, 1 << 53) / (1 << 53) * reach[-1]
            core = min(np.searchsorted(reach, at), len(reach) - 1)
            if core == state.core[item]:
                break
            if admissible(fixed, state, item, core, -1):
                for g in range(fixed.group_start[item], fixed.group_start[item + 1]):
                    state.held[fixed.groups[g], fixed.node[state.core[item]]] -= 1
                    state.held[fixed.groups[g], fixed.node[core]] += 1
                if fixed.origin[item] >= 0:
                    state.away[0] += (core != fixed.origin[item]) - (state.core[item] != fixed.origin[item])
                state.core[item] = core
                break
    rebuild(fixed, state)


@compiled
def _keep_end(state: State, best: Best) -> None:
    """Remember where a climb ended if it is among the best and new."""
    value = state.cost.max()
    last = len(best.end_values) - 1
    if not value < best.end_values[last]:
        return
    for n in range(last + 1):
        if best.end_values[n] == value and (best.ends[n] == state.core).all():
            return
    n = last
    while n > 0 and best.end_values[n - 1] > value:
        best.end_values[n] = best.end_values[n - 1]
        best.ends[n] = best.ends[n - 1]
        n -= 1
    best.end_values[n] = value
    best.ends[n] = state.core


@compiled
def advance(fixed: Fixed, state: State, best: Best, mode: int, rounds: int, bound: float, work: int) -> bool:
    """Go on for about `work` steps of a scan or up to `rounds` rounds; True if there is nothing left to do."""
    d = len(fixed.load[0])
    until = state.counts[1] * d + state.counts[2] * 4 + work
    while best.rounds[0] < rounds and best.value[0] > bound:
        if state.counts[1] * d + state.counts[2] * 4 >= until:
            return False
        bottleneck = int(state.cost.argmax())
        value = state.cost[bottleneck]
        # A start that a random placement is about to replace does not count.
        if value < best.value[0] and (mode == KICKS or best.rounds[1] == 1):
            keep(fixed, state, best)
        if best.rounds[1] == 1:
            if mode == RESTARTS:
                if _published_move(fixed, state, bottleneck):
                    continue
            elif mode == KICKS and (_move_off(fixed, state, bottleneck) or _exchange(fixed, state, bottleneck)):
                continue
            _keep_end(state, best)
            best.rounds[0] += 1
            best.rounds[1] = 0
            continue
        if mode == KICKS:
            if best.rounds[0] > 0:
                if value <= best.value[0]:
                    keep(fixed, state, best)
                else:
                    _go_back(fixed, state, best)
                _kick(fixed, state, best, int(state.cost.argmax()))
        else:
            shuffle(fixed, state, best)
        best.rounds[1] = 1
    return True
