"""Latency second by second on real processes: ``./sluice lab testbed chunks [--hosts 1 4 7 13]``.

Figures 5, 6 and 8 of the Mace paper: queries of 14 operators as in its section VIII, one on one host, three placed at
random on several unequal hosts; On-Off arrivals (100 to 1, periods of 10 s and 30 s on average) that load the busiest
host at 0.75; w is 1 s. A run has three chunks, each begun once the one before is worked off. Costs and selectivities
are those measured in the first chunk; with the arrivals of each chunk they give Mace, its bounds (theorem 3) and the
estimate, which are held against the largest measured latency of every second.
"""

from __future__ import annotations

import csv
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from engine.arrays import FloatArray
from engine.document.deployment import Deployment
from engine.estimation.flow import flow
from engine.estimation.mace import mace
from engine.estimation.noise.realisation import realise
from lab.benchmarks.machine import machine
from lab.benchmarks.workloads import build, event_times
from lab.testbed.operators import STATISTICS, OperatorsRun, run_operators, slice_counts, with_learned_statistics
from lab.testbed.testbed import Host, Testbed

__all__ = ["CORES", "ChunkScore", "chunk_scores", "report"]

#: Of each host, by the number of hosts; all of them together leave room for what sends the events.
CORES = {
    1: (0.6,),
    4: (0.30, 0.20, 0.15, 0.40),
    7: (0.20, 0.10, 0.15, 0.30, 0.08, 0.12, 0.25),
    13: (0.10, 0.15, 0.06, 0.12, 0.08, 0.10, 0.20, 0.08, 0.06, 0.10, 0.12, 0.05, 0.08),
}
CHUNKS = 3
_LOAD = 0.75
_UNIT_S = 8e-4  # CPU time of an event whose cost is 1
_SLICE_S, _SLICES = 0.25, 4  # of the estimate; as many are a subinterval of Mace, w
_WIDTH_S = _SLICE_S * _SLICES
_ALL = "all"
_PAPER = {True: "4 % (figure 6)", False: "3 % (figure 8)"}  # error of the worst case on one node, on several


@dataclass(frozen=True, slots=True)
class ChunkScore:
    """A chunk as it was predicted and measured, seconds; series have a value for every second of the schedule.

    `estimate` and `interval` are of each statistic. Where nothing came out in a second `measured_s` is NaN.
    """

    number: int
    mace_worst_s: float
    estimate: dict[str, float]
    interval: dict[str, tuple[float, float]]
    measured: dict[str, float]
    mace_s: FloatArray
    upper_s: FloatArray
    flow_s: FloatArray
    measured_s: FloatArray

    @property
    def correlation(self) -> float:
        """Of the estimate with what was measured, over the seconds."""
        told = ~np.isnan(self.measured_s)
        return float(np.corrcoef(self.flow_s[told], self.measured_s[told])[0, 1])

    @property
    def relative_errors(self) -> FloatArray:
        """Of the estimate, in each second whose latency is w and more: below it a share says little."""
        told = self.measured_s >= _WIDTH_S  # not where it is NaN
        return np.abs(self.flow_s[told] / self.measured_s[told] - 1.0)

    @property
    def within(self) -> float:
        """Share of seconds in which Mace_p <= measured <= Mace_p + w + epsilon (theorem 3)."""
        told = ~np.isnan(self.measured_s)
        measured_s = self.measured_s[told]
        return float(np.mean((self.mace_s[told] <= measured_s) & (measured_s <= self.upper_s[told])))

    @property
    def held(self) -> int:
        """Statistics whose interval holds."""
        return sum(low <= self.measured[name] <= high for name, (low, high) in self.interval.items())


def _system(hosts: int, horizon_s: float, seed: int) -> tuple[Deployment, float]:
    """Queries on unequal hosts, and each source's events/s that load the busiest one at `_LOAD`."""
    drawn = build(1 if hosts == 1 else 3, hosts, seed, horizon_s).deployment
    document: dict[str, Any] = drawn.to_document()
    for node, cores in zip(document["nodes"], CORES[hosts], strict=True):
        node["capacity_cps"] = cores
    for operator in document["operators"]:
        operator["query"] = _ALL
        for entry in operator["inputs"]:
            entry["cycles_per_event"] *= _UNIT_S
    for source in document["sources"]:
        source["arrivals"] = np.ones(drawn.subintervals)
    deployment = Deployment.parse(document)
    busiest = (mace(deployment).load.mean(axis=1) / deployment.capacities[0]).max()
    return deployment, _LOAD / float(busiest)


def chunk_scores(hosts: int, *, seconds: float, seed: int) -> Iterator[ChunkScore]:
    """Run three chunks of so many seconds on so many hosts, and score each by statistics of the first."""
    deployment, rate = _system(hosts, seconds, seed)
    names = [source.id for source in deployment.sources]
    schedules = [
        {
            name: event_times(seed * 100 + chunk * len(names) + number, rate * seconds, seconds)
            for number, name in enumerate(names)
        }
        for chunk in range(CHUNKS)
    ]
    with Testbed([Host(node.id, node.capacity_cps) for node in deployment.nodes]) as bed:
        runs = run_operators(bed, deployment, schedules, seed=seed)
    learned = with_learned_statistics(deployment, runs[0])
    for number, (times_s, run) in enumerate(zip(schedules, runs, strict=True)):
        arrivals = {name: slice_counts(times, seconds, _SLICE_S) for name, times in times_s.items()}
        yield _score(number + 1, learned.with_arrivals(arrivals), run)


def _score(number: int, deployment: Deployment, run: OperatorsRun) -> ChunkScore:
    found = mace(deployment.coarsened(_SLICES))
    flowed = flow(deployment, by_input=True)
    realised = realise(deployment, flowed)[_ALL].statistics
    sinks = [operator.id for operator in deployment.operators]
    seconds = len(found.total_s)
    measured_s = np.full(seconds, np.nan)
    rows = run.latencies(sinks)
    np.fmax.at(measured_s, np.minimum((rows[:, 0] / _WIDTH_S).astype(int), seconds - 1), rows[:, 1])
    return ChunkScore(
        number=number,
        mace_worst_s=found.worst,
        estimate={name: realised[name].estimate_s for name in STATISTICS},
        interval={name: (realised[name].low_s, realised[name].high_s) for name in STATISTICS},
        measured=run.measured(sinks),
        mace_s=found.total_s,
        upper_s=found.upper_s,
        flow_s=flowed.by_query[_ALL].reshape(seconds, -1).max(axis=1),
        measured_s=measured_s,
    )


def report(*, hosts: Sequence[int], seconds: float, seed: int, folder: Path | None) -> int:
    """Print the table as it comes, and the series by second into `folder`; 0 once all is measured."""
    print(f"Machine: {machine()}")
    print(
        f"{CHUNKS} chunks of {seconds:g} s, busiest host loaded at {_LOAD:g}, statistics of chunk 1; "
        f"estimate / measured in seconds; seed {seed}.\n"
    )
    columns = ["hosts", "chunk", "Mace_WC", *STATISTICS, "90 % holds", "correlation", "error by second"]
    columns += ["in theorem 3's bounds", "load of the machine"]
    print("| " + " | ".join(columns) + " |\n|" + " --- |" * len(columns))
    summary, lines = [], []
    for count in hosts:
        began_s, errors = time.monotonic(), []
        for score in chunk_scores(count, seconds=seconds, seed=seed):
            figures = [f"{score.estimate[name]:.2f} / {score.measured[name]:.2f}" for name in STATISTICS]
            shares = score.relative_errors
            by_second = f"{np.median(shares):.1%}, of 90 % {np.quantile(shares, 0.9):.1%}" if len(shares) else "-"
            row = [f"{count}", f"{score.number}", f"{score.mace_worst_s:.2f}", *figures]
            row += [f"{score.held} of {len(STATISTICS)}", f"{score.correlation:.3f}", by_second]
            row += [f"{score.within:.0%}", f"{os.getloadavg()[0]:.1f}"]
            print("| " + " | ".join(row) + " |", flush=True)
            if score.number > 1:  # what statistics were learned on is no prediction
                worst_s = score.measured["worst"]
                errors.append((score.mace_worst_s / worst_s - 1.0, score.estimate["worst"] / worst_s - 1.0))
            series = zip(score.mace_s, score.upper_s, score.flow_s, score.measured_s, strict=True)
            lines += [[count, score.number, second, *values] for second, values in enumerate(series)]
        by_mace, by_estimate = (", ".join(f"{error:+.1%}" for error in column) for column in zip(*errors, strict=True))
        summary.append(
            f"{count} {'host' if count == 1 else 'hosts'}: worst case of chunks 2 and 3 off by {by_mace} (Mace_WC), "
            f"{by_estimate} (estimate); the paper: within {_PAPER[count == 1]}. {time.monotonic() - began_s:.0f} s"
        )
    print("\n" + "\n".join(summary))
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "chunks.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["hosts", "chunk", "second", "mace_s", "upper_s", "estimate_s", "measured_s"])
            writer.writerows(lines)
    return 0
