"""Real executions: what operators do with tuples, how limits are set or refused, a run, and the set that is shipped."""

from __future__ import annotations

import functools
import json
import os
import shutil
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import lab.training.executions
from engine.costream.adaptation import observation_errors
from engine.costream.prediction import shipped_ensemble
from engine.errors import EngineError
from engine.query_graph.graph import CostTrace, HostNode, OperatorNode, QueryGraph
from engine.simulation.cohort_tables import CohortWorld
from lab.__main__ import main
from lab.benchmarks.costream_executions import (
    FLINK_EXECUTIONS,
    SHIPPED_EXECUTIONS,
    judged_observations,
    read_executions,
)
from lab.training.execution.broker import BrokerTopic
from lab.training.execution.limits import CpuGroups, QuotaUnavailable
from lab.training.execution.queries import cpu_use, draw_execution, max_cpu_percent
from lab.training.execution.run import execute_trace
from lab.training.execution.streams import CpuLedger, ExecutionOver, Inbox
from lab.training.execution.tuples import (
    AggregationWork,
    FilterWork,
    JoinWork,
    Records,
    WindowContent,
    new_records,
    record_type,
)
from lab.training.execution_sets import Execution, read_set, write_set
from tests.lab.training.corpora import corpus_lines, write_lines

LAYOUT = record_type(90)


def records(count: int, lane: int = 0, born: float = 5.0, ingested: float = 6.0) -> Records:
    return new_records(LAYOUT, np.full(count, born), ingested, 0, lane=lane, seed=7)


@pytest.mark.parametrize(
    ("function", "value_type"),
    [("<", "int"), (">=", "double"), ("<=", "string"), ("!=", "int"), ("startswith", "string"), ("endswith", "string")],
)
def test_filter_passes_its_share(function: str, value_type: str) -> None:
    passed = FilterWork(function, value_type, 0.3, 12).passed(records(20_000))
    assert abs(len(passed) / 20_000 - 0.3) < 0.015


def test_second_filter_is_independent_of_the_first() -> None:
    first = FilterWork("<", "int", 0.5, 12).passed(records(20_000))
    assert abs(len(FilterWork("<", "int", 0.5, 22).passed(first)) / len(first) - 0.5) < 0.02


@pytest.mark.parametrize("selectivity", [0.004, 0.3, 0.7])
def test_join_pairs_tuples_by_its_selectivity(selectivity: float) -> None:
    left, right = records(300, lane=0, born=1.0), records(250, lane=40, ingested=3.0)
    results = JoinWork(selectivity, record_type(140), 82).results((left, right))
    assert abs(len(results) / (300 * 250) / selectivity - 1.0) < 0.15
    assert set(results["born"]) == {1.0}
    assert set(results["ingested"]) == {3.0}


@pytest.mark.parametrize(("selectivity", "content"), [(0.145, 10), (0.02, 500), (1.0, 40)])
def test_aggregation_puts_out_a_tuple_per_group(selectivity: float, content: int) -> None:
    work = AggregationWork("avg", True, selectivity, content, record_type(60), 32)
    every = records(content * 400)
    counts = [len(work.results((every[k * content : (k + 1) * content],))) for k in range(400)]
    assert abs(np.mean(counts) / (selectivity * content) - 1.0) < 0.08


def test_aggregate_without_groups_is_that_of_the_window() -> None:
    tuples = records(50)
    for function, value in (("min", tuples["value"].min()), ("mean", tuples["value"].mean())):
        (result,) = AggregationWork(function, False, 1 / 50, 50, record_type(60), 32).results((tuples,))
        assert result["value"] == pytest.approx(value)
        assert (result["born"], result["ingested"]) == (5.0, 6.0)


def test_window_holds_what_came_within_it() -> None:
    by_time, by_count = WindowContent(2.0, True), WindowContent(3.0, False)
    for moment in range(1, 6):
        by_time.add(records(1, born=float(moment)), float(moment))
        by_count.add(records(2, born=float(moment)), float(moment))
    content = by_time.at(4.0)
    assert content is not None
    assert list(content["born"]) == [3.0, 4.0]
    last = by_count.at(99.0)
    assert last is not None
    assert list(last["born"]) == [4.0, 5.0, 5.0]
    assert by_time.at(9.0) is None


def test_full_inbox_holds_up_its_writer() -> None:
    inbox = Inbox(2, 4, time.monotonic() + 20.0)
    inbox.push(0, records(5))
    inbox.push(1, records(1))
    writer = threading.Thread(target=inbox.push, args=(0, records(2)))
    writer.start()
    writer.join(0.05)
    assert writer.is_alive()
    taken = inbox.take(3, np.inf)
    assert taken is not None
    assert (taken[0], len(taken[1])) == (0, 3)
    writer.join(5.0)
    assert inbox.amounts == [4, 1]


def test_inbox_ends_with_the_run() -> None:
    now = time.monotonic()
    assert Inbox(1, 4, now + 20.0).take(1, now) is None
    with pytest.raises(ExecutionOver):
        Inbox(1, 4, now).take(1, np.inf)


def test_operator_pays_with_cpu_time() -> None:
    ledger = CpuLedger(1e9, time.monotonic() + 20.0)
    begin = time.thread_time()
    for _ in range(20):
        ledger.pay(1e6)
    assert 0.018 <= time.thread_time() - begin < 0.03


def test_source_takes_the_oldest_tuples_that_are_born() -> None:
    topic = BrokerTopic(np.array([0.1, 0.2, 0.9]))
    assert topic.backlog(0.5) == 2
    assert topic.take(1, 0.5).tolist() == [0.1]
    assert topic.take(9, 0.5).tolist() == [0.2]
    assert (topic.backlog(1.0), topic.next_birth()) == (1, 0.9)


def test_queries_are_small_enough() -> None:
    for seed in range(10):
        trace = draw_execution(seed)
        assert set(trace.placement) == set(range(len(trace.hosts)))
        assert sum(host.cpu_percent for host in trace.hosts) <= max_cpu_percent()
        assert 0.15 < cpu_use(trace.graph, trace.hosts, trace.placement) < 2.1


def mounts(folder: Path, line: str) -> Path:
    path = folder / "mounts"
    path.write_text(f"proc /proc proc rw 0 0\n{line}\n")
    return path


def test_quota_is_written_for_the_first_version(tmp_path: Path) -> None:
    groups = CpuGroups(mounts(tmp_path, f"cgroup {tmp_path} cgroup rw,cpu,cpuacct 0 0"))
    folder = tmp_path / f"sluice-execution-{os.getpid()}"
    folder.mkdir()
    groups.add("host-0", 75.0, 4711)
    files = {file.name: file.read_text() for file in (folder / "host-0").iterdir()}
    assert files == {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "75000", "cgroup.procs": "4711"}


def test_quota_is_written_for_the_second_version(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu io memory\n")
    groups = CpuGroups(mounts(tmp_path, f"cgroup2 {tmp_path} cgroup2 rw 0 0"))
    folder = tmp_path / f"sluice-execution-{os.getpid()}"
    folder.mkdir()
    groups.add("host-0", 150.0, 4711)
    groups.add("broker", None, 4712)
    assert (folder / "host-0" / "cpu.max").read_text() == "150000 100000"
    assert (folder / "broker" / "cpu.max").read_text() == "max 100000"


def test_machine_without_quotas_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cgroup.controllers").write_text("memory\n")
    path = mounts(tmp_path, f"cgroup2 {tmp_path} cgroup2 rw 0 0")
    with pytest.raises(QuotaUnavailable, match="no control group with the CPU controller"):
        CpuGroups(path)
    monkeypatch.setattr(lab.training.executions, "CpuGroups", functools.partial(CpuGroups, path))
    assert main(["executions", "--out", str(tmp_path / "a.jsonl.gz")]) == 1
    assert "CPU quotas are not available on this machine, so nothing was executed" in capsys.readouterr().err
    assert not list(tmp_path.glob("*.gz*"))


def test_every_wrong_option_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = ["--count", "0", "--repeats", "2", "--seed", "x", "--seconds", "1.5", "--links", "fast"]
    assert main(["executions", *wrong, "--out", str(tmp_path / "a.json")]) == 2
    faults = capsys.readouterr().err.splitlines()
    assert len(faults) == 6
    for name in ("--count", "--repeats", "--seed", "--seconds", "--links", "--out"):
        assert any(f"{name} is" in fault for fault in faults), name


@pytest.mark.process
def test_query_runs_as_processes(tmp_path: Path) -> None:
    operators = (
        OperatorNode("source", 4, 4, rate_eps=300.0, n_int=4),
        OperatorNode("filter", 4, 4, function="<", value_type="int", selectivity=0.5),
        OperatorNode("sink", 4, 4),
    )
    hosts = tuple(HostNode(100.0, 8000.0, 50.0, 0.03, strength) for strength in (0, 1))
    trace = CostTrace(QueryGraph(operators, ((0, 1), (1, 2))), hosts, (0, 1, 1), None)
    # plain files in place of control groups: the run needs no rights, and its CPU no limit
    for name in ("host-0", "host-1"):
        folder = tmp_path / f"sluice-execution-{os.getpid()}" / name
        folder.mkdir(parents=True)
        (folder / "cpu.stat").write_text("nr_periods 0\nnr_throttled 0\n")
    groups = CpuGroups(mounts(tmp_path, f"cgroup {tmp_path} cgroup rw,cpu 0 0"))
    result = execute_trace(trace, seed=3, world=CohortWorld(duration_s=1.5), groups=groups, by_kernel=False)
    assert not result.is_kernel_shaped
    label = result.label
    assert label.success
    assert label.throughput_eps is not None
    assert 60.0 < label.throughput_eps < 300.0
    assert label.processing_latency_s is not None
    assert label.end_to_end_latency_s is not None
    assert 0.03 < label.processing_latency_s < label.end_to_end_latency_s < 1.0


def test_shipped_executions_are_real_and_labelled() -> None:
    executions = read_executions(SHIPPED_EXECUTIONS)
    assert len(executions.traces) >= 30
    assert len(executions.repeats) >= 5
    assert all(trace.label is not None for trace in executions.traces)
    assert "quota" in executions.machine


def test_executions_on_flink_are_as_its_record_says() -> None:
    executions = read_executions(FLINK_EXECUTIONS)
    observed, left_out = judged_observations(executions)
    assert len(observed) + left_out["left out: back-pressure, but neither a quota was used up nor a link full"] == 220
    assert all(o.trace.graph.processor == "flink" for o in observed)
    errors = observation_errors(shipped_ensemble(), observed)
    assert errors["T"]["q50"] < 1.05 and errors["Lp"]["q50"] < 1.35 and errors["Le"]["q50"] < 1.35
    assert errors["RO"]["accuracy"] > 0.9


def test_executions_are_added_to_those_of_their_seed(tmp_path: Path) -> None:
    part, card = tmp_path / "part.jsonl.gz", tmp_path / "part.jsonl.gz.card.json"
    shutil.copyfile(FLINK_EXECUTIONS, part)
    shutil.copyfile(FLINK_EXECUTIONS.with_name(f"{FLINK_EXECUTIONS.name}.card.json"), card)
    told, faults = json.loads(card.read_text()), list[str]()
    before = read_set(part, seed=told["seed"], duration_s=told["duration_s"], repeats=0, faults=faults)
    assert before is not None and not faults
    write_set(part, [Execution(before.lines[0], None)], told | {"executions": told["executions"][:1]}, before)  # type: ignore[arg-type]
    after = read_set(part, seed=told["seed"], duration_s=told["duration_s"], repeats=0, faults=faults)
    assert after is not None and after.lines == [*before.lines, before.lines[0]]
    assert len(read_executions(part).traces) == len(before.lines)  # the last one is there twice
    assert json.loads(card.read_text())["count"] == 2 * told["count"]
    read_set(part, seed=told["seed"] + 1, duration_s=told["duration_s"] + 1.0, repeats=1, faults=faults)
    assert len(faults) == 3
    card.write_text("{}")
    read_set(part, seed=1, duration_s=10.0, repeats=0, faults=faults)
    assert len(faults) == 4


def test_simulated_traces_are_no_executions(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "simulated.jsonl.gz", corpus_lines(1))
    with pytest.raises(EngineError, match="holds simulated traces"):
        read_executions(path)
