"""Clocks of waits: events counted over time, boundaries of periods, and windows that hold results until they close."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from engine.arrays import FloatArray
from engine.document.deployment import Deployment
from engine.document.elements import ON_UPDATE, Operator

__all__ = [
    "EventClock",
    "closes",
    "common_period",
    "is_event_time",
    "next_boundary",
    "sources_above",
    "watermark_delays",
]

_TOLERANCE = 1e-9  # of a period: a result that leaves at a boundary is not a rounding error after it
_LAST = 1e-9  # of an event: a count is reached with its last event, not with the next one
_MAX_CYCLE = 1000  # periods; beyond that their boundaries fall anywhere alike
_MAX_DENOMINATOR = 10**6


class EventClock:
    """Events counted over time, from those of every subinterval, shape (d,). The horizon repeats before and after.

    Examples
    --------
    >>> clock = EventClock(np.array([4.0, 0.0, 2.0]), 1.0)
    >>> clock.count(np.array([0.5, 2.0, 3.5])), clock.time_of(np.array([2.0, 4.0, 5.0, 8.0])).round(6)
    (array([2., 4., 8.]), array([0.5, 1. , 2.5, 3.5]))
    """

    def __init__(self, events: FloatArray, width_s: float) -> None:
        self.events, self.horizon_s = events, len(events) * width_s
        self._edges = np.arange(len(events) + 1) * width_s
        self._reached = np.concatenate([[0.0], np.cumsum(events)])
        self.total = float(self._reached[-1])
        self._width_s, self._is_counted = width_s, bool((events == np.round(events)).all())

    def count(self, times_s: FloatArray) -> FloatArray:
        """Events up to each time; negative before the horizon."""
        rounds, inside = np.divmod(times_s, self.horizon_s)
        return np.asarray(rounds * self.total + np.interp(inside, self._edges, self._reached))

    def time_of(self, counts: FloatArray) -> FloatArray:
        """Time at which each count is reached, before any pause that follows; infinite without events."""
        if not self.total > 0.0:
            return np.full(np.shape(counts), math.inf)
        rounds, inside = np.divmod(counts - _LAST, self.total)
        return np.asarray(rounds * self.horizon_s + np.interp(inside, self._reached, self._edges))

    def wait_for(self, times_s: FloatArray, events: FloatArray | float) -> FloatArray:
        """Seconds from each time until so many more events have come."""
        return np.asarray(np.maximum(self.time_of(self.count(times_s) + events) - times_s, 0.0))

    def gap_after(self, times_s: FloatArray, gaps: FloatArray) -> FloatArray:
        """Seconds from each time until the next event, where `gaps` are how many mean gaps each takes.

        Whole numbers were counted: chance moves their events within a subinterval only.
        """
        waits_s = self.wait_for(times_s, gaps)
        if self._is_counted:
            waits_s = np.minimum(waits_s, self.wait_for(times_s, 1.0) + self._width_s)
        return waits_s


def next_boundary(times_s: FloatArray, period_s: float, phase_s: FloatArray, *, inclusive: bool = False) -> FloatArray:
    """Earliest k `period_s` - `phase_s` after each time; at that time itself where `inclusive`.

    Examples
    --------
    >>> next_boundary(np.array([3.0, 10.0]), 10.0, np.zeros(2))
    array([10., 20.])
    """
    turns = (times_s + phase_s) / period_s
    whole = np.ceil(turns - _TOLERANCE) if inclusive else np.floor(turns + _TOLERANCE) + 1.0
    return np.asarray(whole * period_s - phase_s)


def common_period(periods_s: Sequence[float]) -> float:
    """Period after which all of several periods begin together, at most 1,000 times the longest; 0 for none.

    Examples
    --------
    >>> common_period([10.0, 4.0]), common_period([0.1, 0.25]), common_period([])
    (20.0, 0.5, 0.0)
    """
    if not periods_s:
        return 0.0
    cycle = Fraction(0)
    for period_s in periods_s:
        other = Fraction(period_s).limit_denominator(_MAX_DENOMINATOR) or Fraction(period_s)
        cycle = other if not cycle else Fraction(
            math.lcm(cycle.numerator * other.denominator, other.numerator * cycle.denominator),
            cycle.denominator * other.denominator,
        )  # fmt: skip
        if cycle > _MAX_CYCLE * max(periods_s):
            return _MAX_CYCLE * max(periods_s)
    return float(cycle)


def closes(operator: Operator) -> bool:
    """Whether an operator holds its results until a window closes."""
    return operator.window is not None and operator.window.emit != ON_UPDATE


def is_event_time(operator: Operator) -> bool:
    """Whether it is a watermark that closes an operator's windows."""
    return closes(operator) and operator.window is not None and operator.window.watermark_delay_s is not None


def sources_above(deployment: Deployment) -> list[set[int]]:
    """Sources of every operator, by whatever way."""
    graph, sources = deployment.graph, len(deployment.sources)
    above = [set[int]() for _ in deployment.operators]
    for j in graph.order:
        for stream in graph.in_stream[graph.in_start[j] : graph.in_start[j + 1]].tolist():
            above[j] |= {stream} if stream < sources else above[stream - sources]
    return above


def watermark_delays(deployment: Deployment) -> FloatArray:
    """Largest delay of the watermarks at and above every operator, (m,): a window waits for its slowest input."""
    graph, delays = deployment.graph, np.zeros(len(deployment.operators))
    for j in graph.order:
        window = deployment.operators[j].window
        above = graph.in_stream[graph.in_start[j] : graph.in_start[j + 1]] - len(deployment.sources)
        own = 0.0 if window is None else window.watermark_delay_s or 0.0
        delays[j] = max(own, delays[above[above >= 0]].max(initial=0.0))
    return delays
