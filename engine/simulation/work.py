"""What events cost and yield: per input, per subinterval where a deployment's model asks for that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from engine.elements import FloatArray, Input
from engine.loads import loads_of

if TYPE_CHECKING:
    from engine.deployment import Deployment

__all__ = ["Work", "capacities", "work_of"]


@dataclass(frozen=True, slots=True)
class Work:
    """Cost and yield of events; the second axis is 1 or the number of subintervals."""

    cycles: FloatArray
    """Cycles per event, shape (inputs, 1 or d)."""
    selectivity: FloatArray
    """Outputs per event, shape (inputs, 1 or d)."""
    factor: FloatArray
    """Stretch of all work on a server by the load combination, shape (servers, 1 or d)."""
    events: FloatArray
    """Events expected at each input over the whole horizon, shape (inputs,)."""
    outputs: FloatArray
    """What they are expected to put out, shape (inputs,)."""


def work_of(deployment: Deployment) -> Work:
    """Costs and yields of all inputs, numbered operator by operator.

    Non-linear models and load combinations depend on how many events belong to a subinterval: each event of it takes an
    equal share of what the model gives for their expected number.
    """
    entries = [entry for operator in deployment.operators for entry in operator.inputs]
    width = deployment.subintervals if any(entry.model for entry in entries) else 1
    cycles, selectivity = np.zeros((len(entries), width)), np.zeros((len(entries), width))
    arrived = np.zeros((len(entries), deployment.subintervals))
    output = {source.id: np.asarray(source.arrivals) for source in deployment.sources}
    first = np.cumsum([0] + [len(operator.inputs) for operator in deployment.operators])
    for i in deployment.order:
        emitted = np.zeros(deployment.subintervals)
        for port, entry in enumerate(deployment.operators[i].inputs, start=int(first[i])):
            arrived[port] = output[entry.source]
            cycles[port], selectivity[port] = _per_event(entry, arrived[port], width)
            emitted += arrived[port] * selectivity[port]
        output[deployment.operators[i].id] = emitted
    factors = loads_of(deployment).work_factors
    factor = np.ones((len(deployment.servers), 1)) if factors is None else np.ascontiguousarray(factors.T)
    return Work(cycles, selectivity, factor, arrived.sum(axis=1), (arrived * selectivity).sum(axis=1))


def capacities(deployment: Deployment) -> FloatArray:
    """Capacity of every server, cycles/s or bytes/s, shape (servers, 1 or d)."""
    varies = any(node.capacity_series_cps is not None for node in deployment.nodes)
    rows = np.empty((len(deployment.servers), deployment.subintervals if varies else 1))
    for i, server in enumerate(deployment.servers):
        if server.link is not None:
            rows[i] = deployment.links[server.link].bandwidth_bytes_s
        elif server.node is not None:
            node = deployment.nodes[server.node]
            rows[i] = node.capacity_cps if node.capacity_series_cps is None else node.capacity_series_cps
    return rows


def _per_event(entry: Input, events: FloatArray, width: int) -> tuple[FloatArray, FloatArray]:
    if entry.model is None:
        return np.full(width, entry.cycles_per_event), np.full(width, entry.selectivity)
    some = np.maximum(events, 1e-300)
    present = events > 0
    cycles = np.where(present, np.maximum(0.0, np.polyval(entry.model.cycles[::-1], events)) / some, 0.0)
    outputs = np.where(present, np.maximum(0.0, np.polyval(entry.model.output[::-1], events)) / some, 0.0)
    return cycles, outputs
