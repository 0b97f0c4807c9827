"""Co-location: operators that exchange events share a node, unless keeping them apart gains more than the way costs.

A placement that only looks at queues scatters a pipeline over all nodes that have room. Each event then crosses the
network at each step, which costs time and processor that the loads do not hold. So what a search was free to place is
brought together afterwards, as long as the goal does not get worse.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.placement.network_kernels import (
    NetworkArrays,
    NetworkState,
    Room,
    has_room,
    move_item,
    network_value,
    take_back,
)
from engine.placement.separation import FULL, ApartOperator

__all__ = ["TRANSFER_S", "Separation", "apart_operators", "colocate", "separations"]

#: Seconds that an event's way to another node is taken to cost where no link gives its delay.
TRANSFER_S = 0.001

_TIE = 1e-9


@dataclass(frozen=True, slots=True)
class Separation:
    """Why an operator is not on the node of one it exchanges events with.

    Attributes
    ----------
    item, other : int
        Items of the network: who is apart, and from whom.
    why : str
        ``not_allowed`` (constraints, or a node that takes nothing new), ``load`` (a core would be loaded above 0.8, or
        above the core that it has), ``excess`` (work would wait longer than the way costs), ``goal`` (the worst query
        would get worse), ``company`` (it is with others it exchanges more with).
    server : int
        The core in question; -1 where there is none.
    peak : float
        Largest load of that core with the operator on it, as a share of its capacity; 0 where there is none.
    at_p : int
        Subinterval (from 1) of that largest load; 0 where there is none.
    """

    item: int
    other: int
    why: str
    server: int = -1
    peak: float = 0.0
    at_p: int = 0


def apart_operators(
    found: Sequence[Separation], names: Sequence[str], servers: Sequence[str], width_s: float
) -> tuple[ApartOperator, ...]:
    """Separations by name, one per pair of operators; `names` are those of the items."""
    rows: dict[tuple[str, str], ApartOperator] = {}
    for entry in found:
        pair = names[entry.item], names[entry.other]
        if entry.server < 0:
            rows.setdefault(pair, ApartOperator(*pair, entry.why))
        else:
            at_s = (entry.at_p - 1) * width_s
            rows.setdefault(pair, ApartOperator(*pair, entry.why, servers[entry.server], entry.peak, at_s))
    return tuple(rows.values())


def colocate(net: NetworkArrays, state: NetworkState, free: Sequence[int], room: Room, transfer_s: float) -> None:
    """Move free items, in place, to nodes of those they exchange events with.

    Parameters
    ----------
    net, state : NetworkArrays, NetworkState
        The placement found; `state` is changed.
    free : sequence of int
        Items that may move: those that a search has placed or moved anyway.
    room : Room
        Scratch memory of a move.
    transfer_s : float
        Seconds that a way between nodes costs where no link gives a delay. 0 leaves everything where it is.

    Notes
    -----
    A move is kept if the goal does not rise, if the waits of the servers that it touches rise by less than the ways
    that it saves, and if the core is loaded to at most 0.8 at its peak (or to what the item has where it is). The sum
    of ways and waits falls with every move, so this ends.
    """
    if transfer_s <= 0.0:
        return
    limit = network_value(net, state)[0] * (1.0 + _TIE) + 1e-12
    again = True
    while again:
        again = False
        for item in free:
            again |= _join(net, state, item, room, transfer_s, limit)


def separations(
    net: NetworkArrays, state: NetworkState, free: Sequence[int], room: Room, transfer_s: float
) -> list[Separation]:
    """Why free items are on other nodes than those they exchange events with; one entry per pair of them."""
    limit = network_value(net, state)[0] * (1.0 + _TIE) + 1e-12
    movable, found = set(free), []
    for a, b in dict.fromkeys(zip(net.edge_from.tolist(), net.edge_to.tolist(), strict=True)):
        if _node(net, state, a) != _node(net, state, b):
            pairs = [(item, other) for item, other in ((b, a), (a, b)) if item in movable]
            reasons = [_reason(net, state, item, other, room, transfer_s, limit) for item, other in pairs]
            found += sorted(reasons, key=lambda reason: _TELLING.index(reason.why))[-1:]
    return found


_TELLING = ("company", "goal", "not_allowed", "excess", "load")  # of two reasons the later one says more


def _join(net: NetworkArrays, state: NetworkState, item: int, room: Room, transfer_s: float, limit: float) -> bool:
    """Move an item to the node where its ways cost least, if that is worth it."""
    now_s = _ways_s(net, state, item, _node(net, state, item), transfer_s)
    nodes = {_node(net, state, other) for other in _neighbours(net, item)} - {_node(net, state, item)}
    gains = {node: now_s - _ways_s(net, state, item, node, transfer_s) for node in sorted(nodes)}
    for node in sorted(gains, key=lambda node: -gains[node]):
        if gains[node] <= _TIE:
            return False
        core, peak, _ = _best_core(net, state, item, node)
        if core < 0 or peak > _fullest(net, state, item):
            continue
        rise_s, worse = _try(net, state, item, core, room, limit)
        if rise_s < gains[node] - _TIE and not worse:
            move_item(net, state, item, core, *room)
            return True
    return False


def _reason(
    net: NetworkArrays, state: NetworkState, item: int, other: int, room: Room, transfer_s: float, limit: float
) -> Separation:
    """Why `item` does not join `other`."""
    node = _node(net, state, other)
    core, peak, at_p = _best_core(net, state, item, node)
    if core < 0:
        return Separation(item, other, "not_allowed")
    if peak > _fullest(net, state, item):
        return Separation(item, other, "load", core, peak, at_p)
    now_s = _ways_s(net, state, item, _node(net, state, item), transfer_s)
    gain_s = now_s - _ways_s(net, state, item, node, transfer_s)
    if gain_s <= _TIE:
        return Separation(item, other, "company", core, peak, at_p)
    rise_s, worse = _try(net, state, item, core, room, limit)
    return Separation(item, other, "goal" if worse and rise_s < gain_s else "excess", core, peak, at_p)


def _node(net: NetworkArrays, state: NetworkState, item: int) -> int:
    return int(net.core_node[state.at[item]])


def _neighbours(net: NetworkArrays, item: int) -> list[int]:
    """Items that an item exchanges events with, one entry per edge."""
    above = net.edge_from[net.in_start[item] : net.in_start[item + 1]]
    below = net.edge_to[net.out_edge[net.out_start[item] : net.out_start[item + 1]]]
    return [*above.tolist(), *below.tolist()]


def _ways_s(net: NetworkArrays, state: NetworkState, item: int, node: int, transfer_s: float) -> float:
    """Cost of the ways to and from an item if it were on `node`."""
    above = net.edge_from[net.in_start[item] : net.in_start[item + 1]].tolist()
    cost_s = 0.0
    for k, other in enumerate(_neighbours(net, item)):
        there = _node(net, state, other)
        if there != node:
            ends = (there, node) if k < len(above) else (node, there)
            cost_s += float(net.delay_s[ends]) or transfer_s
    return cost_s


def _best_core(net: NetworkArrays, state: NetworkState, item: int, node: int) -> tuple[int, float, int]:
    """Core of a node with the least peak load once the item is on it, that load and its subinterval; -1 for none."""
    near = net.apart[net.apart_start[item] : net.apart_start[item + 1]]
    best = (-1, np.inf, 0)
    if (net.core_node[state.at[near]] == node).any() or not has_room(net, state, item, node, -1):
        return best
    for core in np.flatnonzero((net.core_node == node) & net.allowed[item]).tolist():
        share = _shares(net, core, state.load[core] + net.load[item])
        at = int(share.argmax())
        if share[at] < best[1] - _TIE:
            best = (core, float(share[at]), at + 1)
    return best


def _fullest(net: NetworkArrays, state: NetworkState, item: int) -> float:
    """Peak load that a core may reach for company: 0.8, or what the item's core has now."""
    core = int(state.at[item])
    return max(FULL, float(_shares(net, core, state.load[core]).max())) + _TIE


def _shares(net: NetworkArrays, core: int, load: Any) -> Any:
    """Load of a core as a share of its capacity; of no capacity, as a share of its mean."""
    budget = net.budget[core]
    return load / np.where(budget > 0.0, budget, max(float(budget.mean()), 1e-300))


def _try(net: NetworkArrays, state: NetworkState, item: int, core: int, room: Room, limit: float) -> tuple[float, bool]:
    """Seconds by which waits at the servers of a move would rise, and whether the goal would go over `limit`."""
    home = int(state.at[item])
    count = move_item(net, state, item, core, *room)
    servers, first = np.unique(room[0][:count], return_index=True)
    rise_s = float(state.worst_s[servers].sum() - room[2][first].sum())
    worse = bool(network_value(net, state)[0] > limit)
    take_back(net, state, item, home, count, *room)
    return rise_s, worse
