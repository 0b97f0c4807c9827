"""The fluid: what is idle is its way, what is short holds sources back, more capacity never makes it worse."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from engine.query_graph.costs import nominal_cycles
from engine.query_graph.flow import flow_features
from engine.query_graph.fluid import NO_FACTORS, RUN_S, fluid_of
from engine.query_graph.graph import OPERATOR_KINDS, HostNode, OperatorNode, QueryGraph
from engine.query_graph.processors import FLINK
from tests.engine.costream.ensembles import make_trace

HOST = HostNode(100, 4000, 1000, 0.01, 1)
HALF = OperatorNode("filter", 4, 4, function="<", value_type="int", selectivity=0.5)


def chain(rate_eps: float, filters: int = 1) -> QueryGraph:
    source = OperatorNode("source", 4, 4, rate_eps=rate_eps, n_int=4)
    operators = (source, *(HALF,) * filters, OperatorNode("sink", 4, 4))
    return QueryGraph(operators, tuple((i, i + 1) for i in range(filters + 1)))


def test_idle_placement_takes_the_anchor_and_the_cycles_of_its_way() -> None:
    trace = make_trace()
    placements = np.array([[3] * 6, [0, 1, 0, 2, 3, 3]])
    fluid = fluid_of(trace.graph, trace.hosts, placements)
    anchor = np.exp(flow_features(trace.graph, trace.hosts, placements).anchor)
    assert (fluid.taken == 1.0).all() and (fluid.backpressure < 0).all() and (fluid.success > 0).all()
    np.testing.assert_allclose(np.exp(fluid.costs[:, 0]), anchor[:, 0])
    own_s = fluid.service_s + fluid.burst_s
    np.testing.assert_allclose(np.exp(fluid.costs[:, 1]), anchor[:, 1] + own_s, rtol=1e-3)
    assert (fluid.queue_s == 0).all() and (fluid.broker_s == 0).all()


def test_short_host_holds_its_source_back_to_what_fits() -> None:
    graph = chain(20_000.0)
    fluid = fluid_of(graph, [HOST], np.zeros((1, 3), dtype=np.int64))
    per_event = nominal_cycles(graph)
    use = (20_000.0 * (per_event[0] + per_event[1]) + 10_000.0 * per_event[2]) / 2.4e9
    assert fluid.use[0] == pytest.approx(use, rel=1e-6)
    assert fluid.taken[0] == pytest.approx(1.0 / use, rel=2e-3)
    assert np.exp(fluid.costs[0, 0]) == pytest.approx(10_000.0 / use, rel=2e-3)
    assert fluid.broker_s[0] == pytest.approx((1.0 - 1.0 / use) * RUN_S / 2.0, rel=2e-3)
    assert fluid.backpressure[0] > 0


def test_tuple_waits_half_as_long_again_where_its_host_is_half_busy() -> None:
    idle, busy = (fluid_of(chain(rate), [HOST], np.zeros((1, 3), dtype=np.int64)) for rate in (1e-3, 1000.0))
    scale = 0.5 / busy.host_use[0]
    half = fluid_of(chain(1000.0 * scale), [HOST], np.zeros((1, 3), dtype=np.int64))
    assert half.host_use[0] == pytest.approx(0.5)
    assert half.service_s[0] == pytest.approx(1.5 * idle.service_s[0], rel=1e-4)
    # every hop is counted: one more filter costs its service and its queue
    longer = fluid_of(chain(1e-3, filters=2), [HOST], np.zeros((1, 4), dtype=np.int64))
    assert longer.way_s[0] > idle.way_s[0]


@pytest.mark.parametrize("better", [{"cpu_percent": 400.0}, {"bandwidth_mbit_s": 4000.0}, {"latency_s": 0.001}])
def test_better_hosts_never_make_the_fluid_worse(better: dict[str, float]) -> None:
    trace, rng = make_trace(), np.random.default_rng(5)
    sources = [replace(op, rate_eps=40 * op.rate_eps) if op.kind == "source" else op for op in trace.graph.operators]
    graph = replace(trace.graph, operators=tuple(sources))
    placements = rng.integers(3, size=(50, 6))
    hosts = [replace(HOST, cpu_percent=cpu) for cpu in (50.0, 100.0, 400.0)]
    others = [replace(host, **better) for host in hosts]
    before, after = (fluid_of(graph, each, placements) for each in (hosts, others))
    assert (before.taken < 1.0).any()
    assert (after.taken >= before.taken * 0.99).all()
    assert (after.costs[:, 2] <= before.costs[:, 2] + 0.02).all()


def test_costs_of_an_engine_move_the_threshold_of_overload() -> None:
    graph, placement = chain(3_000.0), np.zeros((1, 3), dtype=np.int64)
    assert fluid_of(graph, [HOST], placement).taken[0] == 1.0
    dear = fluid_of(graph, [HOST], placement, NO_FACTORS | dict.fromkeys(OPERATOR_KINDS, 3.0))
    assert dear.taken[0] < 0.75 and dear.backpressure[0] > 0


def flink(graph: QueryGraph) -> QueryGraph:
    return replace(graph, processor=FLINK.name)


def test_tuple_that_changes_its_host_waits_for_half_a_network_buffer() -> None:
    # 92 bytes a tuple; 32 KiB are full after 100 ms at 3,562 tuples/s, and the slower stream's are sent by then
    for rate_eps, filled_s in ((100.0, 0.1), (20_000.0, 32 * 1024 / (10_000.0 * 92))):
        graph = chain(rate_eps)
        apart, together = np.array([[0, 0, 1]]), np.array([[0, 0, 0]])
        nominal, waiting, chained = (
            fluid_of(made, [replace(HOST, latency_s=1e-9)] * 2, placement)
            for made, placement in ((graph, apart), (flink(graph), apart), (flink(graph), together))
        )
        on_link_s = filled_s * rate_eps / 2.0 * 92 / 125e6
        assert waiting.way_s[0] == pytest.approx(filled_s / 2.0 + on_link_s + FLINK.remote_hop_s, rel=1e-6)
        assert nominal.way_s[0] < 1e-3 and chained.way_s[0] == 0.0
        assert chained.thread_use[0] == pytest.approx(chained.host_use[0])  # a chain is one thread


def test_buffers_before_a_full_uplink_hold_what_their_host_cannot_send() -> None:
    fluid = fluid_of(flink(chain(10_000.0)), [replace(HOST, bandwidth_mbit_s=1.0), HOST], np.array([[0, 0, 1]]))
    assert fluid.link_use[0] == pytest.approx(5_000.0 * 92 * 8e-6)
    assert fluid.queue_s[0] == pytest.approx(20 * 32 * 1024 / 125e3, rel=1e-3)


def test_join_by_count_of_streams_that_come_by_buffers_finds_fewer_pairs_the_shorter_its_windows() -> None:
    left, right = (OperatorNode("source", 4, 4, rate_eps=rate, n_int=4) for rate in (50_000.0, 50_000.0))

    def share_of_nominal(size: float) -> float:
        join = OperatorNode("join", 4, 8, value_type="int", selectivity=1e-6, window_policy="count")
        join = replace(join, window_type="tumbling", window_size=size, window_slide=size)
        graph = QueryGraph((left, right, join, OperatorNode("sink", 8, 8)), ((0, 2), (1, 2), (2, 3)))
        hosts, placement = [replace(HOST, cpu_percent=800)], np.zeros((1, 4), dtype=np.int64)
        results_eps = np.exp(fluid_of(flink(graph), hosts, placement).costs[0, 0])
        return float(results_eps / (100_000.0 * size / 2.0 * 1e-6))

    few, many = share_of_nominal(10.0), share_of_nominal(10_000.0)
    assert few < 0.05 and 0.9 < many <= 1.0


def test_query_that_puts_nothing_out_fails() -> None:
    graph = chain(10.0)
    nothing = replace(graph, operators=(graph.operators[0], replace(HALF, selectivity=1e-7), graph.operators[2]))
    assert fluid_of(nothing, [HOST], np.zeros((1, 3), dtype=np.int64)).success[0] < 0
