"""Mace-Flow: latency of every stimulus slice by preemptive stimulus-time scheduling of a fluid.

It takes Mace's inputs and follows every slice through the servers, so that capacity that stood idle while an upstream
node held the events back is not counted as used. It holds where the paper's theorem fails: several sources and nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.arrays import FloatArray, IntArray
from engine.document.deployment import Deployment
from engine.document.topology import DataflowGraph, PlacementLayout
from engine.estimation.flow_kernel import FlowMemory, FlowPlan, run_flow
from engine.estimation.free_capacity import CapacityRates
from engine.estimation.loads import loads_of

__all__ = ["Flow", "Hop", "flow"]


@dataclass(frozen=True)
class Hop:
    """One step of a slice's critical path, with the seconds spent there, waiting included."""

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


def flow(
    deployment: Deployment,
    *,
    slices: int = 1,
    by_input: bool = False,
    trace: bool = False,
    graph: DataflowGraph | None = None,
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
    plan = _plan(deployment, graph, by_input)
    factors = _work_factors(deployment, graph)
    queries = len(deployment.queries)
    kept = deployment.closures if trace else (np.zeros(queries + 1, dtype=np.int64), np.zeros(0, dtype=np.int64))
    latency, by_query, memory = run_flow(plan, _rates(deployment), deployment.arrivals, factors, slices, queries, *kept)
    rows = {query: by_query[i] for i, query in enumerate(deployment.queries)}
    hops = {query: _path(deployment, i, memory, *kept) for i, query in enumerate(deployment.queries)} if trace else {}
    return Flow(latency, rows, slices, hops)


def _plan(deployment: Deployment, graph: DataflowGraph, by_input: bool) -> FlowPlan:
    layout = deployment.layout
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
