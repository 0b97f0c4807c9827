"""A Flink across hosts that executes one query after the other, each on hosts of its own sizes."""

from __future__ import annotations

import gc
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from engine.query_graph.graph import CostTrace, TraceLabel
from engine.simulation.cohort_tables import CohortWorld
from lab.benchmarks.flink.client import SCHEDULED_JOB, FlinkClient, FlinkRefusal, compiled_jar
from lab.benchmarks.flink.runs import RunFailed, held_job
from lab.benchmarks.flink_executions.queries import draw_flink_execution, flink_plan
from lab.testbed.testbed import Host, Testbed
from lab.training.execution.queries import max_cpu_percent
from lab.training.execution.run import ExecutionFailed, ExecutionResult
from launcher.engines.flink import FlinkCluster, FlinkHost, FlinkOptions
from launcher.engines.flink_package import fetch_flink
from launcher.output import Terminal
from launcher.places import free_port, var_dir
from launcher.runner import ProcessRunner

__all__ = ["QUERY_JOB", "FlinkEngine", "flink_engine", "hosts_of_operators", "measured_label"]

QUERY_JOB = Path(__file__).with_name("QueryJob.java")
_HOSTS = 3
_LEAD_S, _WARM_S, _SETTLE_S = 4.0, 5.0, 1.0  # to the first arrival; with all cores, to compile; with few, to settle
_SPARE_S = 10.0  # for which arrivals come on after the stretch that is measured
_WATCH_S = 0.02
_QUOTA_PERIOD_S = 0.1
_OPERATOR = re.compile(r"\bop(\d+)\b")
_SETTINGS = {
    "taskmanager.memory.task.heap.size": "400m",
    "taskmanager.memory.network.min": "64m",
    "taskmanager.memory.network.max": "64m",
    "execution.checkpointing.interval": "1 d",  # none within an execution
}


class FlinkEngine:
    """A running Flink with one TaskManager of one slot on each host of a testbed."""

    def __init__(self, client: FlinkClient, jar: str, bed: Testbed, scratch: Path) -> None:
        self._client, self._jar, self._bed, self._scratch = client, jar, bed, scratch

    def draw(self, seed: int) -> CostTrace:
        """A query of the seed."""
        return draw_flink_execution(seed)

    def execute(self, trace: CostTrace, seed: int, world: CohortWorld) -> ExecutionResult:
        """Execute a query: it starts with all cores, and is measured once its hosts have the cores of the trace.

        Which host Flink takes for which group of operators is asked of it; that one gets the group's cores and link.

        Raises
        ------
        ExecutionFailed
            Flink refused it, or it ended by itself.
        """
        load = os.getloadavg()[0]
        try:
            return self._measured(trace, seed, world, load)
        except (RunFailed, FlinkRefusal) as failure:
            raise ExecutionFailed(str(failure)) from None
        finally:
            for host in self._bed.hosts:
                self._bed.limit(host.name, cores=float(os.cpu_count() or 1))

    def facts(self, results: Sequence[ExecutionResult], world: CohortWorld) -> dict[str, Any]:
        """Facts of this engine for the card."""
        return {
            "note": "real executions: a job of Flink across hosts; not simulated",
            "core": "100 % of cpu are one core of this machine; costs are Flink's own",
            "limits": {
                "cpu": f"quota per 100 ms on each TaskManager, at most {max_cpu_percent():g} % together",
                "memory": "400 MB of heap for tasks on each host, whatever the trace says",
                "bandwidth": "tc tbf per host in a network namespace",
                "latency": "that of the machine's own bridge",
            },
            "queues": {"buffers": "Flink's own, 64 MB of network memory on each host"},
        }

    def _measured(self, trace: CostTrace, seed: int, world: CohortWorld, load: float) -> ExecutionResult:
        out = self._scratch / f"{time.time_ns()}"
        start_s = float(int(time.time() + _LEAD_S) + 1)
        began_s = start_s + _WARM_S + _SETTLE_S
        ended_s = began_s + world.duration_s
        arguments = {
            "name": "query",
            "out": str(out),
            "start": str(int(start_s * 1000)),
            "seconds": str(int(ended_s - start_s + _SPARE_S)),
            "seed": str(seed % 2**31),
            "plan": flink_plan(trace),
        }
        started = self._client.run(self._jar, [f"{name}={value}" for name, value in arguments.items()], {})
        with held_job(self._client, started):
            names = self._limited_hosts(started, trace, start_s + _WARM_S)
            _sleep_until(began_s)
            before = [(self._bed.used_s(name), self._bed.throttled_s(name)) for name in names]
            stall_s = _watch(ended_s)
            after = [(self._bed.used_s(name), self._bed.throttled_s(name)) for name in names]
            if not self._client.is_running(started):
                raise RunFailed("it ended by itself")
            _sleep_until(ended_s + 1.0)  # so that sources write what came until then
        label = measured_label(trace, out, began_s, ended_s, world.backlog_share)
        for file in self._scratch.glob(f"{out.name}*"):
            file.unlink()
        differences = np.subtract(after, before)
        return ExecutionResult(
            label=label,
            cpu_percent=tuple(round(100.0 * used / world.duration_s, 1) for used, _ in differences),
            throttled=tuple(round(waited / _QUOTA_PERIOD_S) for _, waited in differences),
            is_kernel_shaped=True,
            stall_s=round(stall_s, 3),
            load=round(load, 2),
        )

    def _limited_hosts(self, job: str, trace: CostTrace, moment_s: float) -> list[str]:
        """The testbed's host of each of the trace's; they have its cores and links from the moment on."""
        vertices = self._client.get(f"/jobs/{job}")["vertices"]
        details = [self._client.get(f"/jobs/{job}/vertices/{vertex['id']}") for vertex in vertices]
        found = hosts_of_operators(details, trace)
        for h, name in found.items():
            self._bed.limit(name, mbit_s=trace.hosts[h].bandwidth_mbit_s)
        _sleep_until(moment_s)
        for h, name in found.items():
            self._bed.limit(name, cores=trace.hosts[h].cpu_percent / 100.0)
        return [found[h] for h in range(len(trace.hosts))]


@contextmanager
def flink_engine() -> Iterator[FlinkEngine]:
    """Start hosts and a Flink on them; all of it is gone afterwards. Raises as `Testbed` and `FlinkCluster` do."""
    runner = ProcessRunner(Terminal(sys.stderr), var_dir() / "log")
    fetch_flink(runner.console)
    hosts = [Host(f"host{number}") for number in range(1, _HOSTS + 1)]
    with Testbed(hosts) as bed, tempfile.TemporaryDirectory(prefix="sluice-flink-executions-") as scratch:
        places = [FlinkHost(bed.address(host.name), tuple(bed.command(host.name, ()))) for host in hosts]
        options = FlinkOptions(
            free_port(), slots=1, settings=_SETTINGS, address=bed.machine_address, hosts=tuple(places)
        )
        cluster = FlinkCluster(var_dir() / "flink-executions", options)
        try:
            cluster.start(runner)
            with closing(FlinkClient(cluster.url)) as client:
                compiled = compiled_jar(QUERY_JOB, cluster.ports["gateway"], main="QueryJob", uses=[SCHEDULED_JOB])
                yield FlinkEngine(client, client.upload(compiled), bed, Path(scratch))
        finally:
            gc.collect()  # objects of Java that are let go of later would ask a gateway that has gone
            runner.stop()


def hosts_of_operators(vertices: Sequence[Mapping[str, Any]], trace: CostTrace) -> dict[int, str]:
    """By index of a trace's host the testbed's host that runs its operators, from the answers about a job's vertices.

    Raises
    ------
    RunFailed
        Flink runs operators of one host on several, or those of several on one.
    """
    order = trace.graph.order
    found: dict[int, set[str]] = {h: set() for h in range(len(trace.hosts))}
    for vertex in vertices:
        names = {f"host{task['taskmanager-id'].rpartition('-')[2]}" for task in vertex["subtasks"]}
        for position in map(int, _OPERATOR.findall(vertex["name"])):
            found[trace.placement[order[position]]] |= names
    single = {h: next(iter(names)) for h, names in found.items() if len(names) == 1}
    if len(single) < len(found) or len(set(single.values())) < len(single):
        raise RunFailed(f"its operators are not on the hosts of its groups: {found}")
    return single


def measured_label(trace: CostTrace, out: Path, began_s: float, ended_s: float, backlog_share: float) -> TraceLabel:
    """Costs of the stretch between two whole seconds, from what sink and sources wrote down.

    A backlog is what was due in it less what entered; it is back-pressure beyond `backlog_share` of what was due.
    """
    rows = [list(map(int, line.split(","))) for line in out.read_text().splitlines()] if out.exists() else []
    kept = np.array([row for row in rows if began_s <= row[0] < ended_s], dtype=float).reshape(-1, 4)
    count, since_entered_us, since_due_us = kept[:, 1:].sum(axis=0)
    length_s = ended_s - began_s
    entered = due = 0.0
    for row, i in enumerate(trace.graph.order):
        operator = trace.graph.operators[i]
        if operator.kind == "source":
            due += operator.rate_eps * length_s
            entered += _entered(out.with_name(f"{out.name}.{row}"), began_s, ended_s)
    is_something = count > 0
    return TraceLabel(
        throughput_eps=float(count / length_s) if is_something else None,
        processing_latency_s=float(since_entered_us / count / 1e6) if is_something else None,
        end_to_end_latency_s=float(since_due_us / count / 1e6) if is_something else None,
        backlog_eps=max(due - entered, 0.0) / length_s,
        backpressure=due - entered > backlog_share * due,
        success=bool(is_something),
    )


def _entered(file: Path, began_s: float, ended_s: float) -> float:
    """Tuples that a source put out in a stretch."""
    if not file.exists():
        return 0.0
    lines = [line.split(",") for line in file.read_text().splitlines() if "," in line]
    times_s, totals = np.array(lines, dtype=float).reshape(-1, 2).T
    return float(np.diff(np.interp([began_s, ended_s], times_s / 1e6, totals))[0]) if len(totals) else 0.0


def _watch(until_s: float) -> float:
    """Wait; the longest time by which a thread that only sleeps woke up late."""
    stall_s = 0.0
    while (now := time.time()) < until_s:
        time.sleep(_WATCH_S)
        stall_s = max(stall_s, time.time() - now - _WATCH_S)
    return stall_s


def _sleep_until(moment_s: float) -> None:
    time.sleep(max(0.0, moment_s - time.time()))
