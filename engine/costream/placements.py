"""Placements of one graph as arrays: all that the networks of an ensemble need, computed once for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine.arrays import IntArray
from engine.costream.batch import Float32Array
from engine.costream.features import host_features, operator_features
from engine.query_graph.flow import flow_features
from engine.query_graph.graph import OPERATOR_KINDS, HostNode, QueryGraph

__all__ = ["PlacementBatch", "prepare_placements"]


@dataclass(frozen=True)
class PlacementBatch:
    """k placements of a graph with n operators on h hosts; u pairs of a placement and a host that it uses.

    Operators are sorted by kind in the order of `OPERATOR_KINDS`, so that those of a kind are one slice.

    Attributes
    ----------
    slices
        Kinds that occur, each with its slice of operators.
    features
        Per operator its row of table I, float32 (F_kind,).
    flow
        float32 (n, k, 8): flow features.
    inputs
        Per operator those it reads.
    order
        Operators that read others, in topological order.
    pairs
        int64 (n, k): the pair of each operator's host, not decreasing along k.
    starts
        int64 (k + 1,): first pair of each placement.
    pair_hosts
        int64 (u,): host of each pair.
    hosts, pair_flow
        float32 (h, 4) and (u, 6): table I and flow features of hosts.
    graph_flow
        float32 (k, 3): flow features of the graph as a whole.
    anchor
        float32 (k, 3): ln of throughput (tuples/s), processing and end-to-end latency (s).
    """

    slices: tuple[tuple[str, slice], ...]
    features: tuple[Float32Array, ...]
    flow: Float32Array
    inputs: tuple[tuple[int, ...], ...]
    order: tuple[int, ...]
    pairs: IntArray
    starts: IntArray
    pair_hosts: IntArray
    hosts: Float32Array
    pair_flow: Float32Array
    graph_flow: Float32Array
    anchor: Float32Array


def prepare_placements(graph: QueryGraph, hosts: Sequence[HostNode], placements: IntArray) -> PlacementBatch:
    """Arrays of placements, whole numbers of shape (k, n)."""
    flow = flow_features(graph, hosts, placements)
    kinds = [OPERATOR_KINDS.index(op.kind) for op in graph.operators]
    rows = sorted(range(len(kinds)), key=lambda i: (kinds[i], i))
    row_of = {i: row for row, i in enumerate(rows)}
    return PlacementBatch(
        slices=_slices([kinds[i] for i in rows]),
        features=tuple(np.array(operator_features(graph.operators[i]), dtype=np.float32) for i in rows),
        flow=np.ascontiguousarray(flow.operators.transpose(1, 0, 2)[rows], dtype=np.float32),
        inputs=tuple(tuple(row_of[a] for a in graph.inputs[i]) for i in rows),
        order=tuple(row_of[i] for i in graph.order if graph.inputs[i]),
        pairs=np.ascontiguousarray(flow.pairs.T[rows]),
        starts=flow.starts,
        pair_hosts=flow.pair_hosts,
        hosts=host_features(hosts).astype(np.float32),
        pair_flow=flow.hosts.astype(np.float32),
        graph_flow=flow.graphs.astype(np.float32),
        anchor=flow.anchor.astype(np.float32),
    )


def _slices(kinds: Sequence[int]) -> tuple[tuple[str, slice], ...]:
    """Kinds that occur in a sorted row, and where."""
    bounds = np.searchsorted(kinds, range(len(OPERATOR_KINDS) + 1)).tolist()
    return tuple(
        (kind, slice(a, b)) for kind, a, b in zip(OPERATOR_KINDS, bounds[:-1], bounds[1:], strict=True) if b > a
    )
