"""Deadline scheduling against its targets: ``./sluice lab deadlines [--parts reducer,agent,...] [--quick]``."""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from agent.config import AgentConfig
from engine.deadlines.grouped_array import GroupedSchedule
from engine.deadlines.subset import Task
from lab.benchmarks.klink_real import BEGIN_US, EPOCH_S, StreamRecording, WindowAgent
from lab.benchmarks.machine import machine
from lab.deadlines.deadline_tree import DeadlineTree
from lab.deadlines.moore_hodgson import moore_hodgson
from lab.deadlines.policies import POLICIES, ReducerTrace
from lab.deadlines.reducer import ReducerLoad, draw_trace, miss_share

__all__ = ["agent", "cost", "main", "reducer", "units"]

_UNIT = 1 / 200  # of deadlines, in constraints
_UNITS = (1.0, 1 / 2, 1 / 5, 1 / 10, 1 / 200)
_SESSIONS_PER_S = 400_000.0  # tuples of the sessionization trace of Fig. 7(d)
_LATE = {"lag_s": 0.85, "lag_deviation_s": 0.1}  # of a constraint of 1 s: mappers are overloaded as well
_WINDOW_S = 0.5
_MIN_SHARE, _MAX_NONE, _MAX_EDF = 0.91, 0.10, 0.60  # with a quarter of the memory; the paper's order of things
_MAX_COST_US = 0.1  # of a tuple


def _rate(bursts: float) -> float:
    """Tuples/s at an input of so many million a second; 1.1 is the normal load."""
    return ReducerLoad.rate_per_s * bursts / 1.1


def reducer(seeds: int, horizon_s: float) -> bool:
    """Share of the tuples on time by policy, as in the paper's Fig. 7; False where a target is missed."""
    print(f"\nreducer: share of the tuples in time; constraint 1 s, {horizon_s:g} s, {seeds} seeds, means; unit L/200")
    base = ReducerLoad(horizon_s=horizon_s)

    def row(name: str, **changes: float) -> dict[str, float]:
        return _row(name, dataclasses.replace(base, **changes), seeds)

    print("  memory of 200 MB of keys, Fig. 7(a)")
    shares = {memory: row(f"{memory} MB", memory_mb=memory) for memory in (200, 150, 100, 50, 25)}
    print("  windows, Fig. 7(b)")
    for memory in (200, 100, 50):
        row(f"{memory} MB", memory_mb=memory, window_s=_WINDOW_S)
    print("  bursts with enough memory, Fig. 7(c); at 2.0M most tuples reach the reducer nearly late")
    for bursts in (1.1, 1.5, 2.0):
        row(f"{bursts}M/s", rate_per_s=_rate(bursts), **(_LATE if bursts == 2 else {}))
    print("  cost of a tuple on disk with 50 MB, Fig. 7(d): distinct deadlines, then tied in steps of 0.1 s")
    tied = {}
    for step_s in (0.0, 0.1):
        for disk_us in (10, 20, 50, 100, 500):
            name = f"{disk_us} us{', tied' * (step_s > 0)}"
            tied[disk_us] = row(name, memory_mb=50, disk_s=disk_us * 1e-6, rate_per_s=_SESSIONS_PER_S, tied_s=step_s)
    quarter = shares[50]
    met = [
        _judged(quarter["cost-aware"] >= _MIN_SHARE, f"a quarter of the memory: cost-aware at least {_MIN_SHARE:.0%}"),
        _judged(
            quarter["none"] <= _MAX_NONE and quarter["batch EDF"] <= _MAX_EDF,
            f"where none has at most {_MAX_NONE:.0%} and batch EDF {_MAX_EDF:.0%}",
        ),
        _judged(
            all(found["cost-aware"] > found["D-over"] + 0.1 for cost_us, found in tied.items() if cost_us > 10),
            "tied deadlines, on disk 20 us and more: ten points above D-over",
        ),
    ]
    return all(met)


def _row(name: str, load: ReducerLoad, seeds: int) -> dict[str, float]:
    """One line: the share in time of every policy."""
    traces = [draw_trace(load, seed) for seed in range(1, seeds + 1)]
    shares = {policy: _share(traces, policy, _UNIT * load.constraint_s) for policy in POLICIES}
    said = "  ".join(f"{policy} {100 * share:5.1f}" for policy, share in shares.items())
    work = statistics.mean(float(trace.cost_s.sum()) for trace in traces) / load.horizon_s
    print(f"    {name:12} load {work:5.2f}, {100 * miss_share(load):4.1f} % on disk:  {said}")
    return shares


def _share(traces: Sequence[ReducerTrace], policy: str, unit_s: float) -> float:
    return statistics.mean(POLICIES[policy](trace, unit_s) / len(trace) for trace in traces)


def _judged(met: bool, target: str) -> bool:
    print(f"  {'meets' if met else 'MISSES'}: {target}")
    return met


def units(seeds: int, horizon_s: float) -> bool:
    """Loss by the unit of deadlines: share in time by unit, with a quarter of the memory and when nearly late."""
    print("\nunits: share in time of the cost-aware policy by unit of deadlines")
    for name, changes in (("50 MB", {"memory_mb": 50.0}), ("2.0M/s", {"rate_per_s": _rate(2.0), **_LATE})):
        load = dataclasses.replace(ReducerLoad(horizon_s=horizon_s), **changes)
        traces = [draw_trace(load, seed) for seed in range(1, seeds + 1)]
        shares = (_share(traces, "cost-aware", unit * load.constraint_s) for unit in _UNITS)
        said = "  ".join(f"L/{1 / unit:g} {100 * share:.1f}" for unit, share in zip(_UNITS, shares, strict=True))
        print(f"    {name:12} {said}")
    return True


def cost(blocks: int, counts: Sequence[int]) -> bool:
    """Microseconds per tuple of a release and its decision, by method, in one run; False where the target is missed."""
    print(f"\ncost: microseconds per tuple, release and decision; 20 releases, CPU time, the least of {blocks} runs")
    grouped_us = {}
    for count in counts:
        costs = {name: [] for name in _METHODS}  # type: dict[str, list[float]]
        for block in range(blocks):
            for name, method in _METHODS.items():
                costs[name].append(_measured_us(method, count, block))
        by_method = {name: min(found) for name, found in costs.items()}
        grouped_us[count] = by_method["grouped array, L/200"]
        said = "  ".join(f"{name} {figure:.3g}" for name, figure in by_method.items())
        ratios = ", ".join(
            f"{name} {by_method[name] / grouped_us[count]:.0f}" for name in _METHODS if name in ("heap", "tree")
        )
        print(f"    {count:6,} tuples a release: {said};  times the grouped array: {ratios}")
    return _judged(grouped_us[5_000] <= _MAX_COST_US, f"5,000 tuples a release: at most {_MAX_COST_US} us per tuple")


_Releases = Iterable[tuple[float, np.ndarray, np.ndarray]]
_COSTS_S = (1e-5, 3e-4)
_RELEASES = 20


def _measured_us(method: Callable[[_Releases], int], count: int, seed: int) -> float:
    """Time of a method for the same tuples; in between, a tenth of a second is worked off."""
    draw = np.random.default_rng(seed)
    releases = [
        (now_s, now_s + draw.uniform(0.1, 1.0, count), (draw.random(count) < 0.09).astype(np.int64))
        for now_s in (0.1 * np.arange(1, _RELEASES + 1)).tolist()
    ]
    return method(releases) / 1e3 / (count * _RELEASES)


def _by_array(unit_s: float) -> Callable[[_Releases], int]:
    def timed_ns(releases: _Releases) -> int:
        schedule, took_ns = GroupedSchedule(unit_s, _COSTS_S), 0
        for now_s, deadlines_s, levels in releases:
            before_ns = time.thread_time_ns()
            schedule.release(deadlines_s, levels)
            schedule.sweep(now_s)
            took_ns += time.thread_time_ns() - before_ns
            schedule.serve(now_s, now_s + 0.1)
        return took_ns

    return timed_ns


def _by_heap(releases: _Releases) -> int:
    kept: list[Task] = []
    took_ns = 0
    for now_s, deadlines_s, levels in releases:
        came = _tasks(deadlines_s, levels)
        before_ns = time.thread_time_ns()
        waiting = kept + [Task(*task) for task in came]
        subset = moore_hodgson(waiting, now_s)
        kept = sorted(waiting[i] for i in subset.kept)
        took_ns += time.thread_time_ns() - before_ns
        kept = _rest(kept, now_s)
    return took_ns


def _by_tree(releases: _Releases) -> int:
    tree, took_ns = DeadlineTree(), 0
    for now_s, deadlines_s, levels in releases:
        came = _tasks(deadlines_s, levels)
        before_ns = time.thread_time_ns()
        tree.release(came, now_s)
        took_ns += time.thread_time_ns() - before_ns
        tree.serve(now_s, now_s + 0.1)
    return took_ns


def _tasks(deadlines_s: np.ndarray, levels: np.ndarray) -> list[tuple[float, float]]:
    return [(due_s, _COSTS_S[level]) for due_s, level in zip(deadlines_s.tolist(), levels.tolist(), strict=True)]


def _rest(kept: Sequence, now_s: float) -> list:
    """Rest of tasks in order after a tenth of a second."""
    ends_s = now_s + np.cumsum([task[1] for task in kept])
    return list(kept[int(np.searchsorted(ends_s, now_s + 0.1)) + 1 :])


_METHODS: dict[str, Callable[[_Releases], int]] = {
    "grouped array, L/200": _by_array(1 / 200),
    "L/20": _by_array(1 / 20),
    "heap": _by_heap,
    "tree": _by_tree,
}

_AGENT_LIMIT_S = 2.0  # from a window's end until it has to leave; its watermark comes within a second
_AGENT_BUDGET = 0.5  # for operators, of what they take
_AGENT_PERIODS_S = (8, 9, 10, 12)  # of the windows of each query
_AGENT_RATE = 2_000.0  # records/s of a query
_AGENT_RECORD_NS = 50_000  # CPU time of a record
_WARM_S = 6.0
_MIN_GAIN = 0.2  # share of the records


def agent(repeats: int, run_s: int) -> bool:
    """Windows of a real agent's runtime under overload that are out in time, with and without the constraint; False
    where it gains too little.
    """
    constraint_s = AgentConfig.stream_delay_s + _AGENT_LIMIT_S
    print(
        f"\nagent: {len(_AGENT_PERIODS_S)} windowed queries on one agent's runtime, {run_s} s, {repeats} repeats; "
        f"operators have {_AGENT_BUDGET:g} of the CPU time that they take\n"
        f"  constraint {constraint_s:g} s, of which the stream processor has {AgentConfig.stream_delay_s:g}; the "
        "clock is the process's CPU time and what it would have slept"
    )
    gains = []
    for seed in range(1, repeats + 1):
        streams = [_stream(period_s, run_s + 1, seed) for period_s in _AGENT_PERIODS_S]
        free = _agent_run(streams, run_s, 1.0, None)
        cores = free.cores - (1 - _AGENT_BUDGET) * free.operators
        without, with_it = (_agent_run(streams, run_s, cores, limit_s) for limit_s in (None, constraint_s))
        for name, run in (("without", without), ("with", with_it)):
            print(
                f"    {name:8} {cores:.3f} cores: in time {100 * run.records_share:5.1f} % of the records in windows, "
                f"{100 * run.windows_share:5.1f} % of {run.windows} windows; sent on unprocessed "
                f"{100 * run.overflow:.0f} %, operators used {run.operators:.3f} cores"
            )
        gains.append(with_it.records_share - without.records_share)
    gain = statistics.median(gains)
    return _judged(gain >= _MIN_GAIN, f"{100 * gain:.0f} points more of the records in time, at least {_MIN_GAIN:.0%}")


@dataclasses.dataclass(frozen=True)
class AgentRun:
    """An agent's run; shares of 1, cores of the process and of its operators."""

    windows: int
    windows_share: float  #: of windows, out in time
    records_share: float  #: of records in windows, those in windows that were out in time
    overflow: float  #: of records
    cores: float
    operators: float


class _DearKernel:
    """An operator that takes so much more CPU time for each record."""

    def __init__(self, kernel: Any, record_ns: int) -> None:
        self._kernel, self._record_ns = kernel, record_ns

    def run(self, table: pa.Table) -> pa.Table:
        until_ns = time.thread_time_ns() + table.num_rows * self._record_ns
        while time.thread_time_ns() < until_ns:
            pass
        return self._kernel.run(table)


def _stream(period_s: int, seconds: int, seed: int) -> StreamRecording:
    """Records of a Poisson process; the watermark of each second comes within a second."""
    draw = np.random.default_rng([seed, period_s])
    records_us = np.sort(draw.integers(0, seconds * 1_000_000, draw.poisson(_AGENT_RATE * seconds)))
    marks_us = (1e6 * (np.arange(seconds + 1) + draw.uniform(0.0, 1.0, seconds + 1))).astype(np.int64)
    return StreamRecording(f"q{period_s:02}", period_s, records_us, marks_us)


def _agent_run(streams: Sequence[StreamRecording], run_s: int, cores: float, constraint_s: float | None) -> AgentRun:
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as folder:
        watched = WindowAgent(Path(folder), streams, "klink", cores, EPOCH_S, constraint_s)
        for pipeline in watched.runtime._registry.pipelines.values():
            pipeline.stages[0].kernel = _DearKernel(pipeline.stages[0].kernel, _AGENT_RECORD_NS)
        watched.run_until(_WARM_S)
        began_ns, began_s = time.process_time_ns(), watched.now_s
        rows = watched.run_until(run_s)
        used_s, lasted_s = (time.process_time_ns() - began_ns) / 1e9, watched.now_s - began_s
        watched.close()
    by_query = {stream.query: stream for stream in streams}
    found = [
        (emitted - deadline <= _AGENT_LIMIT_S * 1e6, _records_of(by_query[query], deadline))
        for query, epochs in rows.items()
        for row in epochs
        for deadline, *_, emitted in row["w"]
    ]
    every = [row for epochs in rows.values() for row in epochs]
    return AgentRun(
        windows=len(found),
        windows_share=statistics.mean(in_time for in_time, _ in found),
        records_share=sum(records for in_time, records in found if in_time) / sum(records for _, records in found),
        overflow=sum(row["o"] for row in every) / sum(row["n"] for row in every),
        cores=used_s / lasted_s,
        operators=sum(row["u"] for row in every) / lasted_s,
    )


def _records_of(stream: StreamRecording, deadline_us: int) -> int:
    """Records of the window that ends then."""
    ends_us = np.array([deadline_us - stream.period_s * 1_000_000, deadline_us]) - BEGIN_US
    first, after = np.searchsorted(stream.records_us, ends_us).tolist()
    return int(after - first)


_PARTS: dict[str, Callable[[bool], bool]] = {
    "reducer": lambda quick: reducer(1, 10.0) if quick else reducer(3, 20.0),
    "units": lambda quick: units(1, 4.0) if quick else units(3, 20.0),
    "agent": lambda quick: agent(1, 18) if quick else agent(3, 32),
    "cost": lambda quick: cost(2, (1_000, 5_000)) if quick else cost(3, (1_000, 5_000, 20_000)),
}


def main(arguments: Sequence[str] = ()) -> int:
    """Run the parts that were asked for; 1 when one misses a target."""
    parser = argparse.ArgumentParser(prog="sluice lab deadlines", description=__doc__)
    parser.add_argument("--parts", default=",".join(_PARTS), help=f"some of {','.join(_PARTS)} (all)")
    parser.add_argument("--quick", action="store_true", help="one seed and short horizons: that everything runs")
    asked = parser.parse_args(list(arguments))
    if unknown := [part for part in asked.parts.split(",") if part not in _PARTS]:
        parser.error(f"--parts has {', '.join(unknown)}; allowed: {', '.join(_PARTS)}")
    print(machine())
    met = [_PARTS[part](asked.quick) for part in asked.parts.split(",")]
    return 0 if all(met) else 1
