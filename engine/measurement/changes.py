"""Changes of measured statistics that noise does not make, and the pace of new estimates they call for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from engine.arrays import FloatArray
from engine.measurement.statistics import MIN_EVENTS, MIN_SUBINTERVALS, InputStatistic, SampleRatio

__all__ = [
    "MATERIAL",
    "MIN_PACE_S",
    "MIN_SHARE",
    "LastEstimate",
    "MeasuredChange",
    "Pace",
    "arrivals_differ",
    "arrivals_moved",
    "certain_move",
    "combine_changes",
    "dispersion_differs",
    "is_usable",
    "rounded_shares",
    "shares_differ",
    "shares_moved",
    "statistic_differs",
]


MIN_MOVE = 0.02  # of the value: less moves no estimate beyond its own resolution
GROWTH = 2.0  # a sample twice as large narrows the interval by 30 %
_STILL = 1.0  # what a dispersion may move besides
OLD_S = 600.0
MIN_SHARE = 0.01  # of an operator's events; smaller parts are noise of a placement
_SHARE_MOVE = 0.05
_RATE_MOVE = 0.1

MIN_PACE_S = 60.0  # between estimates for moves that are not material
MATERIAL = 0.2  # of a value, beyond its own 90 % interval
_SWING = 2.0  # queueing answers a move of load with a larger one of its own


def is_usable(measured: InputStatistic) -> bool:
    """Whether a sample may take the place of an assumption: it need not be ready, its interval tells how good it is."""
    return measured.events >= MIN_EVENTS and measured.subintervals >= MIN_SUBINTERVALS


def statistic_differs(
    measured: InputStatistic, *, selectivity: float, cycles_per_event: float, events: float, age_s: float | None
) -> bool:
    """Whether a statistic differs from the stored one by more than noise; `age_s` is None where that is an
    assumption.
    """
    if age_s is None:
        return True
    moved = _moved(measured.selectivity, selectivity) or _moved(measured.cycles_per_event, cycles_per_event)
    return moved or measured.events >= GROWTH * events or age_s >= OLD_S


def dispersion_differs(measured: float | None, stored: float | None) -> bool:
    """Whether a measured dispersion replaces an assumption, or moved twofold: its own error is that of few units."""
    if measured is None or stored is None:
        return measured is not None
    low, high = sorted((measured, stored))
    return high > GROWTH * low + _STILL


def _moved(measured: SampleRatio, stored: float) -> bool:
    """By more than 2 % and more than half the 90 % interval to one side."""
    min_move = max(MIN_MOVE * stored, 0.5 * (measured.half_width or 0.0))
    return abs(measured.value - stored) > min_move


def arrivals_differ(measured: FloatArray, stored: FloatArray | None, *, age_s: float | None) -> bool:
    """Whether mean or peak of a source (99th percentile of its slices) moved by 10 %, or the series is old."""
    if stored is None or age_s is None or age_s >= OLD_S or len(measured) != len(stored):
        return True
    return arrivals_moved(measured, stored) > _RATE_MOVE


def arrivals_moved(measured: FloatArray, stored: FloatArray) -> float:
    """The larger move of mean and peak, as a share of the stored one; from 0 they move by all of it."""
    pairs = [(float(measure(measured)), float(measure(stored))) for measure in (np.mean, _peak)]
    return max(abs(new - old) / old if old else float(new != old) for new, old in pairs)


def _peak(values: FloatArray) -> float:
    return float(np.quantile(values, 0.99))


def rounded_shares(shares: Mapping[str, float]) -> dict[str, float]:
    """Shares in hundredths that add up to 1; parts below `MIN_SHARE` go to the largest.

    Examples
    --------
    >>> rounded_shares({"a": 0.5004, "b": 0.4951, "c": 0.0045})
    {'a': 0.5, 'b': 0.5}
    """
    kept = {name: round(share, 2) for name, share in shares.items() if share >= MIN_SHARE}
    if not kept:
        return {}
    largest = max(kept, key=lambda name: kept[name])
    kept[largest] = round(1.0 - sum(share for name, share in kept.items() if name != largest), 2)
    return kept


def shares_differ(measured: Mapping[str, float], stored: Mapping[str, float]) -> bool:
    """Whether a placement has other places, or one of them a share that moved by 5 points."""
    return measured.keys() != stored.keys() or shares_moved(measured, stored) > _SHARE_MOVE


def shares_moved(measured: Mapping[str, float], stored: Mapping[str, float]) -> float:
    """The largest move of a place's share.

    Examples
    --------
    >>> shares_moved({"a": 0.5, "b": 0.5}, {"b": 1.0})
    0.5
    """
    return max(
        (abs(measured.get(name, 0.0) - stored.get(name, 0.0)) for name in measured.keys() | stored.keys()), default=0.0
    )


@dataclass(frozen=True, slots=True)
class MeasuredChange:
    """A change to be passed on. `first`: a measurement replaces an assumption; `moved`: the largest move, as a share
    of the stored value, or of the events that an operator processes elsewhere.
    """

    first: bool = False
    moved: float = 0.0


@dataclass(frozen=True, slots=True)
class LastEstimate:
    """A query's newest estimate against its objective, in seconds. `processing_s` is the part that statistics move."""

    processing_s: float
    estimate_s: float
    high_s: float | None
    bound_s: float

    def may_turn(self, moved: float) -> bool:
        """Whether a move of the statistics may change the state of the objective: twice its share of that part reaches
        from the estimate, or from the upper end of its interval, across the bound.
        """
        ends = [self.estimate_s] if self.high_s is None else [self.estimate_s, self.high_s]
        return min(abs(self.bound_s - end) for end in ends) <= _SWING * moved * self.processing_s


@dataclass(frozen=True, slots=True)
class Pace:
    """`age_s` of the newest estimate (None: there is none), and how queries stand in it."""

    age_s: float | None = None
    standings: Sequence[LastEstimate] = ()

    def is_due(self, news: MeasuredChange) -> bool:
        """Whether something is to be passed on now."""
        if self.age_s is None or self.age_s >= MIN_PACE_S or news.first or news.moved >= MATERIAL:
            return True
        return news.moved > 0.0 and any(standing.may_turn(news.moved) for standing in self.standings)


def certain_move(measured: SampleRatio, stored: float) -> float:
    """By what share of the stored value a ratio moved beyond its own 90 % interval; from 0 it moves by all of it.

    Examples
    --------
    >>> certain_move(SampleRatio(1.5, 0.0, 9), 1.0), certain_move(SampleRatio(1.5, None), 1.0)
    (0.5, 0.5)
    """
    beyond = max(0.0, abs(measured.value - stored) - (measured.half_width or 0.0))
    return beyond / abs(stored) if stored else float(beyond > 0.0)


def combine_changes(parts: Iterable[MeasuredChange]) -> MeasuredChange:
    """Several as one."""
    listed = list(parts)
    return MeasuredChange(any(change.first for change in listed), max((change.moved for change in listed), default=0.0))
