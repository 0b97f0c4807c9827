"""Corpora for tests of training: drawn queries and placements, with costs by a rule instead of a simulated run."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np

from engine.costream.documents import trace_document
from engine.query_graph.graph import CostTrace, TraceLabel
from engine.simulation.cohort import draw_trace
from lab.training.batch import encode
from lab.training.traces import label_document


def labelled_trace(seed: int) -> CostTrace:
    """The analytic anchor, but slower by what the busiest host bears: something that can be learned in a few epochs."""
    trace = draw_trace(seed)
    encoded = encode(trace.graph, trace.hosts, trace.placement)
    load = float(encoded.host_flow[:, 0].max())
    throughput, processing, end_to_end = np.exp(encoded.anchor + np.array([-2.0, 3.0, 4.0]) * max(load - 0.6, 0.0))
    label = TraceLabel(throughput, processing, end_to_end, 0.0, load > 1.0, load < 1.15)
    if not label.success:
        label = TraceLabel(None, None, None, 0.0, label.backpressure, False)
    return CostTrace(trace.graph, trace.hosts, trace.placement, label)


def corpus_lines(count: int, first: int = 0) -> list[str]:
    lines = []
    for seed in range(first, first + count):
        trace = labelled_trace(seed)
        assert trace.label is not None
        document = trace_document(trace.graph, trace.hosts, trace.placement)
        lines.append(json.dumps(document | {"label": label_document(trace.label)}))
    return lines


def write_lines(path: Path, lines: list[str]) -> Path:
    path.write_bytes(gzip.compress("\n".join(lines).encode(), 1))
    return path
