"""Order of the operators, and the deployment as flat arrays that compiled loops can walk."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine.arrays import FloatArray, IntArray
from engine.document.elements import Link, Node, Operator, Server, Source
from engine.errors import Fault, UnplacedError

__all__ = [
    "DataflowGraph",
    "PlacementLayout",
    "capacities_of",
    "closures_of",
    "cycles_of",
    "graph_of",
    "hops_by_origin",
    "layout_of",
    "order_of",
    "readers_of",
    "servers_above",
    "servers_of",
]


def order_of(operators: Sequence[Operator]) -> tuple[list[int], list[int]]:
    """Topological order of `operators`; among those that are ready, the first in the listing comes first.

    Returns
    -------
    order, left : lists of int
        Indices in order, and those that cannot be ordered because a cycle is above them.
    """
    index = {operator.id: i for i, operator in enumerate(operators)}
    readers: list[list[int]] = [[] for _ in operators]
    missing = [0] * len(operators)
    for i, operator in enumerate(operators):
        for entry in operator.inputs:
            upstream = index.get(entry.source)
            if upstream is not None:
                readers[upstream].append(i)
                missing[i] += 1
    ready = [i for i, count in enumerate(missing) if not count]
    order: list[int] = []
    while ready:
        i = heapq.heappop(ready)
        order.append(i)
        for reader in readers[i]:
            missing[reader] -= 1
            if not missing[reader]:
                heapq.heappush(ready, reader)
    return order, [i for i, count in enumerate(missing) if count]


def cycles_of(operators: Sequence[Operator]) -> list[tuple[str, ...]]:
    """Disjoint cycles among operators each of which reads at least one other of them, in the direction of the data."""
    names = {operator.id for operator in operators}
    above = {op.id: next(entry.source for entry in op.inputs if entry.source in names) for op in operators}
    seen: set[str] = set()
    cycles = []
    for operator in operators:
        walk: list[str] = []
        name = operator.id
        while name not in seen:
            seen.add(name)
            walk.append(name)
            name = above[name]
        if name in walk:
            cycles.append(tuple(reversed(walk[walk.index(name) :])))
    return cycles


def servers_of(nodes: Sequence[Node], links: Sequence[Link]) -> tuple[Server, ...]:
    """Cores in listing order (``n`` or ``n#0``, ``n#1`` ...), then links with a bandwidth (``a->b``)."""
    cores = [
        Server(node.id if node.cores == 1 else f"{node.id}#{core}", "node", node=i, core=core)
        for i, node in enumerate(nodes)
        for core in range(node.cores)
    ]
    limited = [
        Server(f"{link.source}->{link.target}", "link", link=i)
        for i, link in enumerate(links)
        if link.bandwidth_bytes_s is not None
    ]
    return (*cores, *limited)


@dataclass(frozen=True, eq=False)
class DataflowGraph:
    """The dataflow without its placement. m operators, e inputs; streams are numbered sources first, then operators.

    A linear input is the polynomial (0, selectivity, 0) and (0, cycles per event, 0), so loops know one case only.
    """

    order: IntArray  # (m,) topological
    in_start: IntArray  # (m + 1,) inputs of operator j are in_start[j]:in_start[j + 1]
    in_stream: IntArray  # (e,) the stream that is read
    output: FloatArray  # (e, 3)
    cycles: FloatArray  # (e, 3)
    models: bool  # whether any input is non-linear, of these operators or of the deployment that they are a part of
    sink: np.ndarray[tuple[int], np.dtype[np.bool_]]  # (m,) nobody reads it
    query: IntArray  # (m,) index into Deployment.queries, -1 for none
    query_sink: np.ndarray[tuple[int], np.dtype[np.bool_]]  # (m,) nobody of its own query reads it


@dataclass(frozen=True, eq=False)
class PlacementLayout:
    """The placement. r replicas, h hops (one per replica, input and replica of the upstream operator)."""

    rep_start: IntArray  # (m + 1,) replicas of operator j
    rep_operator: IntArray  # (r,)
    rep_server: IntArray  # (r,)
    rep_fraction: FloatArray  # (r,)
    hop_start: IntArray  # (r + 1,) hops into replica r
    hop_input: IntArray  # (h,) the input it belongs to
    hop_origin: IntArray  # (h,) replica it comes from, -1 for a source
    hop_server: IntArray  # (h,) link to pass as a server, -1 for none
    hop_delay_s: FloatArray  # (h,)
    hop_bytes: FloatArray  # (h,) bytes per event of the producer that go this way (its and our fraction included)
    hop_event_bytes: FloatArray  # (h,) bytes of one event where the hop passes a link server, else 0


def graph_of(
    sources: Sequence[Source],
    operators: Sequence[Operator],
    order: Sequence[int],
    queries: Sequence[str],
    *,
    models: bool,
) -> DataflowGraph:
    """Flatten a dataflow whose operators are in the topological `order`."""
    base = len(sources)
    stream = {source.id: i for i, source in enumerate(sources)}
    stream |= {operator.id: base + j for j, operator in enumerate(operators)}
    query_index = {query: i for i, query in enumerate(queries)}
    inputs = [entry for operator in operators for entry in operator.inputs]
    in_stream = np.array([stream[entry.source] for entry in inputs], dtype=np.int64)
    in_start = _starts([len(operator.inputs) for operator in operators])
    query = np.array([query_index.get(op.query, -1) if op.query else -1 for op in operators], dtype=np.int64)
    reader = np.repeat(np.arange(len(operators)), np.diff(in_start))
    inner = in_stream >= base
    read, by = in_stream[inner] - base, reader[inner]
    sink, query_sink = np.ones(len(operators), dtype=bool), query >= 0
    sink[read] = False
    query_sink[read[query[read] == query[by]]] = False
    output = [e.model.output if e.model else (0.0, e.selectivity, 0.0) for e in inputs]
    cycles = [e.model.cycles if e.model else (0.0, e.cycles_per_event, 0.0) for e in inputs]
    return DataflowGraph(
        order=np.array(order, dtype=np.int64),
        in_start=in_start,
        in_stream=in_stream,
        output=np.array(output, dtype=np.float64).reshape(-1, 3),
        cycles=np.array(cycles, dtype=np.float64).reshape(-1, 3),
        models=models,
        sink=sink,
        query=query,
        query_sink=query_sink,
    )


def _starts(counts: Sequence[int]) -> IntArray:
    return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]).astype(np.int64)


def layout_of(
    nodes: Sequence[Node], operators: Sequence[Operator], links: Sequence[Link], servers: Sequence[Server]
) -> PlacementLayout:
    """Flatten a placement; raises `UnplacedError` for operators without a node."""
    unplaced = [
        Fault(f"operators[{i}].node", f"operator {operator.id!r} has no node")
        for i, operator in enumerate(operators)
        if not operator.replicas
    ]
    if unplaced:
        raise UnplacedError(f"{len(unplaced)} operators have no node; place them first", unplaced)
    core = {(nodes[s.node].id, s.core): i for i, s in enumerate(servers) if s.node is not None}
    rep_start = _starts([len(operator.replicas) for operator in operators])
    replicas = [replica for operator in operators for replica in operator.replicas]
    hops = _hops(operators, links, servers, rep_start)
    counts = [hop[0] for hop in hops]
    return PlacementLayout(
        rep_start=rep_start,
        rep_operator=np.repeat(np.arange(len(operators), dtype=np.int64), np.diff(rep_start)),
        rep_server=np.array([core[replica.node, replica.core] for replica in replicas], dtype=np.int64),
        rep_fraction=np.array([replica.fraction for replica in replicas], dtype=np.float64),
        hop_start=_starts(np.bincount(counts, minlength=len(replicas)).tolist() if counts else [0] * len(replicas)),
        hop_input=np.array([hop[1] for hop in hops], dtype=np.int64),
        hop_origin=np.array([hop[2] for hop in hops], dtype=np.int64),
        hop_server=np.array([hop[3] for hop in hops], dtype=np.int64),
        hop_delay_s=np.array([hop[4] for hop in hops], dtype=np.float64),
        hop_bytes=np.array([hop[5] for hop in hops], dtype=np.float64),
        hop_event_bytes=np.array([hop[6] for hop in hops], dtype=np.float64),
    )


def _hops(
    operators: Sequence[Operator], links: Sequence[Link], servers: Sequence[Server], rep_start: IntArray
) -> list[tuple[int, int, int, int, float, float, float]]:
    """(replica, input, origin, link server, delay, bytes, bytes of one event) of every hop, by consuming replica."""
    index = {operator.id: i for i, operator in enumerate(operators)}
    delay = {(link.source, link.target): link.delay_s for link in links}
    limited = {(links[s.link].source, links[s.link].target): i for i, s in enumerate(servers) if s.link is not None}
    first = rep_start.tolist()
    hops = []
    entry_base = 0
    for j, operator in enumerate(operators):
        for b, replica in enumerate(operator.replicas, first[j]):
            for k, entry in enumerate(operator.inputs, entry_base):
                upstream = index.get(entry.source)
                if upstream is None:
                    hops.append((b, k, -1, -1, 0.0, 0.0, 0.0))
                    continue
                producer = operators[upstream]
                for a, origin in enumerate(producer.replicas, first[upstream]):
                    pair = (origin.node, replica.node)
                    size = producer.bytes_per_event
                    server = limited.get(pair, -1)
                    share = origin.fraction * replica.fraction
                    event_bytes = size if server >= 0 else 0.0
                    hops.append((b, k, a, server, delay.get(pair, 0.0), size * share, event_bytes))
        entry_base += len(operator.inputs)
    return hops


def closures_of(graph: DataflowGraph, layout: PlacementLayout, sources: int, queries: int) -> tuple[IntArray, IntArray]:
    """For each query the replicas at and above its sinks: starts (queries + 1,) and sorted replica numbers."""
    start: list[int] = [0]
    members: list[int] = []
    for i in range(queries):
        todo = np.flatnonzero(graph.query_sink & (graph.query == i)).tolist()
        seen = set(todo)
        while todo:
            j = todo.pop()
            above = graph.in_stream[graph.in_start[j] : graph.in_start[j + 1]] - sources
            fresh = {u for u in above.tolist() if u >= 0} - seen
            seen |= fresh
            todo.extend(fresh)
        members += [r for j in sorted(seen) for r in range(layout.rep_start[j], layout.rep_start[j + 1])]
        start.append(len(members))
    return np.array(start, dtype=np.int64), np.array(members, dtype=np.int64)


def servers_above(layout: PlacementLayout, replicas: IntArray) -> IntArray:
    """Servers that some replicas are on and the links into them."""
    hops = [layout.hop_server[layout.hop_start[r] : layout.hop_start[r + 1]] for r in replicas]
    links = np.concatenate(hops) if hops else np.zeros(0, dtype=np.int64)
    return np.unique(np.concatenate([layout.rep_server[replicas], links[links >= 0]]))


def capacities_of(nodes: Sequence[Node], links: Sequence[Link], servers: Sequence[Server], rows: int) -> FloatArray:
    """Capacity of every server per second, (rows, servers): one row, or one per subinterval where any varies."""
    capacities = np.empty((rows, len(servers)))
    for i, server in enumerate(servers):
        if server.link is not None:
            capacities[:, i] = links[server.link].bandwidth_bytes_s or np.inf
        elif server.node is not None:
            node = nodes[server.node]
            capacities[:, i] = node.capacity_cps if node.capacity_series_cps is None else node.capacity_series_cps
    return capacities


def readers_of(graph: DataflowGraph, sources: int) -> list[set[int]]:
    """Operators that read each operator."""
    readers: list[set[int]] = [set() for _ in graph.order]
    for j in range(len(readers)):
        for stream in graph.in_stream[graph.in_start[j] : graph.in_start[j + 1]].tolist():
            if stream >= sources:
                readers[stream - sources].add(j)
    return readers


def hops_by_origin(layout: PlacementLayout) -> dict[int, list[int]]:
    """Hops over a link server by the replica they come from."""
    hops: dict[int, list[int]] = {}
    for h in np.flatnonzero((layout.hop_server >= 0) & (layout.hop_origin >= 0)).tolist():
        hops.setdefault(int(layout.hop_origin[h]), []).append(h)
    return hops
