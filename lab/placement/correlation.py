"""Load-correlation placement, the competitor in section IX-B of the paper.

Source of the idea: Y. Xing, S. Zdonik, J. Hwang, "Dynamic load distribution in the Borealis stream processor" (ICDE
2005): balance the average load, keep the variance of each node's load small, and make the loads of different nodes
correlate. All three are one aim here: the load series of every core close to its share of the total, in least squares.
"""

from __future__ import annotations

import numpy as np

from engine.arrays import FloatArray, IntArray
from engine.compiler import compiled, inner
from engine.placement.local_search.climb import BestPlacements, keep, shuffle
from engine.placement.local_search.state import NONE, SearchArrays, SearchState, admissible, move
from engine.placement.local_search.windows import core_cost
from engine.placement.problem import PlacementProblem

__all__ = ["CorrelationSearch", "mean_correlation"]

# Steps are better by this share of an item's own square at least.
_STEP = 1e-9


class CorrelationSearch:
    """Descent on the sum of squares of (load - share of the total), by moves and exchanges."""

    def __init__(self, problem: PlacementProblem, fixed: SearchArrays) -> None:
        items = problem.items
        base = np.zeros(fixed.empty.shape) if problem.base is None else problem.base
        total = base.sum(axis=0) + problem.load.sum(axis=0)
        share = fixed.rates.mean(axis=1) / fixed.rates.mean(axis=1).sum()
        # How far a core is from its share of the total, without any item.
        self.empty = base - share[:, None] * total
        self.products = np.zeros((items, problem.cores))
        self.squares = np.einsum("ij,ij->i", problem.load, problem.load)
        self.scale = 1.0 / np.maximum(fixed.rates.mean(axis=1), 1e-300)
        self.apart = np.zeros(self.empty.shape)
        self.begun = False

    def advance(self, fixed: SearchArrays, state: SearchState, best: BestPlacements, work: int) -> bool:
        """Some steps; True once no step is left."""
        load = fixed.load[:-1]
        if not self.begun:
            self.begun = True
            _at_random(fixed, state, best)
            self.apart[:] = self.empty
            np.add.at(self.apart, state.core, load)
            self.products[:] = load @ self.apart.T
        done = _descend(
            fixed, state, self.apart, self.products, self.squares, self.scale, max(1, work // self.products.size)
        )
        if state.cost.max() < best.value[0]:
            keep(fixed, state, best)
        best.rounds[0] += 1
        return bool(done)


@compiled
def _at_random(fixed: SearchArrays, state: SearchState, best: BestPlacements) -> None:
    shuffle(fixed, state, best)


@compiled
def _descend(
    fixed: SearchArrays,
    state: SearchState,
    apart: FloatArray,
    products: FloatArray,
    squares: FloatArray,
    scale: FloatArray,
    steps: int,
) -> bool:
    """The best single move each step; where none is left, the best exchange with the core that is furthest off."""
    items, cores = products.shape
    for _ in range(steps):
        item, core = NONE, NONE
        gain = 0.0
        for i in range(items):
            home = state.core[i]
            leave = scale[home] * (squares[i] - 2.0 * products[i, home])
            for c in range(cores):
                change = leave + scale[c] * (squares[i] + 2.0 * products[i, c])
                if change < gain - _STEP * squares[i] and c != home and admissible(fixed, state, i, c, NONE):
                    gain, item, core = change, i, c
        if item >= 0:
            _shift(fixed, state, apart, products, item, core)
            continue
        if not _swap(fixed, state, apart, products, squares, scale):
            return True
    return False


@inner
def _swap(
    fixed: SearchArrays,
    state: SearchState,
    apart: FloatArray,
    products: FloatArray,
    squares: FloatArray,
    scale: FloatArray,
) -> bool:
    items, cores = products.shape
    off = np.empty(cores)
    for c in range(cores):
        off[c] = -scale[c] * (apart[c] * apart[c]).sum()
    for worst in _ascending(off):
        gain, first, second = 0.0, NONE, NONE
        for a in range(items):
            if state.core[a] != worst:
                continue
            for b in range(items):
                other = state.core[b]
                if other == worst:
                    continue
                # The sums of squares change by what the difference of the two items does to each core.
                rough = 2.0 * scale[worst] * (products[b, worst] - products[a, worst]) + 2.0 * scale[other] * (
                    products[a, other] - products[b, other]
                )
                if rough >= gain:
                    continue
                cross = 0.0
                for p in range(apart.shape[1]):
                    cross += fixed.load[a, p] * fixed.load[b, p]
                change = rough + (scale[worst] + scale[other]) * (squares[a] + squares[b] - 2.0 * cross)
                if change < gain - _STEP * squares[a] and admissible(fixed, state, a, other, b):
                    gain, first, second = change, a, b
        if first >= 0:
            other = state.core[second]
            _shift(fixed, state, apart, products, first, other)
            _shift(fixed, state, apart, products, second, worst)
            return True
    return False


@inner
def _ascending(values: FloatArray) -> IntArray:
    """Indices by rising value."""
    order = np.empty(len(values), np.int64)
    for i in range(len(values)):
        at = i
        while at > 0 and values[order[at - 1]] > values[i]:
            order[at] = order[at - 1]
            at -= 1
        order[at] = i
    return order


@inner
def _shift(
    fixed: SearchArrays, state: SearchState, apart: FloatArray, products: FloatArray, item: int, core: int
) -> None:
    home = state.core[item]
    items, d = products.shape[0], apart.shape[1]
    move(fixed, state, item, core)
    state.cost[home] = core_cost(fixed, state, home, items, items, np.inf)
    state.cost[core] = core_cost(fixed, state, core, items, items, np.inf)
    for p in range(d):
        apart[home, p] -= fixed.load[item, p]
        apart[core, p] += fixed.load[item, p]
    for i in range(items):
        total = 0.0
        for p in range(d):
            total += fixed.load[i, p] * fixed.load[item, p]
        products[i, home] -= total
        products[i, core] += total


def mean_correlation(problem: PlacementProblem, assignment: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> float:
    """Mean correlation coefficient of the loads of two cores (theta), over the cores whose load varies."""
    load = np.zeros((problem.cores, problem.load.shape[1]))
    np.add.at(load, assignment, problem.load)
    load -= load.mean(axis=1, keepdims=True)
    length = np.sqrt((load * load).sum(axis=1))
    unit = load[length > 0.0] / length[length > 0.0][:, None]
    n = len(unit)
    return float(((unit.sum(axis=0) ** 2).sum() - n) / (n * (n - 1))) if n > 1 else 1.0
