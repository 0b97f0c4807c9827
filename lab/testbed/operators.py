"""Operators of a deployment as real processes, one on each host of a testbed: what they are sent, what they count.

A deployment whose nodes are the hosts says it all: cycles are seconds of one core, an operator runs on the host of its
first replica, and each of its inputs has a cost and a selectivity of its own. Events are sent by a schedule; an event's
latency counts from its scheduled arrival to its last operator.
"""

from __future__ import annotations

import heapq
import json
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from engine.arrays import FloatArray, nearest_rank
from engine.document.deployment import Batch, Deployment, Input
from engine.document.elements import SAMPLE
from lab.testbed import operator_process
from lab.testbed.operator_process import HEAD, PORT
from lab.testbed.testbed import Testbed

__all__ = ["EVENT_BYTES", "STATISTICS", "OperatorsRun", "run_operators", "slice_counts", "with_learned_statistics"]

EVENT_BYTES = 1000
STATISTICS = ("worst", "q0.99", "mean")
_BATCHES = 8
_DRAIN_S, _QUIET_S, _LEAD_S = 180.0, 0.8, 0.5
_SOON_S = 1e-6  # what rounding may take off a time of the clock

InputName = tuple[str, str]  # an operator, and what it reads


@dataclass(frozen=True, slots=True)
class OperatorsRun:
    """Outcome of one schedule; times count from its beginning, seconds.

    `events` has a row for each event of an input: scheduled time, results, CPU time. `done` has one for each result of
    a sink: scheduled time, latency.
    """

    events: Mapping[InputName, FloatArray]
    done: Mapping[str, FloatArray]

    def latencies(self, operators: Sequence[str]) -> FloatArray:
        """Scheduled times and latencies of what these operators have put out as sinks, shape (n, 2)."""
        rows = [self.done[name] for name in operators if name in self.done]
        return np.concatenate(rows) if rows else np.zeros((0, 2))

    def measured(self, operators: Sequence[str]) -> dict[str, float]:
        """Worst, 0.99-quantile and mean of these latencies; nothing where nothing came out."""
        latency_s = np.sort(self.latencies(operators)[:, 1])
        if not len(latency_s):
            return {}
        figures = float(latency_s[-1]), nearest_rank(latency_s, 0.99), float(latency_s.mean())
        return dict(zip(STATISTICS, figures, strict=True))


def slice_counts(times_s: FloatArray, horizon_s: float, slice_s: float) -> FloatArray:
    """Events of each slice of a horizon, (d,)."""
    slices = round(horizon_s / slice_s)
    return np.bincount((times_s / slice_s).astype(int), minlength=slices)[:slices].astype(float)


def with_learned_statistics(deployment: Deployment, run: OperatorsRun) -> Deployment:
    """The deployment with statistics of a run in place of its own, in batches by which their error is told.

    Raises
    ------
    RuntimeError
        An input has had too few events to learn from.
    """

    def learned(operator: str, entry: Input) -> Input:
        rows = run.events.get((operator, entry.source), np.zeros((0, 3)))
        if len(rows) < 2 * _BATCHES:
            raise RuntimeError(f"{operator} has had {len(rows)} events from {entry.source}: too few to learn from")
        batches = (Batch(len(part), *part[:, 1:].sum(axis=0).tolist()) for part in np.array_split(rows, _BATCHES))
        _, selectivity, cost_s = rows.mean(axis=0).tolist()
        cv2 = float(rows[:, 2].var()) / cost_s**2
        return replace(entry, selectivity=selectivity, cycles_per_event=cost_s, cost_cv2=cv2, batches=tuple(batches))

    operators = tuple(
        replace(operator, inputs=tuple(learned(operator.id, entry) for entry in operator.inputs))
        for operator in deployment.operators
    )
    return replace(deployment, operators=operators, statistics_of=SAMPLE)


def run_operators(
    bed: Testbed, deployment: Deployment, schedules: Sequence[Mapping[str, FloatArray]], *, seed: int
) -> list[OperatorsRun]:
    """Run the operators where they are placed through schedules of arrivals, each once the one before is worked off.

    Raises
    ------
    RuntimeError
        The operators of a host do not start, or do not come to an end with what they were sent.
    """
    inputs = [(operator, entry) for operator in deployment.operators for entry in operator.inputs]
    where = {operator.id: operator.replicas[0].node for operator in deployment.operators}
    readers: dict[str, list[int]] = {}
    for number, (_, entry) in enumerate(inputs):
        readers.setdefault(entry.source, []).append(number)
    plan: dict[str, Any] = {
        "event_bytes": EVENT_BYTES,
        "addresses": {node.id: bed.address(node.id) for node in deployment.nodes},
        "inputs": [
            {
                "cost_s": entry.cycles_per_event,
                "selectivity": entry.selectivity,
                "readers": readers.get(operator.id, []),
                "host": where[operator.id],
            }
            for operator, entry in inputs
        ],
    }
    targets = {
        source.id: [(number, where[inputs[number][0].id]) for number in readers.get(source.id, [])]
        for source in deployment.sources
    }
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        processes = []
        for number, node in enumerate(deployment.nodes):
            path = Path(folder) / f"{node.id}.json"
            path.write_text(json.dumps(plan | {"host": node.id, "seed": seed + number}))
            command = [sys.executable, "-I", operator_process.__file__, str(path), f"{path}.report"]
            process = stack.enter_context(bed.start(node.id, command, stdout=subprocess.PIPE, text=True))
            stack.callback(process.kill)
            processes.append(process)
        for process in processes:
            if process.stdout is None or process.stdout.readline() != "ready\n":
                raise RuntimeError("a host's operators do not start")
        begun_s = []
        for times_s in schedules:
            begun_s.append(_send(bed, targets, times_s))
            _wait_until_quiet(bed)
        for process in processes:
            process.send_signal(signal.SIGTERM)
            process.wait(30)
        reports = [json.loads(Path(f"{folder}/{node.id}.json.report").read_text()) for node in deployment.nodes]
    if waiting := sum(report["waiting"] for report in reports):
        raise RuntimeError(f"{waiting} events wait at the end: the hosts were stopped before they were done")
    names = [(operator.id, entry.source) for operator, entry in inputs]
    return _runs(reports, names, begun_s)


def _runs(
    reports: Sequence[Mapping[str, Any]], names: Sequence[InputName], begun_s: Sequence[float]
) -> list[OperatorsRun]:
    """Counts of all hosts by schedule: the one that begins last before an event's scheduled time."""
    edges = np.array(begun_s) - _SOON_S
    events: list[dict[InputName, FloatArray]] = [{} for _ in begun_s]
    done: list[dict[str, list[FloatArray]]] = [{} for _ in begun_s]
    for report in reports:
        for number, rows in report["events"].items():
            for chunk, part in _by_schedule(rows, edges):
                events[chunk][names[int(number)]] = part
        for number, rows in report["done"].items():
            for chunk, part in _by_schedule(rows, edges):
                done[chunk].setdefault(names[int(number)][0], []).append(part)
    return [
        OperatorsRun(counted, {name: np.concatenate(parts) for name, parts in finished.items()})
        for counted, finished in zip(events, done, strict=True)
    ]


def _by_schedule(rows: Sequence[Sequence[float]], edges: FloatArray) -> Iterator[tuple[int, FloatArray]]:
    table = np.array(rows, dtype=float)
    number = np.searchsorted(edges, table[:, 0], side="right") - 1
    table[:, 0] -= edges[number] + _SOON_S
    return ((int(chunk), table[number == chunk]) for chunk in np.unique(number))


def _send(bed: Testbed, targets: Mapping[str, Sequence[tuple[int, str]]], times_s: Mapping[str, FloatArray]) -> float:
    """Send every event at its time; returns the time on the clock at which the schedule began."""
    hosts = {host for rows in targets.values() for _, host in rows}
    with ExitStack() as stack:
        peers = {}
        for host in hosts:
            peers[host] = stack.enter_context(socket.create_connection((bed.address(host), PORT), 30.0))
            peers[host].setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        begun_s = time.monotonic() + _LEAD_S
        for at_s, name in _merged(times_s):
            stimulus_s = begun_s + at_s
            if (left_s := stimulus_s - time.monotonic()) > 0.0:
                time.sleep(left_s)
            for number, host in targets[name]:
                peers[host].sendall(HEAD.pack(stimulus_s, number).ljust(EVENT_BYTES, b"\0"))
    return begun_s


def _merged(times_s: Mapping[str, FloatArray]) -> Iterator[tuple[float, str]]:
    return heapq.merge(*([(float(at_s), name) for at_s in times] for name, times in times_s.items()))


def _wait_until_quiet(bed: Testbed) -> None:
    """Wait until the hosts compute nothing more: all that came is done."""
    until, used = time.monotonic() + _DRAIN_S, -1.0
    while time.monotonic() < until:
        now = sum(bed.used_s(host.name) for host in bed.hosts)
        if used >= 0.0 and now - used < 0.01:
            return
        used = now
        time.sleep(_QUIET_S)
