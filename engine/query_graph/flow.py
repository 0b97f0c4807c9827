"""Nominal flow: rates, window contents and path latencies that a placement would have if nothing were scarce.

They are features beside those of table I, and the anchor that the network corrects: what follows from the semantics of
operators need not be learned. Costs of operators do not enter; how much a host bears remains to be learned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.arrays import FloatArray, IntArray
from engine.query_graph.graph import HostNode, OperatorNode, QueryGraph

__all__ = [
    "BYTES_PER_MBIT",
    "FIXED_FLOW_WIDTH",
    "GRAPH_FLOW_WIDTH",
    "HOST_FLOW_WIDTH",
    "MIN_RATE_EPS",
    "OPERATOR_FLOW_WIDTH",
    "FlowFeatures",
    "NominalFlow",
    "flow_features",
    "nominal_flow",
    "operator_flow",
]

OPERATOR_FLOW_WIDTH = 8
FIXED_FLOW_WIDTH = 5  # of an operator's columns: no placement changes them
HOST_FLOW_WIDTH = 6
GRAPH_FLOW_WIDTH = 3

_LEAST, _OFFSET, _DECADES = 1e-6, 1e-3, 3.0
_MS = 1e3
BYTES_PER_MBIT = 1e6 / 8
_KB_PER_MB = 1000.0  # a tuple in a window takes about 1 kB
_TUPLE_BYTES, _NUMBER_BYTES, _STRING_BYTES = 60.0, 8.0, 30.0  # of a tuple on the wire, and of each value in it
_OPERATORS_SCALE = 15.0
_IDLE_S = 1e-3  # of an empty host that does next to nothing
MIN_RATE_EPS = 1e-9
_ANCHOR_SCALE = 5.0  # of ln


@dataclass(frozen=True)
class NominalFlow:
    """Rates and contents of the windows of n operators, wherever they are; arrays of shape (n,).

    Attributes
    ----------
    in_eps, out_eps
        Tuples per second that come in and go out.
    scan_eps
        Joins and aggregations: tuples per second that windows are read for, each as often as windows overlap.
    state_tuples
        Tuples that windows hold.
    fill_s
        Seconds until a window is full.
    out_bytes
        Bytes of a tuple that goes out.
    """

    in_eps: FloatArray
    out_eps: FloatArray
    scan_eps: FloatArray
    state_tuples: FloatArray
    fill_s: FloatArray
    out_bytes: FloatArray


@dataclass(frozen=True)
class FlowFeatures:
    """Flow features of k placements of n operators, with u pairs of a placement and a host that it uses.

    Attributes
    ----------
    operators
        float64 of shape (k, n, 8): g(in), g(out), g(scan), g(state), g(fill in s), 1 if a reader is on another host,
        that times g(use of the host's uplink), g(ms of latency and filling until here).
    hosts
        float64 of shape (u, 6): g(in per core), g(scan per core), g(out and sent per core), g(use of the uplink),
        g(use of memory by windows), operators/15.
    pairs
        int64 of shape (k, n): pair of each operator's host; pairs are sorted by placement, then by host.
    pair_hosts
        int64 of shape (u,): host of each pair.
    starts
        int64 of shape (k + 1,): first pair of each placement.
    graphs
        float64 of shape (k, 3): a fifth of the anchor's throughput and of its latency; and the difference that it makes
        to the latency, in ln, if what leaves a join with windows by count has the mean age of the tuples on both sides
        instead of the oldest's, as on some engines.
    anchor
        float64 of shape (k, 3): ln of nominal throughput (tuples/s), processing and end-to-end latency (s).

    Notes
    -----
    g(x) = log10(max(x, 1e-6) + 1e-3)/3, which takes 0 to -0.99986 and 1000 to 1.
    """

    operators: FloatArray
    hosts: FloatArray
    pairs: IntArray
    pair_hosts: IntArray
    starts: IntArray
    graphs: FloatArray
    anchor: FloatArray


def nominal_flow(graph: QueryGraph) -> NominalFlow:
    """Rates and window contents by the definitions of selectivity (section IV-B, definitions 6 to 8).

    Examples
    --------
    >>> source = OperatorNode("source", 6, 6, rate_eps=400, n_int=6)
    >>> half = OperatorNode("filter", 6, 6, function="<", value_type="int", selectivity=0.5)
    >>> graph = QueryGraph((source, half, OperatorNode("sink", 6, 6)), ((0, 1), (1, 2)))
    >>> nominal_flow(graph).out_eps.tolist()
    [400.0, 200.0, 200.0]
    """
    n = len(graph.operators)
    rows = np.zeros((5, n))
    strings = np.zeros(n)
    for i in graph.order:
        op, inputs = graph.operators[i], graph.inputs[i]
        rates = [float(rows[1, a]) for a in inputs]
        rows[:, i] = operator_flow(op, rates, op.rate_eps)
        strings[i] = _string_share(op, [float(strings[a]) for a in inputs])
    values = np.array([op.values_out for op in graph.operators])
    out_bytes = _TUPLE_BYTES + values * (_NUMBER_BYTES + (_STRING_BYTES - _NUMBER_BYTES) * strings)
    return NominalFlow(rows[0], rows[1], rows[2], rows[3], rows[4], out_bytes)


def operator_flow(op: OperatorNode, rates: Sequence[Any], rate_eps: Any) -> tuple[Any, Any, Any, Any, Any]:
    """Rates in, out and scanned, tuples held, and seconds of filling of one operator.

    Parameters
    ----------
    rates
        Tuples/s of each input, numbers or arrays of one shape.
    rate_eps
        Tuples/s of a source.
    """
    if op.kind == "source":
        return rate_eps, rate_eps, 0.0, 0.0, 0.0
    total = sum(rates)
    if op.kind in ("filter", "sink"):
        return total, total * op.selectivity, 0.0, 0.0, 0.0
    size, sides = op.window_size, 2 if op.kind == "join" else 1
    scan = total * size / op.window_slide
    if op.window_policy == "time":
        state, fill = total * size, size
    else:
        slowest = rates[0] if len(rates) == 1 else np.minimum.reduce(rates)
        state, fill = sides * size, size / np.maximum(slowest, MIN_RATE_EPS)
    if op.kind == "agg":
        out = scan * op.selectivity
    elif op.window_policy == "time":
        out = rates[0] * rates[1] * size * size / op.window_slide * op.selectivity
    else:
        out = scan * size / 2 * op.selectivity
    return total, out, scan, state, fill


def _string_share(op: OperatorNode, shares: Sequence[float]) -> float:
    """Share of strings among the values of the tuples that go out."""
    if op.kind == "source":
        return op.n_str / (op.n_int + op.n_str + op.n_dbl)
    if op.kind == "agg":
        return 1 / 3 if op.group_type == "string" else 0.0  # the group, its window and its value
    return sum(shares) / len(shares)


def flow_features(
    graph: QueryGraph, hosts: Sequence[HostNode], placements: IntArray, flow: NominalFlow | None = None
) -> FlowFeatures:
    """Flow features and anchor of each placement.

    Parameters
    ----------
    placements
        Whole numbers of shape (k, n): host of each operator.
    flow
        The graph's nominal flow, where the caller has it.
    """
    flow = flow or nominal_flow(graph)
    k, n = placements.shape
    h = len(hosts)
    cells, pairs = np.unique(placements + np.arange(k)[:, None] * h, return_inverse=True)
    pairs, pair_hosts = pairs.reshape(k, n), cells % h
    cores = np.array([host.cpu_percent for host in hosts])[pair_hosts] / 100
    uplinks = np.array([host.bandwidth_mbit_s for host in hosts])[pair_hosts] * BYTES_PER_MBIT
    memories = np.array([host.ram_mb for host in hosts])[pair_hosts]
    latencies = np.array([host.latency_s for host in hosts]) * _MS
    crossing = np.zeros((k, n))  # readers on other hosts
    path_ms, mixed_ms = np.zeros((k, n)), np.zeros((k, n))
    for i in graph.order:
        shares = _input_shares(graph, flow, i)
        for a, share in zip(graph.inputs[i], shares, strict=True):
            away = placements[:, a] != placements[:, i]
            crossing[:, a] += away
            hop_ms = away * latencies[placements[:, a]]
            np.maximum(path_ms[:, i], path_ms[:, a] + hop_ms, out=path_ms[:, i])
            if share is None:
                np.maximum(mixed_ms[:, i], mixed_ms[:, a] + hop_ms, out=mixed_ms[:, i])
            else:
                mixed_ms[:, i] += share * (mixed_ms[:, a] + hop_ms)
        path_ms[:, i] += flow.fill_s[i] * _MS
        mixed_ms[:, i] += flow.fill_s[i] * _MS

    def per_pair(values: Any) -> FloatArray:
        weights = np.broadcast_to(values, (k, n)).ravel()
        return np.bincount(pairs.ravel(), weights, minlength=len(cells)).astype(np.float64, copy=False)

    host_rows = (
        _scaled(per_pair(flow.in_eps) / cores),
        _scaled(per_pair(flow.scan_eps) / cores),
        _scaled(per_pair((1 + crossing) * flow.out_eps) / cores),
        _scaled(per_pair(crossing * (flow.out_eps * flow.out_bytes)) / uplinks),
        _scaled(per_pair(flow.state_tuples) / (_KB_PER_MB * memories)),
        per_pair(1.0) / _OPERATORS_SCALE,
    )
    sends = (crossing > 0).astype(np.float64)
    rates = _scaled(np.stack([flow.in_eps, flow.out_eps, flow.scan_eps, flow.state_tuples, flow.fill_s], axis=1))
    operator_rows = np.empty((k, n, OPERATOR_FLOW_WIDTH))
    operator_rows[:, :, :FIXED_FLOW_WIDTH] = rates
    operator_rows[:, :, 5] = sends
    operator_rows[:, :, 6] = sends * host_rows[3][pairs]
    operator_rows[:, :, 7] = _scaled(path_ms)
    anchor = _anchor(graph, flow, path_ms)
    return FlowFeatures(
        operators=operator_rows,
        hosts=np.stack(host_rows, axis=1),
        pairs=pairs,
        pair_hosts=pair_hosts,
        starts=np.searchsorted(cells, np.arange(k + 1) * h),
        graphs=_graph_rows(anchor, _latency(graph, mixed_ms)),
        anchor=anchor,
    )


def _anchor(graph: QueryGraph, flow: NominalFlow, path_ms: FloatArray) -> FloatArray:
    latency = _latency(graph, path_ms)
    throughput = np.log(max(float(flow.in_eps[list(graph.sinks)].sum()), MIN_RATE_EPS))
    return np.stack([np.full_like(latency, throughput), latency, latency], axis=1)


def _latency(graph: QueryGraph, path_ms: FloatArray) -> FloatArray:
    """ln of the seconds until the slowest sink, (k,)."""
    latency: FloatArray = np.log(path_ms[:, list(graph.sinks)].max(axis=1) / _MS + _IDLE_S)
    return latency


def _graph_rows(anchor: FloatArray, mixed: FloatArray) -> FloatArray:
    return np.column_stack([anchor[:, 0] / _ANCHOR_SCALE, anchor[:, 1] / _ANCHOR_SCALE, mixed - anchor[:, 1]])


def _input_shares(graph: QueryGraph, flow: NominalFlow, i: int) -> list[float | None]:
    """Share of each input in the tuples that a join with windows by count takes; None for other operators."""
    op, inputs = graph.operators[i], graph.inputs[i]
    if op.kind != "join" or op.window_policy != "count":
        return [None] * len(inputs)
    rates = [max(float(flow.out_eps[a]), MIN_RATE_EPS) for a in inputs]
    return [rate / sum(rates) for rate in rates]


def _scaled(values: FloatArray) -> FloatArray:
    """g(x) of the features."""
    scaled: FloatArray = np.log10(np.maximum(values, _LEAST) + _OFFSET) / _DECADES
    return scaled
