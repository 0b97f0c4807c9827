"""What a real agent did under a policy: latency of windows, overflow, memory, CPU time, and what scheduling took."""

from __future__ import annotations

import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from agent.runtime import Runtime
from benchmarks.klink_source import Agent, Recording

__all__ = ["EPOCH_S", "Seen", "watch"]

EPOCH_S = 0.5
_BETWEEN_EPOCHS = ("take_up", "watermark", "epoch_over", "told", "delays")


@dataclass(frozen=True)
class Seen:
    """Times in seconds, shares of 1."""

    windows: int
    mean_s: float  #: from a window's end until its results were handed on
    p50_s: float
    p99_s: float
    arrived_s: float  #: of that, until its watermark came; mean
    overflow: float  #: of the records
    memory_mean: float  #: bytes that wait at epochs' ends
    memory_peak: float
    cores: float  #: CPU time of the process, over time
    operators: float  #: of that, operators
    processed: float  #: records that did not overflow, per second
    scheduling: float  #: of the process's CPU time, what scheduling took but for the operators that it ran
    picks: float  #: of the same, turns alone


def watch(found: Sequence[Recording], policy: str, cores: float, warm_s: float, until_s: float) -> Seen:
    """The recordings under a policy with a budget; what came after `warm_s` counts."""
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as name:
        agent = Agent(Path(name), found, policy, cores, EPOCH_S)
        agent.run_until(warm_s)
        taken = _timed(agent.runtime)
        began_ns, began_s = time.process_time_ns(), agent.now_s
        rows = agent.run_until(until_s)
        cpu_s, lasted_s = (time.process_time_ns() - began_ns) / 1e9, agent.now_s - began_s
        agent.close()
    return _seen(rows, cpu_s, lasted_s, taken)


def _timed(runtime: Runtime) -> dict[str, int]:
    """CPU nanoseconds by method, from now on."""
    taken: dict[str, int] = defaultdict(int)
    for name in (*_BETWEEN_EPOCHS, "run", "_turn"):
        _time(runtime.scheduler, name, taken)
    for seat in runtime.scheduler._seats.values():
        _time(seat.chain, "work", taken)
    return taken


def _time(owner: Any, name: str, taken: dict[str, int]) -> None:
    method: Callable[..., Any] = getattr(owner, name)

    def timed(*given: Any, **named: Any) -> Any:
        before_ns = time.thread_time_ns()
        try:
            return method(*given, **named)
        finally:
            taken[name] += time.thread_time_ns() - before_ns

    setattr(owner, name, timed)


def _seen(rows: Mapping[str, Iterable[Mapping[str, Any]]], cpu_s: float, s: float, taken: Mapping[str, int]) -> Seen:
    every = [row for found in rows.values() for row in found]
    swept = np.array([(one[3] - one[0], one[5] - one[0]) for row in every for one in row["w"]]) / 1e6
    waiting: dict[int, int] = defaultdict(int)
    for row in every:
        waiting[row["e"]] += row["qb"]
    records, overflow = sum(row["n"] for row in every), sum(row["o"] for row in every)
    used_s = sum(row["u"] for row in every)
    scheduling_s = (sum(taken[name] for name in (*_BETWEEN_EPOCHS, "run")) - taken["work"]) / 1e9
    return Seen(
        windows=len(swept),
        mean_s=float(swept[:, 1].mean()),
        p50_s=float(np.percentile(swept[:, 1], 50)),
        p99_s=float(np.percentile(swept[:, 1], 99)),
        arrived_s=float(swept[:, 0].mean()),
        overflow=overflow / records,
        memory_mean=float(np.mean(list(waiting.values()))),
        memory_peak=float(max(waiting.values())),
        cores=cpu_s / s,
        operators=used_s / s,
        processed=(records - overflow) / s,
        scheduling=scheduling_s / cpu_s,
        picks=taken["_turn"] / 1e9 / cpu_s,
    )
