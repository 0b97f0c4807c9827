"""The graph network: batches of differing graphs, parameters, and the anchor that it begins at."""

from __future__ import annotations

import numpy as np
import pytest

from engine.query_graph.graph import OperatorNode, QueryGraph
from lab.training.batch import FORMS, collate, encode
from lab.training.network import CostNetwork, initial_parameters, parameter_shapes
from tests.engine.costream.ensembles import make_trace

SOURCE = OperatorNode("source", 4, 4, rate_eps=1000, n_int=4)
HALF = OperatorNode("filter", 4, 4, function="<", value_type="int", selectivity=0.5)
SINK = OperatorNode("sink", 4, 4)


@pytest.mark.parametrize("form", FORMS)
def test_graphs_get_the_same_numbers_alone_and_in_a_batch(form: str) -> None:
    network, trace = CostNetwork(initial_parameters(form, 16, seed=3), form), make_trace()
    diamond = QueryGraph((SOURCE, HALF, HALF, SINK, SINK), ((0, 1), (0, 2), (1, 3), (2, 4)))
    alone = [encode(graph, trace.hosts, [0] * len(graph.operators)) for graph in (trace.graph, diamond)]
    separate = np.concatenate([network.evaluate(collate([item], form)) for item in alone])
    np.testing.assert_allclose(network.evaluate(collate(alone, form)), separate, rtol=1e-5, atol=1e-5)


def test_recommended_form_begins_at_the_anchor() -> None:
    parameters = initial_parameters("recommended", 8)
    for name in parameters:
        if name.startswith("head") and ".1." in name:
            parameters[name] = np.zeros_like(parameters[name])
    trace = make_trace()
    batch = collate([encode(trace.graph, trace.hosts, trace.placement)])
    outputs = CostNetwork(parameters).evaluate(batch)
    np.testing.assert_allclose(outputs[0, :3], batch.anchor[0], rtol=1e-6)
    np.testing.assert_array_equal(outputs[0, 3:5], 0)


def test_parameters_have_the_listed_shapes() -> None:
    for form in FORMS:
        shapes = {name: array.shape for name, array in initial_parameters(form, 8, 1).items()}
        assert shapes == parameter_shapes(form, 8)
