"""Batches of joint graphs of differing shape: flat arrays that NumPy evaluation and training share.

Operators of all graphs stand in one row after another, hosts likewise; indices point into these rows. Only hosts that
bear an operator are in a graph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.arrays import FloatArray, IntArray
from engine.query_graph.flow import GRAPH_FLOW_WIDTH, HOST_FLOW_WIDTH, OPERATOR_FLOW_WIDTH, flow_features
from engine.query_graph.graph import OPERATOR_KINDS, HostNode, QueryGraph
from lab.training.encoding import FEATURE_WIDTHS, MAX_WIDTH, host_features, operator_features

__all__ = [
    "FORMS",
    "EncodedTrace",
    "Float32Array",
    "FlowStage",
    "GraphBatch",
    "collate",
    "encode",
    "graph_width",
    "input_widths",
]

Float32Array = npt.NDArray[np.float32]

FORMS = ("recommended", "plain")  # with nominal flow and anchor, or as in the paper


@dataclass(frozen=True)
class EncodedTrace:
    """Arrays of one graph with n operators in topological order, m used hosts and e streams.

    Attributes
    ----------
    kinds
        int64 (n,): index into `OPERATOR_KINDS`.
    levels
        int64 (n,): longest distance from a source; not decreasing.
    features
        float32 (n, 20): rows of `operator_features`, zeros behind the columns of the kind.
    flow
        float32 (n, 8): `FlowFeatures.operators`.
    host_of
        int64 (n,): index of the used host.
    hosts, host_flow
        float32 (m, 4) and (m, 6).
    edges
        int64 (e, 2): from, to.
    graph_flow
        float32 (3,).
    anchor
        float64 (3,): ln of throughput (tuples/s), processing and end-to-end latency (s).
    """

    kinds: IntArray
    levels: IntArray
    features: Float32Array
    flow: Float32Array
    host_of: IntArray
    hosts: Float32Array
    host_flow: Float32Array
    edges: IntArray
    graph_flow: Float32Array
    anchor: FloatArray


@dataclass(frozen=True)
class FlowStage:
    """A topological level above the sources: its s operators, and the e streams that lead to them.

    Attributes
    ----------
    targets
        int64 (s,): rows of operators.
    sources
        int64 (e,): rows of the operators that send.
    readers
        int64 (e,): index into `targets` of the one that reads, not decreasing.
    """

    targets: IntArray
    sources: IntArray
    readers: IntArray


@dataclass(frozen=True)
class GraphBatch:
    """g graphs with N operators and M hosts in all.

    Attributes
    ----------
    rows
        Per kind of `OPERATOR_KINDS` the rows of its operators, int64 (N_kind,).
    inputs
        Per kind and for ``host`` what the encoder gets, float32 (N_kind, `input_widths(form)[kind]`).
    host_of
        int64 (N,): row of each operator's host.
    operator_graph, host_graph
        int64 (N,) and (M,): graph of each row, not decreasing.
    stages
        Levels 1, 2, ... in order.
    graph_flow
        float32 (g, `graph_width(form)`): what the heads get beside the readout.
    anchor
        float32 (g, 3): added to the regression outputs; zeros in the plain form.
    """

    rows: Mapping[str, IntArray]
    inputs: Mapping[str, Float32Array]
    host_of: IntArray
    operator_graph: IntArray
    host_graph: IntArray
    stages: tuple[FlowStage, ...]
    graph_flow: Float32Array
    anchor: Float32Array


def input_widths(form: str) -> dict[str, int]:
    """Columns that each encoder gets: those of table I, then those of the flow in the recommended form.

    Examples
    --------
    >>> input_widths("recommended")
    {'source': 13, 'filter': 22, 'join': 21, 'agg': 28, 'sink': 9, 'host': 10}
    """
    extra = {"host": HOST_FLOW_WIDTH} if form == "recommended" else {}
    flow = OPERATOR_FLOW_WIDTH if form == "recommended" else 0
    return {kind: width + (extra.get(kind, flow) if extra else 0) for kind, width in FEATURE_WIDTHS.items()}


def graph_width(form: str) -> int:
    """Columns that the heads get beside the readout."""
    return GRAPH_FLOW_WIDTH if form == "recommended" else 0


def encode(graph: QueryGraph, hosts: Sequence[HostNode], placement: Sequence[int]) -> EncodedTrace:
    """Arrays of one placement of a graph, of either form."""
    order = np.array(graph.order, dtype=np.int64)
    place = np.array(placement, dtype=np.int64)
    features = np.zeros((len(order), MAX_WIDTH), dtype=np.float32)
    for row, i in enumerate(order):
        values = operator_features(graph.operators[i])
        features[row, : len(values)] = values
    flow = flow_features(graph, hosts, place[None])
    row_of = np.argsort(order)
    edges = row_of[np.array(graph.edges, dtype=np.int64).reshape(-1, 2)]
    return EncodedTrace(
        kinds=np.array([OPERATOR_KINDS.index(graph.operators[i].kind) for i in order], dtype=np.int64),
        levels=np.array(graph.levels, dtype=np.int64)[order],
        features=features,
        flow=flow.operators[0, order].astype(np.float32),
        host_of=flow.pairs[0, order],
        hosts=host_features([hosts[j] for j in flow.pair_hosts]).astype(np.float32),
        host_flow=flow.hosts.astype(np.float32),
        edges=edges,
        graph_flow=flow.graphs[0].astype(np.float32),
        anchor=flow.anchor[0],
    )


def collate(traces: Sequence[EncodedTrace], form: str = "recommended") -> GraphBatch:
    """One batch of several graphs."""
    counts = np.array([len(trace.kinds) for trace in traces])
    host_counts = np.array([len(trace.hosts) for trace in traces])
    first, first_host = _starts(counts), _starts(host_counts)
    kinds = np.concatenate([trace.kinds for trace in traces])
    levels = np.concatenate([trace.levels for trace in traces])
    features = np.concatenate([trace.features for trace in traces])
    hosts = np.concatenate([trace.hosts for trace in traces])
    edge_counts = [len(trace.edges) for trace in traces]
    edges = np.concatenate([trace.edges for trace in traces]) + np.repeat(first, edge_counts)[:, None]
    rows = {kind: np.flatnonzero(kinds == code) for code, kind in enumerate(OPERATOR_KINDS)}
    inputs = {kind: features[rows[kind], : FEATURE_WIDTHS[kind]] for kind in OPERATOR_KINDS} | {"host": hosts}
    anchor = np.zeros((len(traces), 3), dtype=np.float32)
    graph_flow = np.zeros((len(traces), graph_width(form)), dtype=np.float32)
    if form == "recommended":
        flow = np.concatenate([trace.flow for trace in traces])
        host_flow = np.concatenate([trace.host_flow for trace in traces])
        extra = {kind: flow[rows[kind]] for kind in OPERATOR_KINDS} | {"host": host_flow}
        inputs = {kind: np.concatenate([x, extra[kind]], axis=1) for kind, x in inputs.items()}
        anchor[:] = [trace.anchor for trace in traces]
        graph_flow[:] = [trace.graph_flow for trace in traces]
    return GraphBatch(
        rows=rows,
        inputs=inputs,
        host_of=np.concatenate([trace.host_of for trace in traces]) + np.repeat(first_host, counts),
        operator_graph=np.repeat(np.arange(len(traces)), counts),
        host_graph=np.repeat(np.arange(len(traces)), host_counts),
        stages=_stages(levels, edges),
        graph_flow=graph_flow,
        anchor=anchor,
    )


def _starts(counts: IntArray) -> IntArray:
    return np.concatenate([[0], np.cumsum(counts[:-1])])


def _stages(levels: IntArray, edges: IntArray) -> tuple[FlowStage, ...]:
    stages = []
    edges = edges[np.argsort(edges[:, 1], kind="stable")]
    edge_levels = levels[edges[:, 1]]
    for level in range(1, int(levels.max(initial=0)) + 1):
        targets = np.flatnonzero(levels == level)
        sources, readers = edges[edge_levels == level].T
        stages.append(FlowStage(targets, sources, np.searchsorted(targets, readers)))
    return tuple(stages)
