"""When queries have caught up with what waits where the horizon begins.

A query has caught up when its latencies are those that it would have with nothing waiting; from there on they stay so.
On one server that is when it first runs empty: backlog / (capacity - load) where both are constant.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from engine.arrays import FloatArray, IntArray
from engine.estimation.flow import Flow
from engine.estimation.mace import Mace
from engine.words import duration_words, seconds_words

__all__ = ["LATER", "NEVER", "WITHIN", "CatchUp", "catch_up_of"]

WITHIN, LATER, NEVER = "within", "later", "never"

_SAME = 0.02  # share of a slice by which latencies may differ and still be the same
_FULL = 1.0 - 1e-9
_MINUTES_FROM_S = 600.0


@dataclass(frozen=True, slots=True)
class CatchUp:
    """When a query has caught up, in seconds from the horizon's beginning.

    Attributes
    ----------
    state : str
        ``within`` the horizon; ``later``, where a server of it still has more to do at its end; ``never``, where one
        gets more than it can do on the mean as well.
    at_s : float or None
        Later: at the mean load of the horizon. None: never.
    low_s, high_s : float or None
        Interval (90 %) of a time within the horizon; an end that lies beyond the horizon is None, and so are both
        where random costs and arrivals were not looked at.
    horizon_s : float
        Length of the horizon.
    """

    state: str
    at_s: float | None
    low_s: float | None
    high_s: float | None
    horizon_s: float

    @property
    def words(self) -> str:
        """Clause about it; minutes are too coarse for an interval of a few.

        Examples
        --------
        >>> CatchUp("within", 1200.0, 1100.0, None, 3600.0).words.replace("\u00a0", " ")
        'catches up after 20 min (18 min to more than 1 h)'
        >>> CatchUp("within", 200.0, 190.9, 209.2, 3600.0).words.replace("\u00a0", " ")
        'catches up after 200 s (191 s to 209 s)'
        >>> CatchUp("never", None, None, None, 600.0).words
        'never catches up at this load'
        """
        horizon = _words(self.horizon_s)
        if self.state == NEVER:
            return "never catches up at this load"
        if self.state == LATER:
            about = "" if self.at_s is None else f"; at the mean load after about {_words(self.at_s)}"
            return f"does not catch up within {horizon}{about}"
        words = f"catches up after {_words(self.at_s or 0.0)}"
        if self.low_s is None:
            return words
        high = f"more than {horizon}" if self.high_s is None else _words(self.high_s)
        return f"{words} ({_words(self.low_s)} to {high})"

    @property
    def latest_s(self) -> float:
        """Upper end, infinite where it lies beyond the horizon: for comparisons."""
        return self.at_s if self.state != NEVER and self.at_s is not None else np.inf

    def between(self, low_s: float | None, high_s: float | None) -> CatchUp:
        """The same with an interval, which the time itself is part of; it says nothing of times beyond the horizon."""
        if self.state != WITHIN or self.at_s is None or low_s is None:
            return self
        return replace(self, low_s=min(low_s, self.at_s), high_s=None if high_s is None else max(high_s, self.at_s))

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "state": self.state,
            "at_s": self.at_s,
            "low_s": self.low_s,
            "high_s": self.high_s,
            "horizon_s": self.horizon_s,
            "words": self.words,
        }


def _words(seconds: float) -> str:
    return seconds_words(float(f"{seconds:.3g}"))[0] if seconds < _MINUTES_FROM_S else duration_words(seconds)


def catch_up_of(query: str, flowed: Flow, unburdened: Flow, mace: Mace, servers: IntArray) -> CatchUp | None:
    """When `query` has caught up; None where nothing that waits holds it up.

    Parameters
    ----------
    flowed, unburdened : Flow
        Flow with what waits, and without.
    mace : Mace
        Of the same deployment, with what waits.
    servers : array
        Servers that the query's events pass.
    """
    deployment = mace.deployment
    horizon_s = deployment.subintervals * deployment.subinterval_s
    with_it, without = flowed.by_query[query], unburdened.by_query[query]
    width_s = horizon_s / len(with_it)
    late_s = np.maximum(with_it - without, 0.0)
    held = np.flatnonzero(late_s > _SAME * width_s)
    waits = flowed.lead_of_query(query)
    if not len(held) and not waits.any():
        return None
    if len(held) and held[-1] >= len(with_it) - 1:
        return _beyond(mace, servers, horizon_s)
    at_s = _end_of(late_s, held, width_s, float(mace.start_s[servers].max(initial=0.0)))
    if waits.any() and flowed.lead is not None:
        # Waiting events alone, where none comes behind them: when the last of them is through.
        at_s = max(at_s, float((waits - flowed.lead.ages_s).max()) if not len(held) else 0.0)
    if at_s >= horizon_s:
        return _beyond(mace, servers, horizon_s)
    return CatchUp(WITHIN, at_s, None, None, horizon_s)


def _end_of(late_s: FloatArray, held: IntArray, width_s: float, start_s: float) -> float:
    """Instant at which what a slice is late by has gone to 0, as fast as it went in the slice before.

    `start_s` is what the horizon begins with.
    """
    if not len(held):
        return 0.0
    last = int(held[-1])
    end_s, rest_s = (last + 1) * width_s, float(late_s[last])
    before_s = float(late_s[last - 1]) if last else start_s
    fall_s = before_s - rest_s
    return end_s + (min(1.0, rest_s / fall_s) * width_s if fall_s > 0.0 else 0.0)


def _beyond(mace: Mace, servers: IntArray, horizon_s: float) -> CatchUp:
    """Later or never, by the servers that are still behind at the end and their mean load."""
    behind = [i for i in servers.tolist() if mace.ce[i, -1] > 0.0]
    offered = mace.deployment.capacities.T
    at_s = horizon_s
    for i in behind:
        per_s = float(offered[i].mean())
        free_per_s = per_s - float(mace.load[i].sum()) / horizon_s
        if free_per_s <= (1.0 - _FULL) * per_s:
            return CatchUp(NEVER, None, None, None, horizon_s)
        at_s = max(at_s, horizon_s + float(mace.ce[i, -1]) / free_per_s)
    return CatchUp(LATER, at_s if behind else None, None, None, horizon_s)
