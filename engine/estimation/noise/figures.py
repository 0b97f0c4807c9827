"""Figures of queries from a block of the walk: Flow beside it, sums, largest latencies and histograms."""

from __future__ import annotations

import math

import numpy as np

from engine.arrays import FloatArray
from engine.compiler import linked
from engine.estimation.noise.singles import HALF, OF_PARTS, ONE, STREAMS, ZERO, copy_singles, exp_single, places
from engine.estimation.noise.tables import (
    BINS,
    BINS_PER_OCTAVE,
    PartTable,
    RandomPools,
    RouteBlock,
    StageTable,
    WalkFigures,
)

__all__ = ["add_part", "compare_with_flow"]

_SHIFT = 19  # bits of a single's mantissa that a bin does not tell apart: 23 - log2(BINS_PER_OCTAVE)
_BIAS = 127 * BINS_PER_OCTAVE
_SLICES_PER_GROUP, _MAX_GROUPS = 4096, 4  # paths that take turns: one group per so many slices of the horizon
_MIN_KEEP = 1e-3


@linked
def compare_with_flow(
    stages: StageTable,
    parts: PartTable,
    arrivals: FloatArray,
    latency: FloatArray,
    w: float,
    p0: int,
    p1: int,
    routes: RouteBlock,
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


@linked
def add_part(
    at: int,
    parts: PartTable,
    stages: StageTable,
    pools: RandomPools,
    arrivals: FloatArray,
    w: float,
    p0: int,
    p1: int,
    routes: RouteBlock,
    figures: WalkFigures,
    empty: bool,
) -> None:
    """Add a part of a query to every path's sum of latencies, largest latency and histogram, of the arrivals counted.

    Neighbouring slices are much alike: over long horizons the paths take turns in filling their histograms.

    Largest: of the bridge between the ends of slices, at most w above the later end; where the queue emptied inside
    the slice, no more than the largest excursion of a stationary walk. `empty`: nothing waits where the horizon begins.
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
    copy_singles(routes.latency_end[at], latency[0])
    copy_singles(routes.wait_end[at], wait[0])
    sums[:] = ZERO
    for j in range(count):
        p = p0 + j
        gap, delta = np.float32(routes.apart[query, j]), np.float32(routes.delta[stage, j // routes.hold])
        former, latter, out = latency[j], latency[j + 1], routes.out[stage, j]
        early, later = wait[j], wait[j + 1]
        for i in range(k):
            level = max(out[i] + gap, ZERO)
            latter[i] = level
            later[i] = max(level - delta * wider_delta[i], ZERO)
        events = 0.0
        for e in range(parts.start[at], parts.start[at + 1]):
            events += arrivals[parts.source[e], p] * parts.events[e]
        if events <= 0.0:
            continue
        if p == 0 and empty:
            for i in range(k):
                early[i] = HALF * later[i]
        place, point, cost = places(pools.seed, OF_PARTS * STREAMS + parts.key[at], p)
        expo, log_expo, busy = pools.expo[place : place + k], pools.log_expo[place : place + k], routes.busy[stage, j]
        variance, column = np.float32(routes.spread[stage, j]), j // routes.hold
        often, excursion = np.float32(routes.often[stage, column]), np.float32(routes.excursion[stage, column])
        value = routes.value[j]
        for i in range(k):
            rise = latter[i] - former[i]
            peak = HALF * (former[i] + latter[i] + np.sqrt(rise * rise + variance * wider[i] * expo[i]))
            peak = min(peak, latter[i] + width)
            bound = max(max(former[i], latter[i]), excursion * wider[i] * (often - log_expo[i]))
            peak = min(peak, bound) if busy[i] == 0 else peak
            top[i] = max(top[i], max(peak - shift * wider_delta[i], ZERO) + full)
        number, share = np.float32(events), 1.0 - 0.5 * routes.keep[stage, column]
        own_share, rest = np.float32(share * service), np.float32((1.0 - share) * service)
        for i in range(k):
            sums[i] += (HALF * (early[i] + later[i]) + own_share) * number
        reach = np.float32(1.0 / max(routes.keep[stage, column], _MIN_KEEP))
        first, end = p % groups * k // groups, (p % groups + 1) * k // groups
        uniform, normal = pools.uniform[point : point + k], pools.normal[cost : cost + k]
        spread = deviation[first:end]
        early, later, bits = early[first:end], later[first:end], routes.bits[j]
        for i in range(end - first):
            drawn = own * exp_single(spread[i] * normal[i] - HALF * spread[i] * spread[i])
            along = min(max((uniform[i] - HALF) * reach + HALF, ZERO), ONE)
            moment = early[i] + along * (later[i] - early[i])
            value[i] = (moment + max(drawn - rest, HALF * drawn)) * inverse
        for i in range(end - first):
            bins[first + i, max(min((bits[i] >> _SHIFT) - _BIAS, BINS - 1), 0)] += events
    copy_singles(latency[count], routes.latency_end[at])
    copy_singles(wait[count], routes.wait_end[at])
    for i in range(k):
        figures.mean[query, i] += sums[i]
