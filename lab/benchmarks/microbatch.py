"""Predicted against measured latency of a real Spark query: ``./sluice lab microbatch [--repeats 3] [--seconds 24]``.

The query is Sluice's own stream processor in a process of its own, fed evenly with frames of 1,000 records through
Redis. It is calibrated at one trigger and two rates from its own progress; then every trigger and rate is predicted and
run. The latency of a frame is measured, not derived: from its acceptance by Redis to the end of the batch whose offsets
hold it. Another trigger is set as operators do: the console asks for it, and the query goes on from its checkpoint.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
import tempfile
import time
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import redis

from agent.wire import Frame, broker, decode_frames
from engine.microbatch.model import BatchModel, fit_batches
from engine.microbatch.progress import read_progress
from lab.benchmarks.machine import machine
from lab.benchmarks.telemetry_loop import (
    FRAME_RECORDS,
    START_US,
    ConsoleEndpoint,
    FrameSender,
    processor,
    records,
    server,
)

__all__ = ["main"]

_MAX_ERROR = 0.15
_STATISTICS = ("mean", "q0.95")
_AGENTS = tuple(f"agent-{number}" for number in range(8))
_TRIGGERS_S = (1.0, 2.0, 4.0)
_RATES = (10_000, 40_000)
_CALIBRATION_TRIGGER_S = 2.0
_WARM_UP_S = 60.0  # the Java process compiles for some twenty batches
_PATIENCE_S = 60.0


@dataclass
class SteadyLoad:
    """Frames of all agents, made beforehand and sent one by one at even intervals."""

    folder: Path
    redis_url: str
    moments_ms: dict[str, list[float]] = field(default_factory=dict)  #: when Redis took each agent's frames
    _next_us: int = START_US

    def __post_init__(self) -> None:
        self._senders = [FrameSender(name, self.folder, self.redis_url, processed=0.0) for name in _AGENTS]
        self._redis = redis.Redis.from_url(self.redis_url)

    def send(self, rate: int, seconds: float) -> None:
        """Send at `rate` records/s; each second of records is made while the one before is on its way."""
        began_s, sent_s = time.monotonic(), 0.0
        while sent_s < seconds:
            frames = self._second(rate)
            for number, (frame, body) in enumerate(frames):
                due_s = began_s + sent_s + number / len(frames)
                time.sleep(max(0.0, due_s - time.monotonic()))
                self.moments_ms.setdefault(frame.agent, []).append(time.time() * 1000)
                while broker.accept_frames(self._redis, [(frame, body)], _LIMITS).refused:
                    time.sleep(0.02)
            sent_s += 1.0

    def _second(self, rate: int) -> list[tuple[Frame, memoryview]]:
        """The frames of one second of all agents, in turns."""
        begin_us, self._next_us = self._next_us, self._next_us + 1_000_000
        by_agent = []
        for number, sender in enumerate(self._senders):
            batches = records(rate // len(_AGENTS), begin_us, 1_000_000, seed=number)
            sender.feed.load(batches, begin_us + 1_000_000)
            sender.runtime.run_epoch()
            by_agent.append([pair for _, data in sender.spool.unsent(2**28) for pair in decode_frames(data)])
            sender.spool.acknowledged(sender.spool.last_seq)
            sender.spool.committed(sender.spool.last_seq)
        return [pair for pairs in itertools.zip_longest(*by_agent) for pair in pairs if pair is not None]


_LIMITS = broker.BrokerLimits(total_bytes=512 * 2**20)


def main(arguments: Sequence[str]) -> int:
    """Calibrate, predict, run; 1 when a median error is above 15 %."""
    parser = argparse.ArgumentParser(prog="sluice lab microbatch")
    parser.add_argument("--repeats", type=int, default=3, help="of each setting; errors are of their median (3)")
    parser.add_argument("--seconds", type=float, default=24.0, help="length of a run (24)")
    asked = parser.parse_args(arguments)
    print(machine())
    print(f"the stream processor, {len(_AGENTS)} agents, frames of {FRAME_RECORDS} records, latency of frames")
    with (
        tempfile.TemporaryDirectory(prefix="sluice-bench-") as name,
        server(Path(name)) as redis_url,
        ConsoleEndpoint(_AGENTS).listening() as console,
        processor(Path(name), console, redis_url, _CALIBRATION_TRIGGER_S),
    ):
        load = SteadyLoad(Path(name) / "spools", redis_url)
        model = _calibrated(console, load, asked.seconds)
        found = {
            (rate, trigger_s): [_measured(console, load, rate, trigger_s, asked.seconds) for _ in range(asked.repeats)]
            for rate, trigger_s in itertools.product(_RATES, _TRIGGERS_S)
        }
    return 0 if _report(model, found) else 1


def _calibrated(console: ConsoleEndpoint, load: SteadyLoad, seconds: float) -> BatchModel:
    """The model fitted to both rates at one trigger, after a warm-up."""
    for rate in _RATES:
        load.send(rate, _WARM_UP_S / len(_RATES))
    before = len(console.progress)
    for rate in _RATES:
        load.send(rate, seconds)
    _settle(console)
    batches = read_progress(console.progress[before:]).batches
    model = fit_batches(batches)
    print(
        f"calibrated at a trigger of {_CALIBRATION_TRIGGER_S:g} s from {model.batches} batches of "
        f"{model.least_rows:,.0f} to {model.most_rows:,.0f} records: "
        f"F {model.fixed_s:.3f} s, k {model.per_row_s * 1e6:.2f} us, standard deviation {model.sd_s:.3f} s"
    )
    return model


def _measured(
    console: ConsoleEndpoint, load: SteadyLoad, rate: int, trigger_s: float, seconds: float
) -> dict[str, float]:
    """Mean and quantile of the frames' latencies of a run; the first intervals at a new trigger do not count."""
    console.wanted_trigger_s = trigger_s
    load.send(rate, 4 * trigger_s + 2)
    from_ms = time.time() * 1000
    load.send(rate, seconds)
    until_ms = time.time() * 1000
    _settle(console)
    latencies = _latencies_s(console.progress, load.moments_ms, from_ms, until_ms)
    return {"mean": float(np.mean(latencies)), "q0.95": float(np.quantile(latencies, 0.95))}


def _settle(console: ConsoleEndpoint) -> None:
    """Wait until no batch has been reported for longer than any trigger and report."""
    seen, since_s = -1, time.monotonic()
    until_s = since_s + _PATIENCE_S
    while time.monotonic() < until_s and time.monotonic() - since_s < max(_TRIGGERS_S) + 3:
        if len(console.progress) != seen:
            seen, since_s = len(console.progress), time.monotonic()
        time.sleep(0.2)


def _latencies_s(
    documents: Sequence[Mapping[str, Any]], moments_ms: Mapping[str, Sequence[float]], from_ms: float, until_ms: float
) -> list[float]:
    """Seconds from a frame's acceptance to the end of the batch whose offsets hold it."""
    reached = [_end_offset(document) for document in documents]
    batches = read_progress(documents).batches
    ends_s = [batch.begins_at.timestamp() + batch.duration_s for batch in batches]
    latencies = []
    for agent, moments in moments_ms.items():
        partition = str(broker.partition_of(agent))
        reach_ms = [int(offset[partition].partition("-")[0]) for offset in reached]
        latencies += [
            ends_s[bisect_left(reach_ms, int(moment_ms))] - moment_ms / 1000
            for moment_ms in moments
            if from_ms <= moment_ms < until_ms
        ]
    return latencies


def _end_offset(document: Mapping[str, Any]) -> dict[str, str]:
    offset = document["sources"][0]["endOffset"]
    return json.loads(offset) if isinstance(offset, str) else offset


def _report(model: BatchModel, found: Mapping[tuple[int, float], Sequence[Mapping[str, float]]]) -> bool:
    """Print a line per setting and statistic; whether every median lies within the target."""
    errors = []
    for (rate, trigger_s), runs in found.items():
        for statistic in _STATISTICS:
            predicted = model.latency(rate, trigger_s, statistic)
            measured = [run[statistic] for run in runs]
            median_s = statistics.median(measured)
            runs_text = ", ".join(f"{value:.2f}" for value in measured)
            if predicted is None:
                print(f"  {rate:,} records/s, trigger {trigger_s:g} s: predicted not to keep up ({runs_text})")
                errors.append(math.inf)
                continue
            errors.append(abs(predicted.statistic_s / median_s - 1))
            print(
                f"  {rate:,} records/s, trigger {trigger_s:g} s, {statistic}: predicted {predicted.statistic_s:.2f} s, "
                f"measured {median_s:.2f} s ({runs_text}), off by {errors[-1]:.1%}"
            )
    verdict = "met" if max(errors) <= _MAX_ERROR else "missed"
    print(
        f"largest error {max(errors):.1%} (target {_MAX_ERROR:.0%}: {verdict}), median {statistics.median(errors):.1%}"
    )
    return max(errors) <= _MAX_ERROR
