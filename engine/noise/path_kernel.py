"""The compiled pass of the walk: K paths of reflected netput through all servers, in blocks of slices.

A path's latency of a route follows L_p = X + max(L_(p-1), M): X is the netput (work less room) of the slice, M the
largest value of a Brownian bridge of what the stage before holds up. What is kept are the ends of blocks alone, so
memory does not grow with the horizon. The reasons stand in docs/models/noise.md.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from engine.arrays import FloatArray, IntArray
from engine.compiler import compiled, compiled_uncounted, spliced

__all__ = [
    "BINS",
    "BINS_PER_OCTAVE",
    "KNOTS",
    "POOL",
    "CoarseArrivals",
    "PartTable",
    "RandomPools",
    "ServerTable",
    "SingleArray",
    "StageTable",
    "WalkFigures",
    "drawn_work",
    "noiseless_stage",
    "run_walk",
    "stage_shape",
    "stage_shapes",
]

SingleArray = npt.NDArray[np.float32]

POOL = 1 << 15  # numbers of a pool of random ones, which every slice enters at a place of its own
KNOTS = 64  # most of the unknown rate inside a step of coarse counts
BINS_PER_OCTAVE = 16
BINS = 40 * BINS_PER_OCTAVE
_SHIFT = 19  # bits of a single's mantissa that a bin does not tell apart: 23 - log2(BINS_PER_OCTAVE)
_BIAS = 127 * BINS_PER_OCTAVE
_MAX_HOLD = 8  # slices for which what rests on smoothed loads is left as it is
_SLICES_PER_GROUP, _MAX_GROUPS = 4096, 4  # paths that take turns: one group per so many slices of the horizon
_MIN_KEEP = 1e-3
_PIECE = 0.5  # how far a slice's work beyond its mean comes in one piece, where costs have heavy tails
_NORMAL_FROM = 8.0  # mean from which a Poisson count is drawn as a corrected normal

_ZERO, _ONE, _TWO = np.float32(0.0), np.float32(1.0), np.float32(2.0)
_HALF, _THIRD, _SIXTH, _NINTH = np.float32(0.5), np.float32(1 / 3), np.float32(1 / 6), np.float32(1 / 9)
_SIXTYFOURTH = np.float32(1 / 64)
_MASK, _POOL_BITS, _TWO_POOLS = np.uint64(POOL - 1), np.uint64(15), np.uint64(30)
_A, _B, _C, _BY = (np.uint64(x) for x in (0x9E3779B97F4A7C15, 0xD1B54A32D192ED03, 0xD6E8FEB86659FD93, 32))

# Streams of random places: what draws them, times a number above the key of any server, stage, part and source.
_STREAMS = 1 << 32
_OF_WORK, _OF_SLOW, _OF_BRIDGES, _OF_PARTS, _OF_RATES, _OF_COUNTS = range(6)


class RandomPools(NamedTuple):
    """Pools of random numbers, POOL + K each so that a slice's K may begin anywhere."""

    seed: int
    normal: SingleArray
    expo: SingleArray  # -2 ln U
    log_expo: SingleArray  # ln(-ln U) of the same U
    uniform: SingleArray


class ServerTable(NamedTuple):
    """Servers and what the events of each source cost there; work in cycles or bytes, `scale` makes it seconds."""

    key: IntArray  # (n,) of the stream of random places, 32 bits
    start: IntArray  # (n + 1,) entries of server s
    source: IntArray
    mean: FloatArray  # work per event
    cost: FloatArray  # its variance by costs
    thinning: FloatArray  # its variance by events that are filtered out
    inside: FloatArray  # dispersion inside slices times `mean` squared
    gain: SingleArray  # (entries, K) work per event of every path
    scale: FloatArray  # (1 or d, n) seconds per unit of work at the server's usual capacity
    light: IntArray  # (n,) whether costs are drawn as gamma, else as lognormal
    unsure: SingleArray  # (n, K) factor on the deviation of costs
    slow_keep: FloatArray  # (n,) of the slow factor from slice to slice
    slow_sd: FloatArray  # (n,)
    total: SingleArray  # (n, K) factor that makes the work of the horizon the known one
    series: IntArray  # (n,) row in `done`, -1 for a constant capacity
    done: FloatArray  # (rows, d + 1) seconds of work at the usual capacity that fit before a slice
    ahead: FloatArray  # (rows,) the capacity after the horizon over the usual one


class StageTable(NamedTuple):
    """Stages: one server after one way to it. Their entries are those of the server, source by source."""

    key: IntArray  # (S,) of the stream of random places, 32 bits
    server: IntArray
    before: IntArray  # (S,) the stage before, -1 for sources
    delay: FloatArray  # (S,) seconds from there
    depth: IntArray  # (S,) place in its chain, from 1
    start: IntArray  # (S + 1,)
    source: IntArray
    mean: FloatArray  # work per event
    direct: FloatArray  # the part of `mean` that did not come by the stage before
    seen: FloatArray  # dispersion as it arrives here, times `mean` squared
    spread: FloatArray  # all variance of work
    kappa: FloatArray  # (S,) weight of single events before `keep` counts
    wider: SingleArray  # (S, K) variance of work of every path over the usual one
    wider_delta: SingleArray  # (S, K) the same of the correction of waits
    past_start: IntArray  # (S + 1,) servers passed before, in the order of their depth
    past_server: IntArray
    shared_start: IntArray  # entries of what both servers get of the same events
    shared_source: IntArray
    shared: FloatArray


class PartTable(NamedTuple):
    """Parts of queries: the events that leave by one stage, with the figures that a route's are made of."""

    key: IntArray  # (parts,) of the stream of random places, 32 bits
    query: IntArray
    stage: IntArray
    start: IntArray
    source: IntArray
    events: FloatArray  # at the sink per event of the source
    shift: FloatArray  # (parts,) usual correction for events that are jumps, seconds
    full: FloatArray  # (parts,) usual part of an event's own service that slices do not show
    service: FloatArray  # (queries,) seconds of one event along the query
    deviation: SingleArray  # (queries, K) of its logarithm
    least: FloatArray  # (queries,) lower end of the histogram


class CoarseArrivals(NamedTuple):
    """Sources of which counts are known for steps of several slices only."""

    key: IntArray  # (coarse,) of the stream of random places, 32 bits
    row: IntArray  # (sources,) place here, -1 where slices are known
    source: IntArray
    slices: IntArray  # of a step
    knots: IntArray  # of a step
    deviation: SingleArray  # (coarse, K) of the logarithm of the rate
    keep: SingleArray  # (coarse, K) of the rate from knot to knot


class WalkFigures(NamedTuple):
    """Sums, maxima and histograms of which a query's realised statistics are made."""

    top: SingleArray  # (queries, K) largest latency
    mean: FloatArray  # (queries, K) latency times events
    bins: FloatArray  # (queries, K, BINS) events by latency


class _ServerBlock(NamedTuple):
    """Memory of n servers for a block of B slices."""

    smooth: FloatArray  # (sources, B) counts smoothed over the window
    window: FloatArray  # (sources,) their sum
    work: FloatArray  # (n, B) mean seconds
    calm: FloatArray  # (n, B) variance of costs that the slices do not show
    thin: FloatArray  # (n, B) the same of events that are filtered out
    shown: FloatArray  # (n, B) the rest of both
    raw: FloatArray  # (n, B) variance of arrivals inside slices as they come from the sources
    room: FloatArray  # (n, B) seconds of work that fit
    smooth_room: FloatArray  # (n, B)
    x: SingleArray  # (n, B, K) netput
    jump: SingleArray  # (n, B, K) squared work beyond the mean
    slow: SingleArray  # (n, K) deviation of the slow factor
    drawn: SingleArray  # (coarse, most slices of a step, K)
    rate: SingleArray  # (coarse, K) logarithm of the rate
    course: SingleArray  # (KNOTS, K) mean counts of a step's slices
    sums: SingleArray  # (K,)


class _RouteBlock(NamedTuple):
    """Memory of S stages and of the parts of queries for a block; B + 1 rows begin with the last one before it."""

    held: SingleArray  # (B + 1, K) what the stage before holds up
    bridge: SingleArray  # (B, K)
    variance: SingleArray  # (K,)
    last: SingleArray  # (B + 1, K)
    last_end: SingleArray  # (S, K)
    held_end: SingleArray  # (S, K)
    out: SingleArray  # (S, B, K) latency
    busy: npt.NDArray[np.int32]  # (S, B, K) depth of the last stage that was busy all slice long, 0 for none
    fluid: FloatArray  # (S, B) latency without noise
    fluid_end: FloatArray  # (S, 2) its state: the stage's own latency, and what was held up before
    spread: FloatArray  # (S, B) variance of the whole slice
    hold: int  # slices for which what rests on smoothed loads is left as it is
    delta: FloatArray  # (S, B / hold) correction of waits
    keep: FloatArray  # (S, B / hold) how far a slice's count still shows at its end
    load: FloatArray  # (S, B / hold)
    often: FloatArray  # (S, B / hold) logarithm of the number of stationary excursions in a slice
    excursion: FloatArray  # (S, B / hold) their mean
    apart: FloatArray  # (queries, B) Flow less the walk without noise
    apart_end: FloatArray  # (queries,)
    events: FloatArray  # (queries, B) at the sinks
    latency: SingleArray  # (B + 1, K)
    wait: SingleArray  # (B + 1, K)
    value: SingleArray  # (B, K)
    bits: npt.NDArray[np.int32]  # (B, K) the same memory
    latency_end: SingleArray  # (parts, K)
    wait_end: SingleArray  # (parts, K)
    sums: SingleArray  # (K,)


@spliced
def _places(seed: int, stream: int, index: int) -> tuple[Any, Any, Any]:
    """Three places in the pools that look random, the same for the same arguments."""
    z = np.uint64(seed) + np.uint64(stream) * _A + np.uint64(index) * _B
    z = (z ^ (z >> _BY)) * _C
    z = (z ^ (z >> _BY)) * _C
    z ^= z >> _BY
    return np.int64(z & _MASK), np.int64((z >> _POOL_BITS) & _MASK), np.int64((z >> _TWO_POOLS) & _MASK)


@spliced
def _place(seed: int, stream: int, index: int) -> Any:
    return _places(seed, stream, index)[0]


@spliced
def _copy(source: SingleArray, target: SingleArray) -> None:
    for i in range(len(source)):
        target[i] = source[i]


@spliced
def _exp(x: Any) -> Any:
    """exp(x) in singles, for loops over paths: accurate to 1e-3 up to 8."""
    y = x * _SIXTYFOURTH
    y = _ONE + y * (_ONE + y * (_HALF + y * _SIXTH))
    y *= y
    y *= y
    y *= y
    y *= y
    y *= y
    return y * y


@spliced
def _log1p(x: float) -> float:
    """ln(1 + x) for x of at least 0, accurate to 1 %."""
    return math.log1p(x) if x > 2.0 else (3.0 * x * x + 6.0 * x) / (x * x + 6.0 * x + 6.0)


@compiled_uncounted
def stage_shape(rho: float, spread: float, kappa: float, room: float) -> tuple[float, float, float]:
    """Share of a slice's count that still shows at its end, lift of variances, and correction of waits in seconds.

    `rho` is the smoothed load, `spread` the smoothed variance of work per slice in seconds squared, `room` the slice's
    width in seconds of work.
    """
    free = 1.0 - rho
    per_second = spread / room if room > 0.0 else 0.0
    relax = per_second / max(free, 1e-3) ** 2
    keep = relax / (relax + room) if relax + room > 0.0 else 0.0
    weight = kappa * (1.0 - keep)
    log_rho = math.log(rho)
    lift = math.exp(-weight * log_rho)
    delta = weight * per_second * lift * (-log_rho / (2.0 * free) if rho < 0.999 else 0.5)
    return keep, lift, delta


@compiled
def stage_shapes(rho: FloatArray, spread: FloatArray, kappa: float, room: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Shares that show at the end, and corrections of waits, slice by slice: see `stage_shape`."""
    keep, delta = np.empty(len(rho)), np.empty(len(rho))
    for p in range(len(rho)):
        keep[p], _, delta[p] = stage_shape(rho[p], spread[p], kappa, room[p])
    return keep, delta


@compiled
def noiseless_stage(x: FloatArray, before: FloatArray, room: FloatArray, late: FloatArray) -> FloatArray:
    """Latency of a stage without noise, shape (d,): `x` is its netput, `before` what it gets, all in seconds."""
    out = np.zeros(len(x))
    last = prior = 0.0
    for p in range(len(x)):
        held = before[p] * late[p]
        last = _noiseless_step(x[p], last, prior, held, room[p])
        prior = held
        out[p] = max(last, before[p])
    return out


@spliced
def _noiseless_step(x: float, last: float, prior: float, held: float, room: float) -> float:
    idle = min(max(prior, held - x) - last, max(room + held - prior, 0.0))
    return max(x + last + max(idle, 0.0), 0.0)


@compiled
def _server_block(servers: ServerTable, coarse: CoarseArrivals, block: int) -> _ServerBlock:
    sources, n, k = len(coarse.row), len(servers.light), servers.unsure.shape[1]
    widest = 1
    for c in range(len(coarse.slices)):
        widest = max(widest, coarse.slices[c])
    return _ServerBlock(
        np.zeros((sources, block)),
        np.zeros(sources),
        np.zeros((n, block)),
        np.zeros((n, block)),
        np.zeros((n, block)),
        np.zeros((n, block)),
        np.zeros((n, block)),
        np.zeros((n, block)),
        np.zeros((n, block)),
        np.zeros((n, block, k), dtype=np.float32),
        np.zeros((n, block, k), dtype=np.float32),
        np.zeros((n, k), dtype=np.float32),
        np.zeros((len(coarse.slices), widest, k), dtype=np.float32),
        np.zeros((len(coarse.slices), k), dtype=np.float32),
        np.zeros((KNOTS, k), dtype=np.float32),
        np.zeros(k, dtype=np.float32),
    )


@compiled
def _route_block(stages: int, parts: int, queries: int, block: int, hold: int, k: int) -> _RouteBlock:
    held = (block + hold - 1) // hold
    value = np.zeros((block, k), dtype=np.float32)
    return _RouteBlock(
        np.zeros((block + 1, k), dtype=np.float32),
        np.zeros((block, k), dtype=np.float32),
        np.zeros(k, dtype=np.float32),
        np.zeros((block + 1, k), dtype=np.float32),
        np.zeros((stages, k), dtype=np.float32),
        np.zeros((stages, k), dtype=np.float32),
        np.zeros((stages, block, k), dtype=np.float32),
        np.zeros((stages, block, k), dtype=np.int32),
        np.zeros((stages, block)),
        np.zeros((stages, 2)),
        np.zeros((stages, block)),
        hold,
        np.zeros((stages, held)),
        np.zeros((stages, held)),
        np.zeros((stages, held)),
        np.zeros((stages, held)),
        np.zeros((stages, held)),
        np.zeros((queries, block)),
        np.zeros(queries),
        np.zeros((queries, block)),
        np.zeros((block + 1, k), dtype=np.float32),
        np.zeros((block + 1, k), dtype=np.float32),
        value,
        value.view(np.int32),
        np.zeros((parts, k), dtype=np.float32),
        np.zeros((parts, k), dtype=np.float32),
        np.zeros(k, dtype=np.float32),
    )


@compiled
def run_walk(
    servers: ServerTable,
    stages: StageTable,
    parts: PartTable,
    coarse: CoarseArrivals,
    pools: RandomPools,
    arrivals: FloatArray,
    latency: FloatArray,
    w: float,
    window: int,
    block: int,
) -> WalkFigures:
    """Figures of every query, from arrivals (sources, d) and Flow's latencies (queries, d) of slices of w seconds.

    Loads are smoothed over `window` slices and the one they end with.
    """
    queries, k, d = len(parts.service), servers.unsure.shape[1], arrivals.shape[1]
    loads = _server_block(servers, coarse, block)
    routes = _route_block(len(stages.server), len(parts.stage), queries, block, max(1, min(window // 5, _MAX_HOLD)), k)
    top, mean, bins = np.zeros((queries, k), dtype=np.float32), np.zeros((queries, k)), np.zeros((queries, k, BINS))
    figures = WalkFigures(top, mean, bins)
    for p0 in range(0, d, block):
        p1 = min(p0 + block, d)
        _smooth_counts(arrivals, window, p0, p1, loads)
        _draw_netputs(servers, coarse, pools, arrivals, w, window, p0, p1, loads)
        for at in range(len(stages.server)):
            _walk_stage(at, servers, stages, pools, arrivals, w, p0, p1, loads, routes)
        _compare_with_flow(stages, parts, arrivals, latency, w, p0, p1, routes)
        for at in range(len(parts.stage)):
            _add_part(at, parts, stages, pools, arrivals, w, p0, p1, routes, figures)
    return figures


@compiled
def drawn_work(
    servers: ServerTable, coarse: CoarseArrivals, pools: RandomPools, arrivals: FloatArray, w: float, block: int
) -> FloatArray:
    """Seconds of work (n, K) of the horizon by the numbers that `run_walk` draws."""
    n, k = servers.unsure.shape
    loads = _server_block(servers, coarse, block)
    total = np.zeros((n, k))
    for p0 in range(0, arrivals.shape[1], block):
        p1 = min(p0 + block, arrivals.shape[1])
        _draw_netputs(servers, coarse, pools, arrivals, w, 1, p0, p1, loads)
        for s in range(n):
            for j in range(p1 - p0):
                for i in range(k):
                    total[s, i] += loads.x[s, j, i] + loads.room[s, j]
    return total


@compiled_uncounted
def _smooth_counts(arrivals: FloatArray, window: int, p0: int, p1: int, loads: _ServerBlock) -> None:
    for u in range(arrivals.shape[0]):
        total = loads.window[u]
        for p in range(p0, p1):
            total += arrivals[u, p]
            if p > window:
                total -= arrivals[u, p - window - 1]
            loads.smooth[u, p - p0] = max(total, 0.0) / (min(p, window) + 1)
        loads.window[u] = total


@compiled_uncounted
def _draw_netputs(
    servers: ServerTable,
    coarse: CoarseArrivals,
    pools: RandomPools,
    arrivals: FloatArray,
    w: float,
    window: int,
    p0: int,
    p1: int,
    loads: _ServerBlock,
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
                        jump[i] = _ZERO
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
            deviation = math.sqrt(deviation if servers.light[s] else _log1p(deviation))
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
                beyond = max(x[i] - jump[i], _ZERO)
                jump[i] = beyond * beyond * part
                x[i] = x[i] * max(_ONE + slow[i], _ZERO) * total[i] - room


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
    place, other, _ = _places(pools.seed, _OF_WORK * _STREAMS + servers.key[s], p)
    z = pools.normal[place : place + k]
    if deviation == 0.0:
        for i in range(k):
            x[i] = load[i]
    elif servers.light[s]:  # a gamma, by Wilson and Hilferty
        for i in range(k):
            y = sigma * unsure[i]
            root = max(_ONE - y * y * _NINTH + y * z[i] * _THIRD, _ZERO)
            x[i] = load[i] * (root * root * root)
    else:
        for i in range(k):
            y = sigma * unsure[i]
            x[i] = load[i] * _exp(y * z[i] - _HALF * y * y)
    if thinning > 0.0:
        z, sigma = pools.normal[other : other + k], np.float32(thinning)
        for i in range(k):
            x[i] *= max(_ONE + sigma * z[i], _ZERO)


@spliced
def _change_costs(s: int, p: int, servers: ServerTable, pools: RandomPools, slow: SingleArray) -> None:
    """The deviation of the slow factor in the next slice; it starts in its stationary state."""
    place = _place(pools.seed, _OF_SLOW * _STREAMS + servers.key[s], p)
    z = pools.normal[place : place + len(slow)]
    keep = np.float32(servers.slow_keep[s] if p > 0 else 0.0)
    fresh = np.float32(servers.slow_sd[s]) * np.sqrt(_ONE - keep * keep)
    for i in range(len(slow)):
        slow[i] = keep * slow[i] + fresh * z[i]


@compiled_uncounted
def _draw_step(
    c: int, coarse: CoarseArrivals, pools: RandomPools, counts: FloatArray, p: int, loads: _ServerBlock
) -> None:
    """Draw the arrivals of the slices of a step, of which the sum is known, around a rate that moves inside it."""
    slices, drawn, rate = coarse.slices[c], loads.drawn[c], loads.rate[c]
    k = len(rate)
    known = 0.0
    for t in range(p, min(p + slices, len(counts))):
        known += counts[t]
    keep, deviation, course, knots = coarse.keep[c], coarse.deviation[c], loads.course, coarse.knots[c]
    loads.sums[:] = _ZERO
    for knot in range(knots):
        place = _place(pools.seed, _OF_RATES * _STREAMS + coarse.key[c], p * KNOTS + knot)
        for i in range(k):
            z = pools.normal[place + i]
            rate[i] = keep[i] * rate[i] + np.sqrt(_ONE - keep[i] * keep[i]) * z if p + knot > 0 else z
            course[knot, i] = _exp(deviation[i] * rate[i])
            loads.sums[i] += course[knot, i]
    for knot in range(knots):
        for i in range(k):
            course[knot, i] *= np.float32(knots * known / slices) / loads.sums[i]
    loads.sums[:] = _ZERO
    for t in range(slices):
        means, counted = course[t * knots // slices], drawn[t]
        place = _place(pools.seed, _OF_COUNTS * _STREAMS + coarse.key[c], p + t)
        for i in range(k):
            counted[i] = _poisson(means[i], pools.normal[place + i], pools.uniform[place + i])
            loads.sums[i] += counted[i]
    for t in range(slices):
        for i in range(k):
            drawn[t, i] = drawn[t, i] * (known / loads.sums[i]) if loads.sums[i] > _ZERO else known / slices


@compiled_uncounted
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


@compiled_uncounted
def _walk_stage(
    at: int,
    servers: ServerTable,
    stages: StageTable,
    pools: RandomPools,
    arrivals: FloatArray,
    w: float,
    p0: int,
    p1: int,
    loads: _ServerBlock,
    routes: _RouteBlock,
) -> None:
    """Latency of every path at the end of one stage."""
    hold = routes.hold
    s, before, count = stages.server[at], stages.before[at], p1 - p0
    k, depth = servers.unsure.shape[1], stages.depth[at]
    delay, series = stages.delay[at], servers.series[s]
    held, last, bridge, variance = routes.held, routes.last, routes.bridge, routes.variance
    _copy(routes.held_end[at], held[0])
    _copy(routes.last_end[at], last[0])
    own_fluid, held_fluid = routes.fluid_end[at, 0], routes.fluid_end[at, 1]
    past, past_end = stages.past_start[at], stages.past_start[at + 1]
    unsure = servers.unsure[s]
    lift = late = 1.0
    for j in range(count):
        p = p0 + j
        scale = servers.scale[p if servers.scale.shape[0] > 1 else 0, s]
        room = loads.room[s, j]
        if j % hold == 0:
            lift, late = _shape(at, s, p, j, scale, servers, stages, w, loads, routes)
        inside = 0.0
        for e in range(stages.start[at], stages.start[at + 1]):
            inside += arrivals[stages.source[e], p] * stages.seen[e]
        idle_variance = (loads.thin[s, j] + inside * scale * scale) * lift
        routes.spread[at, j] = idle_variance + (loads.calm[s, j] + loads.shown[s, j]) * lift
        row, previous, x, jump = held[j + 1], held[j], loads.x[s, j], loads.jump[s, j]
        came_fluid = 0.0
        if before >= 0:
            came, share, wait = routes.out[before, j], np.float32(late), np.float32(delay)
            for i in range(k):
                row[i] = (came[i] + wait) * share
            came_fluid = (routes.fluid[before, j] + delay) * late
            if series >= 0:
                done = servers.done[series]
                for i in range(k):
                    row[i] = _work_time(done, servers.ahead[series], w, p, row[i])
                came_fluid = _work_time(done, servers.ahead[series], w, p, came_fluid)
        base, raised, costs = np.float32(idle_variance), np.float32(lift), np.float32(loads.calm[s, j] * lift)
        place = _place(pools.seed, _OF_BRIDGES * _STREAMS + stages.key[at], p)
        expo = pools.expo[place : place + k]
        peak = bridge[j]
        if before < 0:
            for i in range(k):
                inner = base + costs * unsure[i] * unsure[i] + jump[i] * raised
                peak[i] = _HALF * (np.sqrt(x[i] * x[i] + inner * expo[i]) - x[i])
        else:
            other_busy = routes.busy[before, j]
            for q in range(past, past_end):
                t = stages.past_server[q]
                common = 0.0
                for e in range(stages.shared_start[q], stages.shared_start[q + 1]):
                    common += arrivals[stages.shared_source[e], p] * stages.shared[e]
                other_scale = servers.scale[p if servers.scale.shape[0] > 1 else 0, t]
                apart = loads.raw[s, j] + loads.raw[t, j] - 2.0 * common * scale * other_scale
                difference = np.float32(max(apart, 0.0) * lift if t != s else 0.0)
                others = np.float32(loads.calm[t, j] * lift)
                unsure_there = servers.unsure[t]
                number = q - past + 1
                if q == past:
                    for i in range(k):
                        inner = costs * unsure[i] * unsure[i] + jump[i] * raised
                        both = difference + others * unsure_there[i] * unsure_there[i]
                        variance[i] = inner + (both if other_busy[i] == 1 else base)
                else:
                    for i in range(k):
                        inner = costs * unsure[i] * unsure[i] + jump[i] * raised
                        both = difference + others * unsure_there[i] * unsure_there[i]
                        variance[i] = inner + both if other_busy[i] == number else variance[i]
            for i in range(k):
                b = row[i] - x[i]
                rise = b - previous[i]
                peak[i] = _HALF * (previous[i] + b + np.sqrt(rise * rise + variance[i] * expo[i]))
        own_fluid = _noiseless_step(loads.work[s, j] - room, own_fluid, held_fluid, came_fluid, room)
        held_fluid = came_fluid
        routes.fluid[at, j] = own_fluid
        if series >= 0:
            routes.fluid[at, j] = _clock_time(servers.done[series], servers.ahead[series], w, p, own_fluid)
        if before >= 0:
            routes.fluid[at, j] = max(routes.fluid[at, j], routes.fluid[before, j] + delay)
    routes.fluid_end[at, 0], routes.fluid_end[at, 1] = own_fluid, held_fluid
    if before < 0:
        for j in range(count):
            x, idle, room = loads.x[s, j], bridge[j], np.float32(loads.room[s, j])
            former, latter = last[j], last[j + 1]
            for i in range(k):
                spare = min(idle[i] - former[i], room)
                latter[i] = max(x[i] + former[i] + max(spare, _ZERO), _ZERO)
    else:
        for j in range(count):
            x, idle, room = loads.x[s, j], bridge[j], np.float32(loads.room[s, j])
            former, latter, previous, row = last[j], last[j + 1], held[j], held[j + 1]
            for i in range(k):
                spare = min(idle[i] - former[i], max(room + row[i] - previous[i], _ZERO))
                latter[i] = max(x[i] + former[i] + max(spare, _ZERO), _ZERO)
        _copy(held[count], routes.held_end[at])
    _copy(last[count], routes.last_end[at])
    wait = np.float32(delay)
    for j in range(count):
        out, busy, peak, former, latter = routes.out[at, j], routes.busy[at, j], bridge[j], last[j], last[j + 1]
        if series >= 0:
            done = servers.done[series]
            for i in range(k):
                out[i] = _clock_time(done, servers.ahead[series], w, p0 + j, latter[i])
        elif before < 0:
            _copy(latter, out)
        if before >= 0:
            came, other_busy = routes.out[before, j], routes.busy[before, j]
            previous, row, room = held[j], held[j + 1], np.float32(loads.room[s, j])
            own = latter if series < 0 else out
            for i in range(k):
                out[i] = max(own[i], came[i] + wait)
            for i in range(k):
                emptied = peak[i] > former[i] and room + row[i] > previous[i]
                busy[i] = other_busy[i] if emptied else depth
        else:
            for i in range(k):
                busy[i] = 0 if peak[i] > former[i] else depth


@spliced
def _shape(
    at: int,
    s: int,
    p: int,
    j: int,
    scale: float,
    servers: ServerTable,
    stages: StageTable,
    w: float,
    loads: _ServerBlock,
    routes: _RouteBlock,
) -> tuple[float, float]:
    """Fill what a stage is by its smoothed load; returns the lift of variances and the share that is held up."""
    spread = load = direct = 0.0
    room, before, column = loads.smooth_room[s, j], stages.before[at], j // routes.hold
    for e in range(stages.start[at], stages.start[at + 1]):
        smooth = loads.smooth[stages.source[e], j]
        load += smooth * stages.mean[e]
        direct += smooth * stages.direct[e]
        spread += smooth * stages.spread[e]
    spread *= scale * scale
    rho = load * scale / room if room > 0.0 else 1.0
    rho = min(max(rho, 0.3), 1.0)
    keep, lift, delta = stage_shape(rho, spread, stages.kappa[at], room)
    late = 1.0
    if before >= 0:
        delta += routes.delta[before, column]
        keep = max(keep, routes.keep[before, column])
        rho = max(rho, routes.load[before, column])
        if direct > 0.0:
            late = 1.0 - min(direct * scale / room, 1.0) if room > 0.0 else 0.0
    drift, spread = max(1.0 - rho, 1e-6), max(spread * lift, 1e-300)
    routes.delta[at, column], routes.keep[at, column], routes.load[at, column] = delta, keep, rho
    routes.often[at, column] = math.log(max(1.0, 2.0 * drift * drift * w * w / spread))
    routes.excursion[at, column] = spread / (2.0 * w * drift)
    return lift, late


@compiled_uncounted
def _work_time(done: FloatArray, ahead: float, w: float, p: int, seconds: float) -> float:
    """Seconds of work at the usual capacity that a server does in so many seconds after slice p."""
    d = len(done) - 1
    place = (p + 1) + seconds / w
    if place >= d:
        return done[d] - done[p + 1] + (place - d) * w * ahead
    q = int(place)
    return done[q] + (place - q) * (done[q + 1] - done[q]) - done[p + 1]


@compiled_uncounted
def _clock_time(done: FloatArray, ahead: float, w: float, p: int, work: float) -> float:
    """Seconds after slice p until a server has done so many seconds of work at the usual capacity."""
    d = len(done) - 1
    if work <= 0.0:
        return 0.0
    goal = done[p + 1] + work
    if goal > done[d]:
        return (d - p - 1) * w + (goal - done[d]) / ahead
    low, high = p + 1, d  # done[low] < goal <= done[high]
    step = 1
    while low + step < high and done[low + step] < goal:
        low += step
        step *= 2
    high = min(low + step, high)
    while high - low > 1:
        middle = (low + high) // 2
        if done[middle] < goal:
            low = middle
        else:
            high = middle
    return (low - p - 1 + (goal - done[low]) / (done[high] - done[low])) * w


@compiled_uncounted
def _compare_with_flow(
    stages: StageTable,
    parts: PartTable,
    arrivals: FloatArray,
    latency: FloatArray,
    w: float,
    p0: int,
    p1: int,
    routes: _RouteBlock,
) -> None:
    """Flow's latency less that of the walk without noise, of the latest route; what is within a slice is 0.

    A slice without events has no latency, while the servers may have work left: what Flow differed by before is worked
    off there.
    """
    routes.apart[:] = 0.0
    routes.events[:] = 0.0
    for at in range(len(parts.stage)):
        query = parts.query[at]
        apart, events, fluid = routes.apart[query], routes.events[query], routes.fluid[parts.stage[at]]
        for j in range(p1 - p0):
            apart[j] = max(apart[j], fluid[j])
            for e in range(parts.start[at], parts.start[at + 1]):
                events[j] += arrivals[parts.source[e], p0 + j] * parts.events[e]
    for query in range(len(parts.service)):
        apart, events, flow, before = routes.apart[query], routes.events[query], latency[query], routes.apart_end[query]
        for j in range(p1 - p0):
            gap = flow[p0 + j] - apart[j] if events[j] > 0.0 else before
            before = math.copysign(max(abs(gap) - w, 0.0), gap)
            apart[j] = before
        routes.apart_end[query] = before


@compiled_uncounted
def _add_part(
    at: int,
    parts: PartTable,
    stages: StageTable,
    pools: RandomPools,
    arrivals: FloatArray,
    w: float,
    p0: int,
    p1: int,
    routes: _RouteBlock,
    figures: WalkFigures,
) -> None:
    """Add a part of a query to every path's sum of latencies, largest latency and histogram.

    Neighbouring slices are much alike: over long horizons the paths take turns in filling their histograms.

    Largest: of the bridge between the ends of slices, at most w above the later end; where the queue emptied inside
    the slice, no more than the largest excursion of a stationary walk.
    """
    groups = max(1, min(_MAX_GROUPS, arrivals.shape[1] // _SLICES_PER_GROUP))
    query, stage, count = parts.query[at], parts.stage[at], p1 - p0
    latency, wait, sums = routes.latency, routes.wait, routes.sums
    k = len(sums)
    top, bins = figures.top[query], figures.bins[query]
    service, deviation = parts.service[query], parts.deviation[query]
    wider, wider_delta = stages.wider[stage], stages.wider_delta[stage]
    shift, full, width = np.float32(parts.shift[at]), np.float32(parts.full[at]), np.float32(w)
    own = np.float32(service)
    inverse = np.float32(1.0 / parts.least[query])
    _copy(routes.latency_end[at], latency[0])
    _copy(routes.wait_end[at], wait[0])
    sums[:] = _ZERO
    for j in range(count):
        p = p0 + j
        gap, delta = np.float32(routes.apart[query, j]), np.float32(routes.delta[stage, j // routes.hold])
        former, latter, out = latency[j], latency[j + 1], routes.out[stage, j]
        early, later = wait[j], wait[j + 1]
        for i in range(k):
            level = max(out[i] + gap, _ZERO)
            latter[i] = level
            later[i] = max(level - delta * wider_delta[i], _ZERO)
        events = 0.0
        for e in range(parts.start[at], parts.start[at + 1]):
            events += arrivals[parts.source[e], p] * parts.events[e]
        if events <= 0.0:
            continue
        if p == 0:
            for i in range(k):
                early[i] = _HALF * later[i]
        place, point, cost = _places(pools.seed, _OF_PARTS * _STREAMS + parts.key[at], p)
        expo, log_expo, busy = pools.expo[place : place + k], pools.log_expo[place : place + k], routes.busy[stage, j]
        variance, column = np.float32(routes.spread[stage, j]), j // routes.hold
        often, excursion = np.float32(routes.often[stage, column]), np.float32(routes.excursion[stage, column])
        value = routes.value[j]
        for i in range(k):
            rise = latter[i] - former[i]
            peak = _HALF * (former[i] + latter[i] + np.sqrt(rise * rise + variance * wider[i] * expo[i]))
            peak = min(peak, latter[i] + width)
            bound = max(max(former[i], latter[i]), excursion * wider[i] * (often - log_expo[i]))
            peak = min(peak, bound) if busy[i] == 0 else peak
            top[i] = max(top[i], max(peak - shift * wider_delta[i], _ZERO) + full)
        number, share = np.float32(events), 1.0 - 0.5 * routes.keep[stage, column]
        own_share, rest = np.float32(share * service), np.float32((1.0 - share) * service)
        for i in range(k):
            sums[i] += (_HALF * (early[i] + later[i]) + own_share) * number
        reach = np.float32(1.0 / max(routes.keep[stage, column], _MIN_KEEP))
        first, end = p % groups * k // groups, (p % groups + 1) * k // groups
        uniform, normal = pools.uniform[point : point + k], pools.normal[cost : cost + k]
        spread = deviation[first:end]
        early, later, bits = early[first:end], later[first:end], routes.bits[j]
        for i in range(end - first):
            drawn = own * _exp(spread[i] * normal[i] - _HALF * spread[i] * spread[i])
            along = min(max((uniform[i] - _HALF) * reach + _HALF, _ZERO), _ONE)
            moment = early[i] + along * (later[i] - early[i])
            value[i] = (moment + max(drawn - rest, _HALF * drawn)) * inverse
        for i in range(end - first):
            bins[first + i, max(min((bits[i] >> _SHIFT) - _BIAS, BINS - 1), 0)] += events
    _copy(latency[count], routes.latency_end[at])
    _copy(wait[count], routes.wait_end[at])
    for i in range(k):
        figures.mean[query, i] += sums[i]
