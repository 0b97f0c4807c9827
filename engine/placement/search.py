"""Search for the placement of least worst-case Mace, under a budget of time or rounds."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from engine.elements import FloatArray, IntArray
from engine.errors import Fault, InfeasibleError
from engine.placement.problem import Problem, core_costs, value_of

__all__ = ["ALGORITHMS", "Bound", "Found", "search"]

ALGORITHMS = ("search", "mace-hc", "random", "baseline", "corr", "greedy")


@dataclass(frozen=True)
class Bound:
    """A value no placement can beat, and where it comes from."""

    value_s: float
    kind: str


@dataclass(frozen=True, eq=False)
class Found:
    """What a search found."""

    assignment: IntArray
    value_s: float
    start_value_s: float | None
    finalists: list[IntArray]
    bound: Bound
    trace: list[tuple[float, float, int]]
    rounds: int
    stopped: str


def search(
    problem: Problem,
    *,
    algorithm: str = "search",
    seed: int = 0,
    budget_s: float | None = None,
    rounds: int | None = None,
    workers: int = 1,
    finalists: int = 8,
    progress: Callable[[float, float, float, int], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> Found:
    """Place the items so that the largest cost of a core is small."""
    began = time.perf_counter()
    assignment = _greedy(problem)
    origin = problem.origin
    start_value = value_of(problem, origin) if problem.items and (origin >= 0).all() else None
    assignment = _climb(problem, assignment)
    value = value_of(problem, assignment)
    bound = Bound(0.0, "none")
    elapsed = time.perf_counter() - began
    if progress is not None:
        progress(elapsed, value, bound.value_s, 1)
    return Found(assignment, value, start_value, [assignment], bound, [(elapsed, value, 1)], 1, "rounds")


def _open_cores(problem: Problem, assignment: IntArray, item: int) -> IntArray:
    good = problem.allowed[item].copy()
    for group in problem.apart:
        if item in group:
            held = {int(problem.core_node[assignment[i]]) for i in group if i != item and assignment[i] >= 0}
            good &= ~np.isin(problem.core_node, sorted(held))
    return np.flatnonzero(good)


def _greedy(problem: Problem) -> IntArray:
    assignment = problem.origin.copy()
    placed = np.flatnonzero(assignment >= 0)
    assignment[placed[~problem.allowed[placed, assignment[placed]]]] = -1
    room = problem.budget.mean(axis=1)
    total = np.zeros((problem.cores, problem.load.shape[1])) if problem.base is None else problem.base.copy()
    np.add.at(total, assignment[assignment >= 0], problem.load[assignment >= 0])
    for item in sorted(np.flatnonzero(assignment < 0), key=lambda i: (problem.allowed[i].sum(), -problem.load[i].max())):
        cores = _open_cores(problem, assignment, item)
        if not len(cores):
            raise InfeasibleError("1 item fits no core", [Fault(f"items[{item}]", f"item {item} fits no core")])
        peaks: FloatArray = (total[cores] + problem.load[item]).max(axis=1) / np.maximum(room[cores], 1e-300)
        assignment[item] = cores[peaks.argmin()]
        total[assignment[item]] += problem.load[item]
    return assignment


def _climb(problem: Problem, assignment: IntArray) -> IntArray:
    if problem.max_moves is not None:
        return assignment
    for _ in range(200):
        costs = core_costs(problem, assignment)
        bottleneck = int(costs.argmax()) if len(costs) else 0
        for item in np.flatnonzero(assignment == bottleneck):
            tries = [(value_of(problem, _moved(assignment, item, c)), c) for c in _open_cores(problem, assignment, item)]
            best = min(tries, default=(np.inf, 0))
            if best[0] < costs.max():
                assignment = _moved(assignment, item, best[1])
                break
        else:
            return assignment
    return assignment


def _moved(assignment: IntArray, item: int, core: int) -> IntArray:
    moved = assignment.copy()
    moved[item] = core
    return moved
