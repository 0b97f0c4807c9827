"""One query on a real Flink: what a connection is told while its load is light, then more load until it is saturated.

Rates of the datagen connector are those of the statement, so that every load is a job of its own, started anew.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from engine.connectors.flink import read_flink
from engine.connectors.flink_polls import poll_flink
from engine.connectors.thread_stacks import dump_paths, look_pause_s, source_dump
from lab.benchmarks.flink.client import ENDED, FlinkClient
from lab.benchmarks.flink.runs import RunFailed, ask_picture, ask_poll, held_job
from lab.benchmarks.nexmark.events import EventFeed
from lab.benchmarks.nexmark.queries import NexmarkQuery
from lab.benchmarks.nexmark.scripts import query_script
from launcher.engines.sql import submit_sql

__all__ = [
    "LOADS",
    "FlinkAddress",
    "KeptRuns",
    "LoadPhase",
    "QueryRun",
    "Timing",
    "run_query",
    "second_begins",
    "slope",
]

#: Multiples of the light load at which latencies are measured.
LOADS = (1, 2, 5, 8)
#: Loads under which what a connection is told is kept: the light one, and a second one that tells how costs fall.
_WATCHED = LOADS[:2]
#: Saturation is measured at this multiple.
_SATURATING = 40
_POLL_S = 1.3  # no part of a second, in which datagen has a beat
_ROWS_OUT = re.compile(r"Source__(\w+)_feed(?:\[\d+\])?\.numRecordsOut")


@dataclass(frozen=True, slots=True)
class FlinkAddress:
    """Where the Flink is that runs the queries, and what it needs for them on this machine."""

    client: FlinkClient
    rest_port: int
    gateway_port: int
    jar: Path
    folder: Path  #: for files of latencies

    def submit(self, script: str) -> str:
        """Start the one job of a script; its id.

        Raises
        ------
        launcher.engines.sql.SqlFailed
            Flink refused a statement.
        """
        (job,) = submit_sql(script, rest_port=self.rest_port, gateway_port=self.gateway_port)
        return job


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of a query's phases."""

    calm_s: float
    load_s: float
    warm_s: float

    @staticmethod
    def within(budget_s: float) -> Timing:
        """Phases that fit a budget for one query: two that are watched, two more loads, and two saturations.

        Starting and stopping a job takes some 8 s of each.
        """
        left_s = max(60.0, budget_s - 6 * 8.0)
        warm_s = min(20.0, left_s / 20)
        load_s = max(10.0, (left_s - 6 * warm_s) / 14)
        return Timing(calm_s=5 * load_s, load_s=load_s, warm_s=warm_s)


@dataclass
class LoadPhase:
    """A query under one load.

    Attributes
    ----------
    times, asked_per_s : int
        Multiple of the light load, and rows per second that the source of its main stream was told to put out: bids
        where it reads them, else auctions.
    rate_per_s : float
        Rows per second that it did put out.
    latencies_s : list of float
        Of rows of the result: quantiles of what was measured, from 0 (least) to 1 (largest) in steps of 1 %.
    rows : int
        Of the result.
    load : float
        Processes that wanted to run on the machine, averaged.
    looks : list of (int, answers by path)
        Threads of the sources at random moments, each with the poll before it.
    """

    times: int
    parallelism: int
    asked_per_s: int
    rate_per_s: float
    latencies_s: list[float]
    rows: int
    mean_s: float | None
    load: float
    picture: dict[str, Any] = field(default_factory=dict)
    polls: list[tuple[float, dict[str, Any]]] = field(default_factory=list)
    looks: list[tuple[int, dict[str, Any]]] = field(default_factory=list)


@dataclass
class QueryRun:
    """All phases of a query so far, by name; `failure` says why one of them is missing."""

    query: str
    work: str
    bids: int
    phases: dict[str, LoadPhase] = field(default_factory=dict)
    failure: str = ""

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        partial.write_bytes(gzip.compress(json.dumps(asdict(self)).encode()))
        partial.replace(path)

    @staticmethod
    def read(path: Path) -> QueryRun:
        fields = json.loads(gzip.decompress(path.read_bytes()))
        phases = {name: LoadPhase(**phase) for name, phase in fields.pop("phases").items()}
        return QueryRun(**fields, phases=phases)


@dataclass(frozen=True, slots=True)
class KeptRuns:
    """Runs of one kind of work in a folder, a file each; nothing is kept without a folder."""

    folder: Path | None
    work: str

    def find(self, query: str) -> QueryRun | None:
        path = self._path(query)
        return QueryRun.read(path) if path is not None and path.exists() else None

    def keep(self, run: QueryRun) -> None:
        if (path := self._path(run.query)) is not None:
            run.write(path)

    def _path(self, query: str) -> Path | None:
        return None if self.folder is None else self.folder / f"{query}-{self.work}.json.gz"


def run_query(flink: FlinkAddress, query: NexmarkQuery, run: QueryRun, timing: Timing) -> Iterator[str]:
    """Run the phases that a run lacks; the name of each once the run has it.

    Raises
    ------
    launcher.engines.sql.SqlFailed, RunFailed, lab.benchmarks.flink.client.FlinkRefusal
        Flink refused the query, or it ended by itself.
    """
    for times in LOADS:
        name = f"load {times}"
        if name not in run.phases:
            run.phases[name] = _phase(flink, query, run, timing, times=times)
            yield name
    for parallelism in (1, 2):
        name = f"saturated {parallelism}"
        if name not in run.phases:
            times = _SATURATING * parallelism
            run.phases[name] = _phase(flink, query, run, timing, times=times, parallelism=parallelism)
            yield name


def _phase(
    flink: FlinkAddress, query: NexmarkQuery, run: QueryRun, timing: Timing, *, times: int, parallelism: int = 1
) -> LoadPhase:
    is_watched = times in _WATCHED
    folder = flink.folder / f"{query.name}-{times}-{time.time_ns()}"
    folder.mkdir(parents=True)
    feed = EventFeed(
        bids=run.bids * times,
        work=run.work,
        work_us=query.feed_us,
        column=query.column,
        people=query.people,
        auctions=query.auctions,
    )
    script = query_script(query, feed, jar=flink.jar, latencies=folder, parallelism=parallelism)
    job = flink.submit(script)
    with held_job(flink.client, job):
        time.sleep(timing.warm_s)
        picture = ask_picture(flink.client, job) if is_watched else {}
        stream, names = _row_counters(flink.client, job)
        began_s = time.time()
        loads, polls, looks, counted = [os.getloadavg()[0]], [], [], []
        end_s = began_s + (timing.calm_s if is_watched else timing.load_s)
        while (now := time.time()) < end_s:
            if flink.client.state(job) in ENDED:
                raise RunFailed(f"it ended by itself at {times} times the load")
            if is_watched:
                polls.append((now, ask_poll(flink.client, picture, job, now)))
            counted.append((now, _rows(flink.client, job, names)))
            loads.append(os.getloadavg()[0])
            if is_watched:
                looks += [(len(polls) - 1, look) for look in _looks(flink.client, picture, job, polls[-1][1], now)]
            time.sleep(max(0.0, now + _POLL_S - time.time()))
        if is_watched:  # plans and statistics of state are newer then
            picture = ask_picture(flink.client, job)
    latencies = _latencies(folder, query, began_s, end_s)
    return LoadPhase(
        times=times,
        parallelism=parallelism,
        asked_per_s=feed.rate(stream),
        rate_per_s=slope(counted),
        latencies_s=[float(value) for value in np.quantile(latencies, np.linspace(0, 1, 101))]
        if len(latencies)
        else [],
        rows=len(latencies),
        mean_s=float(latencies.mean()) if len(latencies) else None,
        load=sum(loads) / len(loads),
        picture=picture,
        polls=polls,
        looks=looks,
    )


def _looks(
    client: FlinkClient, picture: dict[str, Any], job: str, poll: dict[str, Any], now_s: float
) -> Iterator[dict[str, Any]]:
    """Looks at the threads of sources that tell no busy time, at random moments until the next poll."""
    (shown,) = (shown for shown in read_flink(picture, now_s).jobs if shown.id == job)
    paths = dump_paths(shown, poll_flink(poll, job, now_s).untold).paths
    pause_s = look_pause_s(0.0)
    while paths:
        time.sleep(random.uniform(0.0, 2.0 * pause_s))
        began_s = time.time()
        if began_s >= now_s + _POLL_S:
            return
        yield {path: source_dump(client.get(path)) for path in paths}
        pause_s = look_pause_s(time.time() - began_s)


def slope(counted: Sequence[tuple[float, float]]) -> float:
    """Rows per second: the slope of the straight line that fits their counts best, in which rows come by the second."""
    times, counts = np.array(counted).T
    times, counts = times - times.mean(), counts - counts.mean()
    return float(times @ counts / (times @ times))


def _row_counters(client: FlinkClient, job: str) -> tuple[str, dict[str, list[str]]]:
    """The main stream of a job, and the names of the counters of rows that its sources put out, by path.

    The job's own answer counts what leaves a chain; this one what enters it.
    """
    found: dict[str, dict[str, list[str]]] = {}
    for vertex in client.get(f"/jobs/{job}")["vertices"]:
        path = f"/jobs/{job}/vertices/{vertex['id']}/subtasks/metrics"
        for metric in client.get(path):
            if match := _ROWS_OUT.fullmatch(metric["id"]):
                found.setdefault(match[1], {}).setdefault(path, []).append(metric["id"])
    for stream in ("bid", "auction", "person"):
        if stream in found:
            return stream, found[stream]
    raise RunFailed("no source tells how many rows it put out")


def _rows(client: FlinkClient, job: str, names: dict[str, list[str]]) -> float:
    """Rows so far, by the largest counter where the stream is read twice."""
    sums = [
        float(metric["sum"])
        for path, metrics in names.items()
        for metric in client.get(f"{path}?get={','.join(metrics)}&agg=sum")
    ]
    return max(sums, default=0.0)


def second_begins(moments_ms: np.ndarray) -> int:
    """When in a second datagen begins with the rows of the next one, in ms: at the end of the longest gap."""
    phases = np.unique(moments_ms % 1000)
    return int(phases[np.argmax(np.diff(phases, prepend=phases[-1] - 1000))])


def _latencies(folder: Path, query: NexmarkQuery, began_s: float, ended_s: float) -> np.ndarray:
    """Seconds of each row that came in the stretch, from its moment to the sink.

    datagen puts the rows of a second out at its beginning, so that an event's arrival is when its second began: rows
    that waited in the source, too, are late since then.
    """
    files = [np.fromfile(path, dtype=">i8") for path in folder.glob("latency-*.bin")]
    rows = np.concatenate([values[: len(values) // 2 * 2].reshape(-1, 2) for values in files] or [np.empty((0, 2))])
    if not len(rows):
        return np.empty(0)
    moments = rows[:, 1]
    if query.moment == "event":
        beat = second_begins(moments)
        moments = (moments - beat) // 1000 * 1000 + beat
    inside = (rows[:, 0] >= began_s * 1000) & (rows[:, 0] < ended_s * 1000)
    return np.asarray((rows[inside, 0] - moments[inside]) / 1000.0, dtype=float)
