"""Fits of a pipeline's operators at one source from summed epochs, and the plan that follows from them.

Epochs are summed by how many records the operator worked on, in levels of half an octave: what an epoch costs and how
many groups it has depend on that, and on nothing else that a load factor does. So epochs of different load factors are
told apart where they differ, and add up where they do not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from engine.jarvis.group_law import distinct, keys
from engine.jarvis.partition import Frontier, Partition
from engine.measurement.sums import GROUP_OVER_RECORD, CostEquations, GroupCost, fit_group_cost

__all__ = ["EpochSums", "LoadLevel", "OperatorFit", "WindowSums", "fit_operator", "group_keys", "plan_partition"]

MIN_COLLISIONS = 30.0  # records that met a group which was there already, before K is told
_CLOSE = 1.0001  # ends of a bracket of K


@dataclass(frozen=True, slots=True)
class LoadLevel:
    """Epochs that worked on about as many records each."""

    epochs: float
    records: float
    groups: float


@dataclass(frozen=True, slots=True)
class WindowSums:
    """Whole windows of an aggregate: epochs from behind one closing to the next, and what came out."""

    closings: float
    epochs: float
    records_processed: float
    records_out: float
    bytes_out: float


@dataclass(frozen=True, slots=True)
class EpochSums:
    """Epochs of one operator that worked on at least 30 records.

    `windows` is of an aggregate over windows, whose output comes in bursts; None for other operators.
    """

    costs: CostEquations
    records_processed: float = 0.0
    records_out: float = 0.0
    bytes_out: float = 0.0
    groups_out: float = 0.0
    levels: tuple[LoadLevel, ...] = ()
    is_windowed: bool = False
    windows: WindowSums | None = None


@dataclass(frozen=True, slots=True)
class OperatorFit:
    """Fit of an operator; None stands for what cannot be separated."""

    cost_s: float  #: per record (a)
    group_cost_s: float | None  #: per group (b)
    standard_error: float | None  #: of cost_s, relative
    groups: float | None  #: that there are (K)
    relay: float | None  #: records out per record worked on, at the volumes seen
    bytes_out: float | None  #: of a record that comes out
    per_record: float  #: groups per record at the volumes seen
    windows: WindowSums | None

    def cost_at(self, records: float) -> float:
        """CPU seconds per record at a number of records per epoch; groups that cannot be separated take their usual
        part.
        """
        groups = distinct(records, self.groups) / records if self.groups and records > 0 else self.per_record
        if self.group_cost_s is not None:
            return self.cost_s + self.group_cost_s * groups
        return self.cost_s * (1.0 + GROUP_OVER_RECORD * groups) / (1.0 + GROUP_OVER_RECORD * self.per_record)

    def relay_at(self, records: float) -> float:
        """Records out per record where an epoch has so many; groups of a window are fewer, the more records it has."""
        assert self.relay is not None
        seen = self.windows
        if seen is None or not seen.records_processed or not seen.records_out or records <= 0:
            return self.relay
        in_window = seen.records_processed / seen.closings
        there = keys(in_window, seen.records_out / seen.closings)
        window_records = in_window * records / (seen.records_processed / seen.epochs)
        return min(distinct(window_records, there) / window_records, 1.0) if there < math.inf else self.relay


def fit_operator(sums: EpochSums) -> OperatorFit | None:
    """Fit an operator to its sums; None with fewer than three epochs."""
    cost = fit_group_cost(sums.costs)
    if cost is None:
        return None
    over = sums.windows if sums.is_windowed else sums
    put_in, out, bytes_out = (over.records_processed, over.records_out, over.bytes_out) if over else (0.0, 0.0, 0.0)
    return OperatorFit(
        cost_s=cost.per_record_s,
        group_cost_s=cost.per_group_s,
        standard_error=_relative_error(sums.costs, cost),
        groups=group_keys(sums.levels),
        relay=out / put_in if put_in > 0.0 else None,
        bytes_out=bytes_out / out if out > 0.0 else 0.0 if put_in > 0.0 else None,
        per_record=sums.groups_out / sums.records_processed if sums.records_processed else 0.0,
        windows=sums.windows,
    )


def group_keys(levels: Sequence[LoadLevel]) -> float | None:
    """K of the group law, such that the epochs of all levels together have the groups that were seen.

    None while too few records met a group that was there already; the law is then as good as g = n.

    Examples
    --------
    >>> round(group_keys([LoadLevel(10, 10 * n, 10 * distinct(n, 500)) for n in (50, 400, 3000)]))
    500
    """
    known = [level for level in levels if level.epochs > 0.0 and level.records > 0.0]
    records, groups = (math.fsum(getattr(level, name) for level in known) for name in ("records", "groups"))
    if groups <= 0.0 or records - groups < MIN_COLLISIONS:
        return None
    low, high = groups / math.fsum(level.epochs for level in known), records
    while _expected(known, high) < groups:
        high *= 4.0
    while high > low * _CLOSE:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if _expected(known, middle) < groups else (low, middle)
    return high


def _expected(levels: Sequence[LoadLevel], there: float) -> float:
    return math.fsum(level.epochs * distinct(level.records / level.epochs, there) for level in levels)


def _relative_error(sums: CostEquations, cost: GroupCost) -> float | None:
    """Standard error of the cost per record, as a share of it: what the normal equations leave unexplained."""
    b = cost.per_group_s
    degrees = sums.cost_count - (1 if b is None else 2)
    if degrees <= 0.0 or cost.per_record_s <= 0.0:
        return None
    rest = sums.cost_sum2 - cost.per_record_s * sums.sum_wnt - (b or 0.0) * sums.sum_wgt
    determinant = sums.sum_wn2 * sums.sum_wg2 - sums.sum_wng**2
    spread = 1.0 / sums.sum_wn2 if b is None else sums.sum_wg2 / determinant
    return math.sqrt(max(rest, 0.0) / degrees * spread) / cost.per_record_s


def plan_partition(
    fits: Sequence[OperatorFit | None], *, bytes_in: float, input_records: float, budget_s: float
) -> Partition | None:
    """The plan that sends the fewest bytes: every operator's cost and relay as they would be with all of the input.

    Parameters
    ----------
    bytes_in
        Of a record before the first operator.
    input_records, budget_s
        Of an epoch.

    Returns
    -------
    Partition or None
        None where some operator is not known, or nothing came.
    """
    known = [fit for fit in fits if fit is not None and fit.relay is not None and fit.bytes_out is not None]
    if len(known) < len(fits) or not known or input_records <= 0.0:
        return None
    relay, cost, records = [], [], input_records
    for fit in known:
        relay.append(fit.relay_at(records))
        cost.append(fit.cost_at(records))
        records *= relay[-1]
    sizes = [bytes_in, *(fit.bytes_out or 0.0 for fit in known)]
    return Frontier.of(relay, cost, sizes).at(float(max(budget_s, 0.0)), float(input_records))
