"""The network: both ways of computing agree, batches of differing graphs, flow through graphs that are no trees."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from engine.costream.batch import FORMS, collate, encode, prepare_placements
from engine.costream.candidates import find_candidates
from engine.costream.network import OUTPUTS, CostNetwork, initial_parameters, parameter_shapes
from engine.query_graph.flow import flow_features, nominal_flow
from engine.query_graph.graph import HostNode, OperatorNode, QueryGraph
from tests.engine.costream.ensembles import make_trace

SOURCE = OperatorNode("source", 4, 4, rate_eps=1000, n_int=4)
HALF = OperatorNode("filter", 4, 4, function="<", value_type="int", selectivity=0.5)
SINK = OperatorNode("sink", 4, 4)


def _diamond() -> QueryGraph:
    """A source that two filters read, whose results two sinks take."""
    return QueryGraph((SOURCE, HALF, HALF, SINK, SINK), ((0, 1), (0, 2), (1, 3), (2, 4)))


@pytest.mark.parametrize("form", FORMS)
def test_placements_get_the_same_numbers_alone_and_in_a_batch_of_graphs(form: str) -> None:
    network = CostNetwork(initial_parameters(form, 16, seed=3), form)
    trace, diamond = make_trace(), _diamond()
    for graph in (trace.graph, diamond):
        placements = find_candidates(graph, trace.hosts, 300).placements
        scored = network.score(prepare_placements(graph, trace.hosts, placements))
        batch = collate([encode(graph, trace.hosts, placement) for placement in placements], form)
        np.testing.assert_allclose(scored, network.evaluate(batch), rtol=1e-4, atol=1e-4)
        assert scored.shape == (len(placements), len(OUTPUTS))
    mixed = collate([encode(graph, trace.hosts, [0] * len(graph.operators)) for graph in (trace.graph, diamond)], form)
    alone = [encode(graph, trace.hosts, [0] * len(graph.operators)) for graph in (trace.graph, diamond)]
    separate = np.concatenate([network.evaluate(collate([item], form)) for item in alone])
    np.testing.assert_allclose(network.evaluate(mixed), separate, rtol=1e-5, atol=1e-5)


def test_order_in_which_operators_are_listed_does_not_matter() -> None:
    trace, network = make_trace(), CostNetwork(initial_parameters("recommended", 16))
    graph, placement = trace.graph, np.array([trace.placement])
    turned = list(range(len(graph.operators)))[::-1]
    other = QueryGraph(
        tuple(graph.operators[i] for i in turned), tuple((turned.index(a), turned.index(b)) for a, b in graph.edges)
    )
    scores = network.score(prepare_placements(graph, trace.hosts, placement))
    np.testing.assert_allclose(
        network.score(prepare_placements(other, trace.hosts, placement[:, turned])), scores, rtol=1e-4, atol=1e-5
    )


def test_unused_hosts_do_not_matter() -> None:
    trace, network = make_trace(), CostNetwork(initial_parameters("recommended", 16))
    placement = np.array([[0, 1, 0, 1, 1, 1]])
    scores = network.score(prepare_placements(trace.graph, trace.hosts, placement))
    np.testing.assert_array_equal(network.score(prepare_placements(trace.graph, trace.hosts[:2], placement)), scores)


def test_recommended_form_begins_at_the_anchor() -> None:
    parameters = initial_parameters("recommended", 8)
    for name in parameters:
        if name.startswith("head") and ".1." in name:
            parameters[name] = np.zeros_like(parameters[name])
    trace = make_trace()
    batch = prepare_placements(trace.graph, trace.hosts, np.array([trace.placement]))
    outputs = CostNetwork(parameters).score(batch)
    np.testing.assert_allclose(outputs[0, :3], batch.anchor[0], rtol=1e-6)
    np.testing.assert_array_equal(outputs[0, 3:5], 0)


def test_parameters_have_the_listed_shapes() -> None:
    for form in FORMS:
        shapes = {name: array.shape for name, array in initial_parameters(form, 8, 1).items()}
        assert shapes == parameter_shapes(form, 8)


def test_stream_with_two_readers_flows_to_both_and_is_sent_twice() -> None:
    graph = _diamond()
    flow = nominal_flow(graph)
    assert flow.in_eps.tolist() == [1000, 1000, 1000, 500, 500]
    hosts = [HostNode(100, 1000, 100, 0.01, 0), HostNode(100, 1000, 100, 0.01, 0)]
    stays, goes, _ = flow_features(graph, hosts, np.array([[0, 0, 0, 0, 0], [0, 1, 1, 1, 1]])).hosts
    uplink = 1000 * 92 / (100e6 / 8)  # 60 bytes and 8 for each of the four values

    def unscaled(value: float) -> float:
        return float(10 ** (3 * value) - 1e-3)

    assert unscaled(stays[3]) == pytest.approx(1e-6, rel=1e-3)
    assert unscaled(goes[3]) == pytest.approx(2 * uplink, rel=1e-6)


def test_path_latency_counts_links_and_windows() -> None:
    trace = make_trace()
    near, far = flow_features(trace.graph, trace.hosts, np.array([[3] * 6, [0, 1, 0, 2, 3, 3]])).anchor
    filling = 4 + 40 / (400 * 0.5 * 100 * 4 * 2 * 0.01)
    assert np.exp(near[1]) == pytest.approx(filling + 0.001)
    assert np.exp(far[1]) == pytest.approx(0.04 + filling + 0.005 + 0.001)
    assert near[0] == far[0]


def test_stronger_host_lowers_its_shares_of_use() -> None:
    trace = make_trace()
    better = [replace(host, cpu_percent=2 * host.cpu_percent, ram_mb=2 * host.ram_mb) for host in trace.hosts]
    placement = np.array([trace.placement])
    before = flow_features(trace.graph, trace.hosts, placement).hosts
    after = flow_features(trace.graph, better, placement).hosts
    assert (after <= before).all()
    assert (after[:, 0] < before[:, 0]).all()


def test_flow_of_a_join_by_count_tells_the_mean_age_of_both_sides_from_the_oldest() -> None:
    window = {"window_size": 10.0, "window_slide": 10.0, "window_type": "tumbling", "selectivity": 0.1}
    trickle, slow = replace(SOURCE, rate_eps=1.0), OperatorNode("agg", 4, 3, window_policy="time", **window)  # type: ignore[arg-type]
    for policy, expected in (("count", np.log(100.0 / 110.0)), ("time", 0.0)):
        join = OperatorNode("join", 4, 8, value_type="int", window_policy=policy, **window)  # type: ignore[arg-type]
        # one side: 0.1 tuples/s after 10 s, whose window takes 100 s to fill; the other: 1,000 tuples/s at once
        graph = QueryGraph((trickle, slow, SOURCE, join, SINK), ((0, 1), (1, 3), (2, 3), (3, 4)))
        flow = flow_features(graph, [HostNode(100, 1000, 25, 0.01, 0)], np.zeros((1, 5), dtype=np.int64))
        assert flow.graphs[0, 2] == pytest.approx(expected, abs=1e-3)
        np.testing.assert_allclose(flow.graphs[0, :2], flow.anchor[0, :2] / 5)
