"""Agents, their relay and the stream processor on hosts of their own: ``./sluice lab testbed agents``.

LogAnalytics at real agents, with CPU quotas and links. An epoch's latency counts from its end at the source to when the
stream processor has finished its records; all hosts have one clock. Throughput is of records in epochs that were done
within five seconds, as in the paper's figures 10 to 12.

References
----------
Jarvis, section VIII-A (metrics), VIII-B (strategies), VIII-D (epoch latency).
"""

from __future__ import annotations

import json
import math
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.benchmarks.machine import machine
from lab.testbed.agent_process import PORT
from lab.testbed.testbed import Host, Testbed

__all__ = ["STRATEGIES", "AgentsRun", "report", "run_interfering", "run_relay", "run_strategy", "whole_cores"]

STRATEGIES = ("all-sp", "best-op", "all-src", "scalar")
_ROOT = Path(__file__).parents[2]
_STREAM = "stream"  # host of the stream processor
_BOUND_S = 5.0  # by which an epoch has to be done to count
_EPOCH_S = 1.0
_LINES_S = 20_000
_WARM_EPOCHS = 30  # what is sent until costs are known waits before all else on a narrow link
_START_S = 60.0
_FREE = 100.0  # Mbit/s, above what everything takes


@dataclass(frozen=True, slots=True)
class AgentsRun:
    """Epochs of one agent over a run."""

    epochs: int
    median_s: float  #: latency of epochs; infinite where none was done
    worst_s: float
    in_time: float  #: share of the records that came, in epochs done within the bound
    here: float  #: share of the records that the first operator processed at the source
    mbit_s: float  #: frames on the wire
    cores: float  #: CPU of the host, over time


class _Processes:
    """Processes on a testbed's hosts, and what they reported."""

    def __init__(self, bed: Testbed, plans: Mapping[str, tuple[str, Mapping[str, Any]]]) -> None:
        """`plans` by name: the host, and its part."""
        self._bed, self._stack, self._processes = bed, ExitStack(), dict[str, subprocess.Popen[str]]()
        self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="sluice-bench-")))
        for name, (host, plan) in plans.items():
            path = self._folder / f"{name}.json"
            path.write_text(json.dumps({"name": name, "epoch_s": _EPOCH_S, **plan}))
            command = [sys.executable, "-P", "-m", "lab.testbed.agent_process", str(path), f"{path}.report"]
            process = bed.start(
                host, command, stdout=subprocess.PIPE, text=True, cwd=_ROOT, env={"PYTHONPATH": str(_ROOT)}
            )
            self._processes[name] = process
            self._stack.callback(process.kill)
        for name, process in self._processes.items():
            if process.stdout is None or process.stdout.readline() != "ready\n":
                raise RuntimeError(f"{name} does not start")

    def end(self) -> dict[str, Any]:
        """End them in the order in which they were started, the last one first; their reports."""
        for process in reversed(self._processes.values()):
            process.send_signal(signal.SIGTERM)
            process.wait(_START_S)
        reports = {name: json.loads((self._folder / f"{name}.json.report").read_text()) for name in self._processes}
        self._stack.close()
        return reports


def _agent(url: str, method: str, cores: float, lines_s: int) -> dict[str, Any]:
    return {"role": "agent", "url": url, "method": method, "budget_cores": cores, "lines_s": lines_s}


def _url(bed: Testbed, host: str) -> str:
    return f"http://{bed.address(host)}:{PORT}"


def _watch(bed: Testbed, agents: Mapping[str, tuple[str, Mapping[str, Any]]], seconds: float) -> dict[str, AgentsRun]:
    """Agents that send to the stream processor; each host is held to its budget once its agents have started."""
    stream = {"role": "processor", "listen": bed.address(_STREAM), "agents": list(agents)}
    processes = _Processes(bed, {_STREAM: (_STREAM, stream), **agents})
    hosts = {host for host, _ in agents.values()}
    for host in hosts:
        bed.limit(host, cores=sum(plan["budget_cores"] for at, plan in agents.values() if at == host))
    time.sleep(_WARM_EPOCHS * _EPOCH_S)
    before_s, began_us = {host: bed.used_s(host) for host in hosts}, time.time_ns() // 1000
    time.sleep(seconds)
    cores = {host: (bed.used_s(host) - before_s[host]) / seconds for host in hosts}
    ended_us = time.time_ns() // 1000
    time.sleep(_BOUND_S + _EPOCH_S)  # until the last epoch that counts is in time or is not
    found = processes.end()[_STREAM]
    return {name: _summary(name, found, began_us, ended_us, cores[host]) for name, (host, _) in agents.items()}


def _summary(name: str, found: Mapping[str, Any], began_us: int, ended_us: int, cores: float) -> AgentsRun:
    """Of the epochs that began within the time; one whose mark never came is not done."""
    done = {row["epoch_us"]: row for row in found["epochs"] if row["agent"] == name}
    counts = {row["epoch_us"]: row for row in found["counts"] if row["agent"] == name}
    marks = {epoch_us: row for epoch_us, row in done.items() if began_us <= epoch_us < ended_us}
    records = {epoch_us: counts[epoch_us] for epoch_us in marks if epoch_us in counts}
    seconds = (ended_us - began_us) / 1e6
    came = _LINES_S * seconds
    in_time = sum(row["records_in"] for us, row in records.items() if marks[us]["latency_s"] <= _BOUND_S)
    latencies_s = [row["latency_s"] for row in marks.values()]
    return AgentsRun(
        epochs=len(marks),
        median_s=statistics.median(latencies_s) if latencies_s else math.inf,
        worst_s=max(latencies_s, default=math.inf),
        in_time=min(in_time / came, 1.0),
        here=sum(row["records_processed"] for row in records.values()) / max(came, 1.0),
        mbit_s=8e-6 * sum(row["bytes"] for row in marks.values()) / seconds,
        cores=cores,
    )


def whole_cores(seconds: float) -> float:
    """CPU of an agent that runs everything, with a link and cores of its own."""
    return run_strategy("all-src", 1.0, _FREE, seconds).cores


def run_strategy(method: str, cores: float, mbit_s: float, seconds: float) -> AgentsRun:
    """One source with these cores and this link, by a strategy."""
    with Testbed([Host(_STREAM), Host("source", None, mbit_s)]) as bed:
        plan = _agent(_url(bed, _STREAM), method, cores, _LINES_S)
        return _watch(bed, {"agent": ("source", plan)}, seconds)["agent"]


def run_interfering(cores: float, seconds: float) -> tuple[AgentsRun, dict[str, AgentsRun]]:
    """An agent alone on a host with these cores, and two agents that share it, each with half as a budget."""
    alone = run_strategy("scalar", cores / 2, _FREE, seconds)
    with Testbed([Host(_STREAM), Host("source", None, _FREE)]) as bed:
        plan = _agent(_url(bed, _STREAM), "scalar", cores / 2, _LINES_S)
        return alone, _watch(bed, {"agent1": ("source", plan), "agent2": ("source", plan)}, seconds)


def run_relay(cores: float, mbit_s: float, seconds: float) -> tuple[dict[str, float], dict[str, float]]:
    """Two agents that send straight to the stream processor, and through a relay, over one shaped link.

    Returns
    -------
    Straight and through the relay: `median_s` and `worst_s` of windows, from their end to their result, and `mbit_s`
    that the link of the stream processor takes in.
    """
    return _windows(cores, mbit_s, seconds, relayed=False), _windows(cores, mbit_s, seconds, relayed=True)


def _windows(cores: float, mbit_s: float, seconds: float, *, relayed: bool) -> dict[str, float]:
    sources = ("source1", "source2")
    with Testbed([Host(_STREAM, None, mbit_s), Host("relay"), *map(Host, sources)]) as bed:
        target = "relay" if relayed else _STREAM
        plans: dict[str, tuple[str, Mapping[str, Any]]] = {
            _STREAM: (_STREAM, {"role": "processor", "listen": bed.address(_STREAM),
                                "agents": ["relay"] if relayed else list(sources)}),
        }  # fmt: skip
        if relayed:
            relay = {"role": "relay", "listen": bed.address("relay"), "url": _url(bed, _STREAM), "agents": sources}
            plans["relay"] = ("relay", relay)
        plans |= {name: (name, _agent(_url(bed, target), "scalar", cores, _LINES_S)) for name in sources}
        processes = _Processes(bed, plans)
        for name in sources:
            bed.limit(name, cores=cores)
        time.sleep(_WARM_EPOCHS * _EPOCH_S)
        began_us = time.time_ns() // 1000
        time.sleep(seconds)
        ended_us = time.time_ns() // 1000
        time.sleep(_BOUND_S)
        found = processes.end()[_STREAM]
    late_s = [row["latency_s"] for row in found["windows"] if began_us <= row["end_us"] < ended_us]
    sent = sum(row["bytes"] for row in found["epochs"] if began_us <= row["epoch_us"] < ended_us)
    if not late_s:
        raise RuntimeError("no window was closed at the stream processor")
    return {"median_s": statistics.median(late_s), "worst_s": max(late_s), "mbit_s": 8e-6 * sent / seconds}


def report(*, seconds: float, shares: Sequence[float], strategies: Sequence[str] = STRATEGIES) -> int:
    """Run everything and print it; 1 where scalar is behind another strategy in records that are in time."""
    print(machine())
    whole = whole_cores(seconds)
    full = run_strategy("all-sp", 1.0, _FREE, seconds)
    print(
        f"LogAnalytics, {_LINES_S:,} lines/s: running everything takes {whole:.3f} cores, sending everything "
        f"{full.mbit_s:.1f} Mbit/s; runs of {seconds:g} s\n"
        f"an epoch's latency is from its end at the source to its end at the stream processor; in time: within "
        f"{_BOUND_S:g} s"
    )
    behind = False
    for share in shares:
        # as in the paper's figure 16(b): the link is just wide enough for Best-OP
        need = run_strategy("best-op", share * whole, _FREE, seconds).mbit_s
        for words, mbit_s in (("just enough for Best-OP", 1.05 * need), ("20.48 of 49.6 of all", 0.413 * full.mbit_s)):
            print(f"budget {100 * share:.0f} % ({share * whole:.3f} cores), link {mbit_s:.1f} Mbit/s, {words}")
            runs = {method: run_strategy(method, share * whole, mbit_s, seconds) for method in strategies}
            for method, run in runs.items():
                print(f"  {method:10} {_words(run)}")
            behind |= "scalar" in runs and runs["scalar"].in_time < 0.95 * max(run.in_time for run in runs.values())
    _print_neighbours(whole, full.mbit_s, seconds)
    return int(behind)


def _words(run: AgentsRun) -> str:
    if not run.epochs:
        return f"no epoch was done   {run.cores:.3f} cores"
    return (
        f"epoch latency {run.median_s:.2f}, at most {run.worst_s:.2f} s   in time {100 * run.in_time:3.0f} %   "
        f"processed here {100 * run.here:3.0f} %   {run.mbit_s:5.1f} Mbit/s   {run.cores:.3f} cores"
    )


def _print_neighbours(whole: float, full_mbit_s: float, seconds: float) -> None:
    alone, both = run_interfering(1.6 * whole, seconds)
    print(
        f"two agents on one host of {1.6 * whole:.3f} cores, each with half as its budget\n  alone      {_words(alone)}"
    )
    for name, run in both.items():
        print(f"  {name:10} {_words(run)}")
    print(
        f"two agents, a link of {full_mbit_s:.1f} Mbit/s into the stream processor: windows of 1 s, from end to result"
    )
    for words, seen in zip(("straight", "by a relay"), run_relay(whole, full_mbit_s, seconds), strict=True):
        print(f"  {words:10} {seen['median_s']:.2f}, at most {seen['worst_s']:.2f} s   {seen['mbit_s']:.2f} Mbit/s")
