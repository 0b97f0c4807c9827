"""Bounds that no placement beats, and proofs that constraints cannot be met."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_bipartite_matching

from engine.arrays import FloatArray, IntArray
from engine.compiler import compiled
from engine.errors import Fault, InfeasibleError
from engine.placement.local_search.state import BoolArray, SearchArrays, scan
from engine.placement.problem import PlacementProblem
from engine.words import counted, size_words

__all__ = ["Bound", "feasible_cores", "lower_bound", "refuse_impossible"]

# Pairs of the largest items are tried on clusters of at most this many cores.
_PAIRED_CORES = 100
# Rounding must not lift a bound above what it bounds.
_SAFE = 1.0 - 1e-12

# Steps of the exhaustive search after which it is given up, and looks at an item of all its steps.
_STEPS, _LOOKS = 200_000, 4_000_000


@dataclass(frozen=True)
class Bound:
    """Lower bound of any placement in (weighted) seconds, and its origin."""

    value_s: float
    kind: str


def lower_bound(problem: PlacementProblem, fixed: SearchArrays) -> Bound:
    """The highest of the bounds known; the first of the list where two are equal.

    Returns
    -------
    Bound
        ``kind`` is "largest operator", "fused", "pigeonhole", "base load", or "none" for a problem without items.
    """
    if not problem.items:
        return Bound(0.0, "none")
    least = np.broadcast_to(fixed.empty.min(axis=0), (1, fixed.empty.shape[1]))
    values = {
        "largest operator": _largest_item(fixed),
        "fused": _fused(problem, fixed),
        "pigeonhole": _pigeonhole(problem, fixed, least[0]) if problem.cores <= _PAIRED_CORES else 0.0,
        "base load": _base(problem, fixed),
    }
    kind = max(values, key=lambda name: values[name])
    return Bound(values[kind] * problem.width_s * _SAFE, kind)


def _largest_item(fixed: SearchArrays) -> float:
    weight = fixed.weight if len(fixed.weight) else np.ones(len(fixed.origin))
    order = np.argsort(-fixed.most, kind="stable")
    kinds: dict[bytes, int] = {}
    rows = zip(fixed.rates, fixed.empty, strict=True)
    alike = np.array([kinds.setdefault(rates.tobytes() + row.tobytes(), len(kinds)) for rates, row in rows])
    sizes = -fixed.load[:-1].max(axis=1) * weight
    return _alone(
        fixed.load,
        fixed.empty,
        fixed.rates,
        fixed.done,
        fixed.most,
        fixed.allowed,
        weight,
        order,
        alike,
        np.argsort(sizes, kind="stable"),
    )


@compiled
def _alone(
    load: FloatArray,
    empty: FloatArray,
    rates: FloatArray,
    done: FloatArray,
    most: FloatArray,
    allowed: BoolArray,
    weight: FloatArray,
    order: IntArray,
    alike: IntArray,
    items: IntArray,
) -> float:
    """Largest over the items of the least cost on any core it may use; cores alike are tried once."""
    highest = 0.0
    none = len(load) - 1
    tried = np.full(len(order), -1)
    for item in items:
        if weight[item] == 0.0:
            continue
        least = np.inf
        for core in order:
            if not allowed[item, core] or tried[alike[core]] == item:
                continue
            tried[alike[core]] = item
            cost, _, _ = scan(
                empty[core], load[item], load[none], rates[core], done[core], most[core], least / weight[item]
            )
            least = min(least, cost * weight[item])
            if least <= highest:
                break
        highest = max(highest, least)
    return highest


def _fused(problem: PlacementProblem, fixed: SearchArrays) -> float:
    """All cores as one server; with weights, for the items of each weight or more."""
    rates = fixed.rates.sum(axis=0, keepdims=True)
    done = np.cumsum(rates, axis=1)
    spare = -np.broadcast_to(problem.budget, fixed.empty.shape).sum(axis=0)
    zero = np.zeros_like(spare)
    if problem.weight is None:
        base = zero if problem.base is None else problem.base.sum(axis=0)
        total = problem.load.sum(axis=0) + base
        return scan(spare, total, zero, rates[0], done[0], float(rates.max()), np.inf)[0]
    # A core without items costs nothing, whatever its base load: only what the items bring is counted.
    order = np.argsort(-problem.weight, kind="stable")
    steps = np.flatnonzero(np.diff(problem.weight[order], append=-1.0))
    highest = 0.0
    for step in steps[:: -(-len(steps) // 64)]:
        total = problem.load[order[: step + 1]].sum(axis=0)
        alone = scan(spare, total, zero, rates[0], done[0], float(rates.max()), np.inf)[0]
        highest = max(highest, alone * float(problem.weight[order[step]]))
    return highest


def _pigeonhole(problem: PlacementProblem, fixed: SearchArrays, empty: FloatArray) -> float:
    """Two of any cores + 1 items share a core, at best the ideal one: the most budget and least load of all."""
    if problem.items <= problem.cores:
        return 0.0
    rates = fixed.rates.max(axis=0)
    weight = fixed.weight if len(fixed.weight) else np.ones(problem.items)
    sizes = fixed.load[:-1].max(axis=1) * weight
    largest = np.argsort(-sizes, kind="stable")[: problem.cores + 1]
    return _least_pair(fixed.load, empty.copy(), rates, np.cumsum(rates), weight, largest)


@compiled
def _least_pair(
    load: FloatArray, empty: FloatArray, rates: FloatArray, done: FloatArray, weight: FloatArray, items: IntArray
) -> float:
    least = np.inf
    none = len(load) - 1
    for a in range(len(items)):
        row = empty + load[items[a]]
        for b in range(a):
            heaviest = max(weight[items[a]], weight[items[b]])
            if heaviest == 0.0:
                return 0.0
            cost, _, _ = scan(row, load[items[b]], load[none], rates, done, rates.max(), least / heaviest)
            least = min(least, cost * heaviest)
            if least == 0.0:
                return 0.0
    return least


def _base(problem: PlacementProblem, fixed: SearchArrays) -> float:
    if problem.base is None or problem.weight is not None:
        return 0.0
    zero = np.zeros(fixed.empty.shape[1])
    return max(
        scan(row, zero, zero, rates, done, most, np.inf)[0]
        for row, rates, done, most in zip(fixed.empty, fixed.rates, fixed.done, fixed.most, strict=True)
    )


def refuse_impossible(problem: PlacementProblem) -> None:
    """Raise InfeasibleError with every item, group or count that makes a placement impossible."""
    if problem.items and not problem.cores:
        raise InfeasibleError("there is no core", [Fault("cores", "there are 0 cores; allowed: 1 or more")])
    faults = [
        Fault(f"items[{item}]", f"item {item} is allowed on no core")
        for item in np.flatnonzero(~problem.allowed.any(axis=1))
    ]
    faults += _over_memory(problem)
    if not faults:
        faults = [fault for n, group in enumerate(problem.apart) for fault in _crowded(problem, n, sorted(set(group)))]
        placed = np.flatnonzero(problem.origin >= 0)
        forced = placed[~problem.allowed[placed, problem.origin[placed]]]
        if problem.max_moves is not None and len(forced) > problem.max_moves:
            what = f"{len(forced)} items must leave where they are ({_listed(forced)})"
            faults.append(Fault("max_moves", f"{what}, but at most {problem.max_moves} may move"))
    if faults:
        raise InfeasibleError(f"no placement is possible: {faults[0].message}", faults)


def _over_memory(problem: PlacementProblem) -> list[Fault]:
    """Items whose state fits no node they may use, and state that all nodes together have no memory for."""
    if not problem.is_limited:
        return []
    room = np.where(problem.allowed, problem.rooms[problem.core_node], -1.0).max(axis=1, initial=-1.0)
    large = np.flatnonzero((problem.needs > 0.0) & (room >= 0.0) & (problem.needs > room))
    faults = [
        Fault(
            f"items[{item}]",
            f"item {item} takes {size_words(problem.needs[item])} of memory, more than any node it may use has for it",
        )
        for item in large
    ]
    nodes = np.unique(problem.core_node)
    total, together = float(problem.needs.sum()), float(problem.rooms[nodes].sum())
    if not faults and total > together:
        message = f"all items take {size_words(total)} of memory, and all nodes together have {size_words(together)}"
        faults.append(Fault("room", message))
    return faults


def _crowded(problem: PlacementProblem, number: int, group: list[int]) -> list[Fault]:
    """Hall's condition: every item of a group needs a node of its own."""
    if len(group) < 2:
        return []
    open_to = csr_array(_nodes_allowed(problem, group).astype(np.int8))
    if (maximum_bipartite_matching(open_to, perm_type="column") >= 0).all():
        return []
    nodes = int(_nodes_allowed(problem, group).any(axis=0).sum())
    what = f"{len(group)} items ({_listed(group)}) must be on different nodes"
    return [Fault(f"apart[{number}]", f"{what}, but the {nodes} nodes they may use do not give each its own")]


def _nodes_allowed(problem: PlacementProblem, items: list[int]) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Nodes with a core on which each item is allowed, shape (items, nodes)."""
    nodes = np.zeros((int(problem.core_node.max()) + 1, len(items)), dtype=bool)
    np.logical_or.at(nodes, problem.core_node, problem.allowed[items].T)
    return nodes.T


def _listed(items: list[int] | IntArray) -> str:
    names = ", ".join(str(item) for item in items[:10])
    return names if len(items) <= 10 else f"{names} and {len(items) - 10} more"


def feasible_cores(problem: PlacementProblem) -> IntArray:
    """Cores of all items that groups apart, memory or moves bind, with as few moves as possible; -1 for the others.

    Raises
    ------
    InfeasibleError
        If the constraints exclude each other, or if nothing was found within the steps allowed.
    """
    core = problem.origin.copy()
    placed = np.flatnonzero(core >= 0)
    core[placed[~problem.allowed[placed, core[placed]]]] = -1
    for items in _components(problem):
        core[items] = _Component(problem, items).solve()
    away = int(((problem.origin >= 0) & (core != problem.origin)).sum())
    if problem.max_moves is not None and away > problem.max_moves:
        message = f"at least {away} items have to move to respect the constraints, but at most {problem.max_moves} may"
        raise InfeasibleError(f"no placement is possible: {message}", [Fault("max_moves", message)])
    return core


def _components(problem: PlacementProblem) -> list[list[int]]:
    """Items that share groups apart, directly or by others; where memory is short, all that take some are a group."""
    parts: list[set[int]] = []
    sharing = tuple(np.flatnonzero(problem.needs > 0.0).tolist()) if problem.is_limited else ()
    for group in (*problem.apart, sharing):
        joined, others = set(group), []
        for part in parts:
            if part & joined:
                joined |= part
            else:
                others.append(part)
        parts = [*others, joined]
    return [sorted(part) for part in parts if part]


class _Component:
    """Exhaustive search over the nodes of some items, those with the fewest choices first, with more and more moves."""

    def __init__(self, problem: PlacementProblem, items: list[int]) -> None:
        self.problem, self.items, self.steps = problem, items, 0
        nodes = dict(zip(items, _nodes_allowed(problem, items), strict=True))
        self.options = {item: set(np.flatnonzero(nodes[item]).tolist()) for item in items}
        self.fellows: dict[int, set[int]] = {item: set() for item in items}
        self.room = dict(enumerate(problem.rooms.tolist()))
        self.max_steps = min(_STEPS, _LOOKS // len(items))
        for group in problem.apart:
            for item in set(group) & set(items):
                self.fellows[item] |= set(group) - {item}
        self.home = {item: self._home(item) for item in items}

    def _home(self, item: int) -> int | None:
        """Node on which an item may stay where it is."""
        origin = self.problem.origin[item]
        if origin < 0 or not self.problem.allowed[item, origin]:
            return None
        return int(self.problem.core_node[origin])

    def solve(self) -> list[int]:
        movable = [item for item in self.items if self.home[item] is not None]
        most = len(movable) if self.problem.max_moves is None else min(len(movable), self.problem.max_moves)
        for moves in range(most + 1) if self.problem.max_moves is not None else [most]:
            nodes = self._place({}, moves)
            if nodes is not None:
                return [self._core(item, nodes[item]) for item in self.items]
        names = _listed(self.items)
        if self.problem.is_limited:
            message = (
                f"no placement was found that fits the memory of the nodes and keeps items {names} apart as demanded"
            )
        elif self.steps > self.max_steps:
            message = f"no placement was found that keeps apart the items {names}"
        elif self.problem.max_moves is None:
            message = f"items {names} cannot be kept apart as demanded"
        else:
            message = f"items {names} cannot be kept apart as demanded with {counted(most, 'move')}"
        raise InfeasibleError(message, [Fault("apart", message)])

    def _place(self, nodes: dict[int, int], moves: int) -> dict[int, int] | None:
        """Depth first without recursion; each level keeps the choices it has not tried."""
        levels: list[tuple[int, list[int]]] = []
        while len(nodes) < len(self.items):
            self.steps += 1
            if self.steps > self.max_steps:
                return None
            levels.append(self._choices(nodes, moves))
            while not levels[-1][1]:
                levels.pop()
                if not levels:
                    return None
                self._release(nodes, levels[-1][0])
            item, choices = levels[-1]
            nodes[item] = choices.pop()
            self.room[nodes[item]] -= self.problem.needs[item]
        return nodes

    def _release(self, nodes: dict[int, int], item: int) -> None:
        self.room[nodes.pop(item)] += self.problem.needs[item]

    def _choices(self, nodes: dict[int, int], moves: int) -> tuple[int, list[int]]:
        """The item with the fewest nodes left, and these nodes, its own last (it is tried first)."""
        used = sum(1 for item, node in nodes.items() if self.home[item] is not None and self.home[item] != node)
        best: tuple[int, list[int]] = (-1, [])
        for item in self.items:
            if item in nodes:
                continue
            left = self.options[item] - {nodes[other] for other in self.fellows[item] if other in nodes}
            if self.home[item] is not None and used >= moves:
                left &= {self.home[item]}
            need = self.problem.needs[item]
            if need > 0.0:
                left = {node for node in left if need <= self.room[node]}
            if best[0] < 0 or (len(left), -need) < (len(best[1]), -self.problem.needs[best[0]]):
                best = (item, sorted(left, key=lambda node: (node == self.home[item], -node)))
        return best

    def _core(self, item: int, node: int) -> int:
        origin = int(self.problem.origin[item])
        if node == self.home[item]:
            return origin
        return int(np.flatnonzero(self.problem.allowed[item] & (self.problem.core_node == node))[0])
