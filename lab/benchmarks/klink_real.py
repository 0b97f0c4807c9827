"""Policies side by side on a real agent's runtime: twenty windowed queries, one recorded input, a CPU budget."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from agent.config import AgentConfig, QueryConfig
from agent.runtime import Runtime, Spool
from engine.dataflow import Pipeline
from engine.jarvis.settings import AdaptationSettings
from engine.klink.settings import POLICIES, ScheduleSettings
from lab.benchmarks.klink_policies import met_words

__all__ = [
    "EPOCH_S",
    "LOADS",
    "QUERIES",
    "AgentFigures",
    "StreamRecording",
    "WindowAgent",
    "real",
    "recordings",
    "watch_agent",
]


QUERIES = 20
BEGIN_US = 1_800_000_000_000_000  #: of recordings; windows of all periods begin then
_LEAD_S = 600.0  # on the clock until they begin, more than it takes to make everything
LOADS = ("mixed", "alike")
_SUB_EPOCHS = 5
_MOVE_S = 1.0
_RATE = 12_000.0  # records/s of a query on average
_PERIODS_S = {"mixed": (2, 5, 10), "alike": (2,)}
_WORK = {"mixed": (0.25, 0.5, 1.0, 2.0, 4.0), "alike": (1.0,)}  # of a query, in records/s over the mean
_BURST, _BURST_S, _BURST_SHARE = 5.0, 3.0, 0.15  # rate over that between bursts, how long, how much of the time
_LATEST_S = 1.0  # after which a watermark is there
_BLOCK = 20_000
_SPOOL_BYTES = 2**30
_MEASURED = ("a", "b", "c", "d")
_COLUMNS = {"ts": "timestamp", "key": "string"} | dict.fromkeys(_MEASURED, "float64")
_COMPUTE = {"n": "count(*)"} | {f"{name}_p99": f"quantile({name}, 0.99)" for name in _MEASURED}

EPOCH_S = 0.5
_BETWEEN_EPOCHS = ("take_up", "watermark", "epoch_over", "epoch_report", "delays")

_BASE = "round-robin"  # that the others are held against
_BUDGETS = {"bursts": 1.25, "saturated": 0.8}  # for operators, of what they take on average when nothing is short
_WARM_S, _RUN_S = 5.0, 20
_QUICK_WARM_S, _QUICK_RUN_S = 1.0, 5
_FULL, _FULL_WARM_S, _FULL_S = 5.0, 1.0, 4  # times the usual records, more than epochs take
_SHARE = 0.005  # of throughput, that scheduling may take


@dataclass(frozen=True)
class StreamRecording:
    """One query's stream: when each record and watermark comes, microseconds from the beginning.

    Records come at their event time; the watermark of each whole second comes up to a second after it.
    """

    query: str
    period_s: int
    records_us: NDArray[np.int64]
    marks_us: NDArray[np.int64]

    def pipeline(self) -> Pipeline:
        """Windows, a filter and four quantiles by key; all operators may run at a source."""
        listed = [
            {"id": "window", "expression": {"op": "window", "size_s": self.period_s}},
            {"id": "sound", "expression": {"op": "filter", "where": "a < 0.9"}},
            {"id": "by-key", "expression": {"op": "aggregate", "by": ["key"], "compute": _COMPUTE}},
        ]
        source = {"id": self.query, "time": "ts", "columns": _COLUMNS}
        return Pipeline.parse({"source": source, "operators": listed})


def recordings(load: str, seconds: int, seed: int, times: float = 1.0) -> list[StreamRecording]:
    """The streams of a load (`LOADS`) with so many times the usual records, the same for the same seed."""
    draw = np.random.default_rng(seed)
    return [_recording(load, number, seconds, times * _RATE, draw) for number in range(QUERIES)]


def _recording(load: str, number: int, seconds: int, rate: float, draw: np.random.Generator) -> StreamRecording:
    periods, work = _PERIODS_S[load], _WORK[load]
    share = work[number % len(work)] * len(work) / sum(work)
    steps = _bursts(seconds * 10, draw) * share * rate / 10
    ends = np.round(np.cumsum(steps)).astype(np.int64)
    counts = np.diff(ends, prepend=0)
    begins = np.repeat(np.arange(len(counts)) * 100_000, counts)
    records_us = np.sort(begins + draw.integers(0, 100_000, len(begins)))
    delays = draw.uniform(0.0, _LATEST_S, seconds + 1)
    marks_us = ((np.arange(seconds + 1) + delays) * 1e6).astype(np.int64)
    return StreamRecording(f"q{number:02}", periods[number % len(periods)], records_us, marks_us)


def _bursts(steps: int, draw: np.random.Generator) -> NDArray[np.float64]:
    """Rates over the mean one, of tenths of a second."""
    between_s = _BURST_S * (1 - _BURST_SHARE) / _BURST_SHARE
    bursting = draw.random() < _BURST_SHARE
    bursts: list[Any] = []
    while len(bursts) < steps:
        length_s = draw.exponential(_BURST_S if bursting else between_s)
        bursts += [_BURST if bursting else 1.0] * max(1, round(10 * length_s))
        bursting = not bursting
    return np.array(bursts[:steps]) / (1 + _BURST_SHARE * (_BURST - 1))


class ReplayedSource:
    """A recording, given out as a live collector would; it takes next to no CPU time."""

    replayable = False
    records_shed = 0

    def __init__(self, recording: StreamRecording, seed: int) -> None:
        self.schema = recording.pipeline().source.schema
        self._recording, self._next, self._now_us = recording, 0, 0
        draw = np.random.default_rng(seed)
        keys = [f"key-{number:02}" for number in draw.integers(0, 50, _BLOCK)]
        self._values = pa.table({"key": keys} | {name: draw.random(_BLOCK) for name in _MEASURED})

    def poll(self, now_us: int, most: int) -> Sequence[pa.RecordBatch]:
        """Records that have come by now."""
        self._now_us = now_us
        due = int(np.searchsorted(self._recording.records_us, now_us - BEGIN_US))
        batches = []
        while self._next < min(due, self._next + most):
            at = self._next % _BLOCK
            count = min(due - self._next, most, _BLOCK - at)
            stamps = pa.array(self._recording.records_us[self._next : self._next + count] + BEGIN_US)
            values = self._values.slice(at, count).combine_chunks()
            columns = {name: values[name].chunk(0) for name in values.column_names}
            columns["ts"] = stamps.cast(self.schema.field("ts").type)
            batches.append(
                pa.RecordBatch.from_arrays([columns[name] for name in self.schema.names], schema=self.schema)
            )
            self._next, most = self._next + count, most - count
        return batches

    def watermark_us(self) -> int:
        """Of the last whole second whose watermark has come, if its records were given."""
        known = int(np.searchsorted(np.maximum.accumulate(self._recording.marks_us), self._now_us - BEGIN_US))
        return BEGIN_US + (known - 1) * 1_000_000 if known else 0

    def position(self) -> Any:
        """None: it is live."""
        return None

    def seek(self, position: Any) -> None:
        """Accept any position: nothing lies before the beginning."""


class OwnClock:
    """The process's CPU time, and what it would have slept: as on a host that does nothing else, and never waits."""

    def __init__(self) -> None:
        self._began_ns, self._slept_ns = time.process_time_ns(), 0

    def sleep(self, seconds: float) -> None:
        """Nothing happens for so long."""
        self._slept_ns += int(seconds * 1e9)

    def wall_us(self) -> int:
        """Microseconds since 1970."""
        return BEGIN_US - int(_LEAD_S * 1e6) + self.monotonic_ns() // 1000

    def monotonic_ns(self) -> int:
        """Nanoseconds since it was made."""
        return time.process_time_ns() - self._began_ns + self._slept_ns

    def process_cpu_ns(self) -> int:
        """CPU time of the process."""
        return time.process_time_ns()

    def thread_cpu_ns(self) -> int:
        """CPU time of the thread that asks."""
        return time.thread_time_ns()


class WindowAgent:
    """A runtime that processes everything it has time for, its spool, and files in place of a console."""

    def __init__(
        self,
        folder: Path,
        found: Sequence[StreamRecording],
        policy: str,
        cores: float,
        epoch_s: float,
        constraint_s: float | None = None,
    ) -> None:
        self._frames = folder / "frames"
        self._kept: dict[str, list[Any]] = {recording.query: [] for recording in found}
        self._frames.mkdir()
        self._clock, self._spool = OwnClock(), Spool(folder / "spool", _SPOOL_BYTES)
        sources = {recording.query: ReplayedSource(recording, number) for number, recording in enumerate(found)}
        queries = tuple(
            QueryConfig(
                query=recording.query,
                version=1,
                plan=recording.pipeline().digest,
                pipeline=recording.pipeline(),
                settings=AdaptationSettings(method="all-src"),
                latency_constraint_s=constraint_s,
            )
            for recording in found
        )
        config = AgentConfig(
            version=1,
            agent="bench",
            cluster="bench",
            sources={},
            queries=queries,
            epoch_s=epoch_s,
            sub_epochs=_SUB_EPOCHS,
            budget_cores=cores,
            schedule=ScheduleSettings(policy=policy),
        )
        self.runtime = Runtime(config, sources, self._spool, self._clock, quota=lambda: 1.0)
        self._moved_s = 0.0
        self._clock.sleep(-self.now_s)

    @property
    def now_s(self) -> float:
        """Since the recordings began."""
        return self._clock.monotonic_ns() / 1e9 - _LEAD_S

    def run_until(self, end_s: float) -> dict[str, list[dict[str, Any]]]:
        """Run epochs up to a moment; returns what the heartbeat would report of each query."""
        while self.now_s < end_s:
            self._clock.sleep(self.runtime.tick())
            if self.now_s - self._moved_s >= _MOVE_S:
                self._move()
        self._move()
        kept, self._kept = self._kept, {query: [] for query in self._kept}
        return kept

    def _move(self) -> None:
        """Move frames on and report, as a sender and heartbeats do."""
        self._moved_s = self.now_s
        for query, rows in self.runtime.unreported().items():
            self._kept[query] += rows
            self.runtime.mark_reported({query: rows[-1]["e"]} if rows else {})
        if frames := list(self._spool.unsent(_SPOOL_BYTES)):
            (self._frames / f"{frames[0][0]}.slf").write_bytes(b"".join(data for _, data in frames))
            self._spool.acknowledged(frames[-1][0])
            self._spool.committed(frames[-1][0])

    def close(self) -> None:
        """Stop, and leave what waits."""
        self._spool.close()


@dataclass(frozen=True)
class AgentFigures:
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


def watch_agent(
    streams: Sequence[StreamRecording], policy: str, cores: float, warm_s: float, until_s: float
) -> AgentFigures:
    """The recordings under a policy with a budget; what came after `warm_s` counts."""
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as name:
        agent = WindowAgent(Path(name), streams, policy, cores, EPOCH_S)
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
    for session in runtime.scheduler._sessions.values():
        _time(session.pipeline, "work", taken)
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


def _seen(
    rows: Mapping[str, Iterable[Mapping[str, Any]]], cpu_s: float, s: float, taken: Mapping[str, int]
) -> AgentFigures:
    every = [row for found in rows.values() for row in found]
    swept = np.array([(sweep[3] - sweep[0], sweep[5] - sweep[0]) for row in every for sweep in row["w"]]) / 1e6
    waiting: dict[int, int] = defaultdict(int)
    for row in every:
        waiting[row["e"]] += row["qb"]
    records, overflow = sum(row["n"] for row in every), sum(row["o"] for row in every)
    used_s = sum(row["u"] for row in every)
    scheduling_s = (sum(taken[name] for name in (*_BETWEEN_EPOCHS, "run")) - taken["work"]) / 1e9
    return AgentFigures(
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


def real(repeats: int, *, quick: bool = False) -> bool:
    """Print the tables of every load and budget, and what scheduling takes; False where that is above its target."""
    print(
        f"\nreal: {QUERIES} windowed queries on one agent's runtime, epochs of {EPOCH_S:g} s, all at the source\n"
        f"  the clock is the process's CPU time and what it would have slept; medians of {repeats}, order rotated"
    )
    for load in LOADS[:1] if quick else LOADS:
        for name in list(_BUDGETS)[:1] if quick else _BUDGETS:
            _compare(load, name, repeats, quick)
    return _overhead(1 if quick else repeats)


def _compare(load: str, name: str, repeats: int, quick: bool) -> None:
    """One load under one budget: each repeat has an input of its own, and every policy runs on it."""
    share = _BUDGETS[name]
    warm_s, run_s = (_QUICK_WARM_S, _QUICK_RUN_S) if quick else (_WARM_S, _RUN_S)
    seen: dict[str, list[AgentFigures]] = {policy: [] for policy in POLICIES}
    budgets = []
    for repeat in range(repeats):
        streams = recordings(load, run_s + 1, seed=repeat + 1)
        budgets.append(_budget(streams, share, warm_s, run_s))
        for policy in _rotated(repeat):
            seen[policy].append(watch_agent(streams, policy, budgets[-1], warm_s, run_s))
    said = ", ".join(f"{budget:.3f}" for budget in budgets)
    print(f"  {load}, {name}: budget of {said} cores, for operators {share:g} of what they take")
    for policy in POLICIES:
        print(f"    {policy:14} {_words(seen[policy], seen[_BASE])}")


def _rotated(repeat: int) -> Sequence[str]:
    at = repeat % len(POLICIES)
    return POLICIES[at:] + POLICIES[:at]


def _budget(streams: Sequence[StreamRecording], share: float, warm_s: float, run_s: float) -> float:
    """Cores that leave operators this share of what they take, beside all that the process takes else."""
    whole = watch_agent(streams, _BASE, 1.0, warm_s, run_s)
    return whole.cores + (share - 1.0) * whole.operators


def _words(seen: Sequence[AgentFigures], base: Sequence[AgentFigures]) -> str:
    """Medians; ratios are those of runs on the same input."""
    mid = {field.name: statistics.median(getattr(run, field.name) for run in seen) for field in fields(AgentFigures)}
    ratios = [
        statistics.median(getattr(a, name) / getattr(b, name) for a, b in zip(seen, base, strict=True))
        for name in ("mean_s", "p99_s")
    ]
    return (
        f"latency mean {mid['mean_s']:.2f} p50 {mid['p50_s']:.2f} p99 {mid['p99_s']:.2f} s "
        f"(x {ratios[0]:.2f}, {ratios[1]:.2f} of {_BASE}; watermarks {mid['arrived_s']:.2f})  "
        f"overflow {100 * mid['overflow']:.1f} %  memory {mid['memory_mean'] / 1e6:.2f}, most "
        f"{mid['memory_peak'] / 1e6:.1f} MB  CPU {mid['cores']:.3f} cores, operators {mid['operators']:.3f}  "
        f"scheduling {100 * mid['scheduling']:.2f} %, picks {100 * mid['picks']:.2f} %"
    )


def _overhead(pairs: int) -> bool:
    """A core that is given as many records as epochs take: records per second, and what scheduling takes."""
    streams = recordings(LOADS[0], _FULL_S + 1, seed=1, times=_FULL)
    seen: dict[str, list[AgentFigures]] = {"klink": [], _BASE: []}
    for pair in range(pairs):
        for policy in sorted(seen, reverse=bool(pair % 2)):
            seen[policy].append(watch_agent(streams, policy, 1.0, _FULL_WARM_S, _FULL_S))
    ratios = [a.processed / b.processed for a, b in zip(seen["klink"], seen[_BASE], strict=True)]

    def middle(policy: str, of: Callable[[AgentFigures], float]) -> float:
        return statistics.median(map(of, seen[policy]))

    shares = {policy: middle(policy, lambda figures: figures.scheduling) for policy in seen}
    rates = {policy: f"{middle(policy, lambda figures: figures.processed):,.0f}" for policy in seen}
    turns = {policy: f"{100 * middle(policy, lambda figures: figures.picks):.2f} %" for policy in seen}
    good = shares["klink"] <= _SHARE
    print(
        f"  one core, as many records as epochs take, {pairs} pairs: klink "
        f"{rates['klink']} records/s, {_BASE} {rates[_BASE]}; "
        f"ratio {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})\n"
        f"  scheduling takes {100 * shares['klink']:.2f} % of the CPU time under klink (turns {turns['klink']}), "
        f"{100 * shares[_BASE]:.2f} % under {_BASE} (turns {turns[_BASE]}): {met_words(good)} {100 * _SHARE:g} %"
    )
    return good
