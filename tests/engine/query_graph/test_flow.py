"""Nominal flow: through graphs that are no trees, along ways with links and windows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from engine.query_graph.flow import flow_features, nominal_flow
from engine.query_graph.graph import HostNode, OperatorNode, QueryGraph
from tests.engine.costream.ensembles import make_trace

SOURCE = OperatorNode("source", 4, 4, rate_eps=1000, n_int=4)
HALF = OperatorNode("filter", 4, 4, function="<", value_type="int", selectivity=0.5)
SINK = OperatorNode("sink", 4, 4)


def _diamond() -> QueryGraph:
    """A source that two filters read, whose results two sinks take."""
    return QueryGraph((SOURCE, HALF, HALF, SINK, SINK), ((0, 1), (0, 2), (1, 3), (2, 4)))


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
