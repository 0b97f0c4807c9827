"""Compiled scans over load series: loads of cores, their excess, and a server with one more load on it."""

from __future__ import annotations

import numpy as np

from engine.compiled import compiled
from engine.elements import FloatArray, IntArray

__all__ = ["add_loads", "excess_of", "loaded_peaks"]


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
