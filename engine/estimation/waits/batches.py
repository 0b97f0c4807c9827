"""Micro-batches over time: when each begins and ends, by the work that came before it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.arrays import FloatArray
from engine.compiler import compiled

__all__ = ["BatchSchedule", "ServerWork", "batch_schedule"]


_TOLERANCE = 1e-9  # of an interval


@dataclass(frozen=True, eq=False)
class ServerWork:
    """Work of the servers that batches run on, n of them over d subintervals of `width_s`.

    `brought` and `room` are cycles that came, and that can be done, up to each edge, (n, d + 1); `ahead` is what a
    second can do after the horizon, (n,).
    """

    width_s: float
    brought: FloatArray
    room: FloatArray
    ahead: FloatArray

    @classmethod
    def of(cls, load: FloatArray, capacity: FloatArray, width_s: float) -> ServerWork:
        """From cycles per subinterval, (n, d), and capacities per second, (n, 1 or d)."""
        room = np.broadcast_to(capacity, load.shape) * width_s
        edge = np.zeros((len(load), 1))
        return cls(
            width_s,
            np.hstack([edge, np.cumsum(load, axis=1)]),
            np.hstack([edge, np.cumsum(room, axis=1)]),
            np.ascontiguousarray(capacity[:, -1]),
        )

    def backlog_s(self, times_s: FloatArray) -> FloatArray:
        """Seconds that the busiest server needs, at each time, for what came so far, were it never to wait."""
        edges = np.arange(self.brought.shape[1]) * self.width_s
        worst = np.zeros(len(times_s))
        for brought, room, ahead in zip(self.brought, self.room, self.ahead, strict=True):
            netput = brought - room
            excess = np.interp(times_s, edges, netput - np.minimum.accumulate(netput))
            reached = np.interp(times_s, edges, room) + ahead * np.maximum(times_s - edges[-1], 0.0)
            done = reached + excess
            beyond = np.maximum(done - room[-1], 0.0) / ahead
            inside = np.interp(done, room, edges)  # a pause of the capacity is passed with what follows it
            worst = np.maximum(worst, np.where(excess > 0.0, inside + beyond - times_s, 0.0))
        return worst


@dataclass(frozen=True, eq=False)
class BatchSchedule:
    """Batches in order: `starts` and `ends`, (batches,). After the last one they are empty and come every interval."""

    interval_s: float
    overhead_s: float
    starts: FloatArray
    ends: FloatArray

    def taking(self, times_s: FloatArray, ahead: int = 0) -> FloatArray:
        """Start of the batch that takes what comes at each time, or of the one so many after it.

        What comes at the very start of a batch is for the next one.
        """
        last, times_s = len(self.starts) - 1, times_s + _TOLERANCE * self.interval_s
        behind = np.floor((times_s - self.starts[-1]) / self.interval_s) + 1.0
        found = np.searchsorted(self.starts, times_s, side="right")
        number = np.where(times_s >= self.starts[-1], last + behind, found) + ahead
        after = np.maximum(number - last, 0.0)
        step_s = max(self.interval_s, self.overhead_s)
        begun = self.starts[np.minimum(number, last).astype(np.int64)]
        first_s = max(self.interval_s, self.ends[-1] - self.starts[-1])
        return np.asarray(begun + np.where(after > 0.0, first_s + (after - 1.0) * step_s, 0.0))

    def end_of(self, starts_s: FloatArray) -> FloatArray:
        """End of the batch that begins at each of these times."""
        found = np.searchsorted(self.starts, starts_s - _TOLERANCE * self.interval_s)
        inside = found < len(self.starts)
        ends = self.ends[np.minimum(found, len(self.starts) - 1)]
        return np.asarray(np.where(inside, ends, starts_s + self.overhead_s))


def batch_schedule(work: ServerWork, interval_s: float, overhead_s: float, phase_s: float) -> BatchSchedule:
    """Batches over a horizon; the first trigger after its beginning is `phase_s` before a multiple of the interval.

    A batch takes what has come since the one before began. It lasts as long as the busiest of its servers needs, and
    `overhead_s`; one that takes longer than the interval is followed at once.
    """
    first_s = interval_s - phase_s % interval_s
    room = int((work.brought.shape[1] - 1) * work.width_s / interval_s) + 3
    starts, ends = np.empty(room), np.empty(room)
    count = _run_batches(
        work.brought, work.room, work.ahead, work.width_s, interval_s, overhead_s, first_s, starts, ends
    )
    return BatchSchedule(interval_s, overhead_s, starts[:count], ends[:count])


@compiled
def _run_batches(
    brought: FloatArray,
    room: FloatArray,
    ahead: FloatArray,
    width_s: float,
    interval_s: float,
    overhead_s: float,
    first_s: float,
    starts: FloatArray,
    ends: FloatArray,
) -> int:
    """Fill `starts` and `ends` until nothing is left of the horizon; the number of batches."""
    servers, edges = brought.shape
    horizon_s = (edges - 1) * width_s
    taken = np.zeros(servers)
    count, start = 0, first_s
    while count < len(starts):
        end = start
        for i in range(servers):
            came = _level(brought[i], width_s, start, 0.0)
            if came > taken[i]:
                done = _level(room[i], width_s, start, ahead[i]) + came - taken[i]
                end = max(end, _reached(room[i], width_s, done, ahead[i]))
                taken[i] = came
        starts[count], ends[count] = start, end + overhead_s
        count += 1
        if start >= horizon_s:
            break
        on_time = first_s + np.floor((start - first_s) / interval_s + 1.0 + 1e-9) * interval_s
        start = on_time if ends[count - 1] <= on_time else ends[count - 1]
    return count


@compiled
def _level(row: FloatArray, width_s: float, time_s: float, ahead: float) -> float:
    """Value of a sum over time at one time."""
    last = len(row) - 1
    p = int(time_s / width_s)
    if p >= last:
        return row[last] + ahead * (time_s - last * width_s)
    return row[p] + (row[p + 1] - row[p]) * (time_s / width_s - p)


@compiled
def _reached(row: FloatArray, width_s: float, value: float, ahead: float) -> float:
    """Time at which a sum over time reaches a value."""
    last = len(row) - 1
    if value >= row[last]:
        return last * width_s + (value - row[last]) / ahead
    p = np.searchsorted(row, value, "left")  # the first edge at or above the value
    if p == 0:
        return 0.0
    step = row[p] - row[p - 1]
    return (p - 1 + (value - row[p - 1]) / step) * width_s
