"""The compiled pass of the walk: K paths of reflected netput through all servers, in blocks of slices.

A path's latency of a route follows L_p = X + max(L_(p-1), M): X is the netput (work less room) of the slice, M the
largest value of a Brownian bridge of what the stage before holds up. What is kept are the ends of blocks alone, so
memory does not grow with the horizon. The reasons stand in docs/models/noise.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from engine.arrays import FloatArray
from engine.compiler import compiled, linked, source_stamp, spliced
from engine.estimation.noise.figures import add_part, compare_with_flow
from engine.estimation.noise.netputs import draw_netputs, smooth_counts
from engine.estimation.noise.singles import HALF, OF_BRIDGES, STREAMS, ZERO, copy_singles, place_of
from engine.estimation.noise.tables import (
    BINS,
    CoarseArrivals,
    PartTable,
    RandomPools,
    RouteBlock,
    ServerBlock,
    ServerTable,
    StageTable,
    WalkFigures,
    WalkStart,
    route_block,
    server_block,
)

__all__ = ["noiseless_stage", "run_walk", "stage_shape", "stage_shapes"]

IntArray32 = npt.NDArray[np.int32]


@linked
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


@linked
def _walk_stage(
    at: int,
    servers: ServerTable,
    stages: StageTable,
    pools: RandomPools,
    arrivals: FloatArray,
    w: float,
    p0: int,
    p1: int,
    loads: ServerBlock,
    routes: RouteBlock,
    first_empty: IntArray32,
) -> None:
    """Latency of every path at the end of one stage."""
    hold = routes.hold
    s, before, count = stages.server[at], stages.before[at], p1 - p0
    k, depth = servers.unsure.shape[1], stages.depth[at]
    delay, series = stages.delay[at], servers.series[s]
    held, last, bridge, variance = routes.held, routes.last, routes.bridge, routes.variance
    copy_singles(routes.held_end[at], held[0])
    copy_singles(routes.last_end[at], last[0])
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
        place = place_of(pools.seed, OF_BRIDGES * STREAMS + stages.key[at], p)
        expo = pools.expo[place : place + k]
        peak = bridge[j]
        if before < 0:
            for i in range(k):
                inner = base + costs * unsure[i] * unsure[i] + jump[i] * raised
                peak[i] = HALF * (np.sqrt(x[i] * x[i] + inner * expo[i]) - x[i])
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
                differ = np.float32(0.0 if t == s else 1.0)
                others = np.float32(loads.calm[t, j] * lift)
                unsure_there = servers.unsure[t]
                number = q - past + 1
                if q == past:
                    for i in range(k):
                        inner = costs * unsure[i] * unsure[i]
                        both = difference + differ * (inner + others * unsure_there[i] * unsure_there[i])
                        variance[i] = jump[i] * raised + (both if other_busy[i] == 1 else base + inner)
                else:
                    for i in range(k):
                        inner = costs * unsure[i] * unsure[i]
                        both = difference + differ * (inner + others * unsure_there[i] * unsure_there[i])
                        variance[i] = jump[i] * raised + both if other_busy[i] == number else variance[i]
            for i in range(k):
                b = row[i] - x[i]
                rise = b - previous[i]
                peak[i] = HALF * (previous[i] + b + np.sqrt(rise * rise + variance[i] * expo[i]))
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
                latter[i] = max(x[i] + former[i] + max(spare, ZERO), ZERO)
    else:
        for j in range(count):
            x, idle, room = loads.x[s, j], bridge[j], np.float32(loads.room[s, j])
            former, latter, previous, row = last[j], last[j + 1], held[j], held[j + 1]
            for i in range(k):
                spare = min(idle[i] - former[i], max(room + row[i] - previous[i], ZERO))
                latter[i] = max(x[i] + former[i] + max(spare, ZERO), ZERO)
        copy_singles(held[count], routes.held_end[at])
    copy_singles(last[count], routes.last_end[at])
    wait = np.float32(delay)
    for j in range(count):
        out, busy, peak, former, latter = routes.out[at, j], routes.busy[at, j], bridge[j], last[j], last[j + 1]
        if series >= 0:
            done = servers.done[series]
            for i in range(k):
                out[i] = _clock_time(done, servers.ahead[series], w, p0 + j, latter[i])
        elif before < 0:
            copy_singles(latter, out)
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
        if len(first_empty) > 0:
            for i in range(k):
                if busy[i] == 0 and first_empty[at, i] > p0 + j:
                    first_empty[at, i] = p0 + j


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
    loads: ServerBlock,
    routes: RouteBlock,
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


@linked
def _work_time(done: FloatArray, ahead: float, w: float, p: int, seconds: float) -> float:
    """Seconds of work at the usual capacity that a server does in so many seconds after slice p."""
    d = len(done) - 1
    place = (p + 1) + seconds / w
    if place >= d:
        return done[d] - done[p + 1] + (place - d) * w * ahead
    q = int(place)
    return done[q] + (place - q) * (done[q + 1] - done[q]) - done[p + 1]


@linked
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


def _entry(stamp: int) -> Callable[..., WalkFigures]:
    """The function, compiled once for this state of the package: numba's cache looks at its own file alone."""

    @compiled
    def run_walk(
        servers: ServerTable,
        stages: StageTable,
        parts: PartTable,
        coarse: CoarseArrivals,
        pools: RandomPools,
        arrivals: FloatArray,
        counted: FloatArray,
        latency: FloatArray,
        w: float,
        window: int,
        hold: int,
        block: int,
        start: WalkStart,
    ) -> WalkFigures:
        """Figures of every query, from arrivals (sources, d) and Flow's latencies (queries, d) of slices of w seconds.

        Figures are of the `counted` arrivals (sources, d) alone.
        Loads are smoothed over `window` slices and the one they end with, and looked at every `hold` slices; a `block`
        is a whole number of these. Paths begin at `start`.
        """
        assert stamp > 0  # naming it makes it part of the cache's key
        queries, k, d = len(parts.service), servers.unsure.shape[1], arrivals.shape[1]
        loads = server_block(servers, coarse, block)
        routes = route_block(len(stages.server), len(parts.stage), queries, block, hold, k)
        top, mean, bins = np.zeros((queries, k), dtype=np.float32), np.zeros((queries, k)), np.zeros((queries, k, BINS))
        first_empty = np.full((len(start.last), k), d, dtype=np.int32)
        figures = WalkFigures(top, mean, bins, first_empty)
        for at in range(len(start.last)):
            copy_singles(start.last[at], routes.last_end[at])
            copy_singles(start.held[at], routes.held_end[at])
            routes.fluid_end[at, 0], routes.fluid_end[at, 1] = start.fluid[at, 0], start.fluid[at, 1]
        if len(start.last) > 0:
            for at in range(len(parts.stage)):
                copy_singles(start.out[parts.stage[at]], routes.latency_end[at])
                copy_singles(start.out[parts.stage[at]], routes.wait_end[at])
        for p0 in range(0, d, block):
            p1 = min(p0 + block, d)
            smooth_counts(arrivals, window, p0, p1, loads)
            draw_netputs(servers, coarse, pools, arrivals, w, window, p0, p1, loads)
            for at in range(len(stages.server)):
                _walk_stage(at, servers, stages, pools, arrivals, w, p0, p1, loads, routes, first_empty)
            compare_with_flow(stages, parts, arrivals, latency, w, p0, p1, routes)
            for at in range(len(parts.stage)):
                add_part(at, parts, stages, pools, counted, w, p0, p1, routes, figures, len(start.last) == 0)
        return figures

    return run_walk


run_walk = _entry(source_stamp(Path(__file__).parent))
