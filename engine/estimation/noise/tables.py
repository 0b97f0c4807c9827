"""Tables and memory of the compiled walk: what it is given, what it works in, and what it gives back."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from engine.arrays import FloatArray, IntArray
from engine.compiler import compiled

__all__ = [
    "BINS",
    "BINS_PER_OCTAVE",
    "KNOTS",
    "POOL",
    "CoarseArrivals",
    "PartTable",
    "RandomPools",
    "RouteBlock",
    "ServerBlock",
    "ServerTable",
    "SingleArray",
    "StageTable",
    "WalkFigures",
    "WalkStart",
    "route_block",
    "server_block",
]

SingleArray = npt.NDArray[np.float32]

POOL = 1 << 15  # numbers of a pool of random ones, which every slice enters at a place of its own
KNOTS = 64  # most of the unknown rate inside a step of coarse counts
BINS_PER_OCTAVE = 16
BINS = 40 * BINS_PER_OCTAVE


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


class WalkStart(NamedTuple):
    """Where paths begin: with what waits where the horizon begins; no rows where nothing does."""

    last: SingleArray  # (S, K) a stage's own latency
    held: SingleArray  # (S, K) what the stage before holds up
    fluid: FloatArray  # (S, 2) both without noise
    out: SingleArray  # (S, K) latency


class WalkFigures(NamedTuple):
    """Sums, maxima and histograms of which a query's realised statistics are made."""

    top: SingleArray  # (queries, K) largest latency
    mean: FloatArray  # (queries, K) latency times events
    bins: FloatArray  # (queries, K, BINS) events by latency
    first_empty: npt.NDArray[
        np.int32
    ]  # (S, K) first slice in which a stage ran empty, d for none; no rows without a start


class ServerBlock(NamedTuple):
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


class RouteBlock(NamedTuple):
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


@compiled
def server_block(servers: ServerTable, coarse: CoarseArrivals, block: int) -> ServerBlock:
    sources, n, k = len(coarse.row), len(servers.light), servers.unsure.shape[1]
    widest = 1
    for c in range(len(coarse.slices)):
        widest = max(widest, coarse.slices[c])
    return ServerBlock(
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
def route_block(stages: int, parts: int, queries: int, block: int, hold: int, k: int) -> RouteBlock:
    held = (block + hold - 1) // hold
    value = np.zeros((block, k), dtype=np.float32)
    return RouteBlock(
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
