"""A selectivity of 0, which definition 6 allows, has finite features and a prediction."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from engine.query_graph.flow import nominal_flow
from tests.engine.costream.ensembles import make_ensemble, make_trace


def test_query_that_lets_nothing_through_is_predicted() -> None:
    trace = make_trace()
    operators = [replace(op, selectivity=0.0) if op.kind == "filter" else op for op in trace.graph.operators]
    graph = replace(trace.graph, operators=tuple(operators))
    assert any(op.selectivity == 0.0 for op in operators)
    assert np.isfinite(nominal_flow(graph).out_eps).all()
    predictions = make_ensemble().predict(graph, trace.hosts, [trace.placement])
    assert all(np.isfinite(cost.mean).all() for cost in predictions.costs.values())
