"""Cost per record and per group, fitted to sums of epochs, and the weight of what is older."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = [
    "GROUP_OVER_RECORD",
    "SPREAD",
    "CostEquations",
    "GroupCost",
    "decay",
    "fit_group_cost",
    "separate_costs",
]

SPREAD = 0.01  #: squared coefficient of variation of groups per record from which on the two costs can be told apart
GROUP_OVER_RECORD = 2.7  #: CPU time of a new group over that of a record while they cannot: pyarrow's, measured
_MIN_EPOCHS = 3


@dataclass(frozen=True, slots=True)
class CostEquations:
    """Normal equations of t = a n + b g over `cost_count` epochs of n records and g groups that took t CPU seconds.

    Weights are w = 1 / n^2; `sum_wng` is the sum of w n g, and so on; `cost_sum2` is that of (t / n)^2.
    """

    cost_count: float = 0.0
    sum_wn2: float = 0.0
    sum_wng: float = 0.0
    sum_wg2: float = 0.0
    sum_wnt: float = 0.0
    sum_wgt: float = 0.0
    cost_sum2: float = 0.0


def decay(age_s: float, half_life_s: float) -> float:
    """Weight at the age `age_s`: 2^(-age / half-life). An age below zero weighs more than 1."""
    return math.exp2(-age_s / half_life_s)


@dataclass(frozen=True, slots=True)
class GroupCost:
    """CPU seconds per record (a) and per group (b); `b` is None where the two cannot be separated."""

    per_record_s: float
    per_group_s: float | None


def fit_group_cost(sums: CostEquations) -> GroupCost | None:
    """Solve the normal equations. None with fewer than three epochs behind them.

    Notes
    -----
    With w = 1 / n^2 the relative error of an epoch's cost is what is minimised. A negative coefficient, which noise
    gives where one of the two hardly costs anything, is refused: the cost is then put down to the records alone.

    References
    ----------
    docs/models/measurement.md, Cost by records and groups.
    """
    if sums.cost_count < _MIN_EPOCHS or sums.sum_wn2 <= 0.0:
        return None
    both = separate_costs(sums.sum_wn2, sums.sum_wng, sums.sum_wg2, sums.sum_wnt, sums.sum_wgt)
    return GroupCost(*both) if both else GroupCost(sums.sum_wnt / sums.sum_wn2, None)


def separate_costs(wn2: float, wng: float, wg2: float, wnt: float, wgt: float) -> tuple[float, float] | None:
    """a and b of the normal equations. None where records and groups kept their proportion, or one comes out negative.

    The determinant, as a share of the product of its diagonal, is about the squared coefficient of variation of groups
    per record.
    """
    determinant = wn2 * wg2 - wng**2
    if determinant <= SPREAD * wn2 * wg2:
        return None
    a = (wnt * wg2 - wgt * wng) / determinant
    b = (wgt * wn2 - wnt * wng) / determinant
    return (a, b) if a >= 0.0 and b >= 0.0 else None
