"""The cohort simulation: closed forms, conservation, and what more hardware or a finer step may change."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from engine.query_graph.costs import nominal_cycles, operator_cost
from engine.query_graph.flow import nominal_flow
from engine.query_graph.graph import REFERENCE_CORE_CPS, CostTrace, HostNode, OperatorNode, QueryGraph, TraceLabel
from engine.simulation.cohort import CohortRun, CohortWorld, draw_trace, simulate_cohorts, trace_label, trace_seed

WEAK = HostNode(100, 4000, 25, 0.04, 0)
STRONG = HostNode(800, 32_000, 1000, 0.005, 2)
EVEN = CohortWorld(burst=0.0)
SINK = OperatorNode("sink", 5, 5)


def source(rate_eps: float) -> OperatorNode:
    return OperatorNode("source", 5, 5, rate_eps=rate_eps, n_int=5)


def filter_of(selectivity: float) -> OperatorNode:
    return OperatorNode("filter", 5, 5, function="<", value_type="int", selectivity=selectivity)


def windowed(kind: str, policy: str, size: float, slide: float, selectivity: float) -> OperatorNode:
    return OperatorNode(
        kind, 5, 5, function="max", value_type="int", group_type="int", selectivity=selectivity,
        window_policy=policy, window_type="tumbling" if slide == size else "sliding",
        window_size=size, window_slide=slide,
    )  # fmt: skip


def chain(*operators: OperatorNode) -> QueryGraph:
    return QueryGraph((*operators, SINK), tuple((i, i + 1) for i in range(len(operators))))


def run(graph: QueryGraph, hosts: Sequence[HostNode], placement: Sequence[int], world: CohortWorld = EVEN) -> CohortRun:
    return simulate_cohorts(graph, hosts, placement, seed=1, world=world, noise=False)


def drawn(count: int, seed: int = 99) -> list[tuple[int, CostTrace]]:
    return [(trace_seed(seed, i), draw_trace(trace_seed(seed, i))) for i in range(count)]


def label_of(seed: int, trace: CostTrace, world: CohortWorld | None = None) -> TraceLabel:
    return simulate_cohorts(trace.graph, trace.hosts, trace.placement, seed=seed, world=world, noise=False).label


def q_errors(pairs: Sequence[tuple[TraceLabel, TraceLabel]], cost: Callable[[TraceLabel], float | None]) -> list[float]:
    costs = [(cost(a), cost(b)) for a, b in pairs]
    return sorted(max(a / b, b / a) for a, b in costs if a and b)


@pytest.mark.parametrize("placement", [(0, 0, 0), (0, 1, 1), (0, 1, 2)])
def test_idle_chain_takes_the_latency_of_its_path(placement: tuple[int, int, int]) -> None:
    graph, hosts = chain(source(20), filter_of(1.0)), (WEAK, STRONG, STRONG)
    costs = [operator_cost(operator) for operator in graph.operators]
    tuple_bytes = 46 + 5 * 5
    cycles, way_s = sum(cost.take for cost in costs) + costs[1].make, 0.0
    for a, b in graph.edges:
        if placement[a] == placement[b]:
            way_s += EVEN.local_hop_s
        else:
            host = hosts[placement[a]]
            cycles += 30_000 + 80 * tuple_bytes
            way_s += host.latency_s + tuple_bytes * 8e-6 / host.bandwidth_mbit_s + EVEN.remote_hop_s
    label = run(graph, hosts, placement).label
    assert label.processing_latency_s == pytest.approx(cycles / REFERENCE_CORE_CPS + way_s, rel=0.01)
    assert label.throughput_eps == pytest.approx(20, rel=0.05)
    assert label.end_to_end_latency_s == pytest.approx(label.processing_latency_s + EVEN.fetch_s, rel=0.01)


def test_every_tuple_is_taken_or_waits() -> None:
    for seed, trace in drawn(40):
        run = simulate_cohorts(trace.graph, trace.hosts, trace.placement, seed=seed)
        for (a, b), slot in [(edge, trace.graph.inputs[edge[1]].index(edge[0])) for edge in trace.graph.edges]:
            sent, reader = run.tuples[a], run.tuples[b]
            kept = reader[f"taken_{slot}"] + reader[f"queued_{slot}"] + sent["sending"]
            assert kept == pytest.approx(sent["emitted"], rel=1e-9, abs=1e-6), (seed, a, b)
            assert min(*sent.values(), *reader.values()) > -1e-6


@pytest.mark.parametrize(("policy", "size", "slide"), [
    ("time", 4.0, 4.0), ("time", 8.0, 3.0), ("count", 40.0, 40.0), ("count", 80.0, 30.0),
])  # fmt: skip
@pytest.mark.parametrize("kind", ["agg", "join"])
def test_windows_put_out_what_the_nominal_flow_says(kind: str, policy: str, size: float, slide: float) -> None:
    operator = windowed(kind, policy, size, slide, 0.1 if kind == "agg" else 0.002)
    graph = chain(source(100), operator)
    if kind == "join":
        graph = QueryGraph((source(60), source(100), operator, SINK), ((0, 2), (1, 2), (2, 3)))
    flow = nominal_flow(graph)
    label = run(graph, [STRONG], [0] * len(graph.operators)).label
    assert label.throughput_eps == pytest.approx(float(flow.out_eps[-1]), rel=0.08)
    assert label.processing_latency_s == pytest.approx(float(flow.fill_s[-2]), rel=0.1)
    assert not label.backpressure


def test_overload_gives_back_pressure_and_bounds_throughput() -> None:
    graph, host = chain(source(10_000), filter_of(0.5)), HostNode(50, 4000, 1000, 0.005, 0)
    cycles = nominal_cycles(graph)
    capacity_eps = 0.5 * REFERENCE_CORE_CPS / (cycles[0] + cycles[1] + 0.5 * cycles[2])
    label = run(graph, [host], [0, 0, 0]).label
    assert label.backpressure
    assert label.throughput_eps == pytest.approx(0.5 * capacity_eps, rel=0.03)
    assert label.backlog_eps == pytest.approx(10_000 - capacity_eps, rel=0.03)
    assert label.end_to_end_latency_s > 50 * label.processing_latency_s  # waiting is at the broker
    below = chain(source(0.7 * capacity_eps), filter_of(0.5))
    assert not run(below, [host], [0, 0, 0]).label.backpressure


def test_streams_of_a_host_share_its_uplink() -> None:
    join = windowed("join", "time", 1.0, 1.0, 1e-6)
    graph = QueryGraph((source(1500), source(1500), join, SINK), ((0, 2), (1, 2), (2, 3)))
    narrow = HostNode(800, 16_000, 1.0, 0.001, 0)
    result = run(graph, [narrow, STRONG], [0, 0, 1, 1])
    eps = 1e6 / 8 / (46 + 5 * 5) / 2
    for slot in range(2):
        assert result.tuples[2][f"taken_{slot}"] / EVEN.duration_s == pytest.approx(eps, rel=0.05)
    assert result.label.backpressure


def test_window_that_outgrows_memory_slows_the_host_and_then_ends_the_run() -> None:
    graph = chain(source(2000), windowed("agg", "time", 64.0, 64.0, 0.01))
    dead, slow, fast = (run(graph, [replace(STRONG, ram_mb=ram_mb)], [0, 0, 0]) for ram_mb in (1000, 2000, 8000))
    assert dead.crashed_s is not None
    assert (slow.crashed_s, slow.label.backpressure, slow.label.success) == (None, True, True)
    assert (fast.crashed_s, fast.label.backpressure) == (None, False)
    assert slow.label.end_to_end_latency_s > 1.05 * fast.label.end_to_end_latency_s


def test_results_that_outgrow_memory_end_the_run() -> None:
    join = windowed("join", "time", 16.0, 16.0, 0.05)
    graph = QueryGraph((source(500), source(500), join, SINK), ((0, 2), (1, 2), (2, 3)))
    small, large = (run(graph, [replace(STRONG, ram_mb=ram_mb)], [0] * 4) for ram_mb in (2000, 32_000))
    assert large.crashed_s is None
    assert small.crashed_s == pytest.approx(16.0, abs=0.3)  # the first evaluation
    assert small.label == TraceLabel(None, None, None, small.label.backlog_eps, False, False)


def test_filter_that_lets_nothing_through_is_no_success() -> None:
    label = run(chain(source(20), filter_of(1e-7)), [STRONG], [0, 0, 0]).label
    assert (label.success, label.throughput_eps, label.processing_latency_s) == (False, None, None)


def test_more_cpu_rarely_lengthens_processing() -> None:
    longer = 0
    for seed, trace in drawn(150):
        faster = replace(trace, hosts=tuple(replace(host, cpu_percent=2 * host.cpu_percent) for host in trace.hosts))
        before, after = label_of(seed, trace), label_of(seed, faster)
        if before.processing_latency_s and after.processing_latency_s:
            longer += after.processing_latency_s > 1.02 * before.processing_latency_s
    assert longer <= 4


def test_finer_step_gives_the_same_costs() -> None:
    fine = CohortWorld(step_s=0.02)
    pairs = [(label_of(seed, trace), label_of(seed, trace, fine)) for seed, trace in drawn(80)]
    assert all((a.backpressure, a.success) == (b.backpressure, b.success) for a, b in pairs)
    costs: list[Callable[[TraceLabel], float | None]] = [
        lambda label: label.throughput_eps,
        lambda label: label.processing_latency_s,
        lambda label: label.end_to_end_latency_s,
    ]
    for cost in costs:
        errors = q_errors(pairs, cost)
        assert statistics.median(errors) < 1.01
        assert errors[int(0.9 * len(errors))] < 1.06


def test_seed_fixes_a_run_and_hides_its_noise() -> None:
    seed, trace = drawn(1)[0]
    arguments = (trace.graph, trace.hosts, trace.placement)
    first, again, other = (simulate_cohorts(*arguments, seed=s) for s in (seed, seed, seed + 1))
    assert first == again
    assert first.label != other.label
    assert trace_label(first, seed=seed) == trace_label(again, seed=seed) != first.label


def test_query_of_another_shape_is_refused_with_all_faults() -> None:
    graph = QueryGraph((source(10), source(10), filter_of(0.5), SINK), ((0, 2), (1, 2), (2, 3)))
    with pytest.raises(ValueError, match=r"operator 2 \(filter\) has 2 inputs"):
        run(graph, [STRONG], [0, 0, 0, 0])
    fanned = QueryGraph((source(10), SINK, SINK), ((0, 1), (0, 2)))
    with pytest.raises(ValueError, match=r"operator 0 .* has 2 readers.*one sink"):
        run(fanned, [STRONG], [0, 0, 0])


@pytest.mark.parametrize("fields", [{"step_s": 0.03}, {"step_s": 0.0}, {"cost_factors": (("map", 2.0),)}])
def test_world_refuses_steps_and_kinds_it_does_not_have(fields: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="allowed"):
        CohortWorld(**fields)
