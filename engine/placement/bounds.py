"""Values that no placement can beat; docs/models/placement.md proves each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.compiled import compiled
from engine.elements import FloatArray, IntArray
from engine.placement.kernels import BoolArray, Fixed, scan
from engine.placement.problem import Problem

__all__ = ["Bound", "lower_bound"]

# Pairs of the largest items are tried on clusters of at most this many cores.
_PAIRED_CORES = 100
# Rounding must not lift a bound above what it bounds.
_SAFE = 1.0 - 1e-12


@dataclass(frozen=True)
class Bound:
    """A value in (weighted) seconds that no placement can beat, and where it comes from."""

    value_s: float
    kind: str


def lower_bound(problem: Problem, fixed: Fixed) -> Bound:
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


def _largest_item(fixed: Fixed) -> float:
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


def _fused(problem: Problem, fixed: Fixed) -> float:
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


def _pigeonhole(problem: Problem, fixed: Fixed, empty: FloatArray) -> float:
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


def _base(problem: Problem, fixed: Fixed) -> float:
    if problem.base is None or problem.weight is not None:
        return 0.0
    zero = np.zeros(fixed.empty.shape[1])
    return max(
        scan(row, zero, zero, rates, done, most, np.inf)[0]
        for row, rates, done, most in zip(fixed.empty, fixed.rates, fixed.done, fixed.most, strict=True)
    )
