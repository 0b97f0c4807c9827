"""Grid of a cluster: recorded time stamps or counts of any step become events per slice.

A count is spread evenly over the time it covers; no event is made up or lost inside the chosen stretch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.arrays import FloatArray

__all__ = ["EventCounts", "EventStamps", "Trace", "busiest_start", "resample", "stamp_step_s"]


@dataclass(frozen=True, eq=False)
class EventStamps:
    """One event per time stamp (unix seconds, ascending), shape (n,)."""

    times_s: FloatArray

    @property
    def start_s(self) -> float:
        return float(self.times_s[0])

    @property
    def end_s(self) -> float:
        """Just after the last event: the smallest float above it, so that the stretch holds every event."""
        return float(np.nextafter(self.times_s[-1], np.inf))

    @property
    def total(self) -> float:
        return float(len(self.times_s))


@dataclass(frozen=True, eq=False)
class EventCounts:
    """Events in intervals that begin at `starts_s` (unix seconds, ascending) and last `widths_s`; shapes (n,).

    Intervals do not overlap. Time between them has no events.
    """

    starts_s: FloatArray
    widths_s: FloatArray
    counts: FloatArray

    @property
    def start_s(self) -> float:
        return float(self.starts_s[0])

    @property
    def end_s(self) -> float:
        return float(self.starts_s[-1] + self.widths_s[-1])

    @property
    def total(self) -> float:
        return float(self.counts.sum())


Trace = EventStamps | EventCounts

_STAMP_STEPS_S = (60.0, 1.0, 0.1, 0.01, 0.001)


def stamp_step_s(stamps: EventStamps) -> float:
    """Width at which single events are known: that which all of their times are multiples of; 0 if there is none.

    Examples
    --------
    >>> stamp_step_s(EventStamps(np.array([3.0, 7.0]))), stamp_step_s(EventStamps(np.array([3.25, 7.0])))
    (1.0, 0.01)
    """
    for step_s in _STAMP_STEPS_S:
        parts = stamps.times_s / step_s
        if (np.abs(parts - np.round(parts)) < 1e-3).all():
            return step_s
    return 0.0


def busiest_start(trace: Trace, horizon_s: float) -> float:
    """Start of the window of `horizon_s` with the most events (the trace's start if it is shorter).

    Stretches that begin with an event or with an interval are compared: for stamps one of them is always the busiest.
    """
    if trace.end_s - trace.start_s <= horizon_s:
        return trace.start_s
    if isinstance(trace, EventStamps):
        inside = np.searchsorted(trace.times_s, trace.times_s + horizon_s) - np.arange(len(trace.times_s))
        return float(trace.times_s[int(np.argmax(inside))])
    starts = trace.starts_s[trace.starts_s + horizon_s <= trace.end_s]
    edges = np.column_stack([trace.starts_s, trace.starts_s + trace.widths_s]).ravel()
    events = np.concatenate([[0.0], np.cumsum(trace.counts)])
    reached = np.column_stack([events[:-1], events[1:]]).ravel()
    return float(starts[int(np.argmax(np.interp(starts + horizon_s, edges, reached) - events[: len(starts)]))])


def resample(trace: Trace, *, start_s: float, slice_s: float, slices: int, fill: str = "zero") -> FloatArray:
    """Events in each of `slices` slices of `slice_s` seconds from `start_s` on.

    Parameters
    ----------
    trace : Stamps or Counts
        What was recorded.
    start_s : float
        Unix time of the first slice's beginning.
    fill : {"zero", "repeat"}
        What follows where the trace ends before the horizon: nothing, or the stretch from `start_s` to its end again
        (its length rounded up to whole slices, so that a repetition begins with a slice).

    Returns
    -------
    ndarray, shape (slices,)
        Their sum is the number of events between start and horizon, to rounding.

    Raises
    ------
    ValueError
        If `fill` is another word, or `start_s` is not inside the trace.
    """
    if fill not in {"zero", "repeat"}:
        raise ValueError(f"fill is {fill!r}; allowed are 'zero' and 'repeat'")
    if not trace.start_s - slice_s * slices < start_s < trace.end_s:
        raise ValueError(f"the stretch from {start_s!r} on has nothing of the trace")
    grid = start_s + slice_s * np.arange(slices + 1)
    counted = _stamps(trace, grid) if isinstance(trace, EventStamps) else _spread(trace, grid)
    if fill == "zero":
        return counted
    # A millionth of a slice is rounding, not a reason for a repetition to begin one slice later.
    recorded = int(np.searchsorted(grid[:-1], trace.end_s - 1e-6 * slice_s))
    return np.resize(counted[: max(1, recorded)], slices)


def _stamps(trace: EventStamps, grid: FloatArray) -> FloatArray:
    """Events per slice; a stamp on an edge belongs to the slice it begins."""
    return np.diff(np.searchsorted(trace.times_s, grid)).astype(np.float64)


def _spread(trace: EventCounts, grid: FloatArray) -> FloatArray:
    """Events per slice, each count spread evenly over its interval.

    Every piece between two neighbouring edges (of intervals or of slices) lies in one interval and one slice; summing
    pieces keeps zeros exact, which the difference of two cumulated sums would not.
    """
    ends = trace.starts_s + trace.widths_s
    # At real times a sum is rounded to 1e-7 s: an interval must neither reach into the next one nor be longer in the
    # division below than it is on the axis, or events would be lost by that much.
    ends[:-1] = np.minimum(ends[:-1], trace.starts_s[1:])
    near = slice(np.searchsorted(ends, grid[0], "right"), np.searchsorted(trace.starts_s, grid[-1]))
    starts, ends = trace.starts_s[near], ends[near]
    if not len(starts):  # the whole stretch lies in a gap
        return np.zeros(len(grid) - 1)
    rates = trace.counts[near] / (ends - starts)
    inner = np.concatenate([starts, ends])
    edges = np.union1d(grid, inner[(inner > grid[0]) & (inner < grid[-1])])
    # A piece is where its left end is: between neighbouring floats there is no middle to ask for.
    left = edges[:-1]
    interval = np.maximum(np.searchsorted(starts, left, "right") - 1, 0)
    events = np.where((starts[interval] <= left) & (left < ends[interval]), rates[interval], 0.0) * np.diff(edges)
    where = np.searchsorted(grid, left, "right") - 1
    return np.bincount(where, weights=events, minlength=len(grid) - 1).astype(np.float64)
