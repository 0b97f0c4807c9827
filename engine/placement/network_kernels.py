"""Compiled steps of the climb on cores and links: what a move of one item does to the goal, exactly.

Only the servers that a move touches are scanned again. A move is made, valued, and taken back unless it is kept; rows
are copied before, so that taking back leaves no rounding behind.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from engine.arrays import FloatArray, IntArray
from engine.compiler import compiled, inner
from engine.placement.problem import BoolArray

__all__ = [
    "NetworkArrays",
    "NetworkState",
    "Room",
    "best_place",
    "best_swap",
    "every_placement",
    "has_room",
    "move_item",
    "network_value",
    "take_back",
    "worst_of",
]

# A value counts as smaller only if it is by more than the rounding of sums.
_TIE = 1e-10


class NetworkArrays(NamedTuple):
    """Constant arrays of a network. i items, c cores, s servers (cores, then links), e edges between items, v nodes."""

    load: FloatArray  # (i, d)
    output: FloatArray  # (m, d) events put out
    budget: FloatArray  # (s, d) or (s, 1)
    width_s: float
    core_node: IntArray  # (c,)
    allowed: BoolArray  # (i, c)
    order: IntArray  # (i,) producers first
    edge_from: IntArray  # (e,)
    edge_to: IntArray
    edge_row: IntArray  # (e,) operator whose output passes
    edge_bytes: FloatArray  # (e,)
    in_start: IntArray  # (i + 1,) edges into item i are in_start[i]:in_start[i + 1]
    out_start: IntArray  # (i + 1,)
    out_edge: IntArray  # edges out of an item
    link: IntArray  # (v, v) server of a link, -1 without a limit
    delay_s: FloatArray  # (v, v)
    party: IntArray  # (i,)
    weight: FloatArray  # (parties,)
    base_weight: FloatArray  # (s,) of what is on a server beside the items; counts where an item of weight joins it
    apart_start: IntArray  # (i + 1,)
    apart: IntArray  # items that must not share a node with an item
    start: IntArray  # (i,)
    max_moves: int  # -1: no limit
    need: FloatArray  # (i,) bytes of memory
    room: FloatArray  # (v,) bytes, infinite without a limit


class NetworkState(NamedTuple):
    """A placement: cores, loads and Mace of the servers."""

    at: IntArray  # (i,)
    load: FloatArray  # (s, d)
    worst_s: FloatArray  # (s,)
    reached_s: FloatArray  # (i,) scratch: delay of the longest path to an item
    slowest_s: FloatArray  # (parties,) scratch
    used: FloatArray  # (v,) bytes of the items on a node


Room = tuple[IntArray, FloatArray, FloatArray]  # of a move: servers it changes, their loads and Mace before it


@compiled
def worst_of(load: FloatArray, budget: FloatArray, width_s: float) -> float:
    """Mace of a server: seconds to work off its largest excess; with a capacity series, with what follows."""
    d = len(load)
    left, worst = 0.0, 0.0
    if len(budget) == 1:
        for p in range(d):
            left = max(0.0, left + load[p] - budget[0])
            worst = max(worst, left)
        return worst / budget[0] * width_s
    # Both the work that must be done and what was done by then only grow, so that one pass finds where they meet.
    q, done, reached = -1, 0.0, 0.0  # `reached` is what can be done by the end of q, `done` by the end of p
    for p in range(d):
        left = max(0.0, left + load[p] - budget[p])
        done += budget[p]
        if q < p:
            q, reached = p, done
        if left <= 0.0:
            continue
        target = done + left
        while q + 1 < d and reached + budget[q + 1] < target:
            q += 1
            reached += budget[q]
        rest = max(0.0, target - reached)
        rate = budget[min(q + 1, d - 1)]
        worst = max(worst, (q - p + rest / rate) * width_s)
    return worst


@compiled
def network_value(net: NetworkArrays, state: NetworkState) -> tuple[float, float]:
    """The goal, and a tie breaker: the sum of squares of the servers' weighted Mace."""
    slowest, reached = state.slowest_s, state.reached_s
    value, spread = 0.0, 0.0
    parties = len(slowest)
    for q in range(parties):
        slowest[q] = 0.0
    longest = np.zeros(parties)
    heaviest = np.zeros(len(state.worst_s))
    for i in net.order:
        q, core = net.party[i], state.at[i]
        slowest[q] = max(slowest[q], state.worst_s[core])
        heaviest[core] = max(heaviest[core], net.weight[q])
        if net.weight[q] > 0.0:
            value = max(value, net.base_weight[core] * state.worst_s[core])
        here = net.core_node[core]
        reached[i] = 0.0
        for e in range(net.in_start[i], net.in_start[i + 1]):
            a = net.edge_from[e]
            there = net.core_node[state.at[a]]
            way = reached[a]
            if there != here:
                way += net.delay_s[there, here]
                server = net.link[there, here]
                if server >= 0:
                    slowest[q] = max(slowest[q], state.worst_s[server])
                    heaviest[server] = max(heaviest[server], net.weight[q])
                    if net.weight[q] > 0.0:
                        value = max(value, net.base_weight[server] * state.worst_s[server])
            reached[i] = max(reached[i], way)
        longest[q] = max(longest[q], reached[i])
    for q in range(parties):
        cost = net.weight[q] * (slowest[q] + longest[q])
        value = max(value, cost)
        spread += (net.weight[q] * longest[q]) ** 2
    for s in range(len(state.worst_s)):
        spread += (heaviest[s] * state.worst_s[s]) ** 2
    return value, spread


@inner
def _copy(row: FloatArray, values: FloatArray) -> None:
    """Overwrite one row by another. Numba compiles a loop in no time, and what arrays can do as a whole in seconds."""
    for p in range(len(row)):
        row[p] = values[p]


@inner
def _add(row: FloatArray, factor: float, values: FloatArray) -> None:
    """Add a multiple of one row to another."""
    for p in range(len(row)):
        row[p] += factor * values[p]


@compiled
def _shift(net: NetworkArrays, state: NetworkState, item: int, sign: float, changed: IntArray, count: int) -> int:
    """Add (or take away) the load of an item where it is, on its core and on the links it uses; returns the count."""
    core = state.at[item]
    _add(state.load[core], sign, net.load[item])
    changed[count] = core
    count += 1
    here = net.core_node[core]
    for e in range(net.in_start[item], net.in_start[item + 1]):
        server = net.link[net.core_node[state.at[net.edge_from[e]]], here]
        if server >= 0:
            _add(state.load[server], sign * net.edge_bytes[e], net.output[net.edge_row[e]])
            changed[count] = server
            count += 1
    for k in range(net.out_start[item], net.out_start[item + 1]):
        e = net.out_edge[k]
        server = net.link[here, net.core_node[state.at[net.edge_to[e]]]]
        if server >= 0:
            _add(state.load[server], sign * net.edge_bytes[e], net.output[net.edge_row[e]])
            changed[count] = server
            count += 1
    return count


@compiled
def move_item(
    net: NetworkArrays,
    state: NetworkState,
    item: int,
    core: int,
    changed: IntArray,
    rows: FloatArray,
    worst: FloatArray,
) -> int:
    """Move an item; what it changes is copied to `rows` and `worst` first, so that `take_back` can undo it."""
    # A first pass only lists the servers, old and new.
    old = state.at[item]
    count = _touched(net, state, item, changed, 0)
    state.at[item] = core
    count = _touched(net, state, item, changed, count)
    state.at[item] = old
    for k in range(count):
        _copy(rows[k], state.load[changed[k]])
        worst[k] = state.worst_s[changed[k]]
    state.used[net.core_node[old]] -= net.need[item]
    state.used[net.core_node[core]] += net.need[item]
    scratch = np.empty(count, dtype=np.int64)
    _shift(net, state, item, -1.0, scratch, 0)
    state.at[item] = core
    _shift(net, state, item, 1.0, scratch, 0)
    for k in range(count):
        server = changed[k]
        row = state.load[server]
        for p in range(len(row)):
            if row[p] < 0.0:
                row[p] = 0.0
        state.worst_s[server] = worst_of(row, net.budget[server], net.width_s)
    return count


@compiled
def _touched(net: NetworkArrays, state: NetworkState, item: int, changed: IntArray, count: int) -> int:
    core = state.at[item]
    changed[count] = core
    count += 1
    here = net.core_node[core]
    for e in range(net.in_start[item], net.in_start[item + 1]):
        server = net.link[net.core_node[state.at[net.edge_from[e]]], here]
        if server >= 0:
            changed[count] = server
            count += 1
    for k in range(net.out_start[item], net.out_start[item + 1]):
        server = net.link[here, net.core_node[state.at[net.edge_to[net.out_edge[k]]]]]
        if server >= 0:
            changed[count] = server
            count += 1
    return count


@compiled
def take_back(
    net: NetworkArrays,
    state: NetworkState,
    item: int,
    core: int,
    count: int,
    changed: IntArray,
    rows: FloatArray,
    worst: FloatArray,
) -> None:
    """Undo `move_item`."""
    state.used[net.core_node[state.at[item]]] -= net.need[item]
    state.used[net.core_node[core]] += net.need[item]
    for k in range(count - 1, -1, -1):
        _copy(state.load[changed[k]], rows[k])
        state.worst_s[changed[k]] = worst[k]
    state.at[item] = core


@compiled
def has_room(net: NetworkArrays, state: NetworkState, item: int, node: int, ignored: int) -> bool:
    """Whether the state of an item fits a node beside that of the others; `ignored` is one about to leave (or -1)."""
    if net.need[item] == 0.0:
        return True
    used = state.used[node]
    if net.core_node[state.at[item]] != node:
        used += net.need[item]
    if ignored >= 0 and net.core_node[state.at[ignored]] == node:
        used -= net.need[ignored]
    return used <= net.room[node]


@compiled
def is_open(net: NetworkArrays, state: NetworkState, item: int, core: int, ignored: int) -> bool:
    """Whether an item may be on a core beside the others; `ignored` is one that is about to leave (-1 for none)."""
    if not net.allowed[item, core]:
        return False
    node = net.core_node[core]
    if not has_room(net, state, item, node, ignored):
        return False
    for k in range(net.apart_start[item], net.apart_start[item + 1]):
        other = net.apart[k]
        if other != ignored and net.core_node[state.at[other]] == node:
            return False
    return True


@compiled
def _moves_after(net: NetworkArrays, state: NetworkState, moved: int, item: int, core: int) -> int:
    """Items away from their start once `item` is on `core`; `moved` are now."""
    if net.start[item] < 0:
        return moved
    return moved - int(state.at[item] != net.start[item]) + int(core != net.start[item])


@compiled
def _is_less(value: float, spread: float, than: float, than_spread: float) -> bool:
    close = _TIE * max(1e-9, than)
    if value < than - close:
        return True
    return value <= than + close and spread < than_spread * (1.0 - 1e-9) - 1e-300


@compiled
def best_place(
    net: NetworkArrays,
    state: NetworkState,
    item: int,
    moved: int,
    value: float,
    spread: float,
    room: tuple[IntArray, FloatArray, FloatArray],
) -> tuple[int, float, float]:
    """The core where the goal is least with `item` on it, if it is less than now; -1 if there is none."""
    changed, rows, worst = room
    origin = state.at[item]
    best, best_value, best_spread = -1, value, spread
    lightest = net.weight[net.party[item]]
    for core in range(len(net.core_node)):
        if core == origin or not is_open(net, state, item, core, -1):
            continue
        if net.max_moves >= 0 and _moves_after(net, state, moved, item, core) > net.max_moves:
            continue
        # The core alone refutes most places, before any link is looked at.
        alone = _joined(state.load[core], net.load[item], net.budget[core], net.width_s)
        if alone * lightest > best_value * (1.0 + _TIE):
            continue
        count = move_item(net, state, item, core, changed, rows, worst)
        now, now_spread = network_value(net, state)
        if _is_less(now, now_spread, best_value, best_spread):
            best, best_value, best_spread = core, now, now_spread
        take_back(net, state, item, origin, count, changed, rows, worst)
    return best, best_value, best_spread


@compiled
def _joined(load: FloatArray, added: FloatArray, budget: FloatArray, width_s: float) -> float:
    """A lower bound of Mace with a load added: exact where the capacity is constant, else 0."""
    if len(budget) > 1:
        return 0.0
    left, worst = 0.0, 0.0
    for p in range(len(load)):
        left = max(0.0, left + load[p] + added[p] - budget[0])
        worst = max(worst, left)
    return worst / budget[0] * width_s


@compiled
def best_swap(
    net: NetworkArrays,
    state: NetworkState,
    item: int,
    moved: int,
    value: float,
    spread: float,
    room: tuple[IntArray, FloatArray, FloatArray],
    other_room: tuple[IntArray, FloatArray, FloatArray],
) -> int:
    """The first item with which an exchange of places makes the goal less; -1 if there is none."""
    origin = state.at[item]
    for other in range(len(net.load)):
        core = state.at[other]
        if core == origin:
            continue
        if not (is_open(net, state, item, core, other) and is_open(net, state, other, origin, item)):
            continue
        if net.max_moves >= 0:
            both = _moves_after(net, state, moved, item, core)
            if _moves_after(net, state, both, other, origin) > net.max_moves:
                continue
        count = move_item(net, state, item, core, room[0], room[1], room[2])
        others = move_item(net, state, other, origin, other_room[0], other_room[1], other_room[2])
        now, now_spread = network_value(net, state)
        if _is_less(now, now_spread, value, spread):
            return other
        take_back(net, state, other, core, others, other_room[0], other_room[1], other_room[2])
        take_back(net, state, item, origin, count, room[0], room[1], room[2])
    return -1


@compiled
def every_placement(
    net: NetworkArrays, state: NetworkState, items: IntArray, room: tuple[IntArray, FloatArray, FloatArray]
) -> tuple[float, IntArray]:
    """Try every placement of `items` (a few on a few cores); the least value and its cores, the fewest moves of equals.

    Digits run like those of a counter: from one placement to the next mostly one item moves.
    """
    changed, rows, worst = room
    cores, best, least, least_moves = len(net.core_node), state.at.copy(), np.inf, len(net.load) + 1
    for item in items:
        move_item(net, state, item, 0, changed, rows, worst)
    while True:
        good, moved = True, 0
        for i in range(len(net.load)):
            good = good and is_open(net, state, i, state.at[i], -1)
            moved += int(net.start[i] >= 0 and state.at[i] != net.start[i])
        if good and (net.max_moves < 0 or moved <= net.max_moves):
            value, _ = network_value(net, state)
            close = _TIE * max(1e-9, least) if least < np.inf else 0.0
            if value < least - close or (value <= least + close and moved < least_moves):
                least, least_moves = value, moved
                for i, place in enumerate(state.at):
                    best[i] = place
        digit = 0
        while digit < len(items) and state.at[items[digit]] == cores - 1:
            move_item(net, state, items[digit], 0, changed, rows, worst)
            digit += 1
        if digit == len(items):
            return least, best
        move_item(net, state, items[digit], state.at[items[digit]] + 1, changed, rows, worst)
