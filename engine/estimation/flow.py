"""Mace-Flow: latency of every stimulus slice by preemptive stimulus-time scheduling of a fluid.

It takes Mace's inputs and follows every slice through the servers, so that capacity that stood idle while an upstream
node held the events back is not counted as used. It holds where the paper's theorem fails: several sources and nodes.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from engine.arrays import FloatArray, IntArray, statistic_or_worst
from engine.document.deployment import Deployment
from engine.document.topology import DataflowGraph, PlacementLayout
from engine.estimation.answer import Hop
from engine.estimation.backlog import Lead, LeadWork, lead_of, lead_work
from engine.estimation.flow_kernel import FlowLead, FlowMemory, FlowPlan, FlowTimes, run_flow
from engine.estimation.free_capacity import CapacityRates
from engine.estimation.loads import loads_of

__all__ = ["Flow", "flow", "room_for_times"]

_IN_MEMORY = 1 << 28  # bytes of times that are kept in memory


@dataclass(frozen=True, eq=False)
class Flow:
    """Latencies of a deployment, d subintervals of K slices each.

    Attributes
    ----------
    latency_s : array, shape (d,)
        Largest latency of the slices of each subinterval; 0 where no sink emits. Empty where a change was computed.
    by_query : mapping of arrays, shape (d * K,)
        Largest latency at the sinks of each query, slice by slice; 0 where none emits.
    slices : int
        K.
    hops : mapping
        For each query the steps of its worst slice along its critical path; they add up to the slice's latency.
    lead : Lead or None
        The slices before the horizon with the events that wait where it begins; None where nothing does.
    lead_latency_s : array, shape (n,)
        Largest latency of each of these slices, the age of its events included.
    lead_by_query : mapping of arrays, shape (n,)
        The same at the sinks of each query.
    lead_events : mapping of arrays, shape (n,)
        Events of these slices that come out there.
    times : FlowTimes or None
        When the output of every slice leaves each replica that was computed, if that was asked for.
    """

    latency_s: FloatArray
    by_query: dict[str, FloatArray]
    slices: int
    hops: dict[str, tuple[Hop, ...]]
    lead: Lead | None = None
    lead_latency_s: FloatArray = field(default_factory=lambda: np.zeros(0))
    lead_by_query: dict[str, FloatArray] = field(default_factory=dict)
    lead_events: dict[str, FloatArray] = field(default_factory=dict)
    times: FlowTimes | None = None

    @property
    def wc(self) -> float:
        """Flow_WC in seconds, of the events that wait where the horizon begins as well."""
        return float(max(self.latency_s.max(), self.lead_latency_s.max(initial=0.0)))

    def statistic_of(self, query: str, weights: FloatArray, statistic: str) -> float:
        """Statistic of a query's latencies, weighted by its sink events of the horizon's slices, (d * K,)."""
        latency_s = self.by_query[query]
        if self.lead is not None:
            latency_s = np.concatenate([self.lead_by_query[query], latency_s])
            weights = np.concatenate([self.lead_events[query], weights])
        return statistic_or_worst(latency_s, weights, statistic)

    def lead_of_query(self, query: str) -> FloatArray:
        """Latencies of waiting events at the sinks of `query`, (n,); empty where nothing waits."""
        return self.lead_by_query.get(query, np.zeros(0))


def flow(
    deployment: Deployment,
    *,
    slices: int = 1,
    by_input: bool = False,
    trace: bool = False,
    graph: DataflowGraph | None = None,
    keep_times: bool = False,
    given: FlowTimes | None = None,
) -> Flow:
    """Mace-Flow of a deployment.

    Parameters
    ----------
    deployment : Deployment
        n servers, m operators, d subintervals.
    slices : int
        Slices K per subinterval. Accuracy comes from narrow subintervals, not from K.
    by_input : bool
        Start the work for each input, and for each replica that it comes from, when that arrives. The plain definition
        starts all work of an operator with the first arrival, which is too early where another is held up elsewhere.
    trace : bool
        Also keep the hops of every query's worst slice.
    graph : Graph, optional
        Stands in for the deployment's own: the same dataflow with other statistics.
    keep_times : bool
        Also keep `times` of every replica that is computed.
    given : FlowTimes, optional
        Replicas whose times are known. They are not computed: whoever gives times gives those of all replicas of a
        server, and latencies of the queries that end there are none.

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
    given = given or _no_times()
    plan = _plan(deployment, graph, by_input, given)
    factors = _work_factors(deployment, graph)
    queries = len(deployment.queries)
    kept = deployment.closures if trace else (np.zeros(queries + 1, dtype=np.int64), np.zeros(0, dtype=np.int64))
    lead = lead_of(deployment)
    work = None if lead is None else lead_work(deployment, lead, graph=graph)
    waiting = _lead(deployment, graph, lead, work)
    computed = np.flatnonzero(plan.given == 0) if keep_times else np.zeros(0, dtype=np.int64)
    count = len(computed), waiting.events.shape[1] + deployment.subintervals * slices
    times = FlowTimes(computed, room_for_times(count), room_for_times(count), np.zeros(len(computed)))
    run = run_flow(
        plan, _rates(deployment), deployment.arrivals, factors, slices, queries, *kept, waiting, given, times
    )
    run_times = times if keep_times else None
    numbered = dict(enumerate(deployment.queries))
    rows = {query: run.by_query[i] for i, query in numbered.items()}
    hops = {query: _path(deployment, i, run.memory, *kept) for i, query in numbered.items()} if trace else {}
    if lead is None or work is None:
        return Flow(run.latency, rows, slices, hops, times=run_times)
    lead_rows = {query: _with_age(run.lead_by_query[i], lead) for i, query in numbered.items()}
    events = dict(zip(deployment.queries, work.sink_events(graph, queries), strict=True))
    lead_s = _with_age(run.lead_latency, lead)
    return Flow(run.latency, rows, slices, hops, lead, lead_s, lead_rows, events, run_times)


def room_for_times(shape: tuple[int, int]) -> FloatArray:
    """Unset memory; of much of it the system keeps in a file what nobody looks at."""
    size = shape[0] * shape[1] * np.dtype(np.float64).itemsize
    if size <= _IN_MEMORY:
        return np.empty(shape)
    with tempfile.TemporaryFile(prefix="sluice-times-") as file:
        os.posix_fallocate(file.fileno(), 0, size)  # a full disk is an error here, and a signal once it is mapped
        return np.asarray(np.memmap(file, np.float64, "r+", shape=shape))


def _no_times() -> FlowTimes:
    return FlowTimes(np.zeros(0, dtype=np.int64), np.zeros((0, 0)), np.zeros((0, 0)), np.zeros(0))


def _with_age(latency_s: FloatArray, lead: Lead) -> FloatArray:
    """Largest latencies of waiting slices: none is less than the age of its oldest event."""
    return np.where(latency_s > 0.0, np.maximum(latency_s, lead.ages_s + lead.width_s), 0.0)


def _lead(deployment: Deployment, graph: DataflowGraph, lead: Lead | None, work: LeadWork | None) -> FlowLead:
    """Waiting events as the compiled pass takes them."""
    if lead is None or work is None:
        nothing = np.zeros((len(graph.in_stream), 0))
        return FlowLead(nothing, graph.output, graph.cycles, np.ones((0, len(deployment.servers))), 1.0)
    return FlowLead(lead.events, *work.polynomials, np.ascontiguousarray(work.factors.T), lead.width_s)


def _plan(deployment: Deployment, graph: DataflowGraph, by_input: bool, given: FlowTimes) -> FlowPlan:
    layout = deployment.layout
    is_given = np.zeros(len(layout.rep_server), dtype=np.int64)
    is_given[given.replica] = 1
    pieces = _hop_pieces(graph, layout) if by_input else _replica_pieces(graph, layout)
    return FlowPlan(
        order=graph.order,
        in_start=graph.in_start,
        in_stream=graph.in_stream,
        output=graph.output,
        cycles=graph.cycles,
        sink=graph.sink.astype(np.int64),
        query=np.where(graph.query_sink, graph.query, -1),
        rep_start=layout.rep_start,
        rep_server=layout.rep_server,
        hop_input=layout.hop_input,
        hop_origin=layout.hop_origin,
        hop_server=layout.hop_server,
        hop_delay=layout.hop_delay_s,
        hop_bytes=layout.hop_bytes,
        given=is_given,
        **pieces,
    )


def _replica_pieces(graph: DataflowGraph, layout: PlacementLayout) -> dict[str, Any]:
    """All work of a replica is one piece."""
    return {
        "in_portion": np.repeat(np.arange(len(graph.order)), np.diff(graph.in_start)),
        "portions": len(graph.order),
        "piece_start": np.arange(len(layout.rep_server) + 1),
        "piece_portion": layout.rep_operator,
        "piece_share": layout.rep_fraction,
        "hop_start": layout.hop_start,
    }


def _hop_pieces(graph: DataflowGraph, layout: PlacementLayout) -> dict[str, Any]:
    """Pieces: a piece comes to a replica by one input, from one replica of the operator above."""
    hops = len(layout.hop_input)
    reader = np.repeat(np.arange(len(layout.rep_server)), np.diff(layout.hop_start))
    sent = np.where(layout.hop_origin < 0, 1.0, layout.rep_fraction[layout.hop_origin])
    return {
        "in_portion": np.arange(len(graph.in_stream)),
        "portions": len(graph.in_stream),
        "piece_start": layout.hop_start,
        "piece_portion": layout.hop_input,
        "piece_share": layout.rep_fraction[reader] * sent,
        "hop_start": np.arange(hops + 1),
    }


def _rates(deployment: Deployment) -> CapacityRates:
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
    return CapacityRates(constant, row, stacked, done, w)


def _work_factors(deployment: Deployment, graph: DataflowGraph) -> FloatArray:
    """Scale of every operator's work on a server, (d, n), or one row of ones where loads simply add up."""
    factors = None
    if deployment.combine.kind != "sum":
        factors = loads_of(deployment, graph=graph).work_factors
    return np.ones((1, len(deployment.servers))) if factors is None else factors


def _path(
    deployment: Deployment, query: int, memory: FlowMemory, keep_start: IntArray, keep: IntArray
) -> tuple[Hop, ...]:
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
