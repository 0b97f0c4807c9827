"""Candidates for a first placement: those the three rules of section V allow, with operators pinned to hosts.

1. Operators may share a host.
2. Data go to hosts of the same or a stronger bin only.
3. Data never return to a host: the graph of hosts, in which every stream between two hosts is an edge, has no cycle.
   The paper states it per path; by graph it also holds for paths that meet in a join.

Beside them, state that is known has to fit the memory that a host is known to have left (`StateMemory`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.arrays import FloatArray, IntArray
from engine.document.memory import MEMORY_SLACK
from engine.errors import DocumentError, Fault, InfeasibleError
from engine.query_graph.graph import HostNode, QueryGraph

__all__ = [
    "HEURISTICS",
    "MAX_OPERATORS",
    "CandidateSet",
    "StateMemory",
    "enumerate_placements",
    "find_candidates",
    "heuristic_placements",
]

HEURISTICS = ("strongest", "spread")

#: Operators of a query, sources and sinks counted: the bits of a word, in which candidates keep what reaches what.
MAX_OPERATORS = 64

BoolArray = npt.NDArray[np.bool_]

_STRENGTHS = ("weak", "medium", "strong")
_MAX_PARTIAL = 4000  # partial placements up to which all are enumerated; beyond, drawing is faster
_RULE_THREE = 4  # times as many that keep rule 2 alone: then those that keep both are too many as well, about
_TRIES = 8  # draws of a host for an operator before a placement is given up
_ROUNDS = 4  # of drawing, until there are as many distinct placements as asked for


@dataclass(frozen=True)
class CandidateSet:
    """Distinct placements that keep the rules and the pins.

    Attributes
    ----------
    placements
        int64 (k, n): host of each operator.
    heuristics
        Rows of the placements of `HEURISTICS`, without those that pins rule out.
    exhaustive
        True if these are all there are.
    """

    placements: IntArray
    heuristics: Mapping[str, int]
    exhaustive: bool


@dataclass(frozen=True, eq=False)
class StateMemory:
    """Bytes of state of each operator (0: nobody knows) and bytes left on each host (infinite: nobody knows)."""

    need: FloatArray
    room: FloatArray

    @property
    def is_limited(self) -> bool:
        """Whether memory can be short anywhere."""
        return bool(self.need.any()) and bool(np.isfinite(self.room).any())


class PartialPlacements:
    """k placements that grow operator by operator in topological order, with what they reach in the graph of hosts.

    A host is known by the first operator on it (its slot); reach[r, s] has bit t if data of slot s get to slot t.
    """

    def __init__(self, graph: QueryGraph, k: int, memory: StateMemory | None = None) -> None:
        n = len(graph.operators)
        self._memory = memory if memory is not None and memory.is_limited else None
        if n > MAX_OPERATORS:
            raise DocumentError([Fault("operators", f"a query has {n} operators; allowed: {MAX_OPERATORS}")], "query")
        self._graph = graph
        self._done: list[int] = []
        self.hosts = np.full((k, n), -1, dtype=np.int64)
        self._slots = np.zeros((k, n), dtype=np.int64)
        self._reach = np.zeros((k, n), dtype=np.uint64)

    def keeps(self, i: int, hosts: IntArray) -> BoolArray:
        """Whether operator i may go to these hosts, one per row: no cycle of hosts, and room for its state."""
        return self._keeps_order(i, hosts) & self._has_room(i, hosts)

    def _has_room(self, i: int, hosts: IntArray) -> BoolArray:
        if self._memory is None or self._memory.need[i] <= 0.0:
            return np.ones(len(hosts), dtype=bool)
        held = (self.hosts == hosts[:, None]) @ self._memory.need
        return np.asarray(held + self._memory.need[i] <= self._memory.room[hosts] * (1.0 + MEMORY_SLACK))

    def _keeps_order(self, i: int, hosts: IntArray) -> BoolArray:
        """Whether operator i may go to these hosts, one per row, without a cycle of hosts."""
        rows, slot = np.arange(len(hosts)), self._slot(i, hosts)
        kept = np.ones(len(hosts), dtype=bool)
        for a in self._graph.inputs[i]:
            kept &= (self._reach[rows, slot] & _bit(self._slots[:, a])) == 0
        return kept

    def add(self, i: int, hosts: IntArray) -> None:
        """Put operator i on these hosts, one per row."""
        rows, slot = np.arange(len(hosts)), self._slot(i, hosts)
        self.hosts[:, i], self._slots[:, i] = hosts, slot
        self._done.append(i)
        for a in self._graph.inputs[i]:
            sender = self._slots[:, a]
            gain = np.where(sender == slot, np.uint64(0), self._reach[rows, slot] | _bit(slot))
            senders = (self._reach & _bit(sender)[:, None]) != 0
            senders[rows, sender] = True
            self._reach |= np.where(senders, gain[:, None], np.uint64(0))

    def keep(self, rows: IntArray) -> None:
        """Keep these rows, which may repeat."""
        self.hosts, self._slots, self._reach = self.hosts[rows], self._slots[rows], self._reach[rows]

    def _slot(self, i: int, hosts: IntArray) -> IntArray:
        if not self._done:
            return np.full(len(hosts), i, dtype=np.int64)
        same = self.hosts[:, self._done] == hosts[:, None]
        first = np.asarray(self._done)[same.argmax(axis=1)]
        return np.where(same.any(axis=1), first, i)


def _bit(positions: IntArray) -> npt.NDArray[np.uint64]:
    return np.left_shift(np.uint64(1), positions.astype(np.uint64))


class HostRanges:
    """Hosts by strength, and which of them rule 2 leaves an operator, given the pins before and behind it."""

    def __init__(self, graph: QueryGraph, hosts: Sequence[HostNode], pins: Mapping[int, int]) -> None:
        self.strengths = np.array([host.strength for host in hosts])
        self.by_strength = np.argsort(self.strengths, kind="stable")
        self._bounds = np.searchsorted(self.strengths[self.by_strength], range(len(_STRENGTHS) + 1))
        self.pins = pins
        self._most = [len(_STRENGTHS) - 1] * len(graph.operators)
        for i in reversed(graph.order):
            self._most[i] = min([self._most[b] for b in graph.readers[i]], default=self._most[i])
            if i in pins:
                self._most[i] = min(self._most[i], int(self.strengths[pins[i]]))
        self._graph = graph

    def least(self, i: int, placed: IntArray) -> IntArray:
        """Weakest bin that operator i may be in, per row of `placed` (k, n)."""
        least = np.zeros(len(placed), dtype=np.int64)
        for a in self._graph.inputs[i]:
            np.maximum(least, self.strengths[placed[:, a]], out=least)
        return least

    def allows(self, i: int, least: IntArray, hosts: IntArray) -> BoolArray:
        """Whether rule 2 and the pin leave operator i these hosts, where it may not be below the bins `least`."""
        strengths = self.strengths[hosts]
        allowed: BoolArray = (strengths >= least) & (strengths <= self._most[i])
        return allowed & (hosts == self.pins[i]) if i in self.pins else allowed

    def draw(self, i: int, least: IntArray, rng: np.random.Generator) -> IntArray:
        """A random host for operator i in each row: its pin, or any that rule 2 leaves."""
        if i in self.pins:
            return np.full(len(least), self.pins[i], dtype=np.int64)
        low, high = self._bounds[least], self._bounds[self._most[i] + 1]
        at = low + (rng.random(len(least)) * np.maximum(high - low, 0)).astype(np.int64)
        return self.by_strength[np.minimum(at, len(self.by_strength) - 1)]


def enumerate_placements(
    graph: QueryGraph,
    hosts: Sequence[HostNode],
    pins: Mapping[int, int] | None = None,
    limit: int = _MAX_PARTIAL,
    memory: StateMemory | None = None,
) -> IntArray | None:
    """All placements that keep the rules, int64 (k, n) in lexicographic order of operators in topological order.

    None if more than `limit` partial placements have to be kept on the way.

    Examples
    --------
    >>> from engine.query_graph.graph import OperatorNode
    >>> graph = QueryGraph((OperatorNode("source", 1, 1), OperatorNode("sink", 1, 1)), ((0, 1),))
    >>> weak, strong = HostNode(100, 1000, 25, 0.02, 0), HostNode(800, 32000, 6400, 0.001, 2)
    >>> enumerate_placements(graph, [weak, strong]).tolist()
    [[0, 0], [0, 1], [1, 1]]
    """
    ranges = HostRanges(graph, hosts, pins or {})
    partial = PartialPlacements(graph, 1, memory)
    for i in graph.order:
        choices = np.array([ranges.pins[i]]) if i in ranges.pins else np.arange(len(hosts))
        least = ranges.least(i, partial.hosts)[:, None]
        rows, columns = np.nonzero(ranges.allows(i, least, choices))
        if len(rows) > _RULE_THREE * limit:
            return None
        hosts_of = choices[columns]
        partial.keep(rows)
        kept = np.flatnonzero(partial.keeps(i, hosts_of))
        if len(kept) > limit:
            return None
        partial.keep(kept)
        partial.add(i, hosts_of[kept])
    return partial.hosts


def heuristic_placements(
    graph: QueryGraph,
    hosts: Sequence[HostNode],
    pins: Mapping[int, int] | None = None,
    memory: StateMemory | None = None,
) -> dict[str, tuple[int, ...]]:
    """Placements that need no model, by name; one that pins rule out is left out.

    ``strongest``: every operator on the strongest host it may be on, by bin, then cpu. ``spread``: the hosts from weak
    to strong shared out along the query, sources on the weakest.
    """
    ascending = sorted(range(len(hosts)), key=lambda j: (hosts[j].strength, hosts[j].cpu_percent))
    depth = max(graph.levels) or 1

    def strongest(i: int, j: int) -> float:
        return -j

    def spread(i: int, j: int) -> float:
        return abs(j - graph.levels[i] / depth * (len(hosts) - 1))

    placements = {}
    for name, distance in (("strongest", strongest), ("spread", spread)):
        placement = _nearest(graph, hosts, pins or {}, ascending, distance, memory)
        if placement is not None:
            placements[name] = placement
    return placements


def _nearest(
    graph: QueryGraph,
    hosts: Sequence[HostNode],
    pins: Mapping[int, int],
    ascending: Sequence[int],
    distance: Callable[[int, int], float],
    memory: StateMemory | None,
) -> tuple[int, ...] | None:
    """Each operator in turn on the allowed host (the j-th of `ascending`) of least distance; None at a dead end."""
    ranges, partial = HostRanges(graph, hosts, pins), PartialPlacements(graph, 1, memory)
    for i in graph.order:
        choices = np.array([ascending[j] for j in sorted(range(len(hosts)), key=lambda j: distance(i, j))])
        partial.keep(np.zeros(len(choices), dtype=np.int64))
        allowed = ranges.allows(i, ranges.least(i, partial.hosts), choices) & partial.keeps(i, choices)
        if not allowed.any():
            return None
        best = int(allowed.argmax())
        partial.keep(np.array([best]))
        partial.add(i, choices[[best]])
    return tuple(partial.hosts[0].tolist())


def find_candidates(
    graph: QueryGraph,
    hosts: Sequence[HostNode],
    count: int = 1000,
    pins: Mapping[int, int] | None = None,
    seed: int = 0,
    memory: StateMemory | None = None,
) -> CandidateSet:
    """Candidates for a first placement: the heuristics first, and random ones that keep the rules, `count` in all.

    The heuristics are among them at any count: where they differ, a count of 1 gives two. All candidates are taken
    where they are few. Otherwise each random one draws how much it holds operators together, so that placements on one
    host and on many occur alike.

    Raises
    ------
    DocumentError
        If the query has more than `MAX_OPERATORS` operators.
    InfeasibleError
        If no placement keeps the rules and the pins; its faults name the pins that rule each other out, or the memory
        without which there would be one.
    """
    pins = pins or {}
    rng = np.random.default_rng(seed)
    heuristics = heuristic_placements(graph, hosts, pins, memory)
    rows = [np.array(list(heuristics.values()), dtype=np.int64).reshape(-1, len(graph.operators))]
    every = enumerate_placements(graph, hosts, pins, memory=memory)
    if every is not None:
        rows.append(rng.permutation(every))
    for _ in range(_ROUNDS if every is None else 0):
        rows.append(_draw(graph, hosts, pins, count + count // 4, rng, memory))
        if len(_distinct(np.concatenate(rows))) >= count:
            break
    placements = _distinct(np.concatenate(rows))
    if not len(placements):
        if memory is not None and heuristic_placements(graph, hosts, pins):
            fault = Fault("memory", "the state of the operators has no room on the hosts that they may be on")
            raise InfeasibleError("No placement has room for the state", [fault])
        raise InfeasibleError("No placement keeps the rules and the pins", _pin_faults(graph, hosts, pins))
    places = {name: int((placements == row).all(axis=1).argmax()) for name, row in heuristics.items()}
    placements = placements[: max(count, 1 + max(places.values(), default=0))]
    return CandidateSet(placements, places, every is not None and len(placements) == len(every))


def _distinct(placements: IntArray) -> IntArray:
    """Rows without repetitions, each where it was first; rows are told apart by a random sum of 64 bits."""
    weights = np.random.default_rng(0).integers(1, 2**63, placements.shape[1], dtype=np.uint64)
    _, first = np.unique((placements.astype(np.uint64) * weights).sum(axis=1), return_index=True)
    return placements[np.sort(first)]


def _draw(
    graph: QueryGraph,
    hosts: Sequence[HostNode],
    pins: Mapping[int, int],
    count: int,
    rng: np.random.Generator,
    memory: StateMemory | None,
) -> IntArray:
    """Up to `count` random placements that keep the rules, (k, n); they may repeat."""
    ranges, partial = HostRanges(graph, hosts, pins), PartialPlacements(graph, count, memory)
    together = rng.random(count)  # chance of an operator to stay with one that it reads
    for i in graph.order:
        least = ranges.least(i, partial.hosts)
        choice = ranges.draw(i, least, rng)
        if graph.inputs[i] and i not in ranges.pins:
            beside = np.asarray(graph.inputs[i])[rng.integers(0, len(graph.inputs[i]), len(choice))]
            stays = rng.random(len(choice)) < together
            choice = np.where(stays, partial.hosts[np.arange(len(choice)), beside], choice)
        kept = ranges.allows(i, least, choice) & partial.keeps(i, choice)
        for _ in range(_TRIES):
            if kept.all():
                break
            choice = np.where(kept, choice, ranges.draw(i, least, rng))
            kept = ranges.allows(i, least, choice) & partial.keeps(i, choice)
        rows = np.flatnonzero(kept)
        partial.keep(rows)
        together = together[rows]
        partial.add(i, choice[rows])
    return partial.hosts


def _pin_faults(graph: QueryGraph, hosts: Sequence[HostNode], pins: Mapping[int, int]) -> list[Fault]:
    """Pairs of pins that rule 2 forbids; where there are none, the pins form a cycle of hosts."""
    behind: list[set[int]] = [set() for _ in graph.operators]
    for i in reversed(graph.order):
        behind[i] = {b for r in graph.readers[i] for b in (r, *behind[r])}
    faults = [
        Fault(
            f"pins[{b}]",
            f"operator {b} is pinned to a {_STRENGTHS[hosts[pins[b]].strength]} host behind operator {a} on a "
            f"{_STRENGTHS[hosts[pins[a]].strength]} one; allowed: the same bin or a stronger one",
        )
        for a in pins
        for b in sorted(behind[a] & pins.keys())
        if hosts[pins[b]].strength < hosts[pins[a]].strength
    ]
    return faults or [Fault("pins", "the pins make data return to a host; allowed: a graph of hosts without cycles")]
