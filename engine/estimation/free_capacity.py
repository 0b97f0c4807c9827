"""Free capacity of servers as sorted lists of intervals, for Mace-Flow.

An interval is kept in the server's own clock. For a constant capacity that is time; for a series it is work done so
far (the integral of the capacity), in which a pause has no length and is skipped by itself. Lists are chains through
one pool of rows, so taking capacity never moves other intervals.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from engine.arrays import FloatArray, IntArray
from engine.compiler import compiled, compiled_uncounted

__all__ = ["CapacityRates", "FreeCapacity", "ensure_room", "new_capacity", "take_capacity"]

# Rounding leaves slivers that no work could use but that would count as "free from here"; narrower ones are dropped.
_SLIVER = 4e-15


class CapacityRates(NamedTuple):
    """Capacity of the servers: constant per second, or row `series_row` of the integrals at the subintervals' ends."""

    constant: FloatArray  # (n,)
    series_row: IntArray  # (n,), -1 for a constant
    series: FloatArray  # (k, d) per second
    done: FloatArray  # (k, d + 1) integral of the series
    width_s: float


class FreeCapacity(NamedTuple):
    """Chains of intervals: bounds[:, 0] to bounds[:, 1] is free.

    `first` starts a server's chain, state[0] that of the state[1] unused rows; `owner` is a row's server, -1 for none.
    """

    bounds: FloatArray  # (rows, 2)
    following: IntArray  # (rows,), -1 ends a chain
    previous: IntArray  # (rows,), -1 starts a chain
    owner: IntArray  # (rows,)
    first: IntArray  # (n,)
    state: IntArray  # (2,)


@compiled
def new_capacity(servers: int) -> FreeCapacity:
    """Everything free for ever on every server."""
    rows = 2 * servers + 64
    bounds = np.zeros((rows, 2))
    bounds[:, 1] = np.inf
    following = np.arange(1, rows + 1)
    following[:servers] = -1
    following[rows - 1] = -1
    owner = np.full(rows, -1)
    for server in range(servers):
        owner[server] = server
    return FreeCapacity(
        bounds, following, np.full(rows, -1), owner, np.arange(servers), np.array([servers, rows - servers])
    )


@compiled
def ensure_room(pool: FreeCapacity, wanted: int) -> FreeCapacity:
    """The same pool with at least `wanted` unused rows; taking capacity once uses up one at most."""
    if pool.state[1] > wanted:
        return pool
    rows = len(pool.following)
    more = rows + wanted
    bounds = np.empty((rows + more, 2))
    following = np.arange(1, rows + more + 1)
    previous, owner = np.full(rows + more, -1), np.full(rows + more, -1)
    for row in range(rows):  # numba compiles a loop in no time, and slices of arrays in seconds
        bounds[row, 0], bounds[row, 1] = pool.bounds[row]
        following[row] = pool.following[row]
        previous[row] = pool.previous[row]
        owner[row] = pool.owner[row]
    following[rows + more - 1] = pool.state[0]
    pool.state[0] = rows
    pool.state[1] += more
    return FreeCapacity(bounds, following, previous, owner, pool.first, pool.state)


@compiled_uncounted
def _clock(rates: CapacityRates, row: int, time: float) -> float:
    """Work a server of varying capacity could have done by `time`; none before the horizon."""
    if time < 0.0:
        return 0.0
    d = rates.series.shape[1]
    p = min(int(time / rates.width_s), d - 1)
    return float(rates.done[row, p] + (time - p * rates.width_s) * rates.series[row, p])


@compiled_uncounted
def _time(rates: CapacityRates, row: int, work: float, latest: bool) -> float:
    """Instant at which `work` is reached: the first one, or with `latest` the last (after a pause)."""
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


@compiled_uncounted
def take_capacity(
    pool: FreeCapacity, rates: CapacityRates, server: int, horizon: float, at: float, work: float, finger: int
) -> tuple[float, float, int]:
    """Take the earliest free capacity at or after `at` for `work`.

    Parameters
    ----------
    horizon : float
        Nothing will be asked for before it any more.
    finger : int
        The row that the same replica was given last time: its next request is not far from there, and in an overload
        the chain is long. Any number will do.

    Returns
    -------
    start, end, finger
        With no work both times are the first free instant.
    """
    row = rates.series_row[server]
    if row < 0:
        return _cut(pool, server, horizon, at, work / rates.constant[server], finger)
    forget, begin = _clock(rates, row, horizon), _clock(rates, row, at)
    begin, end, node = _cut(pool, server, forget, begin, work, finger)
    start = max(at, _time(rates, row, begin, True))
    return start, start if work <= 0.0 else _time(rates, row, end, False), node


@compiled_uncounted
def _cut(
    pool: FreeCapacity, server: int, forget: float, at: float, need: float, finger: int
) -> tuple[float, float, int]:
    """`take_capacity` in the server's own clock."""
    bounds, following = pool.bounds, pool.following
    node = pool.first[server]
    while bounds[node, 1] <= forget:
        node = _drop(pool, server, node)
    if pool.owner[finger] == server and bounds[node, 1] <= at and bounds[finger, 0] <= at:
        node = finger
    while bounds[node, 1] <= at:
        node = following[node]
    start = max(at, bounds[node, 0])
    if need <= 0.0:
        return start, start, node
    begin = start
    while True:
        low, high = bounds[node, 0], bounds[node, 1]
        sliver = _SLIVER * begin
        if begin + need < high - sliver:
            break
        need -= high - begin
        if begin - low > sliver:
            bounds[node, 1] = begin
            node = following[node]
        else:
            node = _drop(pool, server, node)
        if need <= sliver:
            return start, high, node
        begin = bounds[node, 0]
    end = begin + need
    if begin - low > sliver:
        fresh = pool.state[0]
        pool.state[0] = following[fresh]
        pool.state[1] -= 1
        bounds[fresh, 0], bounds[fresh, 1] = end, high
        bounds[node, 1] = begin
        pool.owner[fresh] = server
        _chain(pool, fresh, following[node])
        _chain(pool, node, fresh)
        return start, end, fresh
    bounds[node, 0] = end
    return start, end, node


@compiled_uncounted
def _chain(pool: FreeCapacity, before: int, after: int) -> None:
    pool.following[before] = after
    if after >= 0:
        pool.previous[after] = before


@compiled_uncounted
def _drop(pool: FreeCapacity, server: int, node: int) -> int:
    """Take a row out of its chain; returns the row after it."""
    before, after = pool.previous[node], pool.following[node]
    if before < 0:
        pool.first[server] = after
        pool.previous[after] = -1
    else:
        _chain(pool, before, after)
    pool.owner[node] = -1
    pool.following[node] = pool.state[0]
    pool.state[0] = node
    pool.state[1] += 1
    return int(after)
