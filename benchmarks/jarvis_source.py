"""A real agent's runtime on LogAnalytics, listing 3 of the Jarvis paper: lines in real time, frames in files."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from agent.local import LocalFrames
from agent.runtime import QueryConfig, Runtime, RuntimeConfig, Spool
from engine.dataflow import Pipeline
from engine.dataflow.templates import LOGANALYTICS
from engine.jarvis.settings import Settings

__all__ = ["LINES_S", "Agent", "pipeline"]

LINES_S = 20_000
WINDOW_S = 1  # an epoch, so that what an epoch sends is its own
_QUERY = "bench/log-analytics"
_BLOCK = 50_000
_TENANTS = 40
_SPOOL_BYTES = 2**30


def pipeline() -> Pipeline:
    """LogAnalytics; all of its operators may run at a source."""
    return Pipeline.parse(LOGANALYTICS(source="lines", window_s=WINDOW_S).document)


class _Lines:
    """Lines at a constant rate, as a collector gives them; a live source that takes next to no CPU time."""

    replayable = True
    records_shed = 0

    def __init__(self) -> None:
        self.schema = pipeline().source.schema
        draw = np.random.default_rng(1)
        self._lines = pa.array([_line(draw, number) for number in range(_BLOCK)])
        self._begin_us: int | None = None
        self._next = 0

    def poll(self, now_us: int, most: int) -> Sequence[pa.RecordBatch]:
        if self._begin_us is None:
            self._begin_us = now_us
        due = (now_us - self._begin_us) * LINES_S // 1_000_000
        count, at = min(most, due - self._next), self._next % _BLOCK
        given = []
        while count > 0:
            lines = self._lines.slice(at, count)
            numbers = np.arange(self._next, self._next + len(lines))
            stamps = pa.array(self._begin_us + numbers * 1_000_000 // LINES_S).cast(self.schema.field("ts").type)
            columns = {"ts": stamps, "line": lines}
            given.append(pa.RecordBatch.from_arrays([columns[name] for name in self.schema.names], schema=self.schema))
            self._next, count, at = self._next + len(lines), count - len(lines), 0
        return given

    def watermark_us(self) -> int:
        return 0 if self._begin_us is None else self._begin_us + self._next * 1_000_000 // LINES_S

    def position(self) -> Any:
        return None

    def seek(self, position: Any) -> None:
        """There is nothing before the beginning."""


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


class Agent:
    """A runtime with its spool, and a thread that moves frames on into files, as in an agent without a console."""

    def __init__(self, folder: Path, settings: Settings, budget_cores: float) -> None:
        self._settings, self._versions = settings, itertools.count(1)
        self._pipeline = pipeline()
        self._spool = Spool(folder / "spool", _SPOOL_BYTES)
        self._runtime = Runtime(self._config(budget_cores), {"lines": _Lines()}, self._spool)
        self._frames = LocalFrames(self._spool, folder / "frames")
        self._frames.start()

    def _config(self, budget_cores: float) -> RuntimeConfig:
        query = QueryConfig(_QUERY, self._pipeline, settings=self._settings)
        return RuntimeConfig(next(self._versions), "bench", (query,), budget_cores=budget_cores)

    def grant(self, budget_cores: float) -> None:
        """Another budget from the next epoch on."""
        self._runtime.apply(self._config(budget_cores))

    def run(self, epochs: int) -> list[dict[str, Any]]:
        """So many epochs of one second in real time; what the heartbeat would say of each."""
        until_s = time.monotonic() + epochs
        while time.monotonic() < until_s:
            time.sleep(self._runtime.tick())
        rows = self._runtime.unsaid()[_QUERY]
        self._runtime.said({_QUERY: rows[-1]["e"]})
        return rows

    def close(self) -> None:
        self._frames.stop(1.0)
        self._spool.close()
