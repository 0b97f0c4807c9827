"""Strategies and adaptation on real agents' runtimes with real CPU budgets, on this machine."""

from __future__ import annotations

import itertools
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from agent.config import AgentConfig, QueryConfig
from agent.runtime import Runtime, Spool
from agent.uplink.sender import LocalFrames
from engine.dataflow import Pipeline
from engine.dataflow.templates import LOGANALYTICS
from engine.jarvis.settings import AdaptationSettings
from lab.jarvis.stepwise import STEPWISE_METHODS

__all__ = ["LINES_S", "LogAgent", "LogLines", "log_pipeline", "real"]


LINES_S = 20_000
WINDOW_S = 1  # an epoch, so that what an epoch sends is its own
_QUERY = "bench/log-analytics"
_BLOCK = 50_000
_TENANTS = 40
_SPOOL_BYTES = 2**30

(_PUBLISHED, *_) = STEPWISE_METHODS
_STRATEGIES = ("all-sp", "filter-src", "best-op", "all-src", _PUBLISHED, "scalar")
_ADAPTING = (_PUBLISHED, "scalar", "best-op")
_SHARES = (0.6, 0.8)  # budgets, of what the process takes that runs everything
_CHANGES = ((0.5, 0.9), (0.9, 0.6))
_WARM, _ADAPTS, _LOOKED_AT = 2, 8, 4  # epochs
_CHANGE_EPOCHS = 12
_OVERFLOW = 0.05  # share of records from which on a query is congested, as DrainedThres
_NEAR = 0.05  # of the input, by which what gets through to an operator may differ from the end's
_SETTLED = 3  # epochs in a row
_TIE = 1.05  # between bytes of strategies


def log_pipeline() -> Pipeline:
    """LogAnalytics; all of its operators may run at a source."""
    return Pipeline.parse(LOGANALYTICS(source="lines", window_s=WINDOW_S).document)


class LogLines:
    """Lines at a constant rate, as a collector gives them; a live source that takes next to no CPU time."""

    replayable = True
    records_shed = 0

    def __init__(self, lines_s: int = LINES_S) -> None:
        self.schema, self._lines_s = log_pipeline().source.schema, lines_s
        draw = np.random.default_rng(1)
        self._lines = pa.array([_line(draw, number) for number in range(_BLOCK)])
        self._begin_us: int | None = None
        self._next = 0

    def poll(self, now_us: int, most: int) -> Sequence[pa.RecordBatch]:
        if self._begin_us is None:
            self._begin_us = now_us
        due = (now_us - self._begin_us) * self._lines_s // 1_000_000
        count, at = min(most, due - self._next), self._next % _BLOCK
        batches = []
        while count > 0:
            lines = self._lines.slice(at, count)
            numbers = np.arange(self._next, self._next + len(lines))
            stamps = pa.array(self._begin_us + numbers * 1_000_000 // self._lines_s).cast(self.schema.field("ts").type)
            columns = {"ts": stamps, "line": lines}
            batches.append(
                pa.RecordBatch.from_arrays([columns[name] for name in self.schema.names], schema=self.schema)
            )
            self._next, count, at = self._next + len(lines), count - len(lines), 0
        return batches

    def watermark_us(self) -> int:
        return 0 if self._begin_us is None else self._begin_us + self._next * 1_000_000 // self._lines_s

    def position(self) -> Any:
        return None

    def seek(self, position: Any) -> None:
        """Accept any position: nothing lies before the beginning."""


def _line(draw: np.random.Generator, number: int) -> str:
    """Some 180 characters, seven of ten with a job's statistics."""
    head = f"2026-03-02 10:00:00,{number % 1000:03d} INFO scheduler.JobTracker [worker-{number % 97}] job_{number:08d}"
    if draw.random() < 0.07:
        return f"{head} heartbeat of container {int(draw.integers(10**9)):09d}, nothing to report; next one in 3000 ms"
    spent_ms, cpu, memory = draw.lognormal(6, 1.2), 100 * draw.beta(2, 3), 100 * draw.beta(3, 3)
    tenant = int(_TENANTS * draw.random() ** 2)
    return (
        f"{head} finished: tenant name=Tenant-{tenant:02d}, job running time={spent_ms:.1f}, "
        f"cpu util={cpu:.1f}, memory util={memory:.1f}, attempts=1"
    )


class LogAgent:
    """A runtime with its spool, and a thread that moves frames on into files, as in an agent without a console."""

    def __init__(self, folder: Path, settings: AdaptationSettings, budget_cores: float) -> None:
        self._settings, self._versions = settings, itertools.count(1)
        self._pipeline = log_pipeline()
        self._spool = Spool(folder / "spool", _SPOOL_BYTES)
        self._runtime = Runtime(self._config(budget_cores), {"lines": LogLines()}, self._spool)
        self._frames = LocalFrames(self._spool, folder / "frames")
        self._frames.start()

    def _config(self, budget_cores: float) -> AgentConfig:
        pipeline, version = self._pipeline, next(self._versions)
        query = QueryConfig(query=_QUERY, version=1, plan=pipeline.digest, pipeline=pipeline, settings=self._settings)
        return AgentConfig(
            version=version, agent="bench", cluster="bench", sources={}, queries=(query,), budget_cores=budget_cores
        )

    def grant(self, budget_cores: float) -> None:
        """Another budget from the next epoch on."""
        self._runtime.apply(self._config(budget_cores))

    def run(self, epochs: int) -> list[dict[str, Any]]:
        """Run epochs of one second in real time; returns what the heartbeat would report of each."""
        until_s = time.monotonic() + epochs
        while time.monotonic() < until_s:
            time.sleep(self._runtime.tick())
        rows = self._runtime.unreported()[_QUERY]
        self._runtime.mark_reported({_QUERY: rows[-1]["e"]})
        return rows

    def close(self) -> None:
        self._frames.stop(1.0)
        self._spool.close()


@dataclass(frozen=True)
class _Seen:
    """Figures of a strategy over some epochs, as shares of 1."""

    sent: float  #: bytes, of those that came
    overflow: float  #: records, of those that came
    used: float  #: CPU time of operators, of what they could have had


def real(repeats: int, *, quick: bool = False) -> bool:
    """Print what strategies send and how a source follows its budget; False where the order is not the simulation's."""
    shares = _SHARES[:1] if quick else _SHARES
    whole = statistics.median(_whole_cores() for _ in range(repeats))
    print(
        f"\nreal agents on this machine: LogAnalytics, {LINES_S:,} lines/s; running everything takes {whole:.3f} cores"
    )
    print(f"  medians of {repeats}: bytes sent of those that came; records that overflowed; CPU used")
    met = [_compare(share, share * whole, repeats, quick) for share in shares]
    for before, after in _CHANGES[: len(shares)]:
        _follow(before, after, whole, repeats)
    return all(met)


def _whole_cores() -> float:
    """CPU that a process takes which runs everything."""
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as name:
        agent = LogAgent(Path(name), AdaptationSettings(method="all-src"), 1.0)
        agent.run(_WARM)
        before_s = time.process_time()
        agent.run(_LOOKED_AT)
        cores = (time.process_time() - before_s) / _LOOKED_AT
        agent.close()
    return cores


def _compare(share: float, cores: float, repeats: int, quick: bool) -> bool:
    """The table of one budget; strategies take turns."""
    figures: dict[str, list[_Seen]] = {strategy: [] for strategy in _STRATEGIES}
    for _ in range(repeats):
        for strategy in _STRATEGIES:
            figures[strategy].append(_watch(strategy, cores, quick))
    print(f"  budget {100 * share:.0f} % of that, {cores:.3f} cores")
    middle = {strategy: _median(seen) for strategy, seen in figures.items()}
    for strategy, seen in middle.items():
        print(
            f"    {strategy:12} sent {100 * seen.sent:5.1f} %   overflow {100 * seen.overflow:5.1f} %   "
            f"CPU used {100 * seen.used:5.1f} %"
        )
    held = {strategy: seen.sent for strategy, seen in middle.items() if seen.overflow <= _OVERFLOW}
    lowest = min(held, key=lambda strategy: held[strategy])
    met = "scalar" in held and held["scalar"] <= _TIE * held[lowest]
    print(f"    least bytes without congestion: {lowest}; scalar {'is' if met else 'is NOT'} within 5 % of that")
    return met


def _watch(strategy: str, cores: float, quick: bool) -> _Seen:
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as name:
        agent = LogAgent(Path(name), AdaptationSettings(method=strategy), cores)
        agent.run(_ADAPTS if strategy in _ADAPTING and not quick else _WARM)
        seen = _seen(agent.run(_LOOKED_AT))
        agent.close()
    return seen


def _seen(rows: Sequence[dict[str, Any]]) -> _Seen:
    records = sum(row["n"] for row in rows)
    return _Seen(
        sent=sum(row["bs"] for row in rows) / sum(row["bi"] for row in rows),
        overflow=sum(row["o"] for row in rows) / records,
        used=sum(row["u"] for row in rows) / max(sum(row["b"] for row in rows), 1e-9),
    )


def _median(seen: Sequence[_Seen]) -> _Seen:
    return _Seen(
        *(statistics.median(getattr(figures, name) for figures in seen) for name in ("sent", "overflow", "used"))
    )


def _follow(before: float, after: float, whole: float, repeats: int) -> None:
    """Epochs, one second each, until load factors fit a budget that has changed."""
    epochs = []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory(prefix="sluice-bench-") as name:
            agent = LogAgent(Path(name), AdaptationSettings(), before * whole)
            agent.run(_ADAPTS)
            agent.grant(after * whole)
            epochs.append(_settling(agent.run(_CHANGE_EPOCHS)))
            agent.close()
    said = ", ".join("never" if epoch is None else str(epoch) for epoch in epochs)
    print(f"  scalar, budget from {100 * before:.0f} to {100 * after:.0f} %: epochs of 1 s until it settled: {said}")


def _settling(rows: Sequence[dict[str, Any]]) -> int | None:
    """Epochs until three in a row run as the last ones do, without congestion."""
    effective = np.cumprod([row["p"] for row in rows], axis=1)
    away = np.abs(effective - np.median(effective[-_LOOKED_AT:], axis=0)).max(axis=1)
    fits = [off <= _NEAR and row["o"] <= _OVERFLOW * row["n"] for off, row in zip(away, rows, strict=True)]
    begins = range(len(fits) - _SETTLED + 1)
    return next((begin for begin in begins if all(fits[begin : begin + _SETTLED])), None)
