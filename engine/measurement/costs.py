"""Cost of an aggregating operator by its records and its groups: T = a n + b g, from summed normal equations."""

from __future__ import annotations

from dataclasses import dataclass

from engine.measurement.sums import Sums

__all__ = ["GroupCost", "group_cost"]

_LEAST_EPOCHS = 3
_SINGULAR = 1e-9  # of the product of the diagonal: records and groups kept the same proportion in every epoch


@dataclass(frozen=True, slots=True)
class GroupCost:
    """CPU seconds per record (a) and per group (b); `b` is None where the two cannot be told apart."""

    per_record_s: float
    per_group_s: float | None


def group_cost(sums: Sums) -> GroupCost | None:
    """Solve the normal equations. None with fewer than three epochs behind them.

    Notes
    -----
    With w = 1 / n^2 the relative error of an epoch's cost is what is minimised. A negative coefficient, which noise
    gives where one of the two hardly costs anything, is refused: the cost is then put down to the records alone.

    References
    ----------
    docs/models/measurement.md, Cost by records and groups.
    """
    if sums.cost_count < _LEAST_EPOCHS or sums.wn2 <= 0.0:
        return None
    alone = GroupCost(sums.wnt / sums.wn2, None)
    determinant = sums.wn2 * sums.wg2 - sums.wng**2
    if determinant <= _SINGULAR * sums.wn2 * sums.wg2:
        return alone
    a = (sums.wnt * sums.wg2 - sums.wgt * sums.wng) / determinant
    b = (sums.wgt * sums.wn2 - sums.wnt * sums.wng) / determinant
    return GroupCost(a, b) if a >= 0.0 and b >= 0.0 else alone
