"""``./sluice lab flink-jobs``: jobs of other kinds than SQL on a real Flink, what Sluice says of each, and what comes.

Side outputs, asynchronous lookups, a union with unaligned checkpoints, broadcast state, a pattern, timers and connected
streams. Each runs under a light load, with two, five and eight times as much, and under more than it can do, with one
and two subtasks. All that is said of it is said from the light load. It starts a Flink for them, unless --rest and
--gateway name one. Phases that --keep has already are not run again.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

from engine.errors import DocumentError
from lab.benchmarks.flink.client import SCHEDULED_JOB, FlinkClient, FlinkRefusal, compiled_jar
from lab.benchmarks.flink.cluster import measured_flink
from lab.benchmarks.flink.runs import RunFailed
from lab.benchmarks.flink_jobs.jobs import JOBS, SOURCE, StreamJob
from lab.benchmarks.flink_jobs.runs import run_job
from lab.benchmarks.machine import machine
from lab.benchmarks.nexmark.prediction import predict_query
from lab.benchmarks.nexmark.runs import KeptRuns, QueryRun, Timing
from lab.benchmarks.nexmark.table import ScoredQuery, latency_table, missed_targets, rate_table, row_json, summary
from launcher.engines.flink import FlinkOptions
from launcher.engines.folders import EngineMissing, FetchFailed
from launcher.places import free_port
from launcher.progress import PatienceError
from launcher.runner import StartFailed, Stopped

__all__ = ["ScoredJob", "main"]

_BUDGET_S = 240.0
_SLOTS = 4  # of a job, at most
_SETTINGS = {
    "taskmanager.memory.task.heap.size": "700m",
    "taskmanager.memory.managed.size": "128m",
    "taskmanager.memory.network.min": "96m",
    "taskmanager.memory.network.max": "96m",
}


class ScoredJob(ScoredQuery):
    """A job: what was run of it, and what was said."""

    @property
    def statistics(self) -> tuple[str, ...]:
        return JOBS[self.query].statistics


def main(arguments: Sequence[str]) -> int:
    """Run jobs, print the tables; 0 if every target was met."""
    options = _parser().parse_args(arguments)
    faults = [f"--jobs has {name!r}; allowed: {', '.join(JOBS)}" for name in options.jobs if name not in JOBS]
    if options.score and options.keep is None:
        faults.append("--score needs --keep, the folder of what was run")
    if (options.rest is None) != (options.gateway is None):
        faults.append("--rest and --gateway belong together: one of them is missing")
    if faults:
        print("\n".join(faults), file=sys.stderr)
        return 2
    wanted = [JOBS[name] for name in options.jobs]
    try:
        runs = (
            [KeptRuns(options.keep, options.work).find(job.kind) for job in wanted]
            if options.score
            else _record(options, wanted)
        )
    except (EngineMissing, FetchFailed, StartFailed, PatienceError, FlinkRefusal) as failure:
        print(failure, file=sys.stderr)
        return 1
    except Stopped:
        return 130
    rows = [_row(job, run) for job, run in zip(wanted, runs, strict=True)]
    if options.json is not None:
        options.json.write_text(json.dumps([row_json(row) for row in rows], indent=1))
    print(f"{machine()}; work: {options.work}\n")
    print("\n".join([rate_table(rows), latency_table(rows), summary(rows)]))
    missed = missed_targets(rows)
    print("\n".join(f"missed: {miss}" for miss in missed) or "every target was met")
    return 1 if missed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="sluice lab flink-jobs", description=__doc__.split("\n\n", 1)[1])
    parser.add_argument(
        "--jobs", nargs="+", default=list(JOBS), metavar="KIND", help=f"all unless given: {', '.join(JOBS)}"
    )
    parser.add_argument(
        "--budget", type=float, default=_BUDGET_S, metavar="SECONDS", help=f"for each job (default {_BUDGET_S:g})"
    )
    parser.add_argument(
        "--work",
        choices=("park", "compute"),
        default="park",
        help="of each event: waiting, which needs no processor (default), or computing",
    )
    parser.add_argument("--at-once", type=int, default=3, help="jobs beside each other where they wait (default 3)")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep what was run there, and go on from there")
    parser.add_argument("--score", action="store_true", help="score what --keep has, without a Flink")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there, too")
    parser.add_argument("--rest", metavar="URL", help="a JobManager on this machine, with four free slots a job")
    parser.add_argument("--gateway", type=int, metavar="PORT", help="of the SQL gateway beside it")
    return parser


def _record(options: argparse.Namespace, wanted: Sequence[StreamJob]) -> list[QueryRun]:
    """Run what is missing of each job; those that compute one after the other, since they need the processor."""
    at_once = max(1, options.at_once) if options.work == "park" else 1
    own = FlinkOptions(free_port(), slots=_SLOTS * at_once, settings=_SETTINGS)
    with (
        measured_flink(options.rest, options.gateway, own) as (rest, gateway),
        tempfile.TemporaryDirectory(prefix="sluice-flink-jobs-") as scratch,
        closing(FlinkClient(rest)) as client,
        ThreadPoolExecutor(at_once) as together,
    ):
        jar = client.upload(compiled_jar(SOURCE, gateway, main="FlinkJobs", uses=[SCHEDULED_JOB]))
        return list(together.map(lambda job: _run(options, client, jar, job, Path(scratch)), wanted))


def _run(options: argparse.Namespace, client: FlinkClient, jar: str, job: StreamJob, folder: Path) -> QueryRun:
    """Run what is missing of a job; what does not finish says so."""
    kept = KeptRuns(options.keep, options.work)
    run = kept.find(job.kind) or QueryRun(job.kind, options.work, job.rates[0])
    run.failure = ""
    try:
        for name in run_job(client, jar, job, run, Timing.within(options.budget), folder):
            phase = run.phases[name]
            told = f"{phase.rate_per_s:.0f} of {phase.asked_per_s} events/s"
            print(f"{job.kind} {name}: {told}", file=sys.stderr, flush=True)
            kept.keep(run)
    except (RunFailed, FlinkRefusal) as failure:
        run.failure = str(failure).splitlines()[-1]
        print(f"{job.kind}: {run.failure}", file=sys.stderr, flush=True)
        kept.keep(run)
    return run


def _row(job: StreamJob, run: QueryRun | None) -> ScoredJob:
    if run is None or "load 1" not in run.phases:
        return ScoredJob(job.kind, run, None, run.failure if run else "nothing was run of it")
    try:
        return ScoredJob(job.kind, run, predict_query(run.phases["load 1"], has_beats=False), run.failure)
    except DocumentError as error:
        return ScoredJob(job.kind, run, None, f"not imported: {error}")
