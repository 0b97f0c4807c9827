"""Placement on cores and links: the climb on the full goal from placements that a search of the cores alone found.

Links with a bandwidth are servers of their own; delays are added along the paths of a query. Instances small enough are
tried in full. See docs/models/placement.md, "Network".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from engine.arrays import FloatArray, IntArray
from engine.document.memory import MEMORY_SLACK
from engine.placement.colocation import apart_operators, colocate, separations
from engine.placement.goal import Goal
from engine.placement.items import Items
from engine.placement.limits import PlacementLimits
from engine.placement.network_kernels import (
    NetworkArrays,
    NetworkState,
    Room,
    best_place,
    best_swap,
    every_placement,
    has_room,
    move_item,
    network_value,
    worst_of,
)
from engine.placement.separation import ApartOperator

__all__ = ["NetworkProblem", "climb", "has_network", "pairs_of", "room_of", "starts_of"]

_SMALL = 20_000  # placements that are tried one by one rather than searched
_MAX_STEPS = 2000  # of a climb without a limit of time
_SWAPS_ON = 64  # items of the bottleneck that are tried in exchanges


def has_network(items: Items) -> bool:
    """Whether any link has a bandwidth or a delay."""
    return any(link.bandwidth_bytes_s is not None or link.delay_s > 0.0 for link in items.coarse.links)


class NetworkProblem:
    """Items of a deployment on its servers; places, values and climbs. Loads are added up.

    Parameters
    ----------
    items : Items
    limits : Limits
    goal : Goal
    """

    def __init__(self, items: Items, limits: PlacementLimits, goal: Goal) -> None:
        self.items = items
        self.net = _net(items, limits, goal)
        self._room = room_of(self.net)

    def state(self, assignment: IntArray) -> NetworkState:
        """State of the network with the items in their places."""
        net, servers, d = self.net, len(self.items.coarse.servers), self.items.load.shape[1]
        state = NetworkState(
            np.array(assignment, dtype=np.int64),
            np.zeros((servers, d)),
            np.zeros(servers),
            np.zeros(len(net.load)),
            np.zeros(len(net.weight)),
            np.zeros(len(net.room)),
        )
        _fill(net, state)
        return state

    def value(self, assignment: IntArray) -> float:
        """The goal of a placement."""
        return float(network_value(self.net, self.state(assignment))[0])

    def is_small(self) -> bool:
        """Whether all placements can be tried."""
        free = int((self.net.allowed.sum(axis=1) > 1).sum())
        return free * np.log(max(1, len(self.net.core_node))) <= np.log(_SMALL)

    def best_of_all(self) -> IntArray | None:
        """The best placement there is; None if none is allowed. For small instances."""
        first = self.net.allowed.argmax(axis=1)
        free = np.flatnonzero(self.net.allowed.sum(axis=1) > 1)
        value, assignment = every_placement(self.net, self.state(first), free, self._room)
        return assignment if np.isfinite(value) else None

    def climb(self, assignment: IntArray, goes_on: Callable[[float], bool]) -> IntArray:
        """Move and exchange items of the bottleneck while that makes the goal less.

        `goes_on` is told the value after every step and ends the climb by False.
        """
        return climb(self.net, self.state(assignment), _MAX_STEPS, goes_on)

    def with_fewer_moves(self, assignment: IntArray, tolerance: float = 0.0) -> IntArray:
        """Items put back where they were, one after the other, as long as the goal does not get worse by it.

        By all of them together it may get worse by the share `tolerance`.
        """
        state = self.state(assignment)
        value, _ = network_value(self.net, state)
        limit = value * (1.0 + max(1e-9, tolerance)) + 1e-12
        again = True
        while again:
            again = False
            for item in np.flatnonzero((self.net.start >= 0) & (state.at != self.net.start)):
                again |= self._put_back(state, int(item), limit)
        return state.at

    def colocated(self, assignment: IntArray, transfer_s: float) -> IntArray:
        """A placement whose items without a place, or away from it, are with those they exchange events with."""
        state = self.state(assignment)
        colocate(self.net, state, self._away(state), self._room, transfer_s)
        return state.at

    def apart(self, assignment: IntArray, transfer_s: float) -> tuple[ApartOperator, ...]:
        """Why operators that move are apart from those they exchange events with."""
        state, coarse = self.state(assignment), self.items.coarse
        found = separations(self.net, state, self._away(state), self._room, transfer_s)
        names = [coarse.operators[j].id for j in self.items.operator]
        return apart_operators(found, names, [server.name for server in coarse.servers], self.net.width_s)

    def _away(self, state: NetworkState) -> list[int]:
        """Items that have no place now, or another one."""
        free = (self.net.allowed.sum(axis=1) > 1) & (state.at != self.net.start)
        return [int(item) for item in np.flatnonzero(free)]

    def _put_back(self, state: NetworkState, item: int, limit: float) -> bool:
        core, home = int(state.at[item]), int(self.net.start[item])
        if not self._is_open(state, item, home):
            return False
        move_item(self.net, state, item, home, *self._room)
        if network_value(self.net, state)[0] <= limit:
            return True
        move_item(self.net, state, item, core, *self._room)
        return False

    def _is_open(self, state: NetworkState, item: int, core: int) -> bool:
        near = self.net.apart[self.net.apart_start[item] : self.net.apart_start[item + 1]]
        taken = self.net.core_node[state.at[near]]
        node = int(self.net.core_node[core])
        return bool(self.net.allowed[item, core]) and node not in taken and has_room(self.net, state, item, node, -1)


def room_of(net: NetworkArrays) -> Room:
    """Memory for what one move changes: servers, their loads, their Mace."""
    most = 4 + 2 * int((np.diff(net.in_start) + np.diff(net.out_start)).max(initial=0))
    return np.zeros(most, dtype=np.int64), np.zeros((most, net.load.shape[1])), np.zeros(most)


def climb(
    net: NetworkArrays, state: NetworkState, steps: int, goes_on: Callable[[float], bool] = lambda value: True
) -> IntArray:
    """Move and exchange items of the bottleneck, at most so many times, while that makes the goal less."""
    rooms = room_of(net), room_of(net)
    for _ in range(steps):
        value, spread = network_value(net, state)
        if value <= 0.0 or not goes_on(float(value)) or not _step(net, state, value, spread, *rooms):
            break
    return state.at


def _step(net: NetworkArrays, state: NetworkState, value: float, spread: float, room: Room, other: Room) -> bool:
    """One move, or else one exchange, that makes the goal less."""
    moved = int(((net.start >= 0) & (state.at != net.start)).sum())
    hot = _hot_items(net, state)
    for item in hot:
        core, _, _ = best_place(net, state, item, moved, value, spread, room)
        if core >= 0:
            move_item(net, state, item, core, *room)
            return True
    return any(best_swap(net, state, item, moved, value, spread, room, other) >= 0 for item in hot[:_SWAPS_ON])


def _hot_items(net: NetworkArrays, state: NetworkState) -> list[int]:
    """Items on the slowest server of the worst party, at either end of it if it is a link, or on its delays."""
    node, party = net.core_node[state.at], net.party
    a, b = node[net.edge_from], node[net.edge_to]
    server = np.where(a != b, net.link[a, b], -1)
    on_link = server >= 0
    reader = party[net.edge_to]
    slowest, longest = np.zeros(len(net.weight)), np.zeros(len(net.weight))
    heavy = net.weight > 0.0
    np.maximum.at(slowest, party, state.worst_s[state.at])
    np.maximum.at(slowest, reader[on_link], state.worst_s[server[on_link]])
    np.maximum.at(longest, party, state.reached_s)
    theirs = np.where(heavy[party], net.base_weight[state.at] * state.worst_s[state.at], 0.0)
    cost = net.weight * (slowest + longest)
    if theirs.max(initial=0.0) > cost.max(initial=0.0):
        return [int(i) for i in np.flatnonzero(state.at == state.at[theirs.argmax()])]
    worst = int(cost.argmax())
    used = np.concatenate([state.at[party == worst], server[on_link & (reader == worst)]])
    hottest = int(used[state.worst_s[used].argmax()])
    hot: dict[int, None] = dict.fromkeys(np.flatnonzero(state.at == hottest).tolist())
    late = (a != b) & (net.delay_s[a, b] > 0.0) & (reader == worst)
    for e in np.flatnonzero((server == hottest) | late):
        hot |= {int(net.edge_from[e]): None, int(net.edge_to[e]): None}
    return list(hot)


def _fill(net: NetworkArrays, state: NetworkState) -> None:
    """Loads and Mace of all servers from nothing."""
    np.add.at(state.load, state.at, net.load)
    node = net.core_node[state.at]
    np.add.at(state.used, node, net.need)
    a, b = node[net.edge_from], node[net.edge_to]
    server = np.where(a != b, net.link[a, b], -1)
    for e in np.flatnonzero(server >= 0):
        state.load[server[e]] += net.edge_bytes[e] * net.output[net.edge_row[e]]
    for s in range(len(state.load)):
        state.worst_s[s] = worst_of(state.load[s], net.budget[s], net.width_s)


def _net(items: Items, limits: PlacementLimits, goal: Goal) -> NetworkArrays:
    coarse, layout = items.coarse, items.coarse.layout
    ranges = [np.arange(layout.rep_start[j], layout.rep_start[j + 1]) for j in coarse.graph.order]
    into = np.repeat(np.arange(len(layout.rep_server)), np.diff(layout.hop_start))
    inner = layout.hop_origin >= 0
    edge_from, edge_to = layout.hop_origin[inner], into[inner]
    link, delay_s = _links(items)
    apart_start, apart = pairs_of(items.apart(limits), len(items.load))
    outward = np.argsort(edge_from, kind="stable")
    return NetworkArrays(
        load=items.load,
        output=np.ascontiguousarray(items.output),
        budget=items.budget,
        width_s=coarse.subinterval_s,
        core_node=items.core_node,
        allowed=np.ascontiguousarray(items.allowed(limits)),
        order=np.concatenate(ranges).astype(np.int64) if ranges else np.zeros(0, dtype=np.int64),
        edge_from=edge_from,
        edge_to=edge_to,
        edge_row=layout.rep_operator[edge_from],
        edge_bytes=layout.hop_bytes[inner],
        in_start=starts_of(np.bincount(edge_to, minlength=len(items.load))),
        out_start=starts_of(np.bincount(edge_from, minlength=len(items.load))),
        out_edge=outward,
        link=link,
        delay_s=delay_s,
        party=goal.party[layout.rep_operator],
        weight=goal.weight,
        base_weight=np.zeros(len(coarse.servers)),
        apart_start=apart_start,
        apart=apart,
        start=items.start,
        max_moves=-1 if limits.max_moves is None else limits.max_moves,
        need=items.need,
        room=items.room * (1.0 + 0.5 * MEMORY_SLACK),
    )


def starts_of(counts: IntArray) -> IntArray:
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def _links(items: Items) -> tuple[IntArray, FloatArray]:
    """Server and delay between any two nodes."""
    coarse = items.coarse
    size = len(coarse.nodes)
    link, delay_s = np.full((size, size), -1, dtype=np.int64), np.zeros((size, size))
    for entry in coarse.links:
        delay_s[coarse.node_index[entry.source], coarse.node_index[entry.target]] = entry.delay_s
    for i, server in enumerate(coarse.servers):
        if server.link is not None:
            entry = coarse.links[server.link]
            link[coarse.node_index[entry.source], coarse.node_index[entry.target]] = i
    return link, delay_s


def pairs_of(groups: Sequence[tuple[int, ...]], count: int) -> tuple[IntArray, IntArray]:
    """Items that each item must not share a node with."""
    near: list[set[int]] = [set() for _ in range(count)]
    for group in groups:
        for item in group:
            near[item] |= set(group) - {item}
    flat = [other for others in near for other in sorted(others)]
    return starts_of(np.array([len(others) for others in near], dtype=np.int64)), np.array(flat, dtype=np.int64)
