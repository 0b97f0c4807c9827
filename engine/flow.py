"""Mace-Flow: latency of every stimulus slice by preemptive stimulus-time scheduling of a fluid.

It takes Mace's inputs and follows every slice through the servers, so that capacity that stood idle while an upstream
node held the events back is not counted as used. It holds where the paper's theorem fails: several sources and nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from engine.compiled import compiled
from engine.deployment import Deployment
from engine.elements import FloatArray, IntArray
from engine.freelist import Pool, Rates, ensure_room, new_pool, take
from engine.loads import loads_of
from engine.topology import Graph, closures_of

__all__ = ["Flow", "Hop", "flow"]


@dataclass(frozen=True)
class Hop:
    """One step of a slice's critical path: what it spent there, in seconds, waiting included."""

    operator: str
    server: str
    wait_s: float


@dataclass(frozen=True, eq=False)
class Flow:
    """Latencies of a deployment, d subintervals of K slices each.

    Attributes
    ----------
    latency_s : array, shape (d,)
        Largest latency of the slices of each subinterval; 0 where no sink emits.
    by_query : mapping of arrays, shape (d * K,)
        Largest latency at the sinks of each query, slice by slice; 0 where none emits.
    slices : int
        K.
    hops : mapping
        For each query the steps of its worst slice along its critical path; they add up to the slice's latency.
    """

    latency_s: FloatArray
    by_query: dict[str, FloatArray]
    slices: int
    hops: dict[str, tuple[Hop, ...]]

    @property
    def wc(self) -> float:
        """Flow_WC in seconds."""
        return float(self.latency_s.max())


def flow(deployment: Deployment, *, slices: int = 1, trace: bool = False, graph: Graph | None = None) -> Flow:
    """Mace-Flow of a deployment.

    Parameters
    ----------
    deployment : Deployment
        n servers, m operators, d subintervals.
    slices : int
        Slices K per subinterval. Accuracy comes from narrow subintervals, not from K.
    trace : bool
        Also keep the hops of every query's worst slice.
    graph : Graph, optional
        Stands in for the deployment's own: the same dataflow with other statistics.

    Returns
    -------
    Flow
        Latencies in seconds, each from the end of a slice to the finish of its last event at a sink.

    Raises
    ------
    UnplacedError
        If an operator has no node.

    Notes
    -----
    Flow is not monotone in capacity: more of it can move a queue to a place where it costs more.
    """
    if slices < 1:
        raise ValueError(f"slices is {slices}; allowed: a whole number of at least 1")
    graph = graph or deployment.graph
    plan = _plan(deployment, graph)
    factors = _work_factors(deployment, graph)
    queries = len(deployment.queries)
    kept = closures_of(deployment) if trace else (np.zeros(queries + 1, dtype=np.int64), np.zeros(0, dtype=np.int64))
    latency, by_query, memory = _run(plan, _rates(deployment), deployment.arrivals, factors, slices, queries, *kept)
    rows = {query: by_query[i] for i, query in enumerate(deployment.queries)}
    hops = {query: _path(deployment, i, memory, *kept) for i, query in enumerate(deployment.queries)} if trace else {}
    return Flow(latency, rows, slices, hops)


class Plan(NamedTuple):
    """Graph and layout as the compiled loop takes them."""

    order: IntArray
    in_start: IntArray
    in_stream: IntArray
    output: FloatArray
    cycles: FloatArray
    sink: IntArray
    query: IntArray  # (m,) query whose sink the operator is, -1 for none
    rep_start: IntArray
    rep_server: IntArray
    rep_fraction: FloatArray
    hop_start: IntArray
    hop_input: IntArray
    hop_origin: IntArray
    hop_server: IntArray
    hop_delay: FloatArray
    hop_bytes: FloatArray


class Memory(NamedTuple):
    """The worst slice of every query: its sink, and finish, last arrival and last hop of the replicas above it."""

    worst: FloatArray  # (queries,)
    sink: IntArray  # (queries,)
    finish: FloatArray
    last: FloatArray
    hop: IntArray


def _plan(deployment: Deployment, graph: Graph) -> Plan:
    layout = deployment.layout
    return Plan(
        graph.order,
        graph.in_start,
        graph.in_stream,
        graph.output,
        graph.cycles,
        graph.sink.astype(np.int64),
        np.where(graph.query_sink, graph.query, -1),
        layout.rep_start,
        layout.rep_server,
        layout.rep_fraction,
        layout.hop_start,
        layout.hop_input,
        layout.hop_origin,
        layout.hop_server,
        layout.hop_delay_s,
        layout.hop_bytes,
    )


def _rates(deployment: Deployment) -> Rates:
    servers = deployment.servers
    constant = np.ones(len(servers))
    row = np.full(len(servers), -1, dtype=np.int64)
    series: list[FloatArray] = []
    for i, server in enumerate(servers):
        node = None if server.node is None else deployment.nodes[server.node]
        if node is None:
            constant[i] = deployment.links[server.link or 0].bandwidth_bytes_s or np.inf
        elif node.capacity_series_cps is None:
            constant[i] = node.capacity_cps or np.inf
        else:
            row[i] = len(series)
            series.append(node.capacity_series_cps)
    stacked = np.array(series).reshape(len(series), deployment.subintervals)
    w = deployment.subinterval_s
    done = np.concatenate([np.zeros((len(series), 1)), np.cumsum(stacked * w, axis=1)], axis=1)
    return Rates(constant, row, stacked, done, w)


def _work_factors(deployment: Deployment, graph: Graph) -> FloatArray:
    """Scale of every operator's work on a server, (d, n), or one row of ones where loads simply add up."""
    factors = None
    if deployment.combine.kind != "sum":
        factors = loads_of(deployment, graph=graph).work_factors
    return np.ones((1, len(deployment.servers))) if factors is None else factors


def _path(deployment: Deployment, query: int, memory: Memory, keep_start: IntArray, keep: IntArray) -> tuple[Hop, ...]:
    """Walk back from the sink of the query's worst slice along what arrived last."""
    layout = deployment.layout
    members = keep[keep_start[query] : keep_start[query + 1]]
    replica = int(memory.sink[query])
    hops: list[Hop] = []
    while replica >= 0:
        at = int(keep_start[query] + np.searchsorted(members, replica))
        operator = deployment.operators[layout.rep_operator[replica]].id
        server = deployment.servers[layout.rep_server[replica]].name
        hops.append(Hop(operator, server, float(memory.finish[at] - memory.last[at])))
        hop = int(memory.hop[at])
        origin = int(layout.hop_origin[hop])
        if origin >= 0:
            above = int(keep_start[query] + np.searchsorted(members, origin))
            transfer = float(memory.last[at] - memory.finish[above])
            if transfer > 0.0:
                hops.append(Hop(operator, _link_name(deployment, origin, replica), transfer))
        replica = origin
    return tuple(reversed(hops))


def _link_name(deployment: Deployment, origin: int, replica: int) -> str:
    ends = (deployment.servers[deployment.layout.rep_server[r]].node for r in (origin, replica))
    return "->".join(deployment.nodes[node].id for node in ends if node is not None)


@compiled
def _streams(plan: Plan, arrivals: FloatArray, p: int, events: FloatArray, work: FloatArray) -> None:
    """Events of every stream and cycles of every operator in subinterval p."""
    sources = arrivals.shape[0]
    for s in range(sources):
        events[s] = arrivals[s, p]
    for j in plan.order:
        made = spent = 0.0
        for k in range(plan.in_start[j], plan.in_start[j + 1]):
            x = events[plan.in_stream[k]]
            if x > 0.0:
                made += max(0.0, plan.output[k, 0] + x * (plan.output[k, 1] + x * plan.output[k, 2]))
                spent += max(0.0, plan.cycles[k, 0] + x * (plan.cycles[k, 1] + x * plan.cycles[k, 2]))
        events[sources + j] = made
        work[j] = spent


class Progress(NamedTuple):
    """Where every replica and hop stands after the slices so far; times in seconds from the beginning."""

    start: FloatArray  # (r,)
    finish: FloatArray  # (r,)
    last: FloatArray  # (r,) last arrival
    last_hop: IntArray  # (r,) the hop it came by
    finger: IntArray  # (r,) where in the free list
    passed: FloatArray  # (h,) end of the transfer
    hop_finger: IntArray  # (h,)
    worst_replica: IntArray  # (queries,) the sink that was last in this slice


@compiled
def _progress(replicas: int, hops: int, queries: int) -> Progress:
    return Progress(
        np.zeros(replicas),
        np.zeros(replicas),
        np.zeros(replicas),
        np.zeros(replicas, dtype=np.int64),
        np.zeros(replicas, dtype=np.int64),
        np.zeros(hops),
        np.zeros(hops, dtype=np.int64),
        np.zeros(queries, dtype=np.int64),
    )


@compiled
def _run(
    plan: Plan,
    rates: Rates,
    arrivals: FloatArray,
    factors: FloatArray,
    slices: int,
    queries: int,
    keep_start: IntArray,
    keep: IntArray,
) -> tuple[FloatArray, FloatArray, Memory]:
    """The pass over slices and operators; see docs/models/mace.md for the rules it follows."""
    d, sources, m = arrivals.shape[1], arrivals.shape[0], len(plan.order)
    replicas, hops, width = len(plan.rep_server), len(plan.hop_server), rates.width_s / slices
    latency, by_query = np.zeros(d), np.zeros((queries, d * slices))
    memory = Memory(
        np.full(queries, -1.0),
        np.full(queries, -1),
        np.zeros(len(keep)),
        np.zeros(len(keep)),
        np.zeros(len(keep), dtype=np.int64),
    )
    events, work, worst = np.zeros(sources + m), np.zeros(m), np.zeros(queries)
    state = _progress(replicas, hops, queries)
    pool = new_pool(len(rates.constant))
    for p in range(d):
        _streams(plan, arrivals, p, events, work)
        events /= slices
        work /= slices
        for part in range(slices):
            pool = ensure_room(pool, replicas + hops)
            t0 = p * rates.width_s + part * width
            worst[:] = 0.0
            factor = factors[p if factors.shape[0] > 1 else 0]
            slowest = _slice(plan, rates, pool, state, events, work, factor, t0, t0 + width, worst)
            latency[p] = max(latency[p], slowest)
            by_query[:, p * slices + part] = worst
            if len(keep):
                _remember(memory, worst, state, keep_start, keep)
    return latency, by_query, memory


@compiled
def _slice(
    plan: Plan,
    rates: Rates,
    pool: Pool,
    state: Progress,
    events: FloatArray,
    work: FloatArray,
    factor: FloatArray,
    t0: float,
    t1: float,
    worst: FloatArray,
) -> float:
    """Send one slice through all operators; returns its latency and fills that of every query."""
    sources = len(events) - len(work)
    start, finish = state.start, state.finish
    slowest = 0.0
    for j in plan.order:
        emits = events[sources + j] > 0.0
        for r in range(plan.rep_start[j], plan.rep_start[j + 1]):
            first, latest = np.inf, -np.inf
            for h in range(plan.hop_start[r], plan.hop_start[r + 1]):
                x = events[plan.in_stream[plan.hop_input[h]]]
                if x <= 0.0:
                    continue
                begin, end = t0, t1
                a = plan.hop_origin[h]
                if a >= 0:
                    begin, end = start[a], finish[a]
                    link = plan.hop_server[h]
                    if link >= 0:
                        size = plan.hop_bytes[h] * x
                        begin, through, state.hop_finger[h] = take(
                            pool, rates, link, t0, begin, size, state.hop_finger[h]
                        )
                        end = max(through, end, state.passed[h])
                        state.passed[h] = end
                    begin += plan.hop_delay[h]
                    end += plan.hop_delay[h]
                first = min(first, begin)
                if end > latest:
                    latest = end
                    state.last_hop[r] = h
            if latest < 0.0:
                continue
            i = plan.rep_server[r]
            cycles = plan.rep_fraction[r] * work[j] * factor[i]
            start[r], end, state.finger[r] = take(pool, rates, i, t0, first, cycles, state.finger[r])
            finish[r] = max(end, latest, finish[r])
            state.last[r] = latest
            if emits:
                if plan.sink[j]:
                    slowest = max(slowest, finish[r] - t1)
                query = plan.query[j]
                if query >= 0 and finish[r] - t1 >= worst[query]:
                    worst[query] = finish[r] - t1
                    state.worst_replica[query] = r
    return slowest


@compiled
def _remember(memory: Memory, latency: FloatArray, state: Progress, keep_start: IntArray, keep: IntArray) -> None:
    """Keep the state of the replicas above each query whose latency is the largest so far."""
    for q in range(len(latency)):
        if latency[q] > memory.worst[q] and latency[q] > 0.0:
            memory.worst[q] = latency[q]
            memory.sink[q] = state.worst_replica[q]
            for at in range(keep_start[q], keep_start[q + 1]):
                memory.finish[at] = state.finish[keep[at]]
                memory.last[at] = state.last[keep[at]]
                memory.hop[at] = state.last_hop[keep[at]]
