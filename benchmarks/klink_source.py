"""A real agent's runtime with twenty windowed queries on recorded streams, on a clock of its own, frames in files."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from agent.runtime import QueryConfig, Runtime, RuntimeConfig, Spool
from engine.dataflow import Pipeline
from engine.jarvis.settings import Settings
from engine.klink.settings import ScheduleSettings

__all__ = ["LOADS", "QUERIES", "Agent", "Recording", "recordings"]

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


@dataclass(frozen=True)
class Recording:
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


def recordings(load: str, seconds: int, seed: int, times: float = 1.0) -> list[Recording]:
    """The streams of a load (`LOADS`) with so many times the usual records, the same for the same seed."""
    draw = np.random.default_rng(seed)
    return [_recording(load, number, seconds, times * _RATE, draw) for number in range(QUERIES)]


def _recording(load: str, number: int, seconds: int, rate: float, draw: np.random.Generator) -> Recording:
    periods, work = _PERIODS_S[load], _WORK[load]
    share = work[number % len(work)] * len(work) / sum(work)
    steps = _bursts(seconds * 10, draw) * share * rate / 10
    ends = np.round(np.cumsum(steps)).astype(np.int64)
    counts = np.diff(ends, prepend=0)
    begins = np.repeat(np.arange(len(counts)) * 100_000, counts)
    records_us = np.sort(begins + draw.integers(0, 100_000, len(begins)))
    delays = draw.uniform(0.0, _LATEST_S, seconds + 1)
    marks_us = ((np.arange(seconds + 1) + delays) * 1e6).astype(np.int64)
    return Recording(f"q{number:02}", periods[number % len(periods)], records_us, marks_us)


def _bursts(steps: int, draw: np.random.Generator) -> NDArray[np.float64]:
    """Rates over the mean one, of tenths of a second."""
    between_s = _BURST_S * (1 - _BURST_SHARE) / _BURST_SHARE
    bursting, found = draw.random() < _BURST_SHARE, []
    while len(found) < steps:
        length_s = draw.exponential(_BURST_S if bursting else between_s)
        found += [_BURST if bursting else 1.0] * max(1, round(10 * length_s))
        bursting = not bursting
    return np.array(found[:steps]) / (1 + _BURST_SHARE * (_BURST - 1))


class Replayed:
    """A recording, given out as a live collector would; it takes next to no CPU time."""

    replayable = False
    records_shed = 0

    def __init__(self, recording: Recording, seed: int) -> None:
        self.schema = recording.pipeline().source.schema
        self._recording, self._next, self._now_us = recording, 0, 0
        draw = np.random.default_rng(seed)
        keys = [f"key-{number:02}" for number in draw.integers(0, 50, _BLOCK)]
        self._values = pa.table({"key": keys} | {name: draw.random(_BLOCK) for name in _MEASURED})

    def poll(self, now_us: int, most: int) -> Sequence[pa.RecordBatch]:
        """Records that have come by now."""
        self._now_us = now_us
        due = int(np.searchsorted(self._recording.records_us, now_us - BEGIN_US))
        given = []
        while self._next < min(due, self._next + most):
            at = self._next % _BLOCK
            count = min(due - self._next, most, _BLOCK - at)
            stamps = pa.array(self._recording.records_us[self._next : self._next + count] + BEGIN_US)
            values = self._values.slice(at, count).combine_chunks()
            columns = {name: values[name].chunk(0) for name in values.column_names}
            columns["ts"] = stamps.cast(self.schema.field("ts").type)
            given.append(pa.RecordBatch.from_arrays([columns[name] for name in self.schema.names], schema=self.schema))
            self._next, most = self._next + count, most - count
        return given

    def watermark_us(self) -> int:
        """Of the last whole second whose watermark has come, if its records were given."""
        known = int(np.searchsorted(np.maximum.accumulate(self._recording.marks_us), self._now_us - BEGIN_US))
        return BEGIN_US + (known - 1) * 1_000_000 if known else 0

    def position(self) -> Any:
        """None: it is live."""
        return None

    def seek(self, position: Any) -> None:
        """There is nothing before the beginning."""


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


class Agent:
    """A runtime that processes everything it has time for, its spool, and files in place of a console."""

    def __init__(self, folder: Path, found: Sequence[Recording], policy: str, cores: float, epoch_s: float) -> None:
        self._frames, self._kept = folder / "frames", {one.query: [] for one in found}
        self._frames.mkdir()
        self._clock, self._spool = OwnClock(), Spool(folder / "spool", _SPOOL_BYTES)
        sources = {one.query: Replayed(one, number) for number, one in enumerate(found)}
        queries = tuple(QueryConfig(one.query, one.pipeline(), settings=Settings(method="all-src")) for one in found)
        config = RuntimeConfig(
            1, "bench", queries, epoch_s=epoch_s, sub_epochs=_SUB_EPOCHS, budget_cores=cores,
            schedule=ScheduleSettings(policy=policy),
        )  # fmt: skip
        self.runtime = Runtime(config, sources, self._spool, self._clock, quota=lambda: 1.0)
        self._moved_s = 0.0
        self._clock.sleep(-self.now_s)

    @property
    def now_s(self) -> float:
        """Since the recordings began."""
        return self._clock.monotonic_ns() / 1e9 - _LEAD_S

    def run_until(self, end_s: float) -> dict[str, list[dict[str, Any]]]:
        """Epochs up to there; what the heartbeat would say of each query's."""
        while self.now_s < end_s:
            self._clock.sleep(self.runtime.tick())
            if self.now_s - self._moved_s >= _MOVE_S:
                self._move()
        self._move()
        kept, self._kept = self._kept, {query: [] for query in self._kept}
        return kept

    def _move(self) -> None:
        """What a sender and heartbeats do."""
        self._moved_s = self.now_s
        for query, rows in self.runtime.unsaid().items():
            self._kept[query] += rows
            self.runtime.said({query: rows[-1]["e"]} if rows else {})
        if frames := list(self._spool.unsent(_SPOOL_BYTES)):
            (self._frames / f"{frames[0][0]}.slf").write_bytes(b"".join(data for _, data in frames))
            self._spool.acknowledged(frames[-1][0])
            self._spool.committed(frames[-1][0])

    def close(self) -> None:
        """Stop, and leave what waits."""
        self._spool.close()
