"""Mace-HC in plain NumPy, straight from Figure 11 of the paper: what the compiled search is measured against."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np

from engine.elements import FloatArray, IntArray
from engine.placement.problem import Problem

__all__ = ["Reference"]

# A step has to be better by this share (the compiled climb asks for the same).
_STEP = 1e-10


@dataclass
class Reference:
    """Climbs from random placements; cores of constant capacity, no constraints."""

    problem: Problem
    seed: int = 0
    assignment: IntArray = field(init=False)
    best: IntArray = field(init=False)
    value_s: float = np.inf
    trace: list[tuple[float, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        self.capacity = self.problem.budget[:, 0] / self.problem.width_s

    def run(self, budget_s: float) -> None:
        """Climb again and again until the time is over, in the middle of a climb if need be."""
        began = time.perf_counter()
        while time.perf_counter() - began < budget_s:
            chances = self.capacity / self.capacity.sum()
            self.climb(self.rng.choice(self.problem.cores, self.problem.items, p=chances), began, began + budget_s)

    def climb(self, assignment: IntArray, began: float = 0.0, until: float = np.inf) -> IntArray:
        """Move items off the bottleneck as long as that lowers the larger of the two costs."""
        self.assignment = assignment.copy()
        self.load = np.zeros((self.problem.cores, self.problem.load.shape[1]))
        np.add.at(self.load, self.assignment, self.problem.load)
        cost = self._mace(self.load, self.capacity)
        while time.perf_counter() < until:
            if cost.max() < self.value_s:
                self.value_s, self.best = float(cost.max()), self.assignment.copy()
                self.trace.append((time.perf_counter() - began, self.value_s))
            if not self._step(cost, until):
                break
        return self.assignment

    def _step(self, cost: FloatArray, until: float) -> bool:
        """The first item of the bottleneck for which some core is good enough, to the core where it costs least."""
        bottleneck = int(cost.argmax())
        limit = cost[bottleneck] * (1.0 - _STEP)
        for item in np.flatnonzero(self.assignment == bottleneck):
            if time.perf_counter() >= until:
                return False
            series = self.problem.load[item]
            left = self._mace(self.load[[bottleneck]] - series, self.capacity[[bottleneck]])[0]
            if left >= limit:
                continue
            there = self._mace(self.load + series, self.capacity)
            there[bottleneck] = np.inf
            core = int(there.argmin())
            if there[core] < limit:
                self.assignment[item] = core
                self.load[bottleneck] -= series
                self.load[core] += series
                cost[bottleneck], cost[core] = left, there[core]
                return True
        return False

    def _mace(self, load: FloatArray, capacity: FloatArray) -> FloatArray:
        """Largest cumulative excess of each row in seconds: the running sum less its lowest point so far."""
        total = np.zeros((len(load), load.shape[1] + 1))
        np.cumsum(load - capacity[:, None] * self.problem.width_s, axis=1, out=total[:, 1:])
        excess = (total - np.minimum.accumulate(total, axis=1)).max(axis=1)
        # Sums in another order leave rounding where there is no excess.
        return np.asarray(np.where(excess < 1e-9, 0.0, excess) / capacity)
