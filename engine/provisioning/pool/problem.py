"""A deployment as items and cores, for many quick placements on the first n of its nodes.

Nodes stand in an order such that a pool of n nodes is the first n of them: every placement on a smaller pool is one on
a larger pool, which makes answers monotone.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from engine.arrays import FloatArray, IntArray
from engine.document.deployment import Combine, Deployment, Node, Operator, Replica
from engine.document.memory import MEMORY_SLACK, needs_of, rooms_of
from engine.document.open_hosts import OpenHosts
from engine.estimation.loads import loads_of
from engine.placement.problem import BoolArray, PlacementProblem
from engine.provisioning.nodes import lose_nodes
from engine.provisioning.pool.kernels import bytes_on_nodes, fill, loads_on_cores, peaks

__all__ = ["Placement", "PoolProblem", "pool_problem"]

Placement = dict[str, tuple[Replica, ...]]


@dataclass(frozen=True, eq=False)
class PoolProblem:
    """Items (operators, or the parts of split ones) and cores."""

    deployment: Deployment  #: at Mace's width, its nodes in the order of the pool sizes. Operators may lack a place.
    operator: IntArray  #:
    fraction: FloatArray
    load: FloatArray  #: cycles per subinterval
    output: FloatArray
    #: what a second on the item's core counts: one over the bound of its query in the search for objectives
    weight: FloatArray
    budget: FloatArray  #: cycles per subinterval
    node: IntArray  #:
    allowed: BoolArray  #:
    apart: BoolArray  #:
    groups: tuple[tuple[int, ...], ...]
    start: IntArray  #: core at present; -1 for none
    need: FloatArray  #: bytes of memory that items take, as far as they are known
    room: FloatArray  #: bytes of memory of every node; infinite where nobody knows
    split: bool = False  #: whether operators were to be split where that helps

    def whole(self, operator: Operator) -> str:
        """Reason that an operator is not split into more parts, for messages."""
        if operator.is_divisible is False:
            return "it has state that is not by key, so it cannot be split"
        if operator.is_divisible is None:
            return "nobody knows whether it has state that is not by key, so it is not split"
        if not self.split:
            return "splitting was not asked for"
        limits = self.deployment.constraints.may_split
        return "it is not among those that may be split" if limits is not None and operator.id not in limits else ""

    @cached_property
    def seconds(self) -> FloatArray:
        """Seconds of one cycle at a core's mean capacity, shape (cores,)."""
        return np.asarray(self.deployment.subinterval_s / self.budget.mean(axis=1))

    @cached_property
    def order(self) -> IntArray:
        """Items in the order of placing: those with least choice first, then by peak load."""
        peaks = self.load.max(axis=1, initial=0.0)
        pinned = ~self.allowed.all(axis=1)
        return np.lexsort((np.arange(len(peaks)), -peaks, ~pinned))

    @cached_property
    def by_need(self) -> IntArray:
        """Items in the order of placing where memory is short: of those with as much choice large states first."""
        peaks = self.load.max(axis=1, initial=0.0)
        pinned = ~self.allowed.all(axis=1)
        return np.lexsort((np.arange(len(peaks)), -peaks, -self.need, ~pinned))

    @cached_property
    def rooms(self) -> FloatArray:
        """Bytes of memory of every node, with a little more for the rounding of sums."""
        return self.room * (1.0 + 0.5 * MEMORY_SLACK)

    @property
    def is_limited(self) -> bool:
        """Whether memory can be short anywhere."""
        return bool(self.need.any()) and bool(np.isfinite(self.room).any())

    def cores_of(self, nodes: int) -> int:
        """Number of cores of the first `nodes` nodes."""
        return int(np.searchsorted(self.node, nodes))

    def placement_problem(self, nodes: int, start: IntArray | None = None) -> PlacementProblem:
        """The placement problem on the first `nodes` nodes."""
        cores = self.cores_of(nodes)
        return PlacementProblem(
            load=self.load,
            budget=self.budget[:cores],
            core_node=self.node[:cores],
            allowed=self.allowed[:, :cores],
            apart=self.groups,
            start=start,
            weight=None if (self.weight == 1.0).all() else self.weight,
            width_s=self.deployment.subinterval_s,
            need=self.need,
            room=self.room[: int(self.node[cores - 1]) + 1] if cores else self.room[:0],
        )

    def allowed_on(self, cores: int) -> BoolArray:
        """Where items may be among the first cores, in one piece: kernels are compiled for that layout alone."""
        return np.ascontiguousarray(self.allowed[:, :cores])

    def filled(self, nodes: int, start: IntArray) -> tuple[IntArray, int]:
        """`start` with every item put somewhere that has no place on the first `nodes` nodes, or may not be there.

        The second value is the first item that fits nowhere, -1 if all are placed.
        """
        placed, stuck = self._filled(nodes, start, self.order)
        if stuck >= 0 and self.is_limited:
            return self._filled(nodes, start, self.by_need)
        return placed, stuck

    def _filled(self, nodes: int, start: IntArray, order: IntArray) -> tuple[IntArray, int]:
        cores = self.cores_of(nodes)
        placed = self._lawful(np.where(start < cores, start, -1))
        here = placed >= 0
        total = loads_on_cores(self.load[here], placed[here], cores)
        heaviest = np.zeros(cores)
        np.maximum.at(heaviest, placed[here], self.weight[here])
        missing = order[~here[order]]
        stuck = fill(
            missing,
            self.load,
            self.weight,
            total,
            heaviest,
            peaks(total, self.budget[:cores], self.seconds[:cores]) / self.seconds[:cores],
            self.budget[:cores],
            self.seconds[:cores],
            self.node[:cores],
            self.allowed_on(cores),
            -1,
            self.apart,
            placed,
            self.need,
            self.rooms,
        )
        return placed, int(stuck)

    def fits(self, assignment: IntArray) -> bool:
        """Whether the state of the items is within the memory of every node."""
        used = bytes_on_nodes(self.need, assignment, self.node, len(self.room))
        return bool(((used == 0.0) | (used <= self.rooms)).all())

    def _lawful(self, placed: IntArray) -> IntArray:
        """Places without those that constraints forbid; of items that must stay apart the first keeps its place.

        Of those that take a node over its memory the largest states lose theirs, the fewest that are enough.
        """
        held = np.flatnonzero(placed >= 0)
        placed[held[~self.allowed[held, placed[held]]]] = -1
        for group in self.groups:
            taken: set[int] = set()
            for item in group:
                if placed[item] >= 0 and (node := int(self.node[placed[item]])) in taken:
                    placed[item] = -1
                elif placed[item] >= 0:
                    taken.add(node)
        if self.is_limited:
            used = bytes_on_nodes(self.need, placed, self.node, len(self.room))
            for item in self.by_need[placed[self.by_need] >= 0]:
                node = int(self.node[placed[item]])
                if self.need[item] > 0.0 and used[node] > self.rooms[node]:
                    placed[item] = -1
                    used[node] -= self.need[item]
        return placed

    def scaled(self, deployment: Deployment) -> PoolProblem:
        """The same problem with the loads of a deployment that differs in its arrivals only."""
        load, output = _series(deployment)
        return replace(self, deployment=deployment, load=load[self.operator] * self.fraction[:, None], output=output)

    def subset(self, nodes: Sequence[int]) -> PoolProblem:
        """The same items on some of the nodes only; places on others are lost."""
        number = np.full(len(self.deployment.nodes), -1, dtype=np.int64)
        number[list(nodes)] = np.arange(len(nodes))
        kept = np.flatnonzero(number[self.node] >= 0)
        core = np.full(len(self.node) + 1, -1, dtype=np.int64)  # the last stands for items without a place
        core[kept] = np.arange(len(kept))
        names = [node.id for node in self.deployment.nodes]
        deployment = lose_nodes(self.deployment, {name for name, at in zip(names, number, strict=True) if at < 0})
        return replace(
            self,
            deployment=replace(deployment, nodes=tuple(self.deployment.nodes[i] for i in nodes)),
            budget=np.ascontiguousarray(self.budget[kept]),
            node=number[self.node[kept]],
            allowed=np.ascontiguousarray(self.allowed[:, kept]),
            start=core[self.start],
            room=self.room[list(nodes)],
        )

    def placement(self, assignment: IntArray) -> Placement:
        """Replicas of every operator where the items are; parts that meet on a core are one replica."""
        servers, nodes = self.deployment.servers, self.deployment.nodes
        shares: dict[str, dict[int, float]] = {}
        for i, core in enumerate(assignment.tolist()):
            held = shares.setdefault(self.deployment.operators[self.operator[i]].id, {})
            held[core] = held.get(core, 0.0) + float(self.fraction[i])
        return {
            name: tuple(
                Replica(nodes[servers[core].node or 0].id, servers[core].core, 1.0 if len(held) == 1 else share)
                for core, share in held.items()
            )
            for name, held in shares.items()
        }


def pool_problem(
    deployment: Deployment,
    weights: FloatArray | None = None,
    closed: Sequence[str] = (),
    parts: Mapping[str, int] | None = None,
) -> PoolProblem:
    """The problem of a deployment at Mace's width; `weights` are those of its operators.

    Every replica of the operators in `parts` is cut into so many equal ones, which start where it is.
    """
    cores = [(i, server) for i, server in enumerate(deployment.servers) if server.node is not None]
    at = {(deployment.nodes[s.node].id, s.core): i for i, s in cores if s.node is not None}
    cut = parts or {}
    items = [
        (j, part.fraction / cut.get(operator.id, 1), at.get((part.node, part.core), -1))
        for j, operator in enumerate(deployment.operators)
        for part in operator.replicas or (Replica("", 0),)
        for _ in range(cut.get(operator.id, 1))
    ]
    operator = np.array([j for j, _, _ in items], dtype=np.int64)
    fraction = np.array([share for _, share, _ in items], dtype=np.float64)
    node = np.array([server.node for _, server in cores], dtype=np.int64)
    load, output = _series(deployment)
    budget = deployment.capacities[:, : len(cores)].T * deployment.subinterval_s
    allowed = (
        OpenHosts(deployment, closed).table[:, node][operator] if len(cores) else np.ones((len(items), 0), dtype=bool)
    )
    start = np.array([core for _, _, core in items], dtype=np.int64)
    held = start >= 0
    # What is on a closed node stays there.
    allowed[held, start[held]] |= np.isin(node[start[held]], [deployment.node_index[name] for name in closed])
    groups = _groups(deployment, operator)
    return PoolProblem(
        deployment=deployment,
        operator=operator,
        fraction=fraction,
        load=load[operator] * fraction[:, None],
        output=output,
        weight=np.ones(len(items)) if weights is None else weights[operator],
        budget=np.ascontiguousarray(budget),
        node=node,
        allowed=np.ascontiguousarray(allowed),
        apart=_apart(groups, len(items)),
        groups=groups,
        start=start,
        need=needs_of(deployment.operators)[operator] * fraction,
        room=rooms_of(deployment.nodes),
    )


def _series(deployment: Deployment) -> tuple[FloatArray, FloatArray]:
    """Load and output of every operator. They do not depend on places, but a layout needs some: all on one node."""
    node = Node("anywhere", 1.0)
    operators = tuple(replace(operator, replicas=(Replica(node.id),)) for operator in deployment.operators)
    together = replace(deployment, nodes=(node,), links=(), operators=operators, combine=Combine("sum"))
    series = loads_of(together, graph=deployment.graph).operators()
    return series.load, series.output


def _groups(deployment: Deployment, operator: IntArray) -> tuple[tuple[int, ...], ...]:
    """Groups of items that must stay apart; parts of one operator may share a node."""
    members: dict[int, list[int]] = {}
    for i, j in enumerate(operator.tolist()):
        members.setdefault(j, []).append(i)
    index = deployment.operator_index
    groups = []
    for group in deployment.constraints.apart:
        parts = [members[index[name]] for name in dict.fromkeys(group) if name in index]
        if all(len(items) == 1 for items in parts):
            groups.append(tuple(items[0] for items in parts))
        else:
            groups += [(a, b) for part, other in itertools.combinations(parts, 2) for a in part for b in other]
    return tuple(groups)


def _apart(groups: tuple[tuple[int, ...], ...], items: int) -> BoolArray:
    if not groups:
        return np.zeros((0, 0), dtype=bool)
    apart = np.zeros((items, items), dtype=bool)
    for group in groups:
        apart[np.ix_(group, group)] = True
    apart[np.arange(items), np.arange(items)] = False
    return apart
