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
from engine.freelist import Rates, ensure_room, new_pool, take
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
    """(d, n) scale of every operator's work on a server; no rows where loads simply add up."""
    factors = None
    if deployment.combine.kind != "sum":
        factors = loads_of(deployment, graph=graph).work_factors
    return np.zeros((0, len(deployment.servers))) if factors is None else factors


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
    replicas, width = len(plan.rep_server), rates.width_s / slices
    latency, by_query = np.zeros(d), np.zeros((queries, d * slices))
    memory = Memory(
        np.full(queries, -1.0),
        np.full(queries, -1),
        np.zeros(len(keep)),
        np.zeros(len(keep)),
        np.zeros(len(keep), dtype=np.int64),
    )
    events, work = np.zeros(sources + m), np.zeros(m)
    start, finish, last = np.zeros(replicas), np.zeros(replicas), np.zeros(replicas)
    last_hop, passed = np.zeros(replicas, dtype=np.int64), np.zeros(len(plan.hop_server))
    worst_replica = np.zeros(queries, dtype=np.int64)
    pool = new_pool(len(rates.constant))
    for p in range(d):
        _streams(plan, arrivals, p, events, work)
        for part in range(slices):
            t0 = p * rates.width_s + part * width
            t1 = t0 + width
            now = p * slices + part
            for j in plan.order:
                emits = events[sources + j] > 0.0
                query = plan.query[j]
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
                                pool = ensure_room(pool)
                                load = plan.hop_bytes[h] * x / slices
                                begin, through = take(pool, rates, link, t0, begin, load)
                                end = max(through, end, passed[h])
                                passed[h] = end
                            begin += plan.hop_delay[h]
                            end += plan.hop_delay[h]
                        first = min(first, begin)
                        if end > latest:
                            latest = end
                            last_hop[r] = h
                    if latest < 0.0:
                        continue
                    i = plan.rep_server[r]
                    load = plan.rep_fraction[r] * work[j] / slices
                    if factors.shape[0] > 0:
                        load *= factors[p, i]
                    pool = ensure_room(pool)
                    start[r], end = take(pool, rates, i, t0, first, load)
                    finish[r] = max(end, latest, finish[r])
                    last[r] = latest
                    if emits and plan.sink[j]:
                        latency[p] = max(latency[p], finish[r] - t1)
                    if emits and query >= 0 and finish[r] - t1 >= by_query[query, now]:
                        by_query[query, now] = finish[r] - t1
                        worst_replica[query] = r
            if len(keep):
                _remember(memory, by_query[:, now], worst_replica, keep_start, keep, finish, last, last_hop)
    return latency, by_query, memory


@compiled
def _remember(
    memory: Memory,
    latency: FloatArray,
    replica: IntArray,
    keep_start: IntArray,
    keep: IntArray,
    finish: FloatArray,
    last: FloatArray,
    last_hop: IntArray,
) -> None:
    """Keep the state of the replicas above each query whose latency is the largest so far."""
    for q in range(len(latency)):
        if latency[q] > memory.worst[q] and latency[q] > 0.0:
            memory.worst[q] = latency[q]
            memory.sink[q] = replica[q]
            for at in range(keep_start[q], keep_start[q + 1]):
                memory.finish[at] = finish[keep[at]]
                memory.last[at] = last[keep[at]]
                memory.hop[at] = last_hop[keep[at]]
