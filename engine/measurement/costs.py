"""Cost of an aggregating operator by its records and its groups: T = a n + b g, from summed normal equations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # agents need the algebra alone
    from engine.measurement.sums import Sums

__all__ = ["GROUP_OVER_RECORD", "SPREAD", "GroupCost", "group_cost", "separated"]

SPREAD = 0.01  #: squared coefficient of variation of groups per record from which on the two costs can be told apart
GROUP_OVER_RECORD = 2.7  #: CPU time of a new group over that of a record while they cannot: pyarrow's, measured
_LEAST_EPOCHS = 3


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
    both = separated(sums.wn2, sums.wng, sums.wg2, sums.wnt, sums.wgt)
    return GroupCost(*both) if both else GroupCost(sums.wnt / sums.wn2, None)


def separated(wn2: float, wng: float, wg2: float, wnt: float, wgt: float) -> tuple[float, float] | None:
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
