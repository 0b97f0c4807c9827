"""Traces as a corpus stores them."""

from __future__ import annotations

import pytest

from engine.costream.documents import read_trace
from engine.simulation.cohort import simulate_trace, trace_seed
from lab.training.traces import trace_document


def test_trace_is_read_back_as_it_was_made() -> None:
    for i in range(20):
        simulated = simulate_trace(trace_seed(6, i))
        read = read_trace(trace_document(simulated))
        order = simulated.trace.graph.order
        assert read.graph.operators == tuple(simulated.trace.graph.operators[i] for i in order)
        assert read.placement == tuple(simulated.trace.placement[i] for i in order)
        assert read.hosts == simulated.trace.hosts
        assert read.label is not None
        assert simulated.trace.label is not None
        assert read.label.success == simulated.trace.label.success
        assert read.label.throughput_eps == pytest.approx(simulated.trace.label.throughput_eps)
