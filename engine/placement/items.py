"""Items of a placement search: an operator, or a replica of one; and the candidates that are found."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from engine.arrays import FloatArray, IntArray
from engine.document.deployment import Deployment, Replica
from engine.document.memory import needs_of, rooms_of
from engine.estimation.backlog import burdened_series
from engine.estimation.overload import hold_budget, hold_load
from engine.placement.goal import Goal, GoalValue
from engine.placement.limits import PlacementLimits
from engine.placement.problem import BoolArray, PlacementProblem

__all__ = ["Items", "Placement", "PlacementCandidate", "SearchSettings", "SparedMoves", "items_of"]

Placement = dict[str, tuple[Replica, ...]]


@dataclass(frozen=True, eq=False)
class Items:
    """Items to place, at Mace's width.

    Attributes
    ----------
    deployment : Deployment
        As given, at the width Flow runs on.
    coarse : Deployment
        At Mace's width, every item a replica: split as asked for, unplaced ones on a stand-in core.
    load : array, shape (items, d)
        Cycles per subinterval.
    output : array, shape (m, d)
        Events that operators put out.
    start : array, shape (items,)
        Core (its index among the servers) of every item now; -1 for none.
    is_held_on : bool
        Whether loads, outputs and budgets go on after the horizon, so that what never catches up costs most.
    """

    deployment: Deployment
    coarse: Deployment
    load: FloatArray
    output: FloatArray
    start: IntArray
    is_held_on: bool = False

    @property
    def operator(self) -> IntArray:
        """Operator of every item."""
        return self.coarse.layout.rep_operator

    @cached_property
    def cores(self) -> list[Replica]:
        """The cores in the order of the servers, as whole replicas on them."""
        nodes = self.coarse.nodes
        return [Replica(nodes[s.node].id, s.core) for s in self.coarse.servers if s.node is not None]

    @cached_property
    def core_node(self) -> IntArray:
        """Node of every core."""
        return np.array([s.node for s in self.coarse.servers if s.node is not None], dtype=np.int64)

    @cached_property
    def budget(self) -> FloatArray:
        """Cycles (cores) or bytes (links) that servers can do in a subinterval, (servers, d) or (servers, 1)."""
        budget = self.coarse.capacities.T * self.coarse.subinterval_s
        return np.ascontiguousarray(hold_budget(budget, self.coarse.subintervals) if self.is_held_on else budget)

    def held_on(self) -> Items:
        """The same with the closing load held on after the horizon."""
        return replace(self, load=hold_load(self.load), output=hold_load(self.output), is_held_on=True)

    @cached_property
    def need(self) -> FloatArray:
        """Bytes of memory that every item's state takes, as far as they are known: its share of its operator's."""
        layout = self.coarse.layout
        return needs_of(self.coarse.operators)[layout.rep_operator] * layout.rep_fraction

    @cached_property
    def room(self) -> FloatArray:
        """Bytes of memory of every node; infinite where nobody knows."""
        return rooms_of(self.coarse.nodes)

    def placement(self, assignment: IntArray) -> Placement:
        """Replicas by operator; those of one operator that share a core are merged into one."""
        layout = self.coarse.layout
        placement: Placement = {}
        for j, operator in enumerate(self.coarse.operators):
            shares: dict[int, float] = {}
            for r in range(layout.rep_start[j], layout.rep_start[j + 1]):
                core = int(assignment[r])
                shares[core] = shares.get(core, 0.0) + float(layout.rep_fraction[r])
            whole = len(shares) == 1
            placement[operator.id] = tuple(
                replace(self.cores[core], fraction=1.0 if whole else shares[core]) for core in sorted(shares)
            )
        return placement

    def placed(self, assignment: IntArray) -> Deployment:
        """The deployment at Mace's width with the items where `assignment` puts them, merged."""
        return self.coarse.with_placement(self.placement(assignment))

    def problem(self, limits: PlacementLimits, goal: Goal) -> PlacementProblem:
        """The items as the search takes them: cores only, no links."""
        cores = len(self.cores)
        weight = None if goal.kind == "worst" else goal.weight[goal.party[self.operator]]
        return PlacementProblem(
            load=self.load,
            budget=np.ascontiguousarray(self.budget[:cores]),
            core_node=self.core_node,
            allowed=self.allowed(limits),
            apart=self.apart(limits),
            start=self.start,
            max_moves=limits.max_moves,
            weight=weight,
            width_s=self.coarse.subinterval_s,
            need=self.need,
            room=self.room,
        )

    def allowed(self, limits: PlacementLimits) -> BoolArray:
        """Cores open to every item, (items, cores): what is fixed stays, closed nodes keep nothing else."""
        open_nodes = np.array([limits.open_nodes(operator.id) for operator in self.coarse.operators], dtype=bool)
        open_nodes = open_nodes.reshape(len(self.coarse.operators), len(self.coarse.nodes))
        allowed: BoolArray = open_nodes[self.operator][:, self.core_node]
        for item in np.flatnonzero(self.start >= 0):
            name, core = self.coarse.operators[self.operator[item]].id, self.start[item]
            if name in limits.fixed:
                allowed[item] = False
            allowed[item, core] |= limits.may_stay(name, self.cores[core].node)
        return allowed

    def apart(self, limits: PlacementLimits) -> tuple[tuple[int, ...], ...]:
        """Groups of items that must not share a node: one of each operator of a group, in all combinations."""
        start = self.coarse.layout.rep_start
        index = self.coarse.operator_index
        groups: dict[tuple[int, ...], None] = {}
        for names in limits.apart:
            parts = [range(start[index[name]], start[index[name] + 1]) for name in names]
            if all(len(part) == 1 for part in parts):
                groups[tuple(part[0] for part in parts)] = None
                continue
            for a, b in itertools.combinations(parts, 2):
                groups.update(dict.fromkeys(itertools.product(a, b)))
        return tuple(groups)


def items_of(deployment: Deployment, every: int, parts: Mapping[str, int]) -> Items:
    """Items of a deployment; every replica of the operators named in `parts` is cut into so many equal ones."""
    stand_in = (Replica(deployment.nodes[0].id),)
    replicas: Placement = {}
    has_place: list[bool] = []
    for operator in deployment.operators:
        count = parts.get(operator.id, 1)
        whole = operator.replicas or stand_in
        cut = tuple(replace(part, fraction=part.fraction / count) for part in whole for _ in range(count))
        has_place += [bool(operator.replicas)] * len(cut)
        if cut != operator.replicas:
            replicas[operator.id] = cut
    coarse = deployment.with_placement(replicas).coarsened(every) if replicas else deployment.coarsened(every)
    series, layout = burdened_series(coarse), coarse.layout
    load = np.ascontiguousarray(series.load[layout.rep_operator] * layout.rep_fraction[:, None])
    start = np.where(np.array(has_place, dtype=bool), layout.rep_server, -1)
    return Items(deployment, coarse, load, series.output, start)


@dataclass(frozen=True)
class SearchSettings:
    """Settings of a placement search: algorithm, budget, seed, tolerance, cost of a way between nodes."""

    algorithm: str = "search"
    budget_s: float | None = 5.0
    rounds: int | None = None
    seed: int = 0
    workers: int = 1
    mace_every: int = 1
    tolerance: float = 0.0
    transfer_s: float = 0.0


@dataclass(frozen=True)
class SparedMoves:
    """Moves that were left out for gaining too little: how many, and the value that they would have led to."""

    moves: int
    value: float


@dataclass(frozen=True, eq=False)
class PlacementCandidate:
    """A placement that was found, with what the goal says of it, and what it leaves out."""

    items: Items
    assignment: IntArray
    measured: GoalValue
    spared: SparedMoves | None = None

    @property
    def moves(self) -> int:
        """Items that are elsewhere than before."""
        return int(((self.items.start >= 0) & (self.assignment != self.items.start)).sum())

    @property
    def whole(self) -> tuple[float, int]:
        """Value and moves before any were left out."""
        if self.spared is None:
            return self.measured.value, self.moves
        return self.spared.value, self.moves + self.spared.moves

    @property
    def placement(self) -> Placement:
        return self.items.placement(self.assignment)
