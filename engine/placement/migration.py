"""Migration from one placement to another: moves in order, their durations, and the latency of a pause."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from engine.arrays import FloatArray, frozen_array
from engine.document.deployment import Constraints, Deployment, Input, Node, Operator, Replica
from engine.document.memory import MEMORY_SLACK, memory_by_node, state_need_bytes
from engine.estimation.backlog import burdened_series
from engine.estimation.flow import flow
from engine.estimation.loads import loads_of
from engine.placement.comparison import running_part
from engine.placement.goal import Goal
from engine.placement.items import Placement
from engine.placement.network_kernels import worst_of

__all__ = [
    "DEFAULT_BANDWIDTH_BYTES_S",
    "MigrationPauses",
    "MigrationStep",
    "MoveEffects",
    "QueryDelay",
    "changes_of",
    "duration_s",
    "order_moves",
]

# Where no link says more: a gigabit per second.
DEFAULT_BANDWIDTH_BYTES_S = 1.25e8
_LOOKED_AT = 64  # moves that are compared for each step

Replicas = tuple[Replica, ...]

_LEAD = 128  # slices before the pause
_TAIL = 384  # slices after it
_MAX_OPERATORS = 600  # that Flow follows for one pause
_MAX_RUNS = 40  # moves whose pause Flow follows; beyond, its length alone counts
_GATE = "\0gate"


@dataclass(frozen=True)
class MoveEffects:
    """Effects of a move on cores: the share of a load it takes away, a Mace before and after, and a peak load."""

    relieved: tuple[str, float] | None = None  #: the core with the largest Mace of those it leaves
    fallen: tuple[str, float, float] | None = None  #: the one whose Mace falls most
    joined: tuple[str, float] | None = None  #: the one it loads most


@dataclass(frozen=True, eq=False)
class MigrationStep:
    """One move: an operator from its old replicas to its new ones.

    `mace_s` is the largest Mace of a core once it is made. `over` are nodes that hold more state than memory while both
    its old and its new places hold its own, and the bytes by which they do.
    """

    operator: Operator
    old: Replicas
    new: Replicas
    mace_s: float
    effects: MoveEffects = MoveEffects()
    over: tuple[tuple[str, float], ...] = ()

    @property
    def kind(self) -> str:
        """place, split, merge or move."""
        if not self.old:
            return "place"
        if len(self.new) > len(self.old):
            return "split"
        return "merge" if len(self.new) < len(self.old) else "move"


def changes_of(deployment: Deployment, placement: Placement) -> dict[str, tuple[Replicas, Replicas]]:
    """Operators whose replicas differ, with the old and the new ones."""
    changes = {}
    for operator in deployment.operators:
        new = placement.get(operator.id, operator.replicas)
        if _shares(operator.replicas) != _shares(new):
            changes[operator.id] = (operator.replicas, new)
    return changes


def _shares(replicas: Replicas) -> dict[tuple[str, int], float]:
    shares: dict[tuple[str, int], float] = {}
    for part in replicas:
        shares[part.node, part.core] = round(shares.get((part.node, part.core), 0.0) + part.fraction, 12)
    return shares


def duration_s(deployment: Deployment, step: MigrationStep) -> float:
    """Seconds that the state travels: its bytes over the slowest link between an old and a new node, and its delay.

    Without a link, or a link without a limit, `DEFAULT_BANDWIDTH_BYTES_S` counts. Another core of the same node, an
    operator without state and one that is new need no time.
    """
    state_bytes = step.operator.state_bytes or 0.0
    if not step.old or state_bytes <= 0.0:
        return 0.0
    links = {(link.source, link.target): link for link in deployment.links}
    old = {part.node for part in step.old}
    longest = 0.0
    for part in step.new:
        if part.node in old:
            continue
        for node in old:
            link = links.get((node, part.node))
            bandwidth = (link.bandwidth_bytes_s if link else None) or DEFAULT_BANDWIDTH_BYTES_S
            longest = max(longest, state_bytes * part.fraction / bandwidth + (link.delay_s if link else 0.0))
    return longest


class _Cores:
    """Loads of the cores while moves are made one after the other; links are left out."""

    def __init__(self, coarse: Deployment, goal: Goal) -> None:
        self.deployment, self.goal = coarse, goal
        servers = [server for server in coarse.servers if server.node is not None]
        self.names = [server.name for server in servers]
        self.index = {(coarse.nodes[s.node or 0].id, s.core): i for i, s in enumerate(servers)}
        stand_in = (Replica(coarse.nodes[0].id),)
        filled = coarse.with_placement({op.id: stand_in for op in coarse.operators if not op.replicas})
        self.series = burdened_series(filled).load
        self.budget = np.ascontiguousarray(coarse.capacities.T * coarse.subinterval_s)[: len(servers)]
        self.width_s = coarse.subinterval_s
        self.load = np.zeros((len(servers), coarse.subintervals))
        self.homes = {operator.id: operator.replicas for operator in coarse.operators}
        for operator in coarse.operators:
            for core, share in self.delta(operator.id, (), operator.replicas).items():
                self.load[core] += share * self.row(operator.id)
        self.worst_s = np.array([self._worst(self.load[i], i) for i in range(len(servers))])
        self.memory = {name: entry.memory_bytes for name, entry in memory_by_node(coarse).items()}
        self.held = {name: entry.held_bytes for name, entry in memory_by_node(coarse).items()}
        self.need = {operator.id: state_need_bytes(operator) or 0.0 for operator in coarse.operators}
        self.apart: dict[str, set[str]] = {}
        for group in coarse.constraints.apart:
            for name in group:
                self.apart.setdefault(name, set()).update(set(group) - {name})

    def _worst(self, load: FloatArray, core: int) -> float:
        return float(worst_of(np.maximum(load, 0.0), self.budget[core], self.width_s))

    def row(self, name: str) -> FloatArray:
        """Load of an operator as a whole."""
        return np.asarray(self.series[self.deployment.operator_index[name]])

    def delta(self, name: str, old: Replicas, new: Replicas) -> dict[int, float]:
        """Share of the operator that each core gets (or loses)."""
        shares: dict[int, float] = {}
        for parts, sign in ((old, -1.0), (new, 1.0)):
            for part in parts:
                core = self.index[part.node, part.core]
                shares[core] = shares.get(core, 0.0) + sign * part.fraction
        return {core: share for core, share in shares.items() if share}

    def shares_of_nodes(self, parts: Replicas) -> dict[str, float]:
        """Share of an operator that each node holds."""
        shares: dict[str, float] = {}
        for part in parts:
            shares[part.node] = shares.get(part.node, 0.0) + part.fraction
        return shares

    def over_while_moving(self, name: str, old: Replicas, new: Replicas) -> dict[str, float]:
        """Nodes that a move takes over their memory while old and new places both hold its state, and by how much."""
        before, over = self.shares_of_nodes(old), {}
        for node, share in self.shares_of_nodes(new).items():
            more = self.need[name] * max(0.0, share - before.get(node, 0.0))
            memory = self.memory[node]
            if more > 0.0 and memory is not None and self.held[node] + more > memory * (1.0 + MEMORY_SLACK):
                over[node] = self.held[node] + more - memory
        return over

    def after(self, name: str, old: Replicas, new: Replicas) -> tuple[int, float, float]:
        """Badness of a move: conflicts of anti-affinity and memory, then the largest Mace, and the sum of squares."""
        row, worst = self.row(name), self.worst_s.copy()
        for core, share in self.delta(name, old, new).items():
            worst[core] = self._worst(self.load[core] + share * row, core)
        nodes = {part.node for part in new}
        conflicts = sum(
            bool(nodes & {part.node for part in self.homes.get(other, ())}) for other in self.apart.get(name, ())
        )
        conflicts += len(self.over_while_moving(name, old, new))
        return conflicts, float(worst.max(initial=0.0)), float((worst**2).sum())

    def apply(self, name: str, old: Replicas, new: Replicas) -> None:
        row = self.row(name)
        for core, share in self.delta(name, old, new).items():
            self.load[core] += share * row
            self.worst_s[core] = self._worst(self.load[core], core)
        for parts, sign in ((old, -1.0), (new, 1.0)):
            for node, share in self.shares_of_nodes(parts).items():
                self.held[node] += sign * share * self.need[name]
        self.homes[name] = new


def order_moves(coarse: Deployment, goal: Goal, changes: dict[str, tuple[Replicas, Replicas]]) -> list[MigrationStep]:
    """Steps in an order in which no intermediate placement is worse than it need be.

    Each step is the one after which the largest Mace of a core is least (then the sum of squares), of those off the
    core that is worst at that moment and some others. One that would put operators on a node that must stay apart
    waits for the one that is in its way, and so does one whose state has no room beside what is still there; where they
    are in each other's way, there is no other order, and the step says by how much it is over.
    """
    cores = _Cores(coarse, goal)
    left = dict(changes)
    steps = []
    while left:
        name = min(_next(cores, left), key=lambda name: cores.after(name, *left[name]))
        if cores.after(name, *left[name])[0] and len(left) > _LOOKED_AT:
            name = min(left, key=lambda name: cores.after(name, *left[name]))
        old, new = left.pop(name)
        before = cores.worst_s.copy()
        relief = _relief(cores, name, old, new)
        over = tuple(cores.over_while_moving(name, old, new).items())
        cores.apply(name, old, new)
        operator = coarse.operators[coarse.operator_index[name]]
        effects = _effects(cores, before, relief, cores.delta(name, old, new))
        steps.append(MigrationStep(operator, old, new, float(cores.worst_s.max(initial=0.0)), effects, over))
    return steps


def _next(cores: _Cores, left: dict[str, tuple[Replicas, Replicas]]) -> list[str]:
    """Moves to compare: those that relieve the worst core, then as they are listed."""
    if len(left) <= _LOOKED_AT:
        return list(left)
    worst = int(cores.worst_s.argmax())
    relieving = [name for name, (old, _) in left.items() if any(cores.index[p.node, p.core] == worst for p in old)]
    return list(dict.fromkeys([*relieving[:_LOOKED_AT], *list(left)[:_LOOKED_AT]]))[:_LOOKED_AT]


def _relief(cores: _Cores, name: str, old: Replicas, new: Replicas) -> tuple[int, float] | None:
    """The core that gains most, and the share of its load that goes; None for an operator that had no place."""
    gone = {core: -share for core, share in cores.delta(name, old, new).items() if share < 0.0}
    row = cores.row(name)
    shares = {
        core: share * float(row.sum()) / float(cores.load[core].sum())
        for core, share in gone.items()
        if cores.load[core].sum() > 0.0
    }
    return max(shares.items(), key=lambda item: (cores.worst_s[item[0]], item[1]), default=None)


def _effects(
    cores: _Cores, before: FloatArray, relief: tuple[int, float] | None, delta: Mapping[int, float]
) -> MoveEffects:
    """The load taken away, the Mace of the core relieved most, and the load of the core joined."""
    gone = [core for core, share in delta.items() if share < 0.0]
    fallen = max(gone, key=lambda core: before[core] - cores.worst_s[core], default=None)
    if fallen is not None and before[fallen] - cores.worst_s[fallen] <= 1e-6:
        fallen = None
    peaks = {core: _peak(cores, core) for core, share in delta.items() if share > 0.0}
    joined = max(peaks, key=lambda core: peaks[core], default=None)
    return MoveEffects(
        None if relief is None else (cores.names[relief[0]], relief[1]),
        None if fallen is None else (cores.names[fallen], float(before[fallen]), float(cores.worst_s[fallen])),
        None if joined is None else (cores.names[joined], peaks[joined]),
    )


def _peak(cores: _Cores, core: int) -> float:
    """Largest load of a core as a share of its capacity."""
    return float((cores.load[core] / cores.budget[core].mean()).max())


@dataclass(frozen=True)
class QueryDelay:
    """Delay of a query by moves: its largest extra latency, and how long its latency is over its objective for them.

    `late_s` is None where Flow did not follow a move, 0 without an objective.
    """

    extra_s: float
    late_s: float | None

    def joined(self, later: QueryDelay) -> QueryDelay:
        """That of two moves made one after the other."""
        unknown = self.late_s is None or later.late_s is None
        return QueryDelay(
            max(self.extra_s, later.extra_s), None if unknown else (self.late_s or 0.0) + (later.late_s or 0.0)
        )


@dataclass(eq=False)
class MigrationPauses:
    """Latencies of the pauses of moves made one after the other, starting from `deployment` as it is.

    `delays` are those of the moves until now, by query.
    """

    deployment: Deployment
    runs: int = 0
    delays: dict[str, QueryDelay] = field(default_factory=dict)

    def __call__(self, n: int, step: MigrationStep, lasts_s: float) -> tuple[float, str | None]:
        """Extra latency in seconds of the `n`-th move, and the query it hits most."""
        self.deployment = self.deployment.with_placement({step.operator.id: step.new})
        if lasts_s <= 0.0:
            return 0.0, None
        delays = self._delays_of(step, lasts_s)
        for query, delay in delays.items():
            self.delays[query] = self.delays[query].joined(delay) if query in self.delays else delay
        worst = max(delays, key=lambda query: delays[query].extra_s, default=None)
        return (0.0, None) if worst is None else (delays[worst].extra_s, worst)

    def _delays_of(self, step: MigrationStep, lasts_s: float) -> dict[str, QueryDelay]:
        near, query = self._near(step), step.operator.query
        if near is None or self.runs >= _MAX_RUNS:
            return {} if query is None else {query: QueryDelay(lasts_s, None)}
        self.runs += 1
        bounds_s = {objective.query: objective.bound_s for objective in self.deployment.objectives}
        return _pause_delays(near, step.operator.id, lasts_s, bounds_s)

    def _near(self, step: MigrationStep) -> Deployment | None:
        """Queries on the cores the operator comes to, and what they read; None if those are too many."""
        whole = running_part(self.deployment)
        if step.operator.id not in whole.operator_index:
            return None
        cores = {(part.node, part.core) for part in step.new}
        kept = {op.id for op in whole.operators if any((part.node, part.core) in cores for part in op.replicas)} | {
            step.operator.id
        }
        queries = {op.query for op in whole.operators if op.id in kept and op.query}
        kept |= {op.id for op in whole.operators if op.query in queries}
        todo = list(kept)
        while todo:
            for entry in whole.operators[whole.operator_index[todo.pop()]].inputs:
                if entry.source in whole.operator_index and entry.source not in kept:
                    kept.add(entry.source)
                    todo.append(entry.source)
        if len(kept) > _MAX_OPERATORS:
            return None
        return replace(
            whole,
            operators=tuple(op for op in whole.operators if op.id in kept),
            objectives=(),
            priorities={},
            constraints=Constraints(),
            plans={},
        )


def _pause_delays(near: Deployment, name: str, lasts_s: float, bounds_s: Mapping[str, float]) -> dict[str, QueryDelay]:
    """Delays by a pause, interpolated between pauses of whole slices; queries that it does not delay are left out."""
    slices = lasts_s / near.subinterval_s
    below, above = math.floor(slices), math.ceil(slices)
    begins, window = _window(near.without_backlogs(), name, above)
    base = _gated(window, name, begins, 0)

    def delays(pause: int) -> dict[str, FloatArray]:
        paused = _gated(window, name, begins, pause) if pause else base
        return {
            query: np.array(_extra(base[query], paused[query], bounds_s.get(query), window.subinterval_s))
            for query in base
        }

    high = delays(above)
    low = high if below == above else delays(below)
    between = {query: low[query] + (high[query] - low[query]) * (slices - below) for query in base}
    return {query: QueryDelay(float(e), float(late)) for query, (e, late) in between.items() if e > 0.0}


def _extra(base: FloatArray, paused: FloatArray, bound_s: float | None, width_s: float) -> tuple[float, float]:
    """Largest extra latency of a query, and how long it is over its bound and would not be without the pause."""
    late = 0 if bound_s is None else int(((paused > bound_s) & (base <= bound_s)).sum())
    return float((paused - base).max(initial=0.0)), late * width_s


def _window(near: Deployment, name: str, pause: int) -> tuple[int, Deployment]:
    """Slices around the time at which most work arrives for the operator during a pause, and where it begins there."""
    work = loads_of(near).operator(np.array([near.operator_index[name]])).load[0]
    running = np.concatenate([[0.0], np.cumsum(work)])
    length = min(pause, len(work))
    begins = int((running[length:] - running[:-length]).argmax())
    first, last = max(0, begins - _LEAD), begins + pause + _TAIL

    def cut(series: FloatArray, fill: float) -> FloatArray:
        part = series[first:last]
        return frozen_array(np.concatenate([part, np.full(last - first - len(part), fill)]))

    return begins - first, replace(
        near,
        subintervals=last - first,
        sources=tuple(replace(source, arrivals=cut(source.arrivals, 0.0)) for source in near.sources),
        nodes=tuple(
            node
            if node.capacity_series_cps is None
            else replace(node, capacity_series_cps=cut(node.capacity_series_cps, float(node.capacity_series_cps[-1])))
            for node in near.nodes
        ),
    )


def _gated(window: Deployment, name: str, begins: int, pause: int) -> dict[str, FloatArray]:
    """Latency of every query with a gate before the operator that is shut for `pause` slices."""
    operator = window.operators[window.operator_index[name]]
    open_cps = np.full(window.subintervals, 1e30)
    open_cps[begins : begins + pause] = 0.0
    gate = Node(_GATE, capacity_series_cps=frozen_array(open_cps))
    size = {op.id: op.bytes_per_event for op in window.operators}
    gates = tuple(
        Operator(
            f"{_GATE}{k}",
            (Replica(_GATE),),
            (Input(entry.source, 1.0, 1.0),),
            bytes_per_event=size.get(entry.source, 0.0),
            query=operator.query,
        )
        for k, entry in enumerate(operator.inputs)
    )
    inputs = tuple(replace(entry, source=gates[k].id) for k, entry in enumerate(operator.inputs))
    # Before the gate there is the way into the operator's node: the same links, to the gate.
    into = operator.replicas[0].node
    links = tuple(replace(link, target=_GATE) for link in window.links if link.target == into)
    gated = replace(
        window,
        nodes=(*window.nodes, gate),
        links=(*window.links, *links),
        operators=(*(replace(op, inputs=inputs) if op.id == name else op for op in window.operators), *gates),
    )
    return flow(gated, by_input=True).by_query
