"""Additive sums of one operator at one place over one subinterval: their merge, and the cost fitted to them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

__all__ = [
    "ARRIVALS_VARIATION",
    "COST_VARIATION",
    "GROUP_OVER_RECORD",
    "SPREAD",
    "VARIATION",
    "GroupCost",
    "OperatorSums",
    "StampedSums",
    "decay",
    "fit_group_cost",
    "merge_sums",
    "scale_sums",
    "separate_costs",
]

SPREAD = 0.01  #: squared coefficient of variation of groups per record from which on the two costs can be told apart
GROUP_OVER_RECORD = 2.7  #: CPU time of a new group over that of a record while they cannot: pyarrow's, measured
_MIN_EPOCHS = 3


@dataclass(frozen=True, slots=True)
class OperatorSums:
    """Sums of an operator. `events` are the records it processed, some of which may have come in before.

    `wn2` to `wgt` are the normal equations of cost = a n + b g over epochs of n records and g groups that took T CPU
    seconds, with weights w = 1 / n^2; `cost_count`, `cost_sum` and `cost_sum2` are of CPU seconds per record.

    From `runs` on they tell how costs and arrivals vary (`engine.measurement.variation`): the operator's runs, and the
    epochs that had some, with the sums of n^2, n t and t^2 of each; pairs of neighbouring steps of the source at three
    widths, of first operators alone. All are 0 where an agent tells none.
    """

    records_in: float = 0.0
    events: float = 0.0
    outputs: float = 0.0
    drained: float = 0.0
    overflow: float = 0.0
    shed: float = 0.0
    bytes_in: float = 0.0
    bytes_out: float = 0.0
    bytes_drained: float = 0.0
    groups: float = 0.0
    cpu_s: float = 0.0
    sampled: float = 0.0
    wn2: float = 0.0
    wng: float = 0.0
    wg2: float = 0.0
    wnt: float = 0.0
    wgt: float = 0.0
    cost_count: float = 0.0
    cost_sum: float = 0.0
    cost_sum2: float = 0.0
    runs: float = 0.0
    run_records: float = 0.0
    run_cpu_s: float = 0.0
    run_nn: float = 0.0
    run_nt: float = 0.0
    run_tt: float = 0.0
    run_epochs: float = 0.0
    epoch_nn: float = 0.0
    epoch_nt: float = 0.0
    epoch_tt: float = 0.0
    fine_pairs: float = 0.0
    fine_squares: float = 0.0
    fine_rates: float = 0.0
    fine_span_s: float = 0.0
    second_pairs: float = 0.0
    second_squares: float = 0.0
    second_rates: float = 0.0
    second_span_s: float = 0.0
    slow_pairs: float = 0.0
    slow_squares: float = 0.0
    slow_rates: float = 0.0
    slow_span_s: float = 0.0

    @classmethod
    def of_wire(cls, row: Mapping[str, Any]) -> OperatorSums:
        """The sums of a row of `agent.wire.schemas.STATISTICS`."""
        return cls(
            records_in=row["records_in"],
            events=row["records_processed"],
            outputs=row["records_out"],
            drained=row["records_drained"],
            overflow=row["records_overflow"],
            shed=row["records_shed"],
            bytes_in=row["bytes_in"],
            bytes_out=row["bytes_out"],
            bytes_drained=row["bytes_drained"],
            groups=row["groups_out"],
            cpu_s=row["cpu_ns"] / 1e9,
            sampled=row["sampled"],
            wn2=row["sum_wn2"],
            wng=row["sum_wng"],
            wg2=row["sum_wg2"],
            wnt=row["sum_wnt"],
            wgt=row["sum_wgt"],
            cost_count=row["cost_count"],
            cost_sum=row["cost_sum"],
            cost_sum2=row["cost_sum2"],
            **{name: row[name] for name in VARIATION},
        )


_NAMES = tuple(field.name for field in fields(OperatorSums))
#: Sums that tell how costs and arrivals vary; on the wire by the same names.
VARIATION = _NAMES[_NAMES.index("runs") :]
COST_VARIATION = VARIATION[: VARIATION.index("fine_pairs")]
ARRIVALS_VARIATION = VARIATION[len(COST_VARIATION) :]


@dataclass(frozen=True, slots=True)
class StampedSums:
    """Sums and the moment (seconds since 1970) that their weight refers to."""

    at_s: float
    sums: OperatorSums


def decay(age_s: float, half_life_s: float) -> float:
    """Weight at the age `age_s`: 2^(-age / half-life). An age below zero weighs more than 1."""
    return math.exp2(-age_s / half_life_s)


def scale_sums(sums: OperatorSums, by: float) -> OperatorSums:
    """Every sum times `by`."""
    return OperatorSums(**{name: getattr(sums, name) * by for name in _NAMES})


def merge_sums(parts: Iterable[StampedSums], *, reference_s: float, half_life_s: float = math.inf) -> StampedSums:
    """All parts, decayed to `reference_s` and added.

    Sums are exactly rounded (`math.fsum`), so every order of the parts gives the same bits.
    """
    weighted = [(decay(reference_s - part.at_s, half_life_s), part.sums) for part in parts]
    totals = {name: math.fsum(weight * getattr(sums, name) for weight, sums in weighted) for name in _NAMES}
    return StampedSums(reference_s, OperatorSums(**totals))


@dataclass(frozen=True, slots=True)
class GroupCost:
    """CPU seconds per record (a) and per group (b); `b` is None where the two cannot be separated."""

    per_record_s: float
    per_group_s: float | None


def fit_group_cost(sums: OperatorSums) -> GroupCost | None:
    """Solve the normal equations. None with fewer than three epochs behind them.

    Notes
    -----
    With w = 1 / n^2 the relative error of an epoch's cost is what is minimised. A negative coefficient, which noise
    gives where one of the two hardly costs anything, is refused: the cost is then put down to the records alone.

    References
    ----------
    docs/models/measurement.md, Cost by records and groups.
    """
    if sums.cost_count < _MIN_EPOCHS or sums.wn2 <= 0.0:
        return None
    both = separate_costs(sums.wn2, sums.wng, sums.wg2, sums.wnt, sums.wgt)
    return GroupCost(*both) if both else GroupCost(sums.wnt / sums.wn2, None)


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
