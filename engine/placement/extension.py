"""Extension of a running placement: places for new operators, the same answer for the same input."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from engine.arrays import FloatArray, IntArray
from engine.compiler import compiled
from engine.document.deployment import Deployment, Replica
from engine.document.memory import MEMORY_SLACK, needs_of
from engine.errors import InfeasibleError
from engine.estimation.overload import hold_budget, hold_load, lasting_growth
from engine.placement.colocation import TRANSFER_S, apart_operators, colocate, separations
from engine.placement.greedy import GreedyPlacement, Placement, free_bytes, greedy
from engine.placement.ground import RunningGround
from engine.placement.local_search.search import search
from engine.placement.network import climb, pairs_of, room_of, starts_of
from engine.placement.network_kernels import NetworkArrays, NetworkState, move_item, network_value, worst_of
from engine.placement.problem import BoolArray, PlacementProblem, excess_of
from engine.placement.separation import ApartOperator

__all__ = ["Extension", "extend_placement"]

_MIN_GAIN = 1e-6  # share of the goal; for less the greedy placement stands
_STEPS = 100  # of a climb
_POINTS = 600  # of the series that the search of the cores is given; the climb has them all


@dataclass(frozen=True)
class Extension:
    """Places of the operators that had none, one replica each, and why some are apart from those they belong to."""

    placement: Placement = field(default_factory=dict)
    apart: tuple[ApartOperator, ...] = ()


def extend_placement(
    deployment: Deployment,
    *,
    closed: Collection[str] = (),
    coarse: int = 1,
    rounds: int = 4,
    seed: int = 0,
    transfer_s: float = TRANSFER_S,
    ground: RunningGround | None = None,
) -> Extension:
    """Find a place for every operator that has none, together where being apart gains nothing.

    Parameters
    ----------
    deployment : Deployment
        Some operators have no replicas. Its constraints ``pin``, ``forbid`` and ``apart`` are respected.
    closed : collection of str
        Nodes that take nothing new (draining).
    coarse : int
        Subintervals summed into one for the load series.
    rounds, seed : int
        Of the search; time plays no part, so the same input gives the same answer.
    transfer_s : float
        Seconds that an event's way to another node is taken to cost where no link says it.
    ground : RunningGround, optional
        What runs, where that is kept. Of a large fleet the nodes with the most room are looked at then.

    Returns
    -------
    Extension

    Raises
    ------
    InfeasibleError
        If constraints leave an operator without a node.
    """
    if all(operator.replicas for operator in deployment.operators):
        return Extension()
    if ground is None or not ground.is_under(deployment):
        return _extend(deployment, closed, coarse, rounds, seed, transfer_s, None)
    try:
        return _extend(ground.near(deployment, closed), closed, coarse, rounds, seed, transfer_s, ground)
    except InfeasibleError:  # there may be a place elsewhere, and if not, the whole fleet tells why
        return _extend(deployment, closed, coarse, rounds, seed, transfer_s, None)


def _extend(
    deployment: Deployment,
    closed: Collection[str],
    coarse: int,
    rounds: int,
    seed: int,
    transfer_s: float,
    ground: RunningGround | None,
) -> Extension:
    base = greedy(deployment, closed=closed, coarse=coarse, ground=ground)
    assert base is not None
    extension = _Extension(deployment, base, ground)
    best = _best_cores(extension, rounds, seed)
    if extension.never_catches_up(best) and extension.may_catch_up():
        extension = replace(extension, is_held_on=True)
        best = _best_cores(extension, rounds, seed)
    best, apart = extension.colocated(best, transfer_s)
    placement: Placement = {
        name: (extension.core(int(core)),) for name, core in zip(base.placement_names, best, strict=True)
    }
    return Extension(placement, apart)


def _best_cores(extension: _Extension, rounds: int, seed: int) -> IntArray:
    """Cores of the joining operators: those of the greedy placement, or better ones by a climb and a search."""
    first = extension.greedy_cores
    value = extension.value(first)
    best, limit = first, value * (1.0 - _MIN_GAIN)
    if value > 0.0 and (bound := extension.bound()) < limit:
        climbed = extension.climbed(first)
        starts = (
            [climbed] if extension.value(climbed) <= bound * (1.0 + _MIN_GAIN) else extension.searched(rounds, seed)
        )
        for cores in (climbed, *(extension.climbed(start) for start in starts if start is not climbed)):
            if extension.is_good(cores) and (reached := extension.value(cores)) < limit:
                best, limit = cores, reached
    return best


@dataclass(frozen=True, eq=False)
class _Extension:
    """Joining operators, and as immovable items without load those they are connected with.

    `is_held_on` has loads and budgets go on after the horizon, so that what never catches up costs most.
    """

    deployment: Deployment
    greedy: GreedyPlacement
    ground: RunningGround | None
    is_held_on: bool = False

    @cached_property
    def cores(self) -> list[Replica]:
        """Cores in the order of the servers."""
        nodes = self.deployment.nodes
        return [Replica(nodes[s.node].id, s.core) for s in self.deployment.servers if s.node is not None]

    @cached_property
    def index(self) -> dict[tuple[str, int], int]:
        """Position of every core."""
        return {(core.node, core.core): i for i, core in enumerate(self.cores)}

    def core(self, i: int) -> Replica:
        """A core as the place of a whole operator."""
        return self.cores[i]

    @cached_property
    def greedy_cores(self) -> IntArray:
        """Cores that vector-greedy gives the new operators."""
        places = [self.greedy.placement[name][0] for name in self.greedy.placement_names]
        return np.array([self.index[part.node, part.core] for part in places], dtype=np.int64)

    @cached_property
    def _anchors(self) -> list[tuple[int, Replica]]:
        """Replicas of placed operators that belong to a joining query, or that a joining operator reads from."""
        operators, index = self.deployment.operators, self.deployment.operator_index
        queries = {operators[i].query for i in self.greedy.missing} - {None}
        read = {index[e.source] for i in self.greedy.missing for e in operators[i].inputs if e.source in index}
        kept = [j for j, op in enumerate(operators) if op.replicas and (j in read or op.query in queries)]
        return [(j, part) for j in kept for part in operators[j].replicas]

    @cached_property
    def net(self) -> NetworkArrays:
        """Joining operators first, then the anchors."""
        deployment, core_loads = self.deployment, self.greedy.core_loads
        members = [*self.greedy.missing, *(j for j, _ in self._anchors)]
        shares = [1.0] * len(self.greedy.missing) + [part.fraction for _, part in self._anchors]
        own = core_loads.load[self.greedy.missing]
        still = np.zeros((len(self._anchors), own.shape[1]))
        edges = self._edges(members, shares)
        count, servers = len(members), len(deployment.servers)
        into = np.array([edge[1] for edge in edges], dtype=np.int64)
        out = np.array([edge[0] for edge in edges], dtype=np.int64)
        apart_start, apart = pairs_of(self._apart, count)
        weight, party = self._weights(members)
        link, delay_s = core_loads.link_table()
        return NetworkArrays(
            load=self._held(np.ascontiguousarray(np.vstack([own, still]))),
            output=self._held(core_loads.output),
            budget=hold_budget(core_loads.budget, own.shape[1]) if self.is_held_on else core_loads.budget,
            width_s=core_loads.width_s,
            core_node=self._core_node,
            allowed=np.vstack([self._allowed, np.zeros((len(self._anchors), len(self.cores)), dtype=bool)]),
            order=self._order(members),
            edge_from=out,
            edge_to=into,
            edge_row=np.array([members[a] for a in out], dtype=np.int64),
            edge_bytes=np.array([edge[2] for edge in edges], dtype=np.float64),
            in_start=starts_of(np.bincount(into, minlength=count)),
            out_start=starts_of(np.bincount(out, minlength=count)),
            out_edge=np.argsort(out, kind="stable"),
            link=link,
            delay_s=delay_s,
            party=party,
            weight=weight,
            base_weight=self._base_weight(servers),
            apart_start=apart_start,
            apart=apart,
            start=np.full(count, -1),
            max_moves=-1,
            need=np.concatenate([self._need, np.zeros(len(self._anchors))]),
            room=self._room_bytes * (1.0 + 0.5 * MEMORY_SLACK),
        )

    def _held(self, load: FloatArray) -> FloatArray:
        """A load, with what comes after the horizon where that counts."""
        return hold_load(load) if self.is_held_on else load

    @cached_property
    def _need(self) -> FloatArray:
        """Bytes of memory that the joining operators take, as far as they are known."""
        return needs_of(self.deployment.operators[i] for i in self.greedy.missing)

    @cached_property
    def _room_bytes(self) -> FloatArray:
        """Bytes of memory that what runs leaves on every node; infinite where nobody knows."""
        free = free_bytes(self.deployment, self.ground).values()
        return np.array([np.inf if size is None else size for size in free])

    @cached_property
    def _core_node(self) -> IntArray:
        return np.array([s.node for s in self.deployment.servers if s.node is not None], dtype=np.int64)

    @cached_property
    def _allowed(self) -> BoolArray:
        allowed = np.zeros((len(self.greedy.missing), len(self.cores)), dtype=bool)
        for row, i in enumerate(self.greedy.missing):
            names = set(self.greedy.open_nodes[i])
            allowed[row] = [core.node in names for core in self.cores]
        return allowed

    @cached_property
    def _apart(self) -> list[tuple[int, ...]]:
        """Groups of joining operators that must not share a node."""
        row = {self.deployment.operators[i].id: k for k, i in enumerate(self.greedy.missing)}
        groups = (tuple(row[name] for name in group if name in row) for group in self.deployment.constraints.apart)
        return [group for group in groups if len(group) > 1]

    def _edges(self, members: list[int], shares: list[float]) -> list[tuple[int, int, float]]:
        """(from, to, bytes per event) among the items; edges in the order of their readers."""
        operators = self.deployment.operators
        rows: dict[str, list[int]] = {}
        for item, j in enumerate(members):
            rows.setdefault(operators[j].id, []).append(item)
        return [
            (a, item, operators[members[a]].bytes_per_event * shares[a] * shares[item])
            for item, j in enumerate(members)
            for entry in operators[j].inputs
            for a in rows.get(entry.source, ())
        ]

    def _order(self, members: list[int]) -> IntArray:
        rank = {j: k for k, j in enumerate(self.deployment.order)}
        return np.array(sorted(range(len(members)), key=lambda item: rank[members[item]]), dtype=np.int64)

    def _weights(self, members: list[int]) -> tuple[FloatArray, IntArray]:
        """Weight of every party, and the party of every item: queries that join, and all others with weight 0.

        Who joins weighs as much as the tightest that runs, whatever its own bound: another bound can be offered to it
        without another placement.
        """
        operators, joins = self.deployment.operators, {self.deployment.operators[i].query for i in self.greedy.missing}
        parties = {query: k for k, query in enumerate(dict.fromkeys(operators[i].query for i in self.greedy.missing))}
        bounds = [objective.bound_s for objective in self.deployment.objectives if objective.query not in parties]
        if self.ground and self.ground.least_bound_s is not None:
            bounds.append(self.ground.least_bound_s)
        weight = np.full(len(parties) + 1, 1.0 / min(bounds, default=1.0))
        weight[-1] = 0.0
        party = [parties[operators[j].query] if operators[j].query in joins else len(parties) for j in members]
        return weight, np.array(party, dtype=np.int64)

    def _tightness(self, query: str | None) -> float:
        """1 over the bound of a query, 0 without one."""
        objective = self.deployment.objective_of(query) if query else None
        return 1.0 / objective.bound_s if objective else 0.0

    def _base_weight(self, servers: int) -> FloatArray:
        weight = np.zeros(servers)
        if self.ground:
            known = self.ground.tightness
            weight[: len(self.cores)] = [known.get((core.node, core.core), 0.0) for core in self.cores]
        tightness = {query: self._tightness(query) for query in self.deployment.queries}
        for operator in self.deployment.operators:
            for part in operator.replicas:
                core = self.index[part.node, part.core]
                weight[core] = max(weight[core], tightness.get(operator.query or "", 0.0))
        return weight

    def _state(self, cores: IntArray) -> NetworkState:
        """State of the network with the joining operators on `cores`."""
        net, anchors = self.net, [self.index[part.node, part.core] for _, part in self._anchors]
        load = self._held(self.greedy.core_loads.server_load.copy())
        worst = np.array([worst_of(load[s], net.budget[s], net.width_s) for s in range(len(load))])
        at = np.concatenate([self.greedy_cores, np.array(anchors, dtype=np.int64)]).astype(np.int64)
        used = np.zeros(len(net.room))
        np.add.at(used, net.core_node[at], net.need)
        state = NetworkState(at, load, worst, np.zeros(len(at)), np.zeros(len(net.weight)), used)
        for item in np.flatnonzero(cores != self.greedy_cores):
            move_item(net, state, int(item), int(cores[item]), *self._room)
        return state

    @cached_property
    def _room(self) -> tuple[IntArray, FloatArray, FloatArray]:
        return room_of(self.net)

    @cached_property
    def _base(self) -> FloatArray:
        """Load of the cores without the joining operators, (cores, d)."""
        base = self.greedy.core_loads.server_load[: len(self.cores)].copy()
        np.subtract.at(base, self.greedy_cores, self.greedy.core_loads.load[self.greedy.missing])
        return np.maximum(base, 0.0)

    def never_catches_up(self, cores: IntArray) -> bool:
        """Whether a core of the joining operators, or a link, gets more than its capacity for good with them there."""
        load, budget = self._state(cores).load, self.net.budget
        used = np.unique([*cores.tolist(), *range(len(self.cores), len(load))])
        return bool(lasting_growth(load[used], budget[used], excess_of(load[used], budget[used])).any())

    def may_catch_up(self) -> bool:
        """Whether all cores together can process what comes at the end."""
        return self._problem(1).may_catch_up()

    def bound(self) -> float:
        """Lower bound of any placement: the largest cost of one operator alone on its best core."""
        net, count = self.net, len(self.greedy.missing)
        weight, base = net.weight[net.party[:count]], self._held(self._base)
        return float(_alone(net.load[:count], base, net.budget, self._allowed, weight, net.base_weight, net.width_s))

    def value(self, cores: IntArray) -> float:
        """The goal with the joining operators on `cores`."""
        return float(network_value(self.net, self._state(cores))[0])

    def climbed(self, cores: IntArray) -> IntArray:
        """Moves and exchanges from `cores` until none helps."""
        return climb(self.net, self._state(cores), _STEPS)[: len(cores)]

    def colocated(self, cores: IntArray, transfer_s: float) -> tuple[IntArray, tuple[ApartOperator, ...]]:
        """The joining operators with those they exchange events with, and why some are not."""
        state, free = self._state(cores), range(len(cores))
        colocate(self.net, state, free, self._room, transfer_s)
        members = [*self.greedy.missing, *(j for j, _ in self._anchors)]
        names = [self.deployment.operators[j].id for j in members]
        reasons = separations(self.net, state, free, self._room, transfer_s)
        servers = [server.name for server in self.deployment.servers]
        apart = apart_operators(reasons, names, servers, self.net.width_s)
        return state.at[: len(cores)].copy(), apart

    def is_good(self, cores: IntArray) -> bool:
        """Whether every operator is where it may be, and anti-affinity holds."""
        nodes = self._core_node[cores]
        allowed = self._allowed[np.arange(len(cores)), cores].all()
        held = np.bincount(nodes, self._need, minlength=len(self._room_bytes))
        allowed = allowed and ((held == 0.0) | (held <= self._room_bytes * (1.0 + MEMORY_SLACK))).all()
        return bool(allowed) and all(len({int(nodes[i]) for i in group}) == len(group) for group in self._apart)

    def searched(self, rounds: int, seed: int) -> list[IntArray]:
        """Placement by local search of the cores, without links and without the objectives of running queries."""
        problem = self._problem(-(-self.greedy.core_loads.load.shape[1] // _POINTS))
        try:
            found = search(problem.held_on() if self.is_held_on else problem, seed=seed, rounds=rounds, finalists=1)
        except InfeasibleError:
            return []
        return [found.assignment]

    def _problem(self, step: int) -> PlacementProblem:
        """The joining operators on the cores, `step` subintervals as one."""
        core_loads, count = self.greedy.core_loads, len(self.cores)
        own, base = (_summed(series, step) for series in (core_loads.load[self.greedy.missing], self._base))
        budget = core_loads.budget[:count]
        return PlacementProblem(
            load=own,
            budget=_summed(budget, step) if budget.shape[1] > 1 else budget * step,
            core_node=self._core_node,
            allowed=self._allowed,
            apart=tuple(self._apart),
            weight=np.ones(len(own)),
            base=base,
            width_s=core_loads.width_s * step,
            need=self._need,
            room=self._room_bytes,
        )


def _summed(series: FloatArray, step: int) -> FloatArray:
    """Sum `step` subintervals into one; those after the end are like the last."""
    padded = np.pad(series, ((0, 0), (0, -series.shape[1] % step)), mode="edge")
    return np.ascontiguousarray(padded.reshape(len(series), -1, step).sum(axis=2))


@compiled
def _alone(
    load: FloatArray,
    base: FloatArray,
    budget: FloatArray,
    allowed: BoolArray,
    weight: FloatArray,
    base_weight: FloatArray,
    width_s: float,
) -> float:
    """Largest, over the items, of the least cost of a core with that item alone on it."""
    largest = 0.0
    for i in range(len(load)):
        best = np.inf
        for c in range(len(base)):
            if allowed[i, c]:
                cost = max(weight[i], base_weight[c]) * worst_of(base[c] + load[i], budget[c], width_s)
                best = min(best, cost)
        largest = max(largest, best)
    return largest
