"""Predicted and measured latencies on four unequal hosts: ``./sluice lab testbed mace``.

Two queries of eight operators run as real processes, one on each host, with CPU quotas and links of their own.
Statistics come from one calm run in turn over the hosts; latencies of each load and placement are predicted from them
and the schedule of arrivals, then measured. An event's latency counts from its scheduled arrival to its last operator.
"""

from __future__ import annotations

import heapq
import json
import os
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
from engine.document.deployment import Deployment
from engine.document.elements import SAMPLE
from engine.estimation.flow import flow
from engine.estimation.noise.realisation import realise
from engine.placement.proposal import place
from lab.benchmarks.machine import machine
from lab.benchmarks.workloads import on_off_times
from lab.placement.algorithms import PUBLISHED_ALGORITHMS
from lab.testbed import operator_process
from lab.testbed.operator_process import HEAD, PORT
from lab.testbed.testbed import Host, Testbed

__all__ = ["HOSTS", "LOADS", "OPERATORS", "TestbedOperator", "TestbedRun", "compare", "report"]

HOSTS = (Host("host1", 0.30, 20.0), Host("host2", 0.20, 20.0), Host("host3", 0.15, 5.0), Host("host4", 0.40, 50.0))
LOADS = (0.5, 0.8, 0.95)
STATISTICS = ("worst", "q0.99", "mean")
_UNIT_S, _EVENT_BYTES, _SLICE_S = 0.01, 1000, 0.25
_CALM_LOAD, _CALM_S, _BATCHES = 0.3, 25.0, 8
_DRAIN_S, _QUIET_S = 60.0, 0.8
_PUBLISHED = next(name for name in PUBLISHED_ALGORITHMS if name == "mace-hc")  # which registers it
_ON_OFF_RATIO, _HIGH_PERIOD_S = 3.0, 3.0


@dataclass(frozen=True, slots=True)
class TestbedOperator:
    """An operator: its query, what it reads, its cost over the unit, and results an event."""

    __test__ = False

    name: str
    query: str
    reads: tuple[str, ...]
    cost: float
    selectivity: float = 1.0


OPERATORS = (
    TestbedOperator("parse", "q1", ("s1",), 1.0),
    TestbedOperator("filter", "q1", ("parse",), 1.5, 0.6),
    TestbedOperator("score", "q1", ("filter",), 2.0),
    TestbedOperator("sample", "q1", ("parse",), 1.0, 0.5),
    TestbedOperator("merge", "q1", ("score", "sample"), 1.2),
    TestbedOperator("store", "q1", ("merge",), 0.8),
    TestbedOperator("clean", "q2", ("s2",), 1.0, 0.7),
    TestbedOperator("count", "q2", ("clean",), 1.5),
)
_SHARES = {"s1": 0.6, "s2": 0.4}  # of all arrivals


@dataclass(frozen=True, slots=True)
class TestbedRun:
    """One run: predicted (estimate, low, high) and measured latencies by query and statistic, seconds."""

    load: float
    placement: str
    busiest: float  #: load of the busiest host
    predicted: Mapping[tuple[str, str], tuple[float, float, float]]
    measured: Mapping[tuple[str, str], float]
    machine_load: float  #: of the whole machine, over a minute


def _flows() -> dict[str, float]:
    """Events of each stream per arrival of all sources together."""
    flows = dict(_SHARES)
    for operator in OPERATORS:
        flows[operator.name] = sum(flows[name] for name in operator.reads) * operator.selectivity
    return flows


def _work_s() -> float:
    """CPU seconds that an arrival takes on average."""
    flows = _flows()
    return _UNIT_S * sum(flows[name] * operator.cost for operator in OPERATORS for name in operator.reads)


def _arrivals(load: float, horizon_s: float, seed: int) -> dict[str, FloatArray]:
    rate = load * sum(host.cores or 1.0 for host in HOSTS) / _work_s()
    return {
        name: on_off_times(
            mean_rate_eps=share * rate,
            horizon_s=horizon_s,
            ratio=_ON_OFF_RATIO,
            high_period_s=_HIGH_PERIOD_S,
            seed=seed + number,
        )
        for number, (name, share) in enumerate(_SHARES.items())
    }


def _in_turn() -> dict[str, str]:
    return {operator.name: HOSTS[number % len(HOSTS)].name for number, operator in enumerate(OPERATORS)}


def _document(times_s: Mapping[str, FloatArray], horizon_s: float, inputs: Mapping[str, Any]) -> dict[str, Any]:
    slices = round(horizon_s / _SLICE_S)
    links = [
        # Of an event: through the bucket of the sender's link, then that of the reader's.
        {"from": a.name, "to": b.name, "delay_s": _EVENT_BYTES * 8e-6 * (1 / (a.mbit_s or 1e5) + 1 / (b.mbit_s or 1e5))}
        for a in HOSTS
        for b in HOSTS
        if a is not b
    ]
    turn = _in_turn()
    return {
        "subinterval_s": _SLICE_S,
        "sources": [
            {"id": name, "arrivals": np.bincount((times / _SLICE_S).astype(int), minlength=slices)[:slices]}
            for name, times in times_s.items()
        ],
        "nodes": [{"id": host.name, "capacity_cps": host.cores} for host in HOSTS],
        "links": links,
        "operators": [
            {
                "id": operator.name,
                "query": operator.query,
                "node": turn[operator.name],
                "inputs": [{"from": name, **inputs[operator.name]} for name in operator.reads],
            }
            for operator in OPERATORS
        ],
    }


def _statistics(events: Mapping[str, Sequence[tuple[int, float]]]) -> dict[str, Any]:
    """Statistics of each operator by batches of its events: cycles are seconds of one core."""
    inputs = {}
    for operator in OPERATORS:
        rows = np.array(events.get(operator.name, ()), dtype=float).reshape(-1, 2)
        if len(rows) < 2 * _BATCHES:
            raise RuntimeError(f"{operator.name} has had {len(rows)} events in the calm run: too few to learn from")
        parts = np.array_split(rows, _BATCHES)
        inputs[operator.name] = {
            "selectivity": rows[:, 0].mean(),
            "cycles_per_event": rows[:, 1].mean(),
            "cost_cv2": rows[:, 1].var() / rows[:, 1].mean() ** 2,
            "batches": [
                {"events": len(part), "outputs": part[:, 0].sum(), "cycles": part[:, 1].sum()} for part in parts
            ],
        }
    return inputs


def _run(bed: Testbed, where: Mapping[str, str], times_s: Mapping[str, FloatArray], seed: int) -> dict[str, Any]:
    """Run the operators where they are placed; what all hosts counted, by operator."""
    numbers = {operator.name: number for number, operator in enumerate(OPERATORS)}
    readers = {name: [o.name for o in OPERATORS if name in o.reads] for name in (*_SHARES, *numbers)}
    plan: dict[str, Any] = {
        "event_bytes": _EVENT_BYTES,
        "addresses": {host.name: bed.address(host.name) for host in HOSTS},
        "operators": [
            {
                "cost_s": operator.cost * _UNIT_S,
                "selectivity": operator.selectivity,
                "readers": [numbers[name] for name in readers[operator.name]],
                "host": where[operator.name],
            }
            for operator in OPERATORS
        ],
    }
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        processes = []
        for number, host in enumerate(HOSTS):
            path = Path(folder) / f"{host.name}.json"
            path.write_text(json.dumps(plan | {"host": host.name, "seed": seed + number}))
            command = [sys.executable, "-I", operator_process.__file__, str(path), f"{path}.report"]
            process = stack.enter_context(bed.start(host.name, command, stdout=subprocess.PIPE, text=True))
            stack.callback(process.kill)
            processes.append(process)
        for process in processes:
            if process.stdout is None or process.stdout.readline() != "ready\n":
                raise RuntimeError("a host's operators do not start")
        targets = {name: [(numbers[reader], where[reader]) for reader in readers[name]] for name in _SHARES}
        begun_s = _send(bed, targets, times_s)
        _wait_until_quiet(bed)
        for process in processes:
            process.send_signal(signal.SIGTERM)
            process.wait(30)
        reports = [json.loads(Path(f"{folder}/{host.name}.json.report").read_text()) for host in HOSTS]
    names = list(numbers)
    merged: dict[str, Any] = {"events": {}, "done": {}, "waiting": sum(row["waiting"] for row in reports)}
    for row in reports:
        for kind in ("events", "done"):
            merged[kind] |= {names[int(number)]: rows for number, rows in row[kind].items()}
    merged["begun_s"] = begun_s
    return merged


def _send(bed: Testbed, targets: Mapping[str, Sequence[tuple[int, str]]], times_s: Mapping[str, FloatArray]) -> float:
    """Send every event at its time; returns the time on the clock at which the schedule began."""
    hosts = {host for rows in targets.values() for _, host in rows}
    with ExitStack() as stack:
        peers = {}
        for host in hosts:
            peers[host] = stack.enter_context(socket.create_connection((bed.address(host), PORT), 30.0))
            peers[host].setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        begun_s = time.monotonic() + 0.5
        for at_s, name in _merged(times_s):
            stimulus_s = begun_s + at_s
            if (left_s := stimulus_s - time.monotonic()) > 0.0:
                time.sleep(left_s)
            for number, host in targets[name]:
                peers[host].sendall(HEAD.pack(stimulus_s, number).ljust(_EVENT_BYTES, b"\0"))
    return begun_s


def _merged(times_s: Mapping[str, FloatArray]) -> Iterator[tuple[float, str]]:
    return heapq.merge(*([(float(at_s), name) for at_s in times] for name, times in times_s.items()))


def _wait_until_quiet(bed: Testbed) -> None:
    """Wait until the hosts compute nothing more: all that came is done."""
    until, used = time.monotonic() + _DRAIN_S, -1.0
    while time.monotonic() < until:
        now = sum(bed.used_s(host.name) for host in HOSTS)
        if used >= 0.0 and now - used < 0.01:
            return
        used = now
        time.sleep(_QUIET_S)


def _placements(deployment: Deployment, seed: int) -> dict[str, dict[str, str]]:
    """In turn over the hosts, Mace-HC as published, and the search of the product."""
    found = {"in turn": _in_turn()}
    for name, algorithm in (("Mace-HC", _PUBLISHED), ("search", "search")):
        proposal = place(deployment, algorithm=algorithm, budget_s=2.0, rounds=40, seed=seed)
        found[name] = {operator: replicas[0].node for operator, replicas in proposal.placement.items()}
    return found


def _placed(document: dict[str, Any], where: Mapping[str, str]) -> Deployment:
    rows = [row | {"node": where[row["id"]]} for row in document["operators"]]
    return replace(Deployment.parse(document | {"operators": rows}), statistics_of=SAMPLE)


def _predict(deployment: Deployment) -> dict[tuple[str, str], tuple[float, float, float]]:
    realised = realise(deployment, flow(deployment, by_input=True))
    return {
        (query, name): (row.estimate_s, row.low_s, row.high_s)
        for query, found in realised.items()
        for name, row in found.statistics.items()
        if name in STATISTICS
    }


def _busiest(deployment: Deployment, inputs: Mapping[str, Any], where: Mapping[str, str], horizon_s: float) -> float:
    flows = {source.id: float(source.arrivals.sum()) / horizon_s for source in deployment.sources}
    used = dict.fromkeys((host.name for host in HOSTS), 0.0)
    for operator in OPERATORS:
        events = sum(flows[name] for name in operator.reads)
        flows[operator.name] = events * inputs[operator.name]["selectivity"]
        used[where[operator.name]] += events * inputs[operator.name]["cycles_per_event"]
    return max(used[host.name] / (host.cores or 1.0) for host in HOSTS)


def compare(*, seconds: float, loads: Sequence[float], seed: int) -> Iterator[TestbedRun]:
    """Run every load with every placement, each after its prediction."""
    with Testbed(HOSTS) as bed:
        calm = _run(bed, _in_turn(), _arrivals(_CALM_LOAD, _CALM_S, seed), seed)
        inputs = _statistics(calm["events"])
        for load in loads:
            times_s = _arrivals(load, seconds, seed + round(100 * load))
            document = _document(times_s, seconds, inputs)
            for name, where in _placements(_placed(document, _in_turn()), seed).items():
                deployment = _placed(document, where)
                predicted = _predict(deployment)
                ran = _run(bed, where, times_s, seed + 1000)
                yield TestbedRun(
                    load,
                    name,
                    _busiest(deployment, inputs, where, seconds),
                    predicted,
                    _measured(ran),
                    os.getloadavg()[0],
                )


def _measured(ran: Mapping[str, Any]) -> dict[tuple[str, str], float]:
    measured = {}
    for query in sorted({operator.query for operator in OPERATORS}):
        names = {operator.name for operator in OPERATORS if operator.query == query}
        found = np.sort([row[1] for name in names for row in ran["done"].get(name, ())])
        if len(found):
            measured[query, "worst"] = float(found[-1])
            measured[query, "q0.99"] = nearest_rank(found, 0.99)
            measured[query, "mean"] = float(found.mean())
    return measured


def report(*, seconds: float, loads: Sequence[float], seed: int) -> int:
    """Print the table as it comes; 0 once all is measured."""
    print(f"Machine: {machine()}")
    hosts = ", ".join(f"{host.name} {host.cores:g} cores {host.mbit_s:g} Mbit/s" for host in HOSTS)
    print(f"Hosts: {hosts}. {seconds:g} s a cell, seed {seed}; predicted / measured in seconds.\n")
    columns = ["load", "placement", "busiest host", "query", *STATISTICS, "90 % holds", "load of the machine"]
    print("| " + " | ".join(columns) + " |\n|" + " --- |" * len(columns))
    errors: dict[str, list[float]] = {name: [] for name in STATISTICS}
    held = told = 0
    for cell in compare(seconds=seconds, loads=loads, seed=seed):
        for query in sorted({query for query, _ in cell.measured}):
            shown, holds = [], 0
            for name in STATISTICS:
                (estimate, low, high), measured = cell.predicted[query, name], cell.measured[query, name]
                shown.append(f"{estimate:.2f} / {measured:.2f}")
                errors[name].append(abs(estimate / measured - 1.0))
                holds += low <= measured <= high
            held, told = held + holds, told + len(STATISTICS)
            row = [f"{cell.load:g}", cell.placement, f"{cell.busiest:.2f}", query, *shown]
            row += [f"{holds} of {len(STATISTICS)}", f"{cell.machine_load:.1f}"]
            print("| " + " | ".join(row) + " |", flush=True)
    medians = ", ".join(f"{name} {100 * float(np.median(rows)):.0f} %" for name, rows in errors.items() if rows)
    print(f"\nMedian errors: {medians}; {held} of {told} intervals hold.")
    return 0
