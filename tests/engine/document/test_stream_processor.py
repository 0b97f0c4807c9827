"""Costs of what never ran are those of the stream processor that a deployment names."""

from __future__ import annotations

from typing import Any

import pytest

from engine.document.candidate import read_candidate
from engine.document.deployment import Deployment
from engine.errors import DocumentError
from engine.query_graph.processors import FLINK

DOCUMENT: dict[str, Any] = {
    "subinterval_s": 1.0,
    "sources": [{"id": "s", "arrivals": [100.0] * 4}],
    "nodes": [{"id": "n", "capacity_cps": 2.4e9}],
}
CANDIDATE = {
    "query": "q",
    "operators": [{"id": "q/f", "kind": "filter", "node": "n", "inputs": [{"from": "s", "selectivity": 0.5}]}],
}


def cost_on(**fields: str) -> float:
    deployment = Deployment.parse(DOCUMENT | fields)
    assert Deployment.parse(deployment.to_document()).stream_processor == deployment.stream_processor
    return read_candidate(CANDIDATE, deployment).operators[0].inputs[0].cycles_per_event


def test_query_that_never_ran_costs_what_flink_takes() -> None:
    nominal, flink = cost_on(), cost_on(stream_processor="flink")
    assert min(FLINK.factors.values()) < flink / nominal < max(FLINK.factors.values())
    assert cost_on(stream_processor="nominal") == nominal


def test_unknown_stream_processor_is_refused() -> None:
    with pytest.raises(DocumentError, match="stream_processor is 'spork'; allowed: nominal, flink"):
        cost_on(stream_processor="spork")
