"""One run of a pattern on a real Flink: what Flink answered while it was calm, and what its events came to."""

from __future__ import annotations

import gzip
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from engine.connectors.flink import next_paths, read_flink
from engine.connectors.flink_polls import poll_paths
from lab.benchmarks.flink.client import ENDED, FlinkClient, FlinkRefusal
from lab.benchmarks.flink.patterns import CALM_S, Pattern

__all__ = ["FlinkRun", "RunFailed", "ask_picture", "ask_poll", "held_job", "record_run"]

_LEAD_S = 15.0  # from the submission to the first event, in which the job has to start
_WARM_S = 5.0  # after the first event: what a starting job is busy with is no work of its events
_POLL_S = 1.0
_START_S = 90.0
_PATIENCE_S = 240.0  # after the last event, until every result is there


class RunFailed(RuntimeError):
    """The job did not start in time, failed, or lost results; the message says which."""


@dataclass
class FlinkRun:
    """A run as a connection and a stopwatch saw it.

    Attributes
    ----------
    arrivals : list of int
        Events of each second from `start_ms` on, of each of its sources.
    picture, polls : answers by path; a list of (time, answers by path)
        Of the calm part alone.
    latencies_s : list of float
        From the scheduled arrival to the result.
    load : float
        Processes that wanted to run on the machine, averaged over the run.
    """

    pattern: str
    seed: int
    job: str
    start_ms: int
    arrivals: list[int]
    picture: dict[str, Any] = field(default_factory=dict)
    polls: list[tuple[float, dict[str, Any]]] = field(default_factory=list)
    latencies_s: list[float] = field(default_factory=list)
    load: float = 0.0

    def write(self, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.pattern}-{self.seed}.json.gz"
        path.write_bytes(gzip.compress(json.dumps(asdict(self)).encode()))
        return path

    @staticmethod
    def read(path: Path) -> FlinkRun:
        return FlinkRun(**json.loads(gzip.decompress(path.read_bytes())))


def record_run(client: FlinkClient, jar: str, pattern: Pattern, seed: int, folder: Path) -> FlinkRun:
    """Run a pattern to its end.

    Raises
    ------
    RunFailed
        The job did not start in time, failed, or lost results.
    """
    arrivals = pattern.arrivals(seed)
    start_ms = int((time.time() + _LEAD_S) * 1000)
    out = folder / f"{pattern.name}-{seed}.csv"
    folder.mkdir(parents=True, exist_ok=True)
    counts = ",".join(map(str, arrivals))
    arguments = {
        "name": f"{pattern.name}-{seed}",
        "out": str(out),
        "start": str(start_ms),
        "arrivals": counts,
        "stages": ";".join(stage.argument(pattern.work) for stage in pattern.stages),
        "pad": str(pattern.pad_bytes),
        "keys": str(pattern.keys),
        "delay": str(pattern.watermark_delay_ms),
        "seed": str(seed),
    }
    if pattern.second:
        arguments["arrivals2"] = counts
    job = client.run(jar, [f"{name}={value}" for name, value in arguments.items()], {})
    try:
        _wait(lambda: client.is_running(job), start_ms / 1000, f"{pattern.name} did not start before its first event")
        recording = FlinkRun(pattern.name, seed, job, start_ms, arrivals, ask_picture(client, job))
        loads = []
        until_s = start_ms / 1000 + CALM_S
        _sleep_until(start_ms / 1000 + _WARM_S)
        while (now := time.time()) < until_s:
            recording.polls.append((now, ask_poll(client, recording.picture, job, now)))
            loads.append(os.getloadavg()[0])
            _sleep_until(now + _POLL_S)
        end_s = start_ms / 1000 + len(arrivals) + _PATIENCE_S
        while client.state(job) not in ENDED:
            if time.time() > end_s:
                raise RunFailed(f"{pattern.name} still runs {_PATIENCE_S:g} s after its last event")
            loads.append(os.getloadavg()[0])
            time.sleep(_POLL_S)
    finally:
        if (state := client.state(job)) not in ENDED:
            client.cancel(job)
    if state != "FINISHED":
        raise RunFailed(f"{pattern.name} ended as {state}: {_exception(client, job)}")
    rows = [line.split(",") for line in out.read_text().splitlines()]
    out.unlink()
    recording.latencies_s = [(int(done) - int(scheduled)) / 1000 for _, scheduled, done in rows]
    recording.load = sum(loads) / len(loads)
    return recording


@contextmanager
def held_job(client: FlinkClient, job: str) -> Iterator[None]:
    """Wait until a job that was submitted runs; it is cancelled at the end.

    Raises
    ------
    RunFailed
        It ended by itself, or did not start in time.
    """
    try:
        until_s = time.time() + _START_S
        while not client.is_running(job):
            if client.state(job) in ENDED:
                raise RunFailed(f"it ended before all of its operators ran: {_exception(client, job)}")
            if time.time() > until_s:
                raise RunFailed(f"it did not start within {_START_S:g} s: are there free slots?")
            time.sleep(0.3)
        yield
    finally:
        until_s = time.time() + _START_S
        if client.state(job) not in ENDED:
            with suppress(FlinkRefusal):  # it may end by itself just now
                client.cancel(job)
        while client.state(job) not in ENDED and time.time() < until_s:
            time.sleep(0.3)


def ask_picture(client: FlinkClient, job: str) -> dict[str, Any]:
    """Every answer that a connection asks for about one job."""
    answers: dict[str, Any] = {}
    while paths := next_paths(answers, jobs=[job]).paths:
        answers |= {path: client.get(path) for path in paths}
    return answers


def ask_poll(client: FlinkClient, picture: dict[str, Any], job: str, now_s: float) -> dict[str, Any]:
    """Every answer of one poll of a job's counters."""
    paths = poll_paths(read_flink(picture, now_s), [job]).paths
    return {path: client.get(path) for path in paths}


def _wait(condition: Callable[[], bool], until_s: float, failure: str) -> None:
    while not condition():
        if time.time() > until_s:
            raise RunFailed(failure)
        time.sleep(0.2)


def _sleep_until(moment_s: float) -> None:
    time.sleep(max(0.0, moment_s - time.time()))


def _exception(client: FlinkClient, job: str) -> str:
    entries = client.get(f"/jobs/{job}/exceptions").get("exceptionHistory", {}).get("entries", [])
    return str(entries[0]["stacktrace"])[:500] if entries else "no reason given"
