"""Deterministic load time series (DLTS) of servers and operators, and the compiled loops that make them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from engine.arrays import FloatArray, IntArray
from engine.compiler import compiled
from engine.document.deployment import Deployment
from engine.document.topology import DataflowGraph

__all__ = [
    "Loads",
    "OperatorSeries",
    "UnkeptLoads",
    "combine_loads",
    "has_few_sources",
    "linear_series",
    "loads_from_gains",
    "loads_of",
    "model_series",
    "operator_gains",
    "server_gains",
    "sink_events",
    "sink_outputs",
]


_TILE = 256  # subintervals whose sums stay in the processor's cache


@compiled
def operator_gains(
    order: IntArray, in_start: IntArray, in_stream: IntArray, sigma: FloatArray, omega: FloatArray, sources: int
) -> tuple[FloatArray, FloatArray]:
    """Events put out and cycles spent by every operator per event of every source, each (m, sources)."""
    gain = np.zeros((len(order), sources))
    cost = np.zeros((len(order), sources))
    for j in order:
        for k in range(in_start[j], in_start[j + 1]):
            stream = in_stream[k]
            if stream < sources:
                gain[j, stream] += sigma[k]
                cost[j, stream] += omega[k]
            else:
                for s in range(sources):
                    gain[j, s] += sigma[k] * gain[stream - sources, s]
                    cost[j, s] += omega[k] * gain[stream - sources, s]
    return gain, cost


@compiled
def server_gains(
    gain: FloatArray,
    cost: FloatArray,
    rep_operator: IntArray,
    rep_server: IntArray,
    rep_fraction: FloatArray,
    hop_server: IntArray,
    hop_origin: IntArray,
    hop_bytes: FloatArray,
    servers: int,
) -> FloatArray:
    """Load of every server per event of every source, (servers, sources)."""
    sources = gain.shape[1]
    total = np.zeros((servers, sources))
    for r in range(len(rep_operator)):
        for s in range(sources):
            total[rep_server[r], s] += rep_fraction[r] * cost[rep_operator[r], s]
    for h in range(len(hop_server)):
        if hop_server[h] >= 0:
            producer = rep_operator[hop_origin[h]]
            for s in range(sources):
                total[hop_server[h], s] += hop_bytes[h] * gain[producer, s]
    return total


def loads_from_gains(gains: FloatArray, arrivals: FloatArray, load: FloatArray) -> None:
    """Load (d, servers) from gains (sources, servers) and arrivals (sources, d).

    A server's sum goes source by source, of those alone that load it: it is the same whatever else is deployed. A
    library's matrix product rounds by the shape of the whole, and starts threads that cost more than they gain.
    """
    server, source = np.nonzero(gains.T)
    start = np.searchsorted(server, np.arange(gains.shape[1] + 1))
    _add_loads(start, source, gains[source, server], arrivals, load)


@compiled
def _add_loads(start: IntArray, source: IntArray, gain: FloatArray, arrivals: FloatArray, load: FloatArray) -> None:
    """Load (d, n) of server i from the entries start[i]:start[i + 1] of `source` and `gain`."""
    d = arrivals.shape[1]
    total = np.empty(_TILE)
    for p0 in range(0, d, _TILE):
        count = min(_TILE, d - p0)
        for i in range(len(start) - 1):
            total[:] = 0.0
            for k in range(start[i], start[i + 1]):
                came, factor = arrivals[source[k], p0 : p0 + count], gain[k]
                for p in range(count):
                    total[p] += came[p] * factor
            for p in range(count):
                load[p0 + p, i] = total[p]


@compiled
def linear_series(
    order: IntArray,
    in_start: IntArray,
    in_stream: IntArray,
    sigma: FloatArray,
    omega: FloatArray,
    arrivals: FloatArray,
    load: FloatArray,
    output: FloatArray,
) -> None:
    """Load and output of every operator, each (m, d); the first input writes, the others add."""
    sources, d = arrivals.shape
    for j in order:
        first = in_start[j]
        if first == in_start[j + 1]:
            load[j] = 0.0
            output[j] = 0.0
        for k in range(first, in_start[j + 1]):
            stream = in_stream[k]
            events = arrivals[stream] if stream < sources else output[stream - sources]
            if k == first:
                for p in range(d):
                    load[j, p] = omega[k] * events[p]
                    output[j, p] = sigma[k] * events[p]
            else:
                for p in range(d):
                    load[j, p] += omega[k] * events[p]
                    output[j, p] += sigma[k] * events[p]


@compiled
def model_series(
    order: IntArray,
    in_start: IntArray,
    in_stream: IntArray,
    output_of: FloatArray,
    cycles_of: FloatArray,
    arrivals: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """As `linear_series`, with polynomials; a subinterval without events makes none and costs nothing."""
    sources, d = arrivals.shape
    load = np.zeros((len(order), d))
    output = np.zeros((len(order), d))
    for j in order:
        for k in range(in_start[j], in_start[j + 1]):
            stream = in_stream[k]
            events = arrivals[stream] if stream < sources else output[stream - sources]
            a, b = output_of[k], cycles_of[k]
            for p in range(d):
                x = events[p]
                if x > 0.0:
                    output[j, p] += max(0.0, a[0] + x * (a[1] + x * a[2]))
                    load[j, p] += max(0.0, b[0] + x * (b[1] + x * b[2]))
    return load, output


@compiled
def combine_loads(
    load: FloatArray,
    output: FloatArray,
    rep_operator: IntArray,
    rep_server: IntArray,
    rep_fraction: FloatArray,
    hop_server: IntArray,
    hop_origin: IntArray,
    hop_bytes: FloatArray,
    servers: int,
    kind: int,
    alpha: float,
) -> tuple[FloatArray, FloatArray]:
    """Loads of the servers (servers, d) by the chosen combination, and their ratio to the plain sum.

    `kind` is 0 for the sum, 1 for the largest, 2 for interference: sum * (1 + alpha * (k - 1)) with k replicas at work.
    Links always add up.
    """
    d = load.shape[1]
    total = np.zeros((servers, d))
    largest = np.zeros((servers, d))
    busy = np.zeros((servers, d))
    for r in range(len(rep_operator)):
        i = rep_server[r]
        for p in range(d):
            part = rep_fraction[r] * load[rep_operator[r], p]
            total[i, p] += part
            largest[i, p] = max(largest[i, p], part)
            busy[i, p] += 1.0 if part > 0.0 else 0.0
    factor = np.ones((servers, d))
    if kind > 0:
        for i in range(servers):
            for p in range(d):
                if total[i, p] > 0.0:
                    factor[i, p] = largest[i, p] / total[i, p] if kind == 1 else 1.0 + alpha * (busy[i, p] - 1.0)
                    total[i, p] = largest[i, p] if kind == 1 else total[i, p] * factor[i, p]
    for h in range(len(hop_server)):
        if hop_server[h] >= 0:
            for p in range(d):
                total[hop_server[h], p] += hop_bytes[h] * output[rep_operator[hop_origin[h]], p]
    return total, factor


@dataclass(frozen=True, eq=False)
class OperatorSeries:
    """Load (cycles) and output (events) of operators, each of shape (operators, d)."""

    load: FloatArray
    output: FloatArray


class Loads:
    """Loads of a deployment's servers; cycles (cores) or bytes (links) per subinterval.

    Attributes
    ----------
    by_time : array, shape (d, servers)
        Time runs along the rows so that the scan over time handles neighbouring servers at once.
    excess_room : array, shape (d, servers)
        Unset memory for the cumulative excess. Both arrays are one block: numpy asks the system for huge pages for
        blocks of 4 MB and more, and page faults would cost more than all the arithmetic.
    """

    by_time: FloatArray
    excess_room: FloatArray

    def __init__(self, deployment: Deployment) -> None:
        self.by_time, self.excess_room = np.empty((2, deployment.subintervals, len(deployment.servers)))

    def operators(self, out: FloatArray | None = None) -> OperatorSeries:
        """The series of every operator; `out`, of shape (2, m, d), is memory to put them in."""
        raise NotImplementedError

    def operator(self, indices: IntArray) -> OperatorSeries:
        """The series of some operators, in the order of `indices`."""
        raise NotImplementedError

    def outputs(self, group: IntArray, groups: int) -> FloatArray:
        """Sums of the operators' outputs by their group, (groups, d); `group`, (m,), is -1 for none."""
        raise NotImplementedError

    @property
    def work_factors(self) -> FloatArray | None:
        """Combined load over plain sum, (d, servers); None where loads simply add up."""
        return None


class UnkeptLoads(Loads):
    """Loads whose series are kept elsewhere, or by nobody."""

    def __init__(self) -> None:
        self.by_time, self.excess_room = np.zeros((2, 0, 0))


class LinearLoads(Loads):
    """Loads by coefficients: (servers x sources) times (sources x subintervals)."""

    def __init__(self, deployment: Deployment, graph: DataflowGraph) -> None:
        super().__init__(deployment)
        layout = deployment.layout
        self._deployment, self._graph = deployment, graph
        self._gain, self._cost = operator_gains(
            graph.order,
            graph.in_start,
            graph.in_stream,
            graph.output[:, 1],
            graph.cycles[:, 1],
            len(deployment.sources),
        )
        self.coefficients = server_gains(
            self._gain,
            self._cost,
            layout.rep_operator,
            layout.rep_server,
            layout.rep_fraction,
            layout.hop_server,
            layout.hop_origin,
            layout.hop_bytes,
            len(deployment.servers),
        )
        loads_from_gains(np.ascontiguousarray(self.coefficients.T), deployment.arrivals, self.by_time)

    def operators(self, out: FloatArray | None = None) -> OperatorSeries:
        graph, arrivals = self._graph, self._deployment.arrivals
        room = np.empty((2, len(graph.order), arrivals.shape[1])) if out is None else out
        sigma, omega = graph.output[:, 1], graph.cycles[:, 1]
        linear_series(graph.order, graph.in_start, graph.in_stream, sigma, omega, arrivals, room[0], room[1])
        return OperatorSeries(room[0], room[1])

    def operator(self, indices: IntArray) -> OperatorSeries:
        return OperatorSeries(self._series(self._cost[indices]), self._series(self._gain[indices]))

    def outputs(self, group: IntArray, groups: int) -> FloatArray:
        return self._series(_sums_by_group(self._gain, group, groups))

    def _series(self, gains: FloatArray) -> FloatArray:
        """Series of so many gains, (k, sources): each is the same whichever others are asked for."""
        series = np.empty((self._deployment.subintervals, len(gains)))
        loads_from_gains(np.ascontiguousarray(gains.T), self._deployment.arrivals, series)
        return series.T


class GeneralLoads(Loads):
    """Loads operator by operator: for models (VI-C), other combinations than the sum, and very many sources."""

    def __init__(self, deployment: Deployment, graph: DataflowGraph) -> None:
        super().__init__(deployment)
        layout = deployment.layout
        self._series = OperatorSeries(
            *model_series(graph.order, graph.in_start, graph.in_stream, graph.output, graph.cycles, deployment.arrivals)
        )
        kind = ("sum", "max", "interference").index(deployment.combine.kind)
        total, self._factors = combine_loads(
            self._series.load,
            self._series.output,
            layout.rep_operator,
            layout.rep_server,
            layout.rep_fraction,
            layout.hop_server,
            layout.hop_origin,
            layout.hop_bytes,
            len(deployment.servers),
            kind,
            deployment.combine.alpha or 0.0,
        )
        self._plain = kind == 0
        self.by_time[:] = total.T

    def operators(self, out: FloatArray | None = None) -> OperatorSeries:
        return self._series

    def operator(self, indices: IntArray) -> OperatorSeries:
        return OperatorSeries(self._series.load[indices], self._series.output[indices])

    def outputs(self, group: IntArray, groups: int) -> FloatArray:
        return _sums_by_group(self._series.output, group, groups)

    @cached_property
    def _factors_by_time(self) -> FloatArray:
        return np.ascontiguousarray(self._factors.T)

    @property
    def work_factors(self) -> FloatArray | None:
        return None if self._plain else self._factors_by_time


def loads_of(deployment: Deployment, *, graph: DataflowGraph | None = None) -> Loads:
    """The loads of a deployment, by the cheaper of the two ways that fit it.

    `graph` stands in for the deployment's own: the same dataflow with other statistics.

    Raises
    ------
    UnplacedError
        If an operator has no node.
    """
    graph = graph or deployment.graph
    is_linear = not graph.models and deployment.combine.kind == "sum"
    if is_linear and has_few_sources(deployment.source_count, deployment.subintervals):
        return LinearLoads(deployment, graph)
    return GeneralLoads(deployment, graph)


def has_few_sources(count: int, subintervals: int) -> bool:
    """Whether coefficients by source cost less than series by operator; both ways round differently."""
    return 2 * count <= subintervals + 64


def sink_outputs(loads: Loads, graph: DataflowGraph, queries: int) -> FloatArray:
    """Events at each query's sinks, shape (queries, d)."""
    return loads.outputs(np.where(graph.query_sink, graph.query, -1), queries)


def _sums_by_group(rows: FloatArray, group: IntArray, groups: int) -> FloatArray:
    chosen = np.flatnonzero(group >= 0)
    sums = np.zeros((groups, rows.shape[1]))
    np.add.at(sums, group[chosen], rows[chosen])
    return sums


def sink_events(deployment: Deployment) -> dict[str, FloatArray]:
    """Events at each query's sinks, per subinterval."""
    events = sink_outputs(loads_of(deployment), deployment.graph, len(deployment.queries))
    return dict(zip(deployment.queries, events, strict=True))
