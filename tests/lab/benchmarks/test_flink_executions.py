"""Executions on Flink: plans, labels from what sources and sink wrote, hosts as Flink chose them, and a real run."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.query_graph.graph import CostTrace, HostNode, OperatorNode, QueryGraph
from lab.__main__ import main
from lab.benchmarks.costream_executions import read_executions
from lab.benchmarks.flink.runs import RunFailed
from lab.benchmarks.flink_executions.engine import hosts_of_operators, measured_label
from lab.benchmarks.flink_executions.queries import draw_flink_execution, flink_plan
from lab.testbed.testbed import missing_needs

HOSTS = tuple(HostNode(50.0, 8000.0, 50.0, 0.0001, strength) for strength in (0, 1))
TRACE = CostTrace(
    QueryGraph(
        (
            OperatorNode("sink", 4, 4),
            OperatorNode("source", 4, 4, rate_eps=1000.0, n_int=2, n_str=1, n_dbl=1),
            OperatorNode("filter", 4, 4, function="<", value_type="int", selectivity=0.5),
        ),
        ((1, 2), (2, 0)),
    ),
    HOSTS,
    (1, 0, 0),
    None,
)


def vertices(*named: tuple[str, str]) -> list[dict[str, object]]:
    return [{"name": name, "subtasks": [{"taskmanager-id": host}]} for name, host in named]


def test_plan_lists_operators_from_source_to_sink() -> None:
    assert flink_plan(TRACE) == "source/0/1000.0/2/1/1;filter/0/0/</int/0.5;sink/1/1"


def test_rates_go_from_idle_to_overload() -> None:
    traces = [draw_flink_execution(seed) for seed in range(40)]
    peaks = [max(op.rate_eps for op in trace.graph.operators) for trace in traces]
    assert min(peaks) < 1000.0 and max(peaks) > 100_000.0
    assert {"agg", "join", "filter"} <= {op.kind for trace in traces for op in trace.graph.operators}
    assert {len(trace.hosts) for trace in traces} == {1, 2, 3}


def test_hosts_are_those_that_flink_chose() -> None:
    chosen = vertices(("Source: op0 -> op1", "taskmanager-3"), ("op2: Writer", "taskmanager-1"))
    assert hosts_of_operators(chosen, TRACE) == {0: "host3", 1: "host1"}
    with pytest.raises(RunFailed, match="not on the hosts of its groups"):
        hosts_of_operators(vertices(("Source: op0 -> op1", "taskmanager-3"), ("op2", "taskmanager-3")), TRACE)


def test_label_is_of_the_measured_stretch_alone(tmp_path: Path) -> None:
    out = tmp_path / "out"
    # results of second 9 and of 12 lie outside of it
    out.write_text("9,900,1,1\n10,500,5000000,10000000\n11,500,5000000,30000000\n12,7,1,1\n")
    out.with_name("out.0").write_text("9000000,0\n10000000,900\n11000000,1700\n12500000,3200\n")
    label = measured_label(TRACE, out, 10.0, 12.0, 0.02)
    assert (label.throughput_eps, label.processing_latency_s, label.end_to_end_latency_s) == (500.0, 0.01, 0.04)
    assert (label.backlog_eps, label.backpressure, label.success) == (100.0, True, True)
    nothing = measured_label(TRACE, tmp_path / "none", 10.0, 12.0, 0.02)
    assert (nothing.throughput_eps, nothing.success, nothing.backpressure) == (None, False, True)


@pytest.mark.flink
@pytest.mark.process
@pytest.mark.slow
def test_query_runs_on_flink(tmp_path: Path) -> None:
    if lacks := missing_needs():
        pytest.skip("; ".join(lacks))
    path = tmp_path / "real.jsonl.gz"
    asked = ["--count", "2", "--first", "9", "--seed", "6", "--seconds", "3"]
    assert main(["flink-executions", *asked, "--out", str(path)]) == 0
    executions = read_executions(path)
    assert "tbf" in executions.machine and len(executions.traces) == 2
    assert all(trace.label is not None and trace.label.success for trace in executions.traces)
