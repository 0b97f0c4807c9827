"""Documents of labelled traces, as a corpus stores them."""

from __future__ import annotations

from typing import Any

from engine.costream.documents import host_document, operator_document, processor_document
from engine.query_graph.graph import TraceLabel
from engine.simulation.cohort import SimulatedTrace

__all__ = ["label_document", "trace_document"]


def trace_document(simulated: SimulatedTrace) -> dict[str, Any]:
    """A trace as a corpus stores it: milliseconds, and 0 for costs of a run without output.

    Operators stand in topological order with one reader each, as `engine.costream.documents.read_trace` takes them.
    """
    graph, label = simulated.trace.graph, simulated.trace.label
    assert label is not None
    order = list(graph.order)
    place = {i: row for row, i in enumerate(order)}
    return {
        "query": {
            "ops": [operator_document(graph.operators[i]) for i in order],
            "succ": [place[graph.readers[i][0]] if graph.readers[i] else -1 for i in order],
        }
        | processor_document(graph),
        "hosts": [host_document(host) for host in simulated.trace.hosts],
        "placement": [simulated.trace.placement[i] for i in order],
        "seed": simulated.seed,
        "label": label_document(label) | {"crashed": int(simulated.crashed)},
    }


def label_document(label: TraceLabel) -> dict[str, Any]:
    """Costs of a run: milliseconds, and 0 for those of a run without output."""
    return {
        "T": _rounded(label.throughput_eps or 0.0),
        "Lp": _rounded(1e3 * (label.processing_latency_s or 0.0)),
        "Le": _rounded(1e3 * (label.end_to_end_latency_s or 0.0)),
        "R": _rounded(label.backlog_eps),
        "RO": int(label.backpressure),
        "S": int(label.success),
    }


def _rounded(value: float) -> float:
    return float(f"{value:.9g}")
