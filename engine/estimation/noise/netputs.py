"""Netputs of all servers, drawn for a block of slices: costs, filtered events, slow changes, counts of coarse steps."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np

from engine.arrays import FloatArray
from engine.compiler import compiled, linked, source_stamp, spliced
from engine.estimation.noise.singles import (
    HALF,
    OF_COUNTS,
    OF_RATES,
    OF_SLOW,
    OF_WORK,
    ONE,
    STREAMS,
    ZERO,
    exp_single,
    log1p_above,
    place_of,
    places,
)
from engine.estimation.noise.tables import (
    KNOTS,
    CoarseArrivals,
    RandomPools,
    ServerBlock,
    ServerTable,
    SingleArray,
    server_block,
)

__all__ = ["draw_netputs", "drawn_work", "smooth_counts"]

_PIECE = 0.5  # how far a slice's work beyond its mean comes in one piece, where costs have heavy tails
_NORMAL_FROM = 8.0  # mean from which a Poisson count is drawn as a corrected normal
_THIRD, _NINTH = np.float32(1 / 3), np.float32(1 / 9)


@linked
def smooth_counts(arrivals: FloatArray, window: int, p0: int, p1: int, loads: ServerBlock) -> None:
    for u in range(arrivals.shape[0]):
        total = loads.window[u]
        for p in range(p0, p1):
            total += arrivals[u, p]
            if p > window:
                total -= arrivals[u, p - window - 1]
            loads.smooth[u, p - p0] = max(total, 0.0) / (min(p, window) + 1)
        loads.window[u] = total


@linked
def draw_netputs(
    servers: ServerTable,
    coarse: CoarseArrivals,
    pools: RandomPools,
    arrivals: FloatArray,
    w: float,
    window: int,
    p0: int,
    p1: int,
    loads: ServerBlock,
) -> None:
    """Netput of every server, slice and path, with what the stages need of the server."""
    k = servers.unsure.shape[1]
    for p in range(p0, p1):
        for c in range(len(coarse.source)):
            if p % coarse.slices[c] == 0:
                _draw_step(c, coarse, pools, arrivals[coarse.source[c]], p, loads)
        for s in range(len(servers.light)):
            at = p - p0
            scale = servers.scale[p if servers.scale.shape[0] > 1 else 0, s]
            x, jump = loads.x[s, at], loads.jump[s, at]
            mean = cost = thinning = inside = 0.0
            for e in range(servers.start[s], servers.start[s + 1]):
                u = servers.source[e]
                count = arrivals[u, p]
                mean += count * servers.mean[e]
                cost += count * servers.cost[e]
                thinning += count * servers.thinning[e]
                inside += count * servers.inside[e]
                gain = servers.gain[e]
                if e == servers.start[s]:
                    for i in range(k):
                        jump[i] = ZERO
                if coarse.row[u] >= 0:
                    drawn, factor = loads.drawn[coarse.row[u], p % coarse.slices[coarse.row[u]]], np.float32(scale)
                    for i in range(k):
                        jump[i] += drawn[i] * gain[i] * factor
                else:
                    factor = np.float32(count * scale)
                    for i in range(k):
                        jump[i] += factor * gain[i]
            square = scale * scale
            deviation = cost / (mean * mean) if mean > 0.0 else 0.0
            deviation = math.sqrt(deviation if servers.light[s] else log1p_above(deviation))
            loads.work[s, at] = mean * scale
            piece = 0.0 if servers.light[s] else _PIECE
            hidden = 1.0 - piece + 0.5 * piece * math.exp(-1.15 * deviation)
            loads.calm[s, at], loads.thin[s, at] = cost * hidden * square, thinning * (1.0 - 0.5 * piece) * square
            loads.shown[s, at] = (cost + thinning) * square - loads.calm[s, at] - loads.thin[s, at]
            loads.raw[s, at] = loads.thin[s, at] + inside * square
            series = servers.series[s]
            if series < 0:
                loads.room[s, at] = loads.smooth_room[s, at] = w
            else:
                done, first = servers.done[series], max(p - window, 0)
                loads.room[s, at] = done[p + 1] - done[p]
                loads.smooth_room[s, at] = (done[p + 1] - done[first]) / (p + 1 - first)
            _disturb(
                s,
                p,
                servers,
                pools,
                deviation,
                math.sqrt(thinning) / mean if thinning > 0.0 and mean > 0.0 else 0.0,
                jump,
                x,
            )
            slow = loads.slow[s]
            if servers.slow_sd[s] > 0.0:
                _change_costs(s, p, servers, pools, slow)
            total, room = servers.total[s], np.float32(loads.room[s, at])
            part = np.float32(piece)
            for i in range(k):
                beyond = max(x[i] - jump[i], ZERO)
                jump[i] = beyond * beyond * part
                x[i] = x[i] * max(ONE + slow[i], ZERO) * total[i] - room


@spliced
def _disturb(
    s: int,
    p: int,
    servers: ServerTable,
    pools: RandomPools,
    deviation: float,
    thinning: float,
    load: SingleArray,
    x: SingleArray,
) -> None:
    """A slice's work `x`: its `load` times what costs and the events that are filtered out deviate by."""
    k = len(x)
    unsure, sigma = servers.unsure[s], np.float32(deviation)
    place, other, _ = places(pools.seed, OF_WORK * STREAMS + servers.key[s], p)
    z = pools.normal[place : place + k]
    if deviation == 0.0:
        for i in range(k):
            x[i] = load[i]
    elif servers.light[s]:  # a gamma, by Wilson and Hilferty
        for i in range(k):
            y = sigma * unsure[i]
            root = max(ONE - y * y * _NINTH + y * z[i] * _THIRD, ZERO)
            x[i] = load[i] * (root * root * root)
    else:
        for i in range(k):
            y = sigma * unsure[i]
            x[i] = load[i] * exp_single(y * z[i] - HALF * y * y)
    if thinning > 0.0:
        z, sigma = pools.normal[other : other + k], np.float32(thinning)
        for i in range(k):
            x[i] *= max(ONE + sigma * z[i], ZERO)


@spliced
def _change_costs(s: int, p: int, servers: ServerTable, pools: RandomPools, slow: SingleArray) -> None:
    """The deviation of the slow factor in the next slice; it starts in its stationary state."""
    place = place_of(pools.seed, OF_SLOW * STREAMS + servers.key[s], p)
    z = pools.normal[place : place + len(slow)]
    keep = np.float32(servers.slow_keep[s] if p > 0 else 0.0)
    fresh = np.float32(servers.slow_sd[s]) * np.sqrt(ONE - keep * keep)
    for i in range(len(slow)):
        slow[i] = keep * slow[i] + fresh * z[i]


@linked
def _draw_step(
    c: int, coarse: CoarseArrivals, pools: RandomPools, counts: FloatArray, p: int, loads: ServerBlock
) -> None:
    """Draw the arrivals of the slices of a step, of which the sum is known, around a rate that moves inside it."""
    slices, drawn, rate = coarse.slices[c], loads.drawn[c], loads.rate[c]
    k = len(rate)
    known = 0.0
    for t in range(p, min(p + slices, len(counts))):
        known += counts[t]
    keep, deviation, course, knots = coarse.keep[c], coarse.deviation[c], loads.course, coarse.knots[c]
    loads.sums[:] = ZERO
    for knot in range(knots):
        place = place_of(pools.seed, OF_RATES * STREAMS + coarse.key[c], p * KNOTS + knot)
        for i in range(k):
            z = pools.normal[place + i]
            rate[i] = keep[i] * rate[i] + np.sqrt(ONE - keep[i] * keep[i]) * z if p + knot > 0 else z
            course[knot, i] = exp_single(deviation[i] * rate[i])
            loads.sums[i] += course[knot, i]
    for knot in range(knots):
        for i in range(k):
            course[knot, i] *= np.float32(knots * known / slices) / loads.sums[i]
    loads.sums[:] = ZERO
    for t in range(slices):
        means, counted = course[t * knots // slices], drawn[t]
        place = place_of(pools.seed, OF_COUNTS * STREAMS + coarse.key[c], p + t)
        for i in range(k):
            counted[i] = _poisson(means[i], pools.normal[place + i], pools.uniform[place + i])
            loads.sums[i] += counted[i]
    for t in range(slices):
        for i in range(k):
            drawn[t, i] = drawn[t, i] * (known / loads.sums[i]) if loads.sums[i] > ZERO else known / slices


@linked
def _poisson(mean: float, normal: float, uniform: float) -> float:
    """A Poisson count, by inversion; large means by a normal with the Poisson's skewness, which need not be whole."""
    if mean >= _NORMAL_FROM:
        return max(mean + math.sqrt(mean) * normal + (normal * normal - 1.0) / 6.0, 0.0)
    chance = math.exp(-mean)
    reached = chance
    count = 0.0
    while uniform > reached and count < 64.0:
        count += 1.0
        chance *= mean / count
        reached += chance
    return count


def _entry(stamp: int) -> Callable[..., FloatArray]:
    """The function, compiled once for this state of the package: numba's cache looks at its own file alone."""

    @compiled
    def drawn_work(
        servers: ServerTable, coarse: CoarseArrivals, pools: RandomPools, arrivals: FloatArray, w: float, block: int
    ) -> FloatArray:
        """Seconds of work (n, K) of the horizon by the numbers that `run_walk` draws."""
        assert stamp > 0  # naming it makes it part of the cache's key
        n, k = servers.unsure.shape
        loads = server_block(servers, coarse, block)
        total = np.zeros((n, k))
        for p0 in range(0, arrivals.shape[1], block):
            p1 = min(p0 + block, arrivals.shape[1])
            draw_netputs(servers, coarse, pools, arrivals, w, 1, p0, p1, loads)
            for s in range(n):
                for j in range(p1 - p0):
                    for i in range(k):
                        total[s, i] += loads.x[s, j, i] + loads.room[s, j]
        return total

    return drawn_work


drawn_work = _entry(source_stamp(Path(__file__).parent))
