"""Simulated runs of policies, several seeds together, and what the tables of the Klink benchmark say of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from engine.klink.simulation import Run, Setting, simulate
from engine.klink.simulation_loads import Load, draw
from engine.klink.simulation_tables import SAMPLE_MS

__all__ = ["COMPARED", "LABELS", "WARM_MS", "Figures", "all_of", "met", "runs", "words"]

#: Those that the paper compares with, Sluice's default last.
COMPARED = (
    "random",
    "round-robin",
    "fcfs",
    "stimulus-time",
    "highest-rate",
    "nearest-deadline",
    "response-ratio",
    "least-slack",
    "klink",
)
LABELS = {
    "random": "Default",
    "round-robin": "RR",
    "fcfs": "FCFS",
    "stimulus-time": "stimulus",
    "highest-rate": "HR",
    "nearest-deadline": "SBox",
    "response-ratio": "response",
    "least-slack": "Klink",
    "klink": "sluice",
    "algorithm-1": "Alg. 1",
    "algorithm-1-repaired": "repaired",
}
WARM_MS = 10_000.0  # before memory is looked at
_DRAIN_S = 120.0  # at most; records of a query whose work is large drain on one core


@dataclass(frozen=True)
class Figures:
    """What came of a policy; times in seconds.

    Every window counts from the start of the run on, and the run goes on without new records until all are swept: so no
    policy looks better for windows that it leaves behind.
    """

    mean_s: float
    p99_s: float
    slowdown: float  #: latency over the CPU time of one event through the chain
    throughput: float  #: events taken in per second, all of which are processed
    taken: float  #: share of the events that was taken in and did not overflow
    memory_mean: float  #: bytes
    memory_peak: float
    busy: float  #: share of the cores, until no more records come
    unswept: int  #: windows that draining did not reach


def runs(load: Load, policy: str, seeds: int, **setting: float) -> list[Run]:
    """One run for each seed."""
    drawn = (draw(dataclasses.replace(load, seed=seed)) for seed in range(1, seeds + 1))
    wanted = Setting(policy=policy, nodes=load.nodes, tick_ms=load.tick_ms, drain_s=_DRAIN_S, **setting)  # type: ignore[arg-type]
    return [simulate(queries, arrivals, wanted) for queries, arrivals in drawn]


def all_of(
    load: Load,
    policies: Iterable[str],
    seeds: int,
    settings: Mapping[str, Mapping[str, float]] | None = None,
    **setting: float,
) -> dict[str, Figures]:
    """Figures of several policies for the same load; `settings` has more of them by policy."""
    own = settings or {}
    return {name: _figures(load, runs(load, name, seeds, **setting, **own.get(name, {}))) for name in policies}


def _figures(load: Load, done: Sequence[Run]) -> Figures:
    latencies = np.concatenate([run.latencies_ms() for run in done])
    queries, _ = draw(dataclasses.replace(load, seed=1))
    cost_ms = float(np.mean([query.cost_ms for query in queries]))
    came = sum(float(run.came.sum()) for run in done)
    lost = sum(float(run.refused.sum() + run.overflow.sum()) for run in done)
    memory = np.concatenate([run.memory_bytes.sum(axis=1)[int(WARM_MS / SAMPLE_MS) :] for run in done])
    return Figures(
        mean_s=float(latencies.mean()) / 1e3,
        p99_s=float(np.quantile(latencies, 0.99)) / 1e3,
        slowdown=float(latencies.mean()) / cost_ms,
        throughput=(came - lost) / (len(done) * load.horizon_s),
        taken=1 - lost / came if came else 1.0,
        memory_mean=float(memory.mean()),
        memory_peak=float(memory.max()),
        busy=float(np.mean([_busy(run) for run in done])),
        unswept=int(sum(np.isnan(swept).sum() for run in done for swept in run.swept_ms)),
    )


def _busy(run: Run) -> float:
    """Share of the cores, from the first sample to the last."""
    used_ms = run.used_ms.sum(axis=1)
    return float((used_ms[-1] - used_ms[0]) / ((len(used_ms) - 1) * SAMPLE_MS * len(run.busy_ms)))


def words(figures: Mapping[str, Figures], say: Callable[[Figures], str] | None = None) -> str:
    """A row of a table: mean / p99 of every policy."""
    say = say or (lambda one: f"{one.mean_s:.2f}/{one.p99_s:.2f}")
    return " ".join(f"{LABELS[name]} {say(one)}" for name, one in figures.items())


def met(true: bool) -> str:
    """As tables say it."""
    return "meets" if true else "MISSES"
