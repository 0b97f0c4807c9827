"""Vector-greedy placement: operators without a place, largest first, each on the core that it harms least.

An operator goes to the core whose peak excess, with its load series added, is least; delay and queues on the links to
the operators it exchanges events with count as well. Then the lower peak load, company of its own query, and the
listing order decide. Loads are added up whatever the deployment's combination is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType

import numpy as np

from engine.arrays import FloatArray, IntArray
from engine.document.deployment import Deployment
from engine.document.elements import Operator, Replica
from engine.document.memory import MEMORY_SLACK, memory_by_node, state_need_bytes
from engine.document.open_hosts import OpenHosts
from engine.errors import Fault, InfeasibleError
from engine.estimation.backlog import burdened_series
from engine.placement.ground import RunningGround
from engine.placement.local_search.bounds import feasible_cores
from engine.placement.problem import PlacementProblem, loaded_peaks
from engine.records import Fact
from engine.solvers import solving
from engine.words import size_words

__all__ = [
    "CoreLoads",
    "GreedyPlacement",
    "OpenNodes",
    "Placement",
    "free_bytes",
    "greedy",
    "place",
    "settle_all",
]

# Two cores whose peaks differ by less than this are equally good: rounding of sums must not decide.
_TIE = 1e-9
_LOOKED_AT = 16  # cores that are looked at together

Placement = dict[str, tuple[Replica, ...]]


def place(deployment: Deployment, *, closed: Collection[str] = (), coarse: int = 1) -> Placement:
    """Find a place for every operator that has none.

    Parameters
    ----------
    deployment : Deployment
        Some operators have no replicas. Its constraints ``pin``, ``forbid`` and ``apart`` are respected.
    closed : collection of str
        Nodes that take nothing new (draining); operators already there stay.
    coarse : int
        Subintervals summed into one for the load series.

    Returns
    -------
    dict
        Replicas (one each) by operator id, only for operators that had none. The same input gives the same answer.

    Raises
    ------
    InfeasibleError
        If constraints leave an operator without a node; one fault per operator says why each node is out.

    Examples
    --------
    >>> two = Deployment.parse({
    ...     "subinterval_s": 1.0, "sources": [{"id": "s", "arrivals": [10]}],
    ...     "nodes": [{"id": "a", "capacity_cps": 50.0}, {"id": "b", "capacity_cps": 100.0}],
    ...     "operators": [{"id": "f", "inputs": [{"from": "s", "selectivity": 1, "cycles_per_event": 5}]}],
    ... }, placed=False)
    >>> place(two)["f"][0].node
    'b'
    """
    solving()
    result = greedy(deployment, closed=closed, coarse=coarse)
    return result.placement if result else {}


@dataclass(frozen=True, eq=False)
class GreedyPlacement:
    """A greedy placement with the loads it rests on.

    `missing` are the operators that had no place, `open_nodes` where each of them may go as things stand at the start.
    """

    missing: list[int]
    placement: Placement
    core_loads: CoreLoads
    open_nodes: dict[int, list[str]]

    @property
    def placement_names(self) -> list[str]:
        """Operators of `missing` by id."""
        return [self.core_loads.deployment.operators[i].id for i in self.missing]


def greedy(
    deployment: Deployment, *, closed: Collection[str] = (), coarse: int = 1, ground: RunningGround | None = None
) -> GreedyPlacement | None:
    """Place like `place` and keep the loads; None if every operator has a place.

    With a `ground`, `deployment` is what is `near` on it.
    """
    missing = [i for i, operator in enumerate(deployment.operators) if not operator.replicas]
    if not missing:
        return None
    free, hosts = free_bytes(deployment, ground), OpenHosts(deployment, closed)
    nodes_of = {deployment.operators[i].id: OpenNodes(hosts, deployment.operators[i], free) for i in missing}
    _refuse_impossible(deployment, missing, nodes_of)
    core_loads = CoreLoads(deployment, coarse, ground)
    peaks = {i: float(core_loads.load[i].max()) for i in missing}
    # What has no choice goes first, so that nobody who has one takes its place.
    open_nodes = {i: nodes_of[deployment.operators[i].id].left(core_loads.homes) for i in missing}
    order = sorted(missing, key=lambda i: (len(open_nodes[i]) > 1, -peaks[i], i))
    try:
        placement = settle_all(core_loads, nodes_of, order)
    except InfeasibleError:
        if not any(nodes_of[deployment.operators[i].id].need for i in missing):
            raise
        # Memory may be what is short: the largest states first, then where an exhaustive search puts them.
        core_loads = CoreLoads(deployment, coarse, ground)
        by_state = sorted(order, key=lambda i: (len(open_nodes[i]) > 1, -nodes_of[deployment.operators[i].id].need))
        try:
            placement = settle_all(core_loads, nodes_of, by_state)
        except InfeasibleError as error:
            nodes = _fitting_nodes(core_loads, missing, nodes_of, error)
            core_loads = CoreLoads(deployment, coarse, ground)
            placement = settle_all(core_loads, nodes_of, order, nodes)
    return GreedyPlacement(missing, placement, core_loads, open_nodes)


def settle_all(
    core_loads: CoreLoads,
    options: Mapping[str, OpenNodes],
    order: Sequence[int],
    nodes: Mapping[int, str] | None = None,
) -> Placement:
    """Settle operators in this order, each on the best core of the nodes open to it, or of the one in `nodes`."""
    placement: Placement = {}
    for i in order:
        operator = core_loads.deployment.operators[i]
        allowed = options[operator.id].left(core_loads.homes, core_loads.held)
        if nodes is not None and i in nodes:
            allowed = [nodes[i]]
        if not allowed:
            fault = options[operator.id].fault(i, core_loads.homes, core_loads.held)
            raise InfeasibleError(f"operator {operator.id!r} fits no node", [fault])
        placement[operator.id] = (core_loads.settle(i, allowed),)
        node = placement[operator.id][0].node
        core_loads.held[node] = core_loads.held.get(node, 0.0) + options[operator.id].need
    return placement


def _fitting_nodes(
    core_loads: CoreLoads, missing: list[int], options: Mapping[str, OpenNodes], error: InfeasibleError
) -> dict[int, str]:
    """Nodes of the operators with state, as an exhaustive search finds them; raises `error` if it finds none."""
    deployment = core_loads.deployment
    names = [node.id for node in deployment.nodes]
    homes = {op.id: {replica.node for replica in op.replicas} for op in deployment.operators if op.replicas}
    own = [options[deployment.operators[i].id] for i in missing]
    row = {deployment.operators[i].id: k for k, i in enumerate(missing)}
    open_ = [set(entry.left(homes)) for entry in own]
    groups = (tuple(row[name] for name in group if name in row) for group in deployment.constraints.apart)
    free = list(free_bytes(deployment, core_loads.ground).values())
    problem = PlacementProblem(
        load=np.zeros((len(missing), 1)),
        budget=np.ones((len(names), 1)),
        core_node=np.arange(len(names)),
        allowed=np.array([[name in open_nodes for name in names] for open_nodes in open_]),
        apart=tuple(group for group in groups if len(group) > 1),
        need=np.array([entry.need for entry in own]),
        room=np.array([np.inf if size is None else size for size in free]),
    )
    try:
        cores = feasible_cores(problem)
    except InfeasibleError:
        raise error from None
    return {i: names[core] for i, core in zip(missing, cores.tolist(), strict=True) if core >= 0}


def free_bytes(deployment: Deployment, ground: RunningGround | None) -> dict[str, float | None]:
    """Bytes of memory that are left on every node, in their order; None where nobody knows."""
    if ground is None:
        return {name: entry.free_bytes for name, entry in memory_by_node(deployment).items()}
    own = replace(deployment, operators=tuple(ground.joining(deployment)))
    held = {name: entry.held_bytes for name, entry in memory_by_node(own).items()}
    left = {node.id: ground.free_bytes.get(node.id, node.memory_bytes) for node in deployment.nodes}
    return {name: None if size is None else max(0.0, size - held[name]) for name, size in left.items()}


class OpenNodes:
    """The nodes an operator may use, and why the others are out; `free` are bytes of memory, None where unknown."""

    def __init__(self, hosts: OpenHosts, operator: Operator, free: Mapping[str, float | None]) -> None:
        self.operator, self.free = operator, free
        self.need = state_need_bytes(operator) or 0.0
        self.apart = hosts.others(operator.id)
        self.nodes = [node.id for node in hosts.deployment.nodes]
        self.out: dict[str, Fact | str] = dict(hosts.refusals(operator.id))
        if self.need > 0.0:
            for name in self.nodes:
                if name not in self.out and self._is_over(name, 0.0):
                    self.out[name] = self._memory_words(name, 0.0)

    @cached_property
    def _open(self) -> list[str]:
        return [name for name in self.nodes if name not in self.out]

    def left(self, homes: Mapping[str, set[str]], held: Mapping[str, float] = MappingProxyType({})) -> list[str]:
        """Nodes that are open, have the memory, and hold nothing this operator must stay apart from.

        `held` are bytes that operators placed meanwhile take.
        """
        if not self.apart and self.need == 0.0:
            return self._open
        return [
            name
            for name in self.nodes
            if name not in self.out and not self._is_over(name, held.get(name, 0.0)) and not self._company(name, homes)
        ]

    def _is_over(self, node: str, held: float) -> bool:
        """Whether the operator's state is known not to fit a node."""
        free = self.free[node]
        return self.need > 0.0 and free is not None and held + self.need > free * (1.0 + MEMORY_SLACK)

    def _memory_words(self, node: str, held: float) -> str:
        left = size_words(max(0.0, (self.free[node] or 0.0) - held))
        return f"its state takes {size_words(self.need)}, and {node} has {left} of memory left"

    def _company(self, node: str, homes: Mapping[str, set[str]]) -> list[str]:
        return sorted(name for name in self.apart if node in homes.get(name, ()))

    def fault(
        self, index: int, homes: Mapping[str, set[str]], held: Mapping[str, float] = MappingProxyType({})
    ) -> Fault:
        reasons = dict.fromkeys(str(self.out[name]) for name in self.nodes if name in self.out)
        for name in self.nodes:
            if name not in self.out and self._is_over(name, held.get(name, 0.0)):
                reasons[self._memory_words(name, held.get(name, 0.0))] = None
            if name not in self.out and self._company(name, homes):
                reasons[f"{name} holds {', '.join(self._company(name, homes))}, from which it must stay apart"] = None
        why = "; ".join(reasons) or "there is no node"
        return Fault(f"operators[{index}].node", f"operator {self.operator.id!r} fits no node: {why}")


def _refuse_impossible(deployment: Deployment, missing: list[int], options: Mapping[str, OpenNodes]) -> None:
    """Raise for every operator without an open node, before any search."""
    homes = {op.id: {replica.node for replica in op.replicas} for op in deployment.operators}
    faults = [
        options[deployment.operators[i].id].fault(i, homes)
        for i in missing
        if not options[deployment.operators[i].id].left(homes)
    ]
    if faults:
        count = len(faults)
        raise InfeasibleError("1 operator fits no node" if count == 1 else f"{count} operators fit no node", faults)


@dataclass
class _Core:
    node: str
    core: int
    server: int


@dataclass
class CoreLoads:
    """Loads of servers and places of operators so far."""

    deployment: Deployment
    coarse: int
    ground: RunningGround | None = None
    homes: dict[str, set[str]] = field(init=False)
    held: dict[str, float] = field(default_factory=dict)  # bytes of memory that operators placed here take, by node
    journal: dict[int, FloatArray] = field(default_factory=dict)  # rows of servers as they were before anything settled

    def __post_init__(self) -> None:
        whole = self.deployment
        coarse = whole.placed_at(whole.nodes[0].id).coarsened(self.coarse)
        series = burdened_series(coarse)
        self.load, self.output = series.load, series.output
        self.budget = np.ascontiguousarray(coarse.capacities.T * coarse.subinterval_s)
        self.width_s = coarse.subinterval_s
        known = self.ground.deployment.operator_index if self.ground else {}
        self.server_load = (
            self.ground.load(whole.servers) if self.ground else np.zeros((len(whole.servers), coarse.subintervals))
        )
        self.cores = [
            _Core(whole.nodes[server.node].id, server.core, i)
            for i, server in enumerate(whole.servers)
            if server.node is not None
        ]
        self.core_of = {(core.node, core.core): core.server for core in self.cores}
        self.replicas = {op.id: op.replicas for op in whole.operators if op.replicas}
        self.homes = {name: {replica.node for replica in parts} for name, parts in self.replicas.items()}
        self._links()
        self.peak = np.zeros(len(whole.servers))
        added = [(i, operator) for i, operator in enumerate(whole.operators) if operator.id not in known]
        for i, operator in added:
            for replica in operator.replicas:
                self.server_load[self.core_of[replica.node, replica.core]] += replica.fraction * self.load[i]
        for i, operator in added:
            if operator.replicas:
                self._load_links(i, upstream_only=True)
        self.journal.clear()
        self.peak = self.server_load.max(axis=1, initial=0.0)
        self._rows: dict[tuple[str, ...], IntArray] = {}

    def _links(self) -> None:
        links = self.deployment.links
        self.delay_s = {(link.source, link.target): link.delay_s for link in links}
        self.link_server = {
            (links[s.link].source, links[s.link].target): i
            for i, s in enumerate(self.deployment.servers)
            if s.link is not None
        }
        index = self.deployment.operator_index
        self.edges: list[list[tuple[int, int]]] = [[] for _ in self.deployment.operators]
        for j, operator in enumerate(self.deployment.operators):
            for entry in operator.inputs:
                if entry.source in index:
                    self.edges[index[entry.source]].append((index[entry.source], j))
                    self.edges[j].append((index[entry.source], j))

    def link_table(self) -> tuple[IntArray, FloatArray]:
        """Server (-1 without a limit) and delay of the way between any two nodes."""
        index = self.deployment.node_index
        server = np.full((len(index), len(index)), -1, dtype=np.int64)
        delay_s = np.zeros((len(index), len(index)))
        for (a, b), seconds in self.delay_s.items():
            delay_s[index[a], index[b]] = seconds
        for (a, b), i in self.link_server.items():
            server[index[a], index[b]] = i
        return server, delay_s

    def settle(self, i: int, allowed: list[str]) -> Replica:
        """Put operator `i` on the best core of the allowed nodes."""
        operator = self.deployment.operators[i]
        server = self._best(i, self._rows_of(allowed))
        self.add(server, self.load[i])
        core = self.deployment.servers[server]
        replica = Replica(self.deployment.nodes[core.node or 0].id, core.core)
        self.replicas[operator.id] = (replica,)
        self.homes[operator.id] = {replica.node}
        self._load_links(i)
        return replica

    def add(self, server: int, load: FloatArray) -> None:
        """Put load on a server, or take it away."""
        self.journal.setdefault(server, self.server_load[server].copy())
        self.server_load[server] += load
        self.peak[server] = self.server_load[server].max()

    def take_back(self) -> None:
        """Undo what was put on servers since they were made."""
        for server, row in self.journal.items():
            self.server_load[server] = row
            self.peak[server] = row.max()
        self.journal.clear()

    def _rows_of(self, allowed: Sequence[str]) -> IntArray:
        """Servers of some nodes."""
        key = tuple(allowed)
        if key not in self._rows:
            names = set(key)
            self._rows[key] = np.array([core.server for core in self.cores if core.node in names], dtype=np.int64)
        return self._rows[key]

    def _best(self, i: int, rows: IntArray) -> int:
        """The server of `rows` that operator `i` harms least."""
        rows, excess, share = self._least_loaded(i, rows)
        nodes = [self.deployment.nodes[self.deployment.servers[row].node or 0].id for row in rows.tolist()]
        link_s = {name: self._link_cost_s(i, name) for name in dict.fromkeys(nodes)} if self.delay_s else {}
        cost_s = excess * self.width_s + np.array([link_s.get(name, 0.0) for name in nodes])
        company = self._company(self.deployment.operators[i])
        fellows = np.array([-company.get(name, 0) for name in nodes], dtype=np.float64)
        return int(rows[_first_least(cost_s, share, fellows)])

    def _least_loaded(self, i: int, rows: IntArray) -> tuple[IntArray, FloatArray, FloatArray]:
        """Those of `rows` that the best may be among, in their order, with peak excess and peak load there.

        The peak with the operator on a server is no less than the server's own, nor than both loads together when that
        of the operator is largest: by that servers are looked at, until one without excess has less than others can.
        That is so where links cost nothing.
        """
        load, excess, share = self.load[i], np.zeros(len(rows)), np.zeros(len(rows))
        if self.delay_s or self.budget.shape[1] > 1:
            return rows, *loaded_peaks(self.server_load[rows], load, self.budget[rows])
        at = int(load.argmax())
        least = np.maximum(self.peak[rows], self.server_load[rows, at] + load[at]) / self.budget[rows, 0]
        order = np.argsort(least, kind="stable")
        best, end = np.inf, 0
        while end < len(rows) and least[order[end]] <= best + 2.0 * _TIE * max(1.0, best):
            looked_at = order[end : end + _LOOKED_AT]
            servers = rows[looked_at]
            excess[looked_at], share[looked_at] = loaded_peaks(self.server_load[servers], load, self.budget[servers])
            best = min(best, float(share[looked_at][excess[looked_at] == 0.0].min(initial=np.inf)))
            end += _LOOKED_AT
        chosen = np.sort(order[:end])
        return rows[chosen], excess[chosen], share[chosen]

    def _company(self, operator: Operator) -> Counter[str]:
        """Number of operators of the same query on each node."""
        if operator.query is None:
            return Counter()
        members = (self.deployment.operators[j].id for j in self.deployment.operators_of(operator.query))
        return Counter(node for name in members for node in self.homes.get(name, ()))

    def _crossings(self, i: int, node: str, *, upstream_only: bool = False) -> list[tuple[tuple[str, str], FloatArray]]:
        """Links that operator `i` on `node` would use to those already placed, and bytes per subinterval on each."""
        crossings = []
        operators = self.deployment.operators
        for a, b in self.edges[i]:
            other = a if b == i else b
            if upstream_only and b != i:
                continue
            for replica in self.replicas.get(operators[other].id, ()):
                pair = (replica.node, node) if b == i else (node, replica.node)
                if pair[0] != pair[1]:
                    crossings.append((pair, self.output[a] * (operators[a].bytes_per_event * replica.fraction)))
        return crossings

    def _link_cost_s(self, i: int, node: str) -> float:
        """Delay of the links that would be used, and the peak queue on those with a bandwidth."""
        cost_s = 0.0
        for pair, bytes_ in self._crossings(i, node):
            cost_s += self.delay_s.get(pair, 0.0)
            server = self.link_server.get(pair)
            if server is not None:
                excess, _ = loaded_peaks(self.server_load[[server]], bytes_, self.budget[[server]])
                cost_s += float(excess[0]) * self.width_s
        return cost_s

    def _load_links(self, i: int, *, upstream_only: bool = False) -> None:
        for own in self.replicas[self.deployment.operators[i].id]:
            for pair, bytes_ in self._crossings(i, own.node, upstream_only=upstream_only):
                server = self.link_server.get(pair)
                if server is not None:
                    self.add(server, bytes_ * own.fraction)


def _first_least(*keys: FloatArray) -> int:
    """Index of the least by the first key, then the next; values within rounding of each other are equal."""
    left = np.arange(len(keys[0]))
    for key in keys:
        values = key[left]
        least = values.min()
        left = left[values <= least + _TIE * max(1.0, abs(least))]
    return int(left[0])
