"""One job on a real Flink: what a connection is told while its load is light, then more load until it is saturated."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from lab.benchmarks.flink.client import ENDED, FlinkClient
from lab.benchmarks.flink.runs import RunFailed, ask_picture, ask_poll, held_job
from lab.benchmarks.flink_jobs.jobs import StreamJob
from lab.benchmarks.nexmark.runs import LOADS, LoadPhase, QueryRun, Timing, slope

__all__ = ["run_job", "run_phase"]

_SATURATING = 40  # times the light load
_LEAD_S = 8.0  # from the submission to the first event
_SPARE_S = 120.0  # for which events come on after a phase, so that it does not end by itself where it starts late
_POLL_S = 1.0


def run_job(
    client: FlinkClient, jar: str, job: StreamJob, run: QueryRun, timing: Timing, folder: Path
) -> Iterator[str]:
    """Run the phases that a run lacks; the name of each once the run has it.

    Raises
    ------
    RunFailed, lab.benchmarks.flink.client.FlinkRefusal
        Flink refused the job, or it ended by itself.
    """
    loads = [(f"load {times}", times, 1) for times in LOADS]
    saturations = [(f"saturated {parallelism}", _SATURATING * parallelism, parallelism) for parallelism in (1, 2)]
    for name, times, parallelism in (*loads, *saturations):
        if name not in run.phases:
            run.phases[name] = run_phase(client, jar, job, run.work, timing, folder, times, parallelism)
            yield name


def run_phase(
    client: FlinkClient,
    jar: str,
    job: StreamJob,
    work: str,
    timing: Timing,
    folder: Path,
    times: int,
    parallelism: int,
) -> LoadPhase:
    """Run a job under a multiple of its light load. Raises as `run_job`."""
    is_calm = times == LOADS[0]
    length_s = timing.calm_s if is_calm else timing.load_s
    out = folder / f"{job.kind}-{times}-{time.time_ns()}.csv"
    start_s = time.time() + _LEAD_S
    seconds = int(timing.warm_s + length_s + _SPARE_S)
    arguments = job.arguments(times, parallelism, work=work, out=out, start_s=start_s, seconds=seconds)
    started = client.run(jar, arguments, job.settings)
    with held_job(client, started):
        time.sleep(max(0.0, start_s - time.time()) + timing.warm_s)
        picture = ask_picture(client, started) if is_calm else {}
        counter = _row_counter(client, started)
        loads, polls, counted = [os.getloadavg()[0]], [], []
        began_s = time.time()
        end_s = began_s + length_s
        while (now := time.time()) < end_s:
            if client.state(started) in ENDED:
                raise RunFailed(f"it ended by itself at {times} times the load")
            if is_calm:
                polls.append((now, ask_poll(client, picture, started, now)))
            counted.append((now, float(client.get(counter)[0]["sum"])))
            loads.append(os.getloadavg()[0])
            time.sleep(max(0.0, now + _POLL_S - time.time()))
        if is_calm:  # plans and statistics of state are newer then
            picture = ask_picture(client, started)
    latencies = _latencies(out, began_s, end_s)
    return LoadPhase(
        times=times,
        parallelism=parallelism,
        asked_per_s=job.rates[0] * times,
        rate_per_s=slope(counted),
        latencies_s=[float(value) for value in np.quantile(latencies, np.linspace(0, 1, 101))]
        if len(latencies)
        else [],
        rows=len(latencies),
        mean_s=float(latencies.mean()) if len(latencies) else None,
        load=sum(loads) / len(loads),
        picture=picture,
        polls=polls,
    )


def _row_counter(client: FlinkClient, job: str) -> str:
    """Where the events that the main source has put out are counted."""
    for vertex in client.get(f"/jobs/{job}")["vertices"]:
        if vertex["name"].split(" -> ")[0] == "Source: arrivals":
            return f"/jobs/{job}/vertices/{vertex['id']}/subtasks/metrics?get=Source__arrivals.numRecordsOut&agg=sum"
    raise RunFailed("its main source is not there")


def _latencies(out: Path, began_s: float, ended_s: float) -> np.ndarray:
    """Seconds from the scheduled arrival of each event to its result, of those that came in the stretch."""
    files = [path for path in (out, out.with_name(f"{out.name}.late")) if path.exists()]
    rows = [line.split(",") for path in files for line in path.read_text().splitlines() if line.count(",") == 2]
    if not rows:
        return np.empty(0)
    scheduled, done = np.array([row[1:] for row in rows], dtype=float).T / 1000.0
    return np.asarray((done - scheduled)[(done >= began_s) & (done < ended_s)])
