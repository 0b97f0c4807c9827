"""What is worth telling: changes that noise does not make.

Every change of a statistic makes every estimate of its cluster anew, so one is passed on only where it says more than
the last: the value moved by more than its own uncertainty, the sample grew much, or what is known has become old.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from engine.elements import FloatArray
from engine.measurement.ratios import Ratio, Statistic
from engine.measurement.readiness import LEAST_EVENTS, LEAST_SUBINTERVALS

__all__ = [
    "LEAST_SHARE",
    "arrivals_differ",
    "arrivals_moved",
    "is_usable",
    "rounded_shares",
    "shares_differ",
    "shares_moved",
    "statistic_differs",
]

LEAST_MOVE = 0.02  # of the value: less moves no estimate beyond its own resolution
GROWTH = 2.0  # a sample twice as large narrows the interval by 30 %
OLD_S = 600.0
LEAST_SHARE = 0.01  # of an operator's events; smaller parts are noise of a placement
_SHARE_MOVE = 0.05
_RATE_MOVE = 0.1


def is_usable(found: Statistic) -> bool:
    """Whether a sample may take the place of an assumption: it need not be ready, its interval tells how good it is."""
    return found.events >= LEAST_EVENTS and found.subintervals >= LEAST_SUBINTERVALS


def statistic_differs(
    found: Statistic, *, selectivity: float, cycles_per_event: float, events: float, age_s: float | None
) -> bool:
    """Whether a statistic says more than the stored one; `age_s` is None where that is an assumption."""
    if age_s is None:
        return True
    moved = _moved(found.selectivity, selectivity) or _moved(found.cycles_per_event, cycles_per_event)
    return moved or found.events >= GROWTH * events or age_s >= OLD_S


def _moved(found: Ratio, stored: float) -> bool:
    """By more than 2 % and more than half the 90 % interval to one side."""
    least = max(LEAST_MOVE * stored, 0.5 * (found.half_width or 0.0))
    return abs(found.value - stored) > least


def arrivals_differ(found: FloatArray, stored: FloatArray | None, *, age_s: float | None) -> bool:
    """Whether mean or peak of a source (99th percentile of its slices) moved by 10 %, or the series is old."""
    if stored is None or age_s is None or age_s >= OLD_S or len(found) != len(stored):
        return True
    return arrivals_moved(found, stored) > _RATE_MOVE


def arrivals_moved(found: FloatArray, stored: FloatArray) -> float:
    """The larger move of mean and peak, as a share of the stored one; from 0 they move by all of it."""
    pairs = [(float(measure(found)), float(measure(stored))) for measure in (np.mean, _peak)]
    return max(abs(new - old) / old if old else float(new != old) for new, old in pairs)


def _peak(values: FloatArray) -> float:
    return float(np.quantile(values, 0.99))


def rounded_shares(shares: Mapping[str, float]) -> dict[str, float]:
    """Shares in hundredths that add up to 1; parts below `LEAST_SHARE` go to the largest.

    Examples
    --------
    >>> rounded_shares({"a": 0.5004, "b": 0.4951, "c": 0.0045})
    {'a': 0.5, 'b': 0.5}
    """
    kept = {name: round(share, 2) for name, share in shares.items() if share >= LEAST_SHARE}
    if not kept:
        return {}
    largest = max(kept, key=lambda name: kept[name])
    kept[largest] = round(1.0 - sum(share for name, share in kept.items() if name != largest), 2)
    return kept


def shares_differ(found: Mapping[str, float], stored: Mapping[str, float]) -> bool:
    """Whether a placement has other places, or one of them a share that moved by 5 points."""
    return found.keys() != stored.keys() or shares_moved(found, stored) > _SHARE_MOVE


def shares_moved(found: Mapping[str, float], stored: Mapping[str, float]) -> float:
    """The largest move of a place's share.

    Examples
    --------
    >>> shares_moved({"a": 0.5, "b": 0.5}, {"b": 1.0})
    0.5
    """
    return max(
        (abs(found.get(name, 0.0) - stored.get(name, 0.0)) for name in found.keys() | stored.keys()), default=0.0
    )
