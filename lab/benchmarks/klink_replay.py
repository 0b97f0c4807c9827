"""Klink against round robin in the product's own replay: from 0.8 to 1.2 of a core, the same input for both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.klink.replay import ReplayQuery, ReplayQuestion, replayed_runs
from engine.klink.settings import ScheduleSettings
from lab.benchmarks.klink_policies import met_words
from lab.benchmarks.klink_real import LOADS, StreamRecording, recordings

__all__ = ["CAPACITIES", "ReplayedLatencies", "compare_policies", "latency_ratios", "question_of", "replays"]

Array = NDArray[np.float64]
CAPACITIES = (0.8, 0.9, 0.95, 1.0, 1.1, 1.2, 1.6)  #: work that comes, of what the core can do
_BASE, _DEFAULT = "round-robin", "klink"
_BIN_MS = 200.0
_TIMES = 0.05  # of the usual records, each as much dearer and larger: fewer to draw, the same work and bytes
_RECORD_BYTES = 50.0
_COSTS = 5.0  # where costs differ: a record of a query takes up to so many times the usual, or as many times less
_WARM_MS = 5_000.0
_WORST = 1.02
_SCHEDULE = ScheduleSettings()


@dataclass(frozen=True)
class ReplayedLatencies:
    """Windows' latencies under one policy, milliseconds, and what happened to records."""

    all_ms: Array
    by_query_ms: dict[str, Array]
    overflow: float  #: share of the records
    memory_bytes: float  #: that wait, on average

    @property
    def figures(self) -> Array:
        """Median, 99th percentile, mean."""
        return np.array([np.median(self.all_ms), np.quantile(self.all_ms, 0.99), self.all_ms.mean()])


def question_of(
    streams: Sequence[StreamRecording],
    capacity: float,
    seconds: int,
    *,
    policies: Iterable[str] = (_BASE, _DEFAULT),
    schedule: ScheduleSettings = _SCHEDULE,
    costs_differ: bool = False,
) -> ReplayQuestion:
    """Recordings as a question to the replay; all queries' work together is this share of the core."""
    edges_us = np.arange(round(seconds * 1e3 / _BIN_MS) + 1) * _BIN_MS * 1e3
    counts = [np.histogram(stream.records_us, edges_us)[0] for stream in streams]
    cost_ms = capacity * seconds * 1e3 / float(sum(count.sum() for count in counts))
    draw = np.random.default_rng(len(streams))
    spread = np.log(_COSTS) if costs_differ else 0.0
    factors = np.exp(draw.uniform(-spread, spread, len(streams)))
    return ReplayQuestion(
        queries=tuple(
            _query(stream, count / factor, cost_ms * factor, seconds)
            for stream, count, factor in zip(streams, counts, factors, strict=True)
        ),
        bin_ms=_BIN_MS,
        policies=tuple(policies),
        schedule=schedule,
    )


def _query(stream: StreamRecording, arrivals: Array, cost_ms: float, seconds: int) -> ReplayQuery:
    ends_s = np.arange(stream.period_s, seconds, stream.period_s)
    return ReplayQuery(
        id=stream.query,
        cost_ms=float(cost_ms),
        arrivals=tuple(arrivals.tolist()),
        period_ms=1e3 * stream.period_s,
        delays_ms=tuple((stream.marks_us[ends_s] / 1e3 - 1e3 * ends_s).tolist()),
        record_bytes=_RECORD_BYTES / _TIMES,
        output_ratio=0.01,
    )


def compare_policies(
    load: str,
    capacity: float,
    seeds: Iterable[int],
    seconds: int,
    *,
    policies: Iterable[str] = (_BASE, _DEFAULT),
    schedule: ScheduleSettings = _SCHEDULE,
    costs_differ: bool = False,
) -> dict[str, ReplayedLatencies]:
    """Latencies of windows under each policy, of all seeds together."""
    runs: dict[str, list[tuple[dict[str, Array], float, float]]] = {}
    for seed in seeds:
        streams = recordings(load, seconds, seed, _TIMES)
        question = question_of(
            streams, capacity, seconds, policies=policies, schedule=schedule, costs_differ=costs_differ
        )
        queries, found = replayed_runs(question)
        for policy, run in found.items():
            latencies = {query.id: run.latencies_ms(_WARM_MS, index) for index, query in enumerate(queries)}
            lost, memory = float(run.overflow.sum() / run.came.sum()), float(run.memory_bytes.mean())
            runs.setdefault(policy, []).append((latencies, lost, memory))
    return {policy: _together(several) for policy, several in runs.items()}


def _together(several: Sequence[tuple[dict[str, Array], float, float]]) -> ReplayedLatencies:
    by_query = {name: np.concatenate([latencies[name] for latencies, _, _ in several]) for name in several[0][0]}
    return ReplayedLatencies(
        all_ms=np.concatenate(list(by_query.values())),
        by_query_ms=by_query,
        overflow=float(np.mean([lost for _, lost, _ in several])),
        memory_bytes=float(np.mean([memory for _, _, memory in several])),
    )


def replays(seeds: int, seconds: int) -> bool:
    """Print ratios to round robin at every load, and whose windows are the latest; False where Klink loses."""
    print(
        f"\nreplay: {seeds} inputs of {seconds} s, windows of all together; one core, epochs of 1 s, default settings\n"
        "  work of the core's: round robin's p50/p99/mean in ms; klink's over these, overflow and memory of both; "
        "queries with most windows above the p99 of both together"
    )
    good = []
    for load in LOADS:
        for costs_differ in (False, True):
            print(f"  {load}{', costs of a record differ' if costs_differ else ''}")
            for capacity in CAPACITIES:
                found = compare_policies(load, capacity, range(1, seeds + 1), seconds, costs_differ=costs_differ)
                ratios = latency_ratios(found)
                good.append(bool(ratios.max() <= _WORST))
                print(f"    {capacity:4.2f}: {_words(found, ratios)}")
    print(f"targets: klink's p50, p99 and mean at most {_WORST:g} times round robin's: {met_words(all(good))}")
    return all(good)


def _words(found: dict[str, ReplayedLatencies], ratios: Array) -> str:
    base, own = found[_BASE], found[_DEFAULT]
    limit_ms = np.quantile(np.concatenate([base.all_ms, own.all_ms]), 0.99)
    latest = "; ".join(f"{name} {_latest_words(seen, limit_ms)}" for name, seen in found.items())
    return (
        f"{'/'.join(f'{figure:,.0f}' for figure in base.figures)}; x {'/'.join(f'{ratio:.2f}' for ratio in ratios)}; "
        f"{100 * base.overflow:.1f} and {100 * own.overflow:.1f} %, {base.memory_bytes / 1e6:.1f} and "
        f"{own.memory_bytes / 1e6:.1f} MB; {latest}"
    )


def _latest_words(seen: ReplayedLatencies, limit_ms: float) -> str:
    """Queries with most windows later than the limit."""
    late = Counter({name: int((latencies > limit_ms).sum()) for name, latencies in seen.by_query_ms.items()})
    return ", ".join(f"{name} {count}" for name, count in late.most_common(3) if count) or "none"


def latency_ratios(by_policy: dict[str, ReplayedLatencies], policy: str = _DEFAULT) -> Array:
    """Median, 99th percentile and mean over round robin's."""
    return by_policy[policy].figures / by_policy[_BASE].figures
