"""The pool size to regret least: cost of nodes against cost of violated objectives, future by future.

In each future every size has a cost: its nodes' price over the period, and a stated cost for every hour in which an
objective is violated. The regret of a size in a future is its cost over the cheapest size's in that future. The size
with the smallest expected cost is the best bet if the futures' probabilities are believed; the one with the smallest
largest regret (minimax, Savage 1951) does not need them. The expected-cost size is recommended unless its largest
regret is more than twice the smallest that any size has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from engine.arrays import FloatArray
from engine.errors import Fault, OptionError
from engine.records import Fact, Record, Sentence, Words

__all__ = ["LeastRegret", "SizeCost", "least_regret"]


@dataclass(frozen=True)
class SizeCost(Record):
    """One pool size over the period; costs in the currency of the prices."""

    size: int
    nodes_cost: float
    violation_cost: float
    expected_cost: float
    expected_regret: float
    largest_regret: float
    violation_hours: float
    holds: float


@dataclass(frozen=True)
class LeastRegret(Record):
    """Costs per size, the two answers, and which of them is recommended for which reason."""

    sizes: tuple[SizeCost, ...]
    expected: Annotated[int, Words("Size with the smallest expected cost.")]
    minimax: Annotated[int, Words("Size with the smallest largest regret.")]
    recommended: int
    why: Sentence


def least_regret(
    sizes: Sequence[int],
    price_per_hour: Sequence[float],
    violation_hours: FloatArray,
    *,
    cost_per_violation_hour: float,
    horizon_h: float,
    currency: str = "",
) -> LeastRegret:
    """Compare pool sizes.

    Parameters
    ----------
    sizes : sequence of int
        Nodes in the pool.
    price_per_hour : sequence of float
        What each size costs per hour.
    violation_hours : array, shape (sizes, k)
        Hours in which an objective is violated, summed over the queries, in each of k futures (the same for all).
    cost_per_violation_hour : float
        What such an hour costs.
    horizon_h : float
        The period in hours.
    currency : str
        Of the costs, for the sentence.

    Raises
    ------
    OptionError
        Naming every parameter that is out of range.
    """
    hours = np.asarray(violation_hours, dtype=np.float64)
    _check(sizes, price_per_hour, hours, cost_per_violation_hour, horizon_h)
    nodes = np.asarray(price_per_hour, dtype=np.float64) * horizon_h
    cost = nodes[:, None] + cost_per_violation_hour * hours
    regret = cost - cost.min(axis=0)[None, :]
    expected, largest = cost.mean(axis=1), regret.max(axis=1)
    # The smaller size of equals.
    order = np.argsort(np.asarray(sizes), kind="stable")
    best, safest = (int(order[np.argmin(values[order])]) for values in (expected, largest))
    rows = tuple(
        SizeCost(
            size,
            float(nodes[i]),
            float(cost[i].mean() - nodes[i]),
            float(expected[i]),
            float(regret[i].mean()),
            float(largest[i]),
            float(hours[i].mean()),
            float((hours[i] == 0.0).mean()),
        )
        for i, size in enumerate(sizes)
    )
    chosen, why = _chosen(rows, best, safest, currency)
    return LeastRegret(rows, rows[best].size, rows[safest].size, chosen, why)


def _chosen(rows: tuple[SizeCost, ...], best: int, safest: int, currency: str) -> tuple[int, Fact]:
    if best == safest:
        return rows[best].size, Fact("forecasts.best_by_both")
    sizes = rows[best].size, rows[safest].size
    if rows[best].largest_regret > 2.0 * rows[safest].largest_regret:
        regrets = rows[best].largest_regret, rows[safest].largest_regret
        return sizes[1], Fact("forecasts.safest", *sizes, *regrets, currency)
    return sizes[0], Fact("forecasts.cheapest", safest=sizes[1])


def _check(sizes: Sequence[int], prices: Sequence[float], hours: FloatArray, cost: float, horizon_h: float) -> None:
    faults = []
    if not sizes or hours.ndim != 2 or len(hours) != len(sizes) or len(prices) != len(sizes) or not hours.shape[1]:
        faults.append(Fault("sizes", f"there are {len(sizes)} sizes, {len(prices)} prices and hours of {hours.shape}"))
    for name, value, allowed in (
        ("cost_per_violation_hour", cost, "a number of at least 0"),
        ("horizon_h", horizon_h, "a number above 0"),
    ):
        if not np.isfinite(value) or value < 0.0 or (name == "horizon_h" and value == 0.0):
            faults.append(Fault(name, f"{name} is {value}; allowed: {allowed}"))
    if faults:
        raise OptionError(f"No comparison of sizes: {faults[0].message}", faults)
