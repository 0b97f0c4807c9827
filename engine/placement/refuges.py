"""Refuges: where operators go when their node is lost, with the loads that this makes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from engine.arrays import FloatArray
from engine.document.deployment import Deployment
from engine.document.elements import Operator, Replica
from engine.document.memory import memory_by_node, state_need_bytes
from engine.document.open_hosts import OpenHosts
from engine.placement.greedy import CoreLoads, OpenNodes, Placement, greedy, settle_all

__all__ = ["Refuge", "Refuges"]


@dataclass(frozen=True, eq=False)
class Refuge:
    """Places of what was on a lost node.

    Attributes
    ----------
    deployment : Deployment
        The cluster before; the lost node is still one of it.
    placement : mapping
        New replicas of every operator that had one on the node.
    loads : mapping of arrays, shape (d,)
        New load of every server and link that has another one, by its number; those of the node itself are left out.
    """

    deployment: Deployment
    node: str
    placement: Placement
    loads: Mapping[int, FloatArray]

    @cached_property
    def after(self) -> Deployment:
        """The cluster without the node."""
        before, node = self.deployment, self.node
        placed = before.with_placement(self.placement)
        limits = before.constraints
        forbid = {name: tuple(other for other in nodes if other != node) for name, nodes in limits.forbid.items()}
        return replace(
            placed,
            nodes=tuple(other for other in before.nodes if other.id != node),
            links=tuple(link for link in before.links if node not in (link.source, link.target)),
            constraints=replace(limits, forbid={name: nodes for name, nodes in forbid.items() if nodes}),
        )


class Refuges:
    """Finds refuges as `engine.placement.greedy.place` does in the deployment without the node.

    Parameters
    ----------
    deployment : Deployment
        Everything placed.
    closed : collection of str
        Nodes that take nothing new.
    coarse : int
        Subintervals summed into one for the load series.
    """

    def __init__(self, deployment: Deployment, closed: Collection[str] = (), coarse: int = 1) -> None:
        self._deployment, self._closed, self._coarse = deployment, frozenset(closed), coarse
        self.core_loads = CoreLoads(deployment, coarse)
        self._free = {name: entry.free_bytes for name, entry in memory_by_node(deployment).items()}
        self._has_links = any(link.bandwidth_bytes_s is not None for link in deployment.links)
        self._on: dict[str, list[int]] = {node.id: [] for node in deployment.nodes}
        for i, operator in enumerate(deployment.operators):
            for name in dict.fromkeys(replica.node for replica in operator.replicas):
                self._on[name].append(i)

    def operators_on(self, node: str) -> list[int]:
        """Operators with a replica on a node."""
        return self._on[node]

    def of(self, node: str) -> Refuge:
        """The refuge of what is on a node.

        Raises
        ------
        InfeasibleError
            If an operator fits no other node.
        """
        lost = {i: _without(self._deployment.operators[i], node) for i in self._on[node]}
        keeps_state = any(state_need_bytes(self._deployment.operators[i]) for i in lost)
        if self._has_links or keeps_state:
            return self._anew(node, lost)
        core_loads = self.core_loads
        places = dict(core_loads.replicas), dict(core_loads.homes)
        try:
            for i, left in lost.items():
                self._lose(i, left)
            unplaced = [i for i, left in lost.items() if not left]
            options = self._options(unplaced, node)
            names = {i: self._deployment.operators[i].id for i in unplaced}
            free = {i: len(options[name].left(core_loads.homes)) > 1 for i, name in names.items()}
            order = sorted(unplaced, key=lambda i: (free[i], -float(core_loads.load[i].max()), i))
            placement = settle_all(core_loads, options, order)
            loads = {server: core_loads.server_load[server].copy() for server in core_loads.journal}
        finally:
            core_loads.take_back()
            core_loads.replicas, core_loads.homes = places
        kept = {self._deployment.operators[i].id: left for i, left in lost.items() if left}
        return Refuge(self._deployment, node, placement | kept, loads)

    def _options(self, unplaced: Sequence[int], node: str) -> dict[str, OpenNodes]:
        """Nodes open to operators; those that nothing limits have the same."""
        found: dict[str, OpenNodes] = {}
        plain: OpenNodes | None = None
        limits, hosts = self._deployment.constraints, OpenHosts(self._deployment, self._closed | {node})
        limited = {*limits.pin, *limits.forbid, *(name for group in limits.apart for name in group)}
        for i in unplaced:
            operator = self._deployment.operators[i]
            if plain is None or operator.id in limited:
                found[operator.id] = OpenNodes(hosts, operator, self._free)
                plain = plain if operator.id in limited else found[operator.id]
            else:
                found[operator.id] = plain
        return found

    def _lose(self, i: int, left: tuple[Replica, ...]) -> None:
        """Take an operator from where it is; the part of it that is left elsewhere carries it."""
        core_loads, operator = self.core_loads, self._deployment.operators[i]
        del core_loads.replicas[operator.id], core_loads.homes[operator.id]
        if left:
            was = {(replica.node, replica.core): replica.fraction for replica in operator.replicas}
            core_loads.replicas[operator.id] = left
            core_loads.homes[operator.id] = {replica.node for replica in left}
            for replica in left:
                at = replica.node, replica.core
                core_loads.add(core_loads.core_of[at], (replica.fraction - was[at]) * core_loads.load[i])

    def _anew(self, node: str, lost: Mapping[int, tuple[Replica, ...]]) -> Refuge:
        """The refuge by the placement of the whole: where links have a limit, or states need room."""
        names = {self._deployment.operators[i].id: left for i, left in lost.items()}
        operators = tuple(
            replace(op, replicas=names[op.id]) if op.id in names else op for op in self._deployment.operators
        )
        found = greedy(
            replace(self._deployment, operators=operators), closed=self._closed | {node}, coarse=self._coarse
        )
        kept = {name: left for name, left in names.items() if left}
        after = self._deployment.with_placement({**kept, **(found.placement if found else {})})
        loads = CoreLoads(after, self._coarse).server_load
        changed = (loads != self.core_loads.server_load).any(axis=1).nonzero()[0].tolist()
        own = {server for (at, _), server in self.core_loads.core_of.items() if at == node}
        rows = {server: loads[server] for server in changed if server not in own}
        return Refuge(self._deployment, node, (found.placement if found else {}) | kept, rows)


def _without(operator: Operator, node: str) -> tuple[Replica, ...]:
    """Replicas that are left elsewhere, with the whole work."""
    left = [replica for replica in operator.replicas if replica.node != node]
    total = sum(replica.fraction for replica in left)
    return tuple(replace(replica, fraction=replica.fraction / total) for replica in left)
