"""Backlogs as slices before the horizon: waiting events have stimulus times below 0, and no capacity before 0.

Everything that estimates latencies of a deployment begins with these slices, the oldest first. A backlog's events are
spread evenly from its age to the horizon's beginning.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from engine.arrays import FloatArray
from engine.document.deployment import Deployment
from engine.document.topology import DataflowGraph
from engine.estimation.loads import OperatorSeries, combine_loads, loads_of

__all__ = ["Lead", "LeadWork", "burdened_series", "lead_of", "lead_work"]

MAX_LEAD_SLICES = 256


@dataclass(frozen=True, eq=False)
class Lead:
    """Events that wait at every input, slice by slice before the horizon; e inputs, n slices of `width_s`."""

    events: FloatArray  # (e, n)
    width_s: float

    @property
    def slices(self) -> int:
        """n."""
        return int(self.events.shape[1])

    @property
    def oldest_s(self) -> float:
        """Age of the oldest event where the horizon begins."""
        return self.slices * self.width_s

    @cached_property
    def ages_s(self) -> FloatArray:
        """Age of the newest event of each slice where the horizon begins, (n,): t = -age is the slice's end."""
        return np.arange(self.slices - 1, -1, -1, dtype=np.float64) * self.width_s


def lead_of(deployment: Deployment) -> Lead | None:
    """Slices before the horizon; None where nothing waits that is to be used."""
    if deployment.oldest_backlog_s is None:
        return None
    used = [found for found in deployment.backlogs if found.waits]
    w = deployment.subinterval_s
    longest_s = deployment.oldest_backlog_s or w
    n = min(MAX_LEAD_SLICES, max(1, math.ceil(longest_s / w)))
    width_s = longest_s / n
    events = np.zeros((sum(len(operator.inputs) for operator in deployment.operators), n))
    edges_s = np.arange(n, -1, -1) * width_s  # ages of the slices' ends, from the oldest
    for found in used:
        behind_s = found.behind_s or 0.0
        if behind_s > 0.0:
            # Share of slice i: the part of [0, behind_s] that lies within its ages.
            inside = np.minimum(edges_s, behind_s)
            events[found.number] = (found.events or 0.0) * (inside[:-1] - inside[1:]) / behind_s
        else:
            events[found.number, -1] = found.events or 0.0
    return Lead(events, width_s)


@dataclass(frozen=True, eq=False)
class LeadWork:
    """Work of waiting events, by the lead slice of their stimulus: n slices, m operators, s servers."""

    load: FloatArray  # (s, n) cycles or bytes
    operator_load: FloatArray  # (m, n) cycles
    output: FloatArray  # (m, n) events put out
    factors: FloatArray  # (s, n) combined load over plain sum
    polynomials: tuple[FloatArray, FloatArray]  # output and cycles of inputs, (e, 3) each, in events of a lead slice

    @cached_property
    def excess(self) -> FloatArray:
        """Excess of every server where the horizon begins, (s,)."""
        return np.asarray(self.load.sum(axis=1))

    def sink_events(self, graph: DataflowGraph, queries: int) -> FloatArray:
        """Events of each lead slice that come out at every query's sinks, (queries, n)."""
        events = np.zeros((queries, self.output.shape[1]))
        sinks = np.flatnonzero(graph.query_sink)
        np.add.at(events, graph.query[sinks], self.output[sinks])
        return events


def lead_work(deployment: Deployment, lead: Lead, *, graph: DataflowGraph | None = None) -> LeadWork:
    """Work that waiting events bring to all servers, on their whole way."""
    graph, layout = graph or deployment.graph, deployment.layout
    made, spent = _polynomials(graph, lead.width_s / deployment.subinterval_s)
    sources, (m, n) = len(deployment.sources), (len(graph.order), lead.slices)
    load, output = np.zeros((m, n)), np.zeros((m, n))
    for j in graph.order:
        for k in range(graph.in_start[j], graph.in_start[j + 1]):
            stream = graph.in_stream[k] - sources
            x = lead.events[k] + (output[stream] if stream >= 0 else 0.0)
            output[j] += _polynomial(made[k], x)
            load[j] += _polynomial(spent[k], x)
    total, factors = combine_loads(
        load,
        output,
        layout.rep_operator,
        layout.rep_server,
        layout.rep_fraction,
        layout.hop_server,
        layout.hop_origin,
        layout.hop_bytes,
        len(deployment.servers),
        ("sum", "max", "interference").index(deployment.combine.kind),
        deployment.combine.alpha or 0.0,
    )
    return LeadWork(total, load, output, factors, (made, spent))


def burdened_series(deployment: Deployment) -> OperatorSeries:
    """Series of every operator, (m, d) each, in which what waits where the horizon begins is work of its beginning.

    For the excess of servers both are the same: ce_1 = ce_0 + load_1 - C w.
    """
    series, lead = loads_of(deployment).operators(), lead_of(deployment)
    if lead is None:
        return series
    work = lead_work(deployment, lead)
    load, output = series.load.copy(), series.output.copy()
    load[:, 0] += work.operator_load.sum(axis=1)
    output[:, 0] += work.output.sum(axis=1)
    return OperatorSeries(load, output)


def _polynomials(graph: DataflowGraph, slices: float) -> tuple[FloatArray, FloatArray]:
    """Polynomials of inputs for slices so many times as wide, with even events: k c0 + c1 x + c2 x^2/k."""
    scale = np.array([slices, 1.0, 1.0 / slices])
    return graph.output * scale, graph.cycles * scale


def _polynomial(coefficients: FloatArray, x: FloatArray) -> FloatArray:
    c0, c1, c2 = coefficients
    return np.where(x > 0.0, np.maximum(0.0, c0 + x * (c1 + x * c2)), 0.0)
