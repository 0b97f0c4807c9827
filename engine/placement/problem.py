"""The pure placement problem: loads of items, budgets of cores, constraints, and costs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from engine.arrays import FloatArray, IntArray
from engine.compiler import compiled
from engine.document.memory import MEMORY_SLACK
from engine.errors import Fault
from engine.estimation.mace import drain_times
from engine.estimation.overload import hold_budget, hold_load

__all__ = [
    "BoolArray",
    "PlacementProblem",
    "add_loads",
    "core_costs",
    "excess_of",
    "faults_of",
    "held_bytes",
    "loaded_peaks",
    "value_of",
]


@compiled
def loaded_peaks(base: FloatArray, added: FloatArray, budget: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Peak excess and peak load of every server once `added` is put on it.

    Parameters
    ----------
    base : array, shape (n, d)
        Load of the servers, cycles (or bytes) per subinterval.
    added : array, shape (d,)
        The load that would join; it may be negative (a load that leaves).
    budget : array, shape (n, d) or (n, 1)
        What a server can do in a subinterval, in the same unit. Zeros are allowed in the first form.

    Returns
    -------
    excess, share : arrays, shape (n,)
        Largest cumulative excess as a multiple of the mean budget (subintervals of work left over), and largest load of
        a subinterval as a share of the mean budget.
    """
    n, d = base.shape
    excess = np.zeros(n)
    share = np.zeros(n)
    for i in range(n):
        mean = budget[i].mean()
        constant = budget.shape[1] == 1
        left, worst, peak = 0.0, 0.0, 0.0
        for p in range(d):
            load = base[i, p] + added[p]
            left = max(0.0, left + load - (budget[i, 0] if constant else budget[i, p]))
            worst = max(worst, left)
            peak = max(peak, load)
        excess[i] = worst / mean
        share[i] = peak / mean
    return excess, share


@compiled
def add_loads(total: FloatArray, load: FloatArray, assignment: IntArray) -> None:
    """Add the load of every item, (items, d), to that of its core, (cores, d)."""
    for i in range(len(assignment)):
        row, added = total[assignment[i]], load[i]
        for p in range(len(added)):
            row[p] += added[p]


@compiled
def excess_of(total: FloatArray, budget: FloatArray) -> FloatArray:
    """Cumulative excess of every core, shape (cores, d), in cycles; `budget` has a column for each p, or one."""
    excess = np.zeros(total.shape)
    constant = budget.shape[1] == 1
    for c in range(len(total)):
        left = 0.0
        for p in range(total.shape[1]):
            left = max(0.0, left + total[c, p] - budget[c, 0 if constant else p])
            excess[c, p] = left
    return excess


BoolArray = np.ndarray[tuple[int, ...], np.dtype[np.bool_]]


@dataclass(frozen=True, eq=False)
class PlacementProblem:
    """Items to be put on cores.

    Attributes
    ----------
    load : array, shape (items, d)
        Cycles per subinterval; an item is an operator or a replica.
    budget : array, shape (cores, d) or (cores, 1)
        Cycles a core can do in a subinterval. The last column holds for ever.
    core_node : array, shape (cores,)
        Node of each core.
    allowed : array, shape (items, cores)
        Where an item may be: pins, forbidden nodes, closed nodes and items that cannot move are all said here.
    apart : tuple of tuples
        Groups of items no two of which may share a node.
    start : array, shape (items,), optional
        Core of each item at present, -1 for none.
    max_moves : int, optional
        How many items that have a place may end elsewhere.
    weight : array, shape (items,), optional
        The cost of a core is its Mace times the largest weight of its items, 0 without items. Without weights it is
        its Mace.
    base : array, shape (cores, d), optional
        Load that is there and cannot move.
    width_s : float
        Length of a subinterval.
    need : array, shape (items,), optional
        Bytes of memory that each item's state takes, as far as they are known.
    room : array, shape (nodes,), optional
        Bytes that each node has for items; infinite where nobody knows. An item without a need fits everywhere.

    Raises
    ------
    ValueError
        If shapes do not fit, or a load, a budget or a weight is negative or not finite.
    """

    load: FloatArray
    budget: FloatArray
    core_node: IntArray
    allowed: BoolArray
    apart: tuple[tuple[int, ...], ...] = ()
    start: IntArray | None = None
    max_moves: int | None = None
    weight: FloatArray | None = None
    base: FloatArray | None = None
    width_s: float = 1.0
    need: FloatArray | None = None
    room: FloatArray | None = None

    def __post_init__(self) -> None:
        wrong = _wrong_shapes(self) or _wrong_values(self)
        if wrong:
            raise ValueError("; ".join(wrong))

    @property
    def items(self) -> int:
        return len(self.load)

    @property
    def cores(self) -> int:
        return len(self.budget)

    @cached_property
    def origin(self) -> IntArray:
        """Core of each item at present, shape (items,); -1 where it has none."""
        return np.full(self.items, -1) if self.start is None else np.asarray(self.start, dtype=np.int64)

    @cached_property
    def nodes(self) -> int:
        return int(self.core_node.max(initial=-1)) + 1

    @cached_property
    def needs(self) -> FloatArray:
        """Bytes of memory of each item, shape (items,); 0 where nothing is known."""
        return np.zeros(self.items) if self.need is None else np.array(self.need, dtype=np.float64)

    @cached_property
    def rooms(self) -> FloatArray:
        """Bytes of each node, shape (nodes,), with a little more for the rounding of sums."""
        if self.room is None:
            return np.full(self.nodes, np.inf)
        return np.array(self.room, dtype=np.float64) * (1.0 + 0.5 * MEMORY_SLACK)

    @property
    def is_limited(self) -> bool:
        """Whether memory can be short anywhere."""
        return bool(self.needs.any()) and bool(np.isfinite(self.rooms).any())

    def may_catch_up(self) -> bool:
        """Whether all cores together can process what comes at the end: else some never catch up."""
        came = hold_load(self.load)[:, -2].sum() + (0.0 if self.base is None else hold_load(self.base)[:, -2].sum())
        return bool(came <= hold_budget(self.budget, self.load.shape[1])[:, -2].sum())

    def held_on(self) -> PlacementProblem:
        """The problem with its closing load held on after the horizon, so that what never catches up costs most."""
        return replace(
            self,
            load=hold_load(self.load),
            budget=hold_budget(self.budget, self.load.shape[1]),
            base=None if self.base is None else hold_load(self.base),
        )

    @cached_property
    def by_need(self) -> IntArray:
        """Items, those with the most state first, then by peak load."""
        peaks = self.load.max(axis=1, initial=0.0)
        return np.lexsort((np.arange(self.items), -peaks, -self.needs))


def _wrong_shapes(problem: PlacementProblem) -> list[str]:
    if problem.load.ndim != 2 or problem.budget.ndim != 2:
        return ["load and budget have two dimensions"]
    (items, d), cores = problem.load.shape, len(problem.budget)
    wanted = {
        "budget": (problem.budget, ((cores, d), (cores, 1))),
        "core_node": (problem.core_node, ((cores,),)),
        "allowed": (problem.allowed, ((items, cores),)),
        "start": (problem.start, ((items,),)),
        "weight": (problem.weight, ((items,),)),
        "base": (problem.base, ((cores, d),)),
        "need": (problem.need, ((items,),)),
        "room": (problem.room, ((problem.nodes,),)),
    }
    return [
        f"{name} has shape {array.shape}; allowed: {' or '.join(map(str, shapes))}"
        for name, (array, shapes) in wanted.items()
        if array is not None and array.shape not in shapes
    ]


def _wrong_values(problem: PlacementProblem) -> list[str]:
    wrong = [
        f"{name} has values that are negative or not finite"
        for name in ("load", "budget", "weight", "base", "need")
        if (array := getattr(problem, name)) is not None and not ((array >= 0.0) & np.isfinite(array)).all()
    ]
    if problem.room is not None and not (problem.room >= 0.0).all():
        wrong.append("room has values that are negative or no numbers")
    if not problem.load.shape[1]:
        wrong.append("load has no subintervals")
    if (
        problem.start is not None
        and problem.items
        and not -1 <= min(problem.start) <= max(problem.start) < problem.cores
    ):
        wrong.append(f"start names cores from {min(problem.start)} to {max(problem.start)} of {problem.cores}")
    if problem.max_moves is not None and problem.max_moves < 0:
        wrong.append(f"max_moves is {problem.max_moves}; allowed: 0 or more")
    if any(not 0 <= item < problem.items for group in problem.apart for item in group):
        wrong.append("apart names an item that does not exist")
    return wrong


def core_costs(problem: PlacementProblem, assignment: IntArray) -> FloatArray:
    """Cost of every core in (weighted) seconds, shape (cores,): Mace, the time to drain, times the largest weight."""
    d = problem.load.shape[1]
    total = (
        np.zeros((problem.cores, d)) if problem.base is None else np.array(problem.base, dtype=np.float64, order="C")
    )
    add_loads(total, *_plain(problem.load, assignment))
    excess = excess_of(total, np.ascontiguousarray(problem.budget, dtype=np.float64))
    if problem.budget.shape[1] == 1:
        highest = excess.max(axis=1, initial=0.0)
        rates = problem.budget[:, 0] / problem.width_s
        with np.errstate(divide="ignore"):
            worst_s = np.divide(highest, rates, out=np.zeros(problem.cores), where=highest > 0.0)
    else:
        rates = np.ascontiguousarray(problem.budget.T) / problem.width_s
        mace_s = drain_times(np.ascontiguousarray(excess.T), rates, problem.width_s).T
        worst_s = np.where(excess > 0.0, mace_s, 0.0).max(axis=1, initial=0.0)
    if problem.weight is None:
        return np.asarray(worst_s)
    largest = np.zeros(problem.cores)
    np.maximum.at(largest, assignment, problem.weight)
    return np.asarray(np.multiply(worst_s, largest, out=np.zeros(problem.cores), where=largest > 0.0))


def _plain(load: FloatArray, assignment: IntArray) -> tuple[FloatArray, IntArray]:
    """Convert to the form that compiled code takes; copy only where the form differs."""
    return np.ascontiguousarray(load, dtype=np.float64), np.ascontiguousarray(assignment, dtype=np.int64)


def value_of(problem: PlacementProblem, assignment: IntArray) -> float:
    """Largest cost of a core, (weighted) seconds; 0 without cores."""
    return float(core_costs(problem, assignment).max(initial=0.0))


def held_bytes(problem: PlacementProblem, assignment: IntArray) -> FloatArray:
    """Bytes that the items take on every node, shape (nodes,); items without a core (-1) count nowhere."""
    placed = np.asarray(assignment) >= 0
    nodes = problem.core_node[np.asarray(assignment)[placed]]
    return np.asarray(np.bincount(nodes, problem.needs[placed], minlength=problem.nodes), dtype=np.float64)


def faults_of(problem: PlacementProblem, assignment: IntArray) -> list[Fault]:
    """Everything about a placement that the problem does not allow; empty for a good one."""
    assignment = np.asarray(assignment)
    known = (assignment >= 0) & (assignment < problem.cores)
    good = known.copy()
    good[known] = problem.allowed[np.flatnonzero(known), assignment[known]]
    faults = []
    for item in np.flatnonzero(~good).tolist():
        what = f"may not be on core {assignment[item]}" if known[item] else "has no core"
        faults.append(Fault(f"items[{item}]", f"item {item} {what}"))
    for number, group in enumerate(problem.apart):
        nodes = [problem.core_node[assignment[item]] for item in sorted(set(group))]
        if len(set(nodes)) < len(nodes):
            faults.append(Fault(f"apart[{number}]", f"items {sorted(set(group))} of a group apart share a node"))
    if problem.is_limited:
        held = held_bytes(problem, np.where(known, assignment, -1))
        for node in np.flatnonzero((held > 0.0) & (held > problem.rooms * (1.0 + 0.5 * MEMORY_SLACK))).tolist():
            message = f"items take {held[node]:g} bytes of node {node}; allowed: at most {problem.rooms[node]:g}"
            faults.append(Fault(f"room[{node}]", message))
    away = int(((problem.origin >= 0) & (assignment != problem.origin)).sum())
    if problem.max_moves is not None and away > problem.max_moves:
        faults.append(Fault("max_moves", f"{away} items moved; allowed: at most {problem.max_moves}"))
    return faults
