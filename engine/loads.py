"""Deterministic load time series (DLTS) of servers and operators.

Without non-linear models every series is linear in the arrivals: one coefficient per server and source replaces the
pass over operators and subintervals. Series of single operators are made when somebody looks at them.

References: paper, section III-B (selectivity, cycles per event), definitions 5 and 6, section VI-C.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from engine.deployment import Deployment
from engine.elements import FloatArray, IntArray
from engine.load_kernels import combined, gains, linear_series, model_series, server_gains, times
from engine.topology import Graph

__all__ = ["Loads", "OperatorSeries", "loads_of"]


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

    def outputs(self, weights: FloatArray) -> FloatArray:
        """Weighted sums of the operators' outputs: (k, m) weights give shape (k, d)."""
        raise NotImplementedError

    @property
    def work_factors(self) -> FloatArray | None:
        """Combined load over plain sum, (d, servers); None where loads simply add up."""
        return None


class LinearLoads(Loads):
    """Loads by coefficients: (servers x sources) times (sources x subintervals)."""

    def __init__(self, deployment: Deployment, graph: Graph) -> None:
        super().__init__(deployment)
        layout = deployment.layout
        self._deployment, self._graph = deployment, graph
        self._gain, self._cost = gains(
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
        times(np.ascontiguousarray(self.coefficients.T), deployment.arrivals, self.by_time)

    def operators(self, out: FloatArray | None = None) -> OperatorSeries:
        graph, arrivals = self._graph, self._deployment.arrivals
        room = np.empty((2, len(graph.order), arrivals.shape[1])) if out is None else out
        sigma, omega = graph.output[:, 1], graph.cycles[:, 1]
        linear_series(graph.order, graph.in_start, graph.in_stream, sigma, omega, arrivals, room[0], room[1])
        return OperatorSeries(room[0], room[1])

    def operator(self, indices: IntArray) -> OperatorSeries:
        arrivals = self._deployment.arrivals
        return OperatorSeries(self._cost[indices] @ arrivals, self._gain[indices] @ arrivals)

    def outputs(self, weights: FloatArray) -> FloatArray:
        return (weights @ self._gain) @ self._deployment.arrivals


class GeneralLoads(Loads):
    """Loads operator by operator: for models (VI-C), other combinations than the sum, and very many sources."""

    def __init__(self, deployment: Deployment, graph: Graph) -> None:
        super().__init__(deployment)
        layout = deployment.layout
        self._series = OperatorSeries(
            *model_series(graph.order, graph.in_start, graph.in_stream, graph.output, graph.cycles, deployment.arrivals)
        )
        kind = ("sum", "max", "interference").index(deployment.combine.kind)
        total, self._factors = combined(
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
            deployment.combine.alpha,
        )
        self._plain = kind == 0
        self.by_time[:] = total.T

    def operators(self, out: FloatArray | None = None) -> OperatorSeries:
        return self._series

    def operator(self, indices: IntArray) -> OperatorSeries:
        return OperatorSeries(self._series.load[indices], self._series.output[indices])

    def outputs(self, weights: FloatArray) -> FloatArray:
        return weights @ self._series.output

    @cached_property
    def _factors_by_time(self) -> FloatArray:
        return np.ascontiguousarray(self._factors.T)

    @property
    def work_factors(self) -> FloatArray | None:
        return None if self._plain else self._factors_by_time


def loads_of(deployment: Deployment, *, graph: Graph | None = None) -> Loads:
    """The loads of a deployment, by the cheaper of the two ways that fit it.

    `graph` stands in for the deployment's own: the same dataflow with other statistics.

    Raises
    ------
    UnplacedError
        If an operator has no node.
    """
    graph = graph or deployment.graph
    few_sources = 2 * len(deployment.sources) <= deployment.subintervals + 64
    if few_sources and not graph.models and deployment.combine.kind == "sum":
        return LinearLoads(deployment, graph)
    return GeneralLoads(deployment, graph)
