"""Free capacity of servers as sorted lists of intervals, for Mace-Flow.

An interval is kept in the server's own clock. For a constant capacity that is time; for a series it is work done so
far (the integral of the capacity), in which a pause has no length and is skipped by itself. Lists are chains through
one pool of rows, so taking capacity never moves other intervals.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from engine.compiled import compiled
from engine.elements import FloatArray, IntArray

__all__ = ["Pool", "Rates", "ensure_room", "new_pool", "take"]

# Rounding leaves slivers that no work could use but that would count as "free from here"; narrower ones are dropped.
_SLIVER = 4e-15


class Rates(NamedTuple):
    """Capacity of the servers: constant per second, or row `series_row` of the integrals at the subintervals' ends."""

    constant: FloatArray  # (n,)
    series_row: IntArray  # (n,), -1 for a constant
    series: FloatArray  # (k, d) per second
    done: FloatArray  # (k, d + 1) integral of the series
    width_s: float


class Pool(NamedTuple):
    """Chains of intervals: bounds[:, 0] to bounds[:, 1] is free.

    `first` starts a server's chain, state[0] that of the unused rows.
    """

    bounds: FloatArray  # (rows, 2)
    following: IntArray  # (rows,), -1 ends a chain
    first: IntArray  # (n,)
    state: IntArray  # (1,)


@compiled
def new_pool(servers: int) -> Pool:
    """Everything free for ever on every server."""
    rows = 2 * servers + 64
    bounds = np.zeros((rows, 2))
    bounds[:, 1] = np.inf
    following = np.arange(1, rows + 1)
    following[:servers] = -1
    following[rows - 1] = -1
    return Pool(bounds, following, np.arange(servers), np.array([servers]))


@compiled
def ensure_room(pool: Pool) -> Pool:
    """The same pool with at least one unused row; it doubles when it is full."""
    if pool.state[0] >= 0:
        return pool
    rows = len(pool.following)
    bounds = np.empty((2 * rows, 2))
    bounds[:rows] = pool.bounds
    following = np.arange(1, 2 * rows + 1)
    following[:rows] = pool.following
    following[2 * rows - 1] = -1
    pool.state[0] = rows
    return Pool(bounds, following, pool.first, pool.state)


@compiled
def _clock(rates: Rates, row: int, time: float) -> float:
    """Work a server of varying capacity could have done by `time`."""
    d = rates.series.shape[1]
    p = min(int(time / rates.width_s), d - 1)
    return float(rates.done[row, p] + (time - p * rates.width_s) * rates.series[row, p])


@compiled
def _time(rates: Rates, row: int, work: float, latest: bool) -> float:
    """When `work` is reached: the first such instant, or with `latest` the last (after a pause)."""
    low, high = 0, rates.series.shape[1]
    while low < high:
        middle = (low + high) // 2
        end = rates.done[row, middle + 1]
        if end < work or (latest and end == work):
            low = middle + 1
        else:
            high = middle
    p = min(low, rates.series.shape[1] - 1)
    while rates.series[row, p] == 0.0:
        p += 1
    return float(p * rates.width_s + (work - rates.done[row, p]) / rates.series[row, p])


@compiled
def take(pool: Pool, rates: Rates, server: int, horizon: float, at: float, work: float) -> tuple[float, float]:
    """Take the earliest free capacity at or after `at` for `work`; returns when it starts and ends.

    Nothing will be asked for before `horizon` any more. With no work both times are the first free instant.
    """
    row = rates.series_row[server]
    if row < 0:
        return _cut(pool, server, horizon, at, work / rates.constant[server])
    forget, begin = _clock(rates, row, horizon), _clock(rates, row, at)
    begin, end = _cut(pool, server, forget, begin, work)
    start = max(at, _time(rates, row, begin, True))
    return start, start if work <= 0.0 else _time(rates, row, end, False)


@compiled
def _cut(pool: Pool, server: int, forget: float, at: float, need: float) -> tuple[float, float]:
    """`take` in the server's own clock."""
    bounds, following = pool.bounds, pool.following
    node = pool.first[server]
    while bounds[node, 1] <= forget:
        pool.first[server] = following[node]
        following[node] = pool.state[0]
        pool.state[0] = node
        node = pool.first[server]
    before = -1
    while bounds[node, 1] <= at:
        before = node
        node = following[node]
    start = max(at, bounds[node, 0])
    if need <= 0.0:
        return start, start
    begin = start
    while True:
        low, high = bounds[node, 0], bounds[node, 1]
        sliver = _SLIVER * begin
        head = begin - low > sliver
        if begin + need < high - sliver:
            break
        need = max(0.0, need - (high - begin))
        after = following[node]
        if head:
            bounds[node, 1] = begin
            before = node
        else:
            if before < 0:
                pool.first[server] = after
            else:
                following[before] = after
            following[node] = pool.state[0]
            pool.state[0] = node
        if need <= sliver:
            return start, high
        node = after
        begin = bounds[node, 0]
    end = begin + need
    if head:
        fresh = pool.state[0]
        pool.state[0] = following[fresh]
        bounds[fresh, 0], bounds[fresh, 1] = end, high
        following[fresh] = following[node]
        bounds[node, 1] = begin
        following[node] = fresh
    else:
        bounds[node, 0] = end
    return start, end
