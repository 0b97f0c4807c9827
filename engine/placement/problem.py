"""The pure placement problem: loads of items, budgets of cores, and what must hold of a placement.

References: paper, section IX-B (placement that minimises Mace_WC), section X (cores, capacity series).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from engine.elements import FloatArray, IntArray
from engine.errors import Fault
from engine.mace import drain_times
from engine.placement.scan import add_loads, excess_of

__all__ = ["BoolArray", "Problem", "core_costs", "faults_of", "value_of"]

BoolArray = np.ndarray[tuple[int, ...], np.dtype[np.bool_]]


@dataclass(frozen=True, eq=False)
class Problem:
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


def _wrong_shapes(problem: Problem) -> list[str]:
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
    }
    return [
        f"{name} has shape {array.shape}; allowed: {' or '.join(map(str, shapes))}"
        for name, (array, shapes) in wanted.items()
        if array is not None and array.shape not in shapes
    ]


def _wrong_values(problem: Problem) -> list[str]:
    wrong = [
        f"{name} has values that are negative or not finite"
        for name in ("load", "budget", "weight", "base")
        if (array := getattr(problem, name)) is not None and not ((array >= 0.0) & np.isfinite(array)).all()
    ]
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


def core_costs(problem: Problem, assignment: IntArray) -> FloatArray:
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
    """As compiled code takes them; copies only where they are otherwise."""
    return np.ascontiguousarray(load, dtype=np.float64), np.ascontiguousarray(assignment, dtype=np.int64)


def value_of(problem: Problem, assignment: IntArray) -> float:
    """Largest cost of a core, (weighted) seconds; 0 without cores."""
    return float(core_costs(problem, assignment).max(initial=0.0))


def faults_of(problem: Problem, assignment: IntArray) -> list[Fault]:
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
    away = int(((problem.origin >= 0) & (assignment != problem.origin)).sum())
    if problem.max_moves is not None and away > problem.max_moves:
        faults.append(Fault("max_moves", f"{away} items moved; allowed: at most {problem.max_moves}"))
    return faults
