"""The compiled pass of Mace-Flow over slices and operators; docs/models/mace.md has the rules it follows.

The work of a replica comes in pieces, each with a part of the hops into it. By the plain definition there is one piece
with all of them; input by input every hop is a piece of its own. The pass itself knows no other difference.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from engine.arrays import FloatArray, IntArray
from engine.compiler import compiled, compiled_uncounted
from engine.estimation.free_capacity import CapacityRates, FreeCapacity, ensure_room, new_capacity, take_capacity

__all__ = ["FlowLead", "FlowMemory", "FlowPlan", "FlowRun", "FlowTimes", "run_flow"]


class FlowPlan(NamedTuple):
    """Graph and layout as the compiled loop takes them. A portion is what a piece has a share of: see `in_portion`."""

    order: IntArray
    in_start: IntArray
    in_stream: IntArray
    output: FloatArray
    cycles: FloatArray
    in_portion: IntArray  # (e,) where an input's events and cycles are added up: with its operator's, or on their own
    portions: int
    sink: IntArray
    query: IntArray  # (m,) query whose sink the operator is, -1 for none
    rep_start: IntArray
    rep_server: IntArray
    piece_start: IntArray  # (r + 1,) pieces of replica r
    piece_portion: IntArray
    piece_share: FloatArray  # part of the portion's cycles
    hop_start: IntArray  # (pieces + 1,) hops of a piece
    hop_input: IntArray
    hop_origin: IntArray
    hop_server: IntArray
    hop_delay: FloatArray
    hop_bytes: FloatArray
    given: IntArray  # (r,) 1 where the times of a replica are given, and it takes no capacity


class FlowTimes(NamedTuple):
    """When the output of each slice begins to leave replicas and is complete, in seconds from the horizon's beginning.

    The n slices before the horizon come first. A slice that puts nothing out has the times of the last that did.
    """

    replica: IntArray  # (k,)
    start: FloatArray  # (k, n + d * slices)
    finish: FloatArray  # (k, n + d * slices)
    latency: FloatArray  # (k,) largest from the end of a slice of the horizon until its output is complete


class FlowLead(NamedTuple):
    """Slices before the horizon with the events that wait, the oldest first; n of them, 0 where nothing waits."""

    events: FloatArray  # (e, n) that wait at every input
    output: FloatArray  # (e, 3) polynomials in the events of such a slice
    cycles: FloatArray  # (e, 3)
    factors: FloatArray  # (n, servers) scale of work
    width_s: float


class FlowRun(NamedTuple):
    """Latencies of a pass, and what is kept of the worst slices."""

    latency: FloatArray  # (d,)
    by_query: FloatArray  # (queries, d * slices)
    lead_latency: FloatArray  # (n,)
    lead_by_query: FloatArray  # (queries, n)
    memory: FlowMemory


class FlowMemory(NamedTuple):
    """The worst slice of every query: its sink, and finish, last arrival and last hop of the replicas above it."""

    worst: FloatArray  # (queries,)
    sink: IntArray  # (queries,)
    finish: FloatArray
    last: FloatArray
    hop: IntArray


class FlowSlice(NamedTuple):
    """Events and cycles of one slice."""

    events: FloatArray  # of every stream
    waiting: FloatArray  # that wait at every input, beside those that come to it
    made: FloatArray  # events put out, by portion
    work: FloatArray  # cycles, by portion


class FlowProgress(NamedTuple):
    """Progress of replicas, pieces and hops after the slices so far; times in seconds from the beginning.

    A replica's output of a slice begins with its first piece that puts out events and is complete with its last.
    """

    start: FloatArray  # (r,)
    finish: FloatArray  # (r,)
    last: FloatArray  # (r,) last arrival of the piece that finished last
    last_hop: IntArray  # (r,) the hop it came by
    done: FloatArray  # (pieces,) finish
    finger: IntArray  # (pieces,) where in the free list
    passed: FloatArray  # (h,) end of the transfer
    hop_finger: IntArray  # (h,)
    latency: FloatArray  # (r,) largest of the slices of the horizon
    worst_replica: IntArray  # (queries,) the sink that was last in this slice


@compiled
def _progress(replicas: int, pieces: int, hops: int, queries: int) -> FlowProgress:
    return FlowProgress(
        np.zeros(replicas),
        np.zeros(replicas),
        np.zeros(replicas),
        np.zeros(replicas, dtype=np.int64),
        np.zeros(pieces),
        np.zeros(pieces, dtype=np.int64),
        np.zeros(hops),
        np.zeros(hops, dtype=np.int64),
        np.zeros(replicas),
        np.zeros(queries, dtype=np.int64),
    )


@compiled
def run_flow(
    plan: FlowPlan,
    rates: CapacityRates,
    arrivals: FloatArray,
    factors: FloatArray,
    slices: int,
    queries: int,
    keep_start: IntArray,
    keep: IntArray,
    lead: FlowLead,
    given: FlowTimes,
    kept: FlowTimes,
) -> FlowRun:
    """Latency of every subinterval and of every slice at each query's sinks, with what is kept of the worst slices.

    Replicas whose times are `given` are not computed; times of the replicas in `kept` are filled in. Time begins with
    the horizon: slices of waiting events lie before 0, where no server has capacity.
    """
    d, sources, m = arrivals.shape[1], arrivals.shape[0], len(plan.order)
    pieces, hops, width = len(plan.piece_portion), len(plan.hop_server), rates.width_s / slices
    latency, by_query, worst = np.zeros(d), np.zeros((queries, d * slices)), np.zeros(queries)
    memory = FlowMemory(
        np.full(queries, -1.0),
        np.full(queries, -1),
        np.zeros(len(keep)),
        np.zeros(len(keep)),
        np.zeros(len(keep), dtype=np.int64),
    )
    amounts = FlowSlice(
        np.zeros(sources + m), np.zeros(len(plan.in_stream)), np.zeros(plan.portions), np.zeros(plan.portions)
    )
    state = _progress(len(plan.rep_server), pieces, hops, queries)
    pool = new_capacity(len(rates.constant))
    before = lead.events.shape[1]
    lead_latency, lead_by_query = np.zeros(before), np.zeros((queries, before))
    for p in range(before):
        for k in range(len(amounts.waiting)):
            amounts.waiting[k] = lead.events[k, p]
        _pass_on(plan, lead.output, lead.cycles, sources, amounts)
        pool = ensure_room(pool, pieces + hops)
        t1 = (p + 1 - before) * lead.width_s
        worst[:] = 0.0
        _give_times(given, p, state)
        lead_latency[p] = _slice(plan, rates, pool, state, amounts, lead.factors[p], t1 - lead.width_s, t1, worst)
        _keep_times(kept, p, state)
        for query in range(queries):
            lead_by_query[query, p] = worst[query]
        if len(keep):
            _remember(memory, worst, state, keep_start, keep)
    amounts.waiting[:] = 0.0
    state.latency[:] = 0.0
    for p in range(d):
        _fill(plan, arrivals, p, slices, amounts)
        for part in range(slices):
            pool = ensure_room(pool, pieces + hops)
            t0 = p * rates.width_s + part * width
            worst[:] = 0.0
            factor = factors[p if factors.shape[0] > 1 else 0]
            at = before + p * slices + part
            _give_times(given, at, state)
            slowest = _slice(plan, rates, pool, state, amounts, factor, t0, t0 + width, worst)
            _keep_times(kept, at, state)
            latency[p] = max(latency[p], slowest)
            for query in range(queries):
                by_query[query, p * slices + part] = worst[query]
            if len(keep):
                _remember(memory, worst, state, keep_start, keep)
    for i in range(len(kept.replica)):
        kept.latency[i] = state.latency[kept.replica[i]]
    return FlowRun(latency, by_query, lead_latency, lead_by_query, memory)


@compiled_uncounted
def _give_times(given: FlowTimes, at: int, state: FlowProgress) -> None:
    for i in range(len(given.replica)):
        state.start[given.replica[i]] = given.start[i, at]
        state.finish[given.replica[i]] = given.finish[i, at]


@compiled_uncounted
def _keep_times(kept: FlowTimes, at: int, state: FlowProgress) -> None:
    for i in range(len(kept.replica)):
        kept.start[i, at] = state.start[kept.replica[i]]
        kept.finish[i, at] = state.finish[kept.replica[i]]


@compiled_uncounted
def _fill(plan: FlowPlan, arrivals: FloatArray, p: int, slices: int, amounts: FlowSlice) -> None:
    """Events of every stream, events and cycles of every portion in one slice of subinterval p."""
    events, work, sources = amounts.events, amounts.work, arrivals.shape[0]
    for s in range(sources):
        events[s] = arrivals[s, p]
    _pass_on(plan, plan.output, plan.cycles, sources, amounts)
    if slices > 1:
        events /= slices
        work /= slices


@compiled_uncounted
def _pass_on(plan: FlowPlan, output: FloatArray, cycles: FloatArray, sources: int, amounts: FlowSlice) -> None:
    """Events of every operator's stream, events and cycles of every portion, from those of the sources and waiting."""
    events, waiting, made, work = amounts
    made[:] = 0.0
    work[:] = 0.0
    for j in plan.order:
        total = 0.0
        for k in range(plan.in_start[j], plan.in_start[j + 1]):
            x = events[plan.in_stream[k]] + waiting[k]
            if x > 0.0:
                out = max(0.0, output[k, 0] + x * (output[k, 1] + x * output[k, 2]))
                total += out
                made[plan.in_portion[k]] += out
                work[plan.in_portion[k]] += max(0.0, cycles[k, 0] + x * (cycles[k, 1] + x * cycles[k, 2]))
        events[sources + j] = total


@compiled_uncounted
def _slice(
    plan: FlowPlan,
    rates: CapacityRates,
    pool: FreeCapacity,
    state: FlowProgress,
    amounts: FlowSlice,
    factor: FloatArray,
    t0: float,
    t1: float,
    worst: FloatArray,
) -> float:
    """Send one slice through all operators; returns its latency and fills that of every query."""
    slowest = 0.0
    for j in plan.order:
        for r in range(plan.rep_start[j], plan.rep_start[j + 1]):
            if plan.given[r]:
                continue
            i = plan.rep_server[r]
            begin, finish = np.inf, -np.inf
            for c in range(plan.piece_start[r], plan.piece_start[r + 1]):
                first, latest, by = np.inf, -np.inf, -1
                for h in range(plan.hop_start[c], plan.hop_start[c + 1]):
                    x = amounts.events[plan.in_stream[plan.hop_input[h]]]
                    waits = amounts.waiting[plan.hop_input[h]] > 0.0
                    if x <= 0.0 and not waits:
                        continue
                    came, end = t0, t1
                    a = plan.hop_origin[h]
                    if a >= 0 and x > 0.0:
                        came, end = state.start[a], state.finish[a]
                        link = plan.hop_server[h]
                        if link >= 0:
                            size = plan.hop_bytes[h] * x
                            came, through, state.hop_finger[h] = take_capacity(
                                pool, rates, link, t0, came, size, state.hop_finger[h]
                            )
                            end = max(through, end, state.passed[h])
                            state.passed[h] = end
                        came += plan.hop_delay[h]
                        end += plan.hop_delay[h]
                        if waits:  # these are here already
                            came = min(came, t0)
                    first = min(first, came)
                    if end > latest:
                        latest, by = end, h
                if by < 0:
                    continue
                portion = plan.piece_portion[c]
                cycles = plan.piece_share[c] * amounts.work[portion] * factor[i]
                start, end, state.finger[c] = take_capacity(pool, rates, i, t0, first, cycles, state.finger[c])
                end = max(end, latest, state.done[c])
                state.done[c] = end
                if amounts.made[portion] > 0.0:
                    begin = min(begin, start)
                    if end > finish:
                        finish = end
                        state.last[r] = latest
                        state.last_hop[r] = by
            if finish < 0.0:
                continue
            state.start[r] = begin
            state.finish[r] = finish
            state.latency[r] = max(state.latency[r], finish - t1)
            if plan.sink[j]:
                slowest = max(slowest, finish - t1)
            query = plan.query[j]
            if query >= 0 and finish - t1 >= worst[query]:
                worst[query] = finish - t1
                state.worst_replica[query] = r
    return slowest


@compiled_uncounted
def _remember(
    memory: FlowMemory, latency: FloatArray, state: FlowProgress, keep_start: IntArray, keep: IntArray
) -> None:
    """Keep the state of the replicas above each query whose latency is the largest so far."""
    for q in range(len(latency)):
        if latency[q] > memory.worst[q] and latency[q] > 0.0:
            memory.worst[q] = latency[q]
            memory.sink[q] = state.worst_replica[q]
            for at in range(keep_start[q], keep_start[q + 1]):
                memory.finish[at] = state.finish[keep[at]]
                memory.last[at] = state.last[keep[at]]
                memory.hop[at] = state.last_hop[keep[at]]
