"""One real execution: starts its processes, limits them, and gathers what they measured."""

from __future__ import annotations

import contextlib
import json
import os
import random
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.costream.documents import operator_document
from engine.query_graph.flow import nominal_flow
from engine.query_graph.graph import REFERENCE_CORE_CPS, CostTrace, TraceLabel
from engine.simulation.cohort_tables import CohortWorld, new_tables
from lab.training.execution.limits import CpuGroups, HostLinks

__all__ = ["ExecutionFailed", "ExecutionResult", "execute_trace"]

_ROOT = Path(__file__).resolve().parents[3]
_READY_S, _RESULT_S = 60.0, 20.0
_LEAD_S = 0.7  # between the order to begin and the beginning: connections are made meanwhile


class ExecutionFailed(Exception):
    """A process of the run ended early or never answered, with what it wrote."""


@dataclass(frozen=True)
class ExecutionResult:
    """Measurements of a run.

    Attributes
    ----------
    label
        Costs, in the definitions of the corpus.
    cpu_percent
        CPU that each host's process used, percent of a core.
    throttled
        Per host the number of 100 ms periods in which it was held back by its quota.
    is_kernel_shaped
        Whether the kernel shaped the links, and not the senders themselves.
    stall_s
        Longest time by which a thread that only sleeps woke up late: by more than a quota explains where the machine
        was taken away.
    load
        Mean number of running processes of the machine in the minute before, before it began.
    """

    label: TraceLabel
    cpu_percent: tuple[float, ...]
    throttled: tuple[int, ...]
    is_kernel_shaped: bool
    stall_s: float
    load: float


def execute_trace(
    trace: CostTrace, *, seed: int, world: CohortWorld, groups: CpuGroups, by_kernel: bool = True
) -> ExecutionResult:
    """Run a query as processes, one per host and one for the broker, for `world.duration_s`.

    Parameters
    ----------
    trace
        Query, hosts that are all used, and placement; tuples in topological order.
    seed
        Of the arrivals.
    world
        Length of the run, bounds of queues, bursts and share of the tail; its noise is left to the machine.
    groups
        Where hosts get their quota.
    by_kernel
        Whether the kernel may shape the links.

    Raises
    ------
    ExecutionFailed
        A process failed.
    """
    load = os.getloadavg()[0]
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="sluice-execution-"))
        links = stack.enter_context(HostLinks([host.bandwidth_mbit_s for host in trace.hosts], by_kernel=by_kernel))
        plan = _plan(trace, seed, world, folder, links)
        broker = stack.enter_context(_Child("lab.training.execution.broker", plan))
        hosts = [
            stack.enter_context(_Child("lab.training.execution.host", plan | {"host": h}, links.prefix))
            for h in range(len(trace.hosts))
        ]
        broker.read(_READY_S)
        ports = [host.read(_READY_S)["port"] for host in hosts]
        for h, host in enumerate(hosts):
            groups.add(f"host-{h}", trace.hosts[h].cpu_percent, host.process.pid)
        groups.add("broker", None, broker.process.pid)
        before = [groups.throttled(f"host-{h}") for h in range(len(hosts))]
        order = {"start": time.monotonic() + _LEAD_S, "ports": ports}
        for child in (broker, *hosts):
            child.write(order)
        results = [host.read(world.duration_s + _RESULT_S) for host in hosts]
        arrivals = broker.read(_RESULT_S)
        throttled = tuple(groups.throttled(f"host-{h}") - before[h] for h in range(len(hosts)))
    used = tuple(round(100.0 * result["cpu_s"] / world.duration_s, 1) for result in results)
    stall_s = round(max(result["stall_s"] for result in results), 3)
    label = _label(trace, world, results, arrivals)
    return ExecutionResult(label, used, throttled, links.is_kernel, stall_s, round(load, 2))


def _plan(trace: CostTrace, seed: int, world: CohortWorld, folder: str, links: HostLinks) -> dict[str, Any]:
    """Plan for all processes: operators in topological order, with the simulation's costs without noise."""
    graph = trace.graph
    order = list(graph.order)
    rows = new_tables(graph, trace.hosts, trace.placement, world, random.Random(seed), noise=False).operators
    state = nominal_flow(graph).state_tuples
    place = {i: row for row, i in enumerate(order)}
    fields = ("take", "make", "scan", "evaluate", "wire")
    return {
        "ops": [operator_document(graph.operators[i]) for i in order],
        "succ": [place[graph.readers[i][0]] if graph.readers[i] else -1 for i in order],
        "placement": [trace.placement[i] for i in order],
        "costs": [
            {name: float(row[name]) for name in fields} | {"expected": float(state[i])}
            for row, i in zip(rows, order, strict=True)
        ],
        "rates": {row: graph.operators[i].rate_eps for row, i in enumerate(order) if graph.operators[i].rate_eps},
        "ways": [
            {
                "address": links.address(h),
                "bytes_per_s": host.bandwidth_mbit_s * 1e6 / 8.0,
                "latency_s": host.latency_s,
            }
            for h, host in enumerate(trace.hosts)
        ],
        "is_user_shaped": not links.is_kernel,
        "broker": str(Path(folder, "broker")),
        "core_cps": REFERENCE_CORE_CPS,
        "duration_s": world.duration_s,
        "queue_tuples": int(world.queue_tuples),
        "send_tuples": int(world.send_tuples),
        "burst": world.burst,
        "burst_s": world.burst_s,
        "tail": world.tail,
        "seed": seed,
    }


class _Child:
    """A process that reads its plan, says that it is ready, begins when told, and writes its result, line by line."""

    def __init__(self, module: str, plan: dict[str, Any], prefix: Sequence[str] = ()) -> None:
        threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        self._module, self._plan = module, plan
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self.process = subprocess.Popen(
            [*prefix, sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd=_ROOT,
            env=os.environ | threads,
            start_new_session=True,  # an interrupt is for the command, which ends its processes itself
        )

    def __enter__(self) -> _Child:
        self.write(self._plan)
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        for file in (self.process.stdin, self.process.stdout, self._errors):
            with contextlib.suppress(OSError):
                if file is not None:
                    file.close()

    def write(self, document: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # said by the next read
            self.process.stdin.write(json.dumps(document).encode() + b"\n")
            self.process.stdin.flush()

    def read(self, seconds: float) -> dict[str, Any]:
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], seconds)
        line = self.process.stdout.readline() if ready else b""
        if not line:
            self.process.kill()
            self.process.wait()
            self._errors.seek(0)
            said = self._errors.read()[-2000:].decode(errors="replace").strip() or f"nothing in {seconds:g} s"
            raise ExecutionFailed(f"{self._module} said: {said}")
        document: dict[str, Any] = json.loads(line)
        return document


def _label(
    trace: CostTrace, world: CohortWorld, results: Sequence[dict[str, Any]], arrivals: dict[str, Any]
) -> TraceLabel:
    delivered = sum(result["delivered"] for result in results)
    rate = sum(operator.rate_eps for operator in trace.graph.operators)
    return TraceLabel(
        throughput_eps=delivered / world.duration_s if delivered else None,
        processing_latency_s=sum(result["lp_s"] for result in results) / delivered if delivered else None,
        end_to_end_latency_s=sum(result["le_s"] for result in results) / delivered if delivered else None,
        backlog_eps=max(arrivals["waiting"], 0) / world.duration_s,
        backpressure=arrivals["backlog"] > world.backlog_share * rate * world.duration_s,
        success=delivered > 0,
    )
