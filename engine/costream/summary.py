"""Summary of a placement in a fixed number of columns, whatever the query's shape: what a residual is learned from.

Most columns are the fluid's (`engine.query_graph.fluid`): what is short, what waits where, how long ways are. Others
count operators, windows and hosts. None is a name or an identity.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.arrays import FloatArray, IntArray
from engine.query_graph.flow import flow_features, nominal_flow
from engine.query_graph.fluid import NO_FACTORS, RUN_S, Fluid, fluid_of
from engine.query_graph.graph import HostNode, QueryGraph
from engine.query_graph.processors import StreamProcessor

__all__ = ["SUMMARY_COLUMNS", "FluidFacts", "facts_of", "filters_in_row"]

#: Columns of a summary, in order.
SUMMARY_COLUMNS = (
    *("ln T", "ln Lp", "ln Le", "ln way", "ln host use", "ln thread use", "ln link use", "ln memory use", "ln taken"),
    *("ln queue", "ln broker", "ln service", "ln burst", "ln results", "mixed age", "hosts", "streams between hosts"),
    *("operators", "filters", "filters in a row", "joins", "aggregations", "windows by count", "windows by time"),
    *("ln rate", "ln state", "ln scanned", "ln least cpu", "ln least memory", "ln least selectivity", "fill share"),
)

_LEAST = 1e-6


@dataclass(frozen=True)
class FluidFacts:
    """Facts of k placements before anything learned.

    Attributes
    ----------
    summary
        (k, `len(SUMMARY_COLUMNS)`).
    costs, votes
        (k, 3) and (k, 2): what the fluid says, ln of T (tuples/s), Lp and Le (s), and logits of back-pressure and
        success.
    use
        (k,): largest use of a host, a thread or an uplink.
    joins, weakest
        (k,): joins of the query, and the weakest class of host that is used.
    processor
        (k,): name of the stream processor that runs it.
    """

    summary: FloatArray
    costs: FloatArray
    votes: FloatArray
    use: FloatArray
    joins: IntArray
    weakest: IntArray
    processor: npt.NDArray[np.str_]

    def __len__(self) -> int:
        return len(self.use)

    def take(self, index: npt.NDArray[Any]) -> FluidFacts:
        """Those of some placements, by index or mask."""
        return FluidFacts(*(getattr(self, field.name)[index] for field in fields(self)))

    @classmethod
    def joined(cls, parts: Sequence[FluidFacts]) -> FluidFacts:
        """Those of several queries, one after another."""
        return cls(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(cls)))


def facts_of(
    graph: QueryGraph,
    hosts: Sequence[HostNode],
    placements: IntArray,
    factors: Mapping[str, float] = NO_FACTORS,
    processor: StreamProcessor | None = None,
) -> FluidFacts:
    """Facts of placements, whole numbers of shape (k, n); `factors` and `processor` as for the fluid."""
    fluid = fluid_of(graph, hosts, placements, factors, processor)
    joins = sum(op.kind == "join" for op in graph.operators)
    return FluidFacts(
        _summary(graph, hosts, placements, fluid),
        fluid.costs,
        np.stack([fluid.backpressure, fluid.success], axis=1),
        fluid.use,
        np.full(len(placements), joins),
        np.array([host.strength for host in hosts])[placements].min(axis=1),
        np.full(len(placements), graph.processor),
    )


def _summary(graph: QueryGraph, hosts: Sequence[HostNode], placements: IntArray, fluid: Fluid) -> FloatArray:
    flow = nominal_flow(graph)
    features = flow_features(graph, hosts, placements, flow)
    kinds = [op.kind for op in graph.operators]
    policies = [op.window_policy for op in graph.operators]
    cpu, memory = (np.array([getattr(host, name) for host in hosts]) for name in ("cpu_percent", "ram_mb"))
    crossing = sum((placements[:, a] != placements[:, b]).astype(np.float64) for a, b in graph.edges)
    of_placement = (
        *fluid.costs.T,
        _ln(fluid.way_s + 1e-3),
        *(_ln(use) for use in (fluid.host_use, fluid.thread_use, fluid.link_use, fluid.memory_use, fluid.taken)),
        _ln(fluid.queue_s + 1e-4),
        _ln(fluid.broker_s + 1e-3),
        _ln(fluid.service_s),
        _ln(fluid.burst_s + 1e-4),
        _ln(fluid.results),
        features.graphs[:, 2],
        np.diff(features.starts),
        crossing,
    )
    of_query = (
        len(kinds),
        kinds.count("filter"),
        filters_in_row(graph),
        kinds.count("join"),
        kinds.count("agg"),
        policies.count("count"),
        policies.count("time"),
        *(float(_ln(flow_sum)) for flow_sum in (_sources(graph), flow.state_tuples.sum(), flow.scan_eps.sum())),
    )
    least = (_ln(cpu[placements].min(axis=1)), _ln(memory[placements].min(axis=1)))
    selectivity = float(_ln(min(op.selectivity for op in graph.operators)))
    fill = float(flow.fill_s.max()) / RUN_S
    columns = (*of_placement, *of_query, *least, selectivity, min(fill, 10.0))
    summary = np.empty((len(placements), len(SUMMARY_COLUMNS)))
    for column, values in enumerate(columns):
        summary[:, column] = values
    return summary


def filters_in_row(graph: QueryGraph) -> int:
    """The most filters that read one another."""
    rows = [0] * len(graph.operators)
    for i in graph.order:
        if graph.operators[i].kind == "filter":
            rows[i] = 1 + max(rows[a] for a in graph.inputs[i])
    return max(rows)


def _sources(graph: QueryGraph) -> float:
    return sum(op.rate_eps for op in graph.operators)


def _ln(values: FloatArray | float) -> FloatArray:
    return np.log(np.maximum(values, _LEAST))
