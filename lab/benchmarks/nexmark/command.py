"""``./sluice lab nexmark``: Nexmark on a real Flink, what Sluice says of each query from a light load, and what comes.

Each query runs under a light load, with two, five and eight times as much, and under more than it can do, with one and
two subtasks. All that is said of it is said from the light load. It starts a Flink for them, unless --rest and
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
from urllib.parse import urlsplit

from engine.errors import DocumentError
from lab.benchmarks.flink.client import FlinkClient, FlinkRefusal, compiled_jar
from lab.benchmarks.flink.cluster import measured_flink
from lab.benchmarks.flink.runs import RunFailed
from lab.benchmarks.machine import machine
from lab.benchmarks.nexmark.prediction import predict_query
from lab.benchmarks.nexmark.queries import QUERIES, NexmarkQuery
from lab.benchmarks.nexmark.runs import FlinkAddress, KeptRuns, QueryRun, Timing, run_query
from lab.benchmarks.nexmark.scripts import FUNCTIONS
from lab.benchmarks.nexmark.table import ScoredQuery, latency_table, missed_targets, rate_table, row_json, summary
from launcher.engines.flink import FlinkOptions
from launcher.engines.folders import EngineMissing, FetchFailed
from launcher.engines.sql import SqlFailed
from launcher.places import free_port
from launcher.progress import PatienceError
from launcher.runner import StartFailed, Stopped

__all__ = ["main"]

_BUDGET_S = 300.0
_SETTINGS = {
    "taskmanager.memory.task.heap.size": "900m",
    "taskmanager.memory.managed.size": "256m",
    "taskmanager.memory.network.min": "96m",
    "taskmanager.memory.network.max": "96m",
}


def main(arguments: Sequence[str]) -> int:
    """Run queries, print the tables; 0 if every target was met."""
    options = _parser().parse_args(arguments)
    unknown = [name for name in options.queries if name not in QUERIES]
    if unknown:
        print(f"queries are {', '.join(unknown)}; allowed: {', '.join(QUERIES)}", file=sys.stderr)
        return 2
    if options.score and options.keep is None:
        print("--score needs --keep, the folder of what was run", file=sys.stderr)
        return 2
    if (options.rest is None) != (options.gateway is None):
        print("--rest and --gateway belong together: one of them is missing", file=sys.stderr)
        return 2
    wanted = [QUERIES[name] for name in options.queries]
    if options.score:
        runs = {
            query.name: run
            for query in wanted
            if (run := KeptRuns(options.keep, options.work).find(query.name)) is not None
        }
    else:
        try:
            runs = _record(options, wanted)
        except (EngineMissing, FetchFailed, StartFailed, PatienceError, FlinkRefusal) as failure:
            print(failure, file=sys.stderr)
            return 1
        except Stopped:
            return 130
    rows = [_row(query.name, runs.get(query.name)) for query in wanted]
    if options.json is not None:
        options.json.write_text(json.dumps([row_json(row) for row in rows], indent=1))
    print(f"{machine()}; work: {options.work}\n")
    print("\n".join([rate_table(rows), latency_table(rows), summary(rows)]))
    missed = missed_targets(rows)
    print("\n".join(f"missed: {miss}" for miss in missed) or "every target was met")
    return 1 if missed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="sluice lab nexmark", description=__doc__.split("\n\n")[1])
    parser.add_argument(
        "--queries", nargs="+", default=list(QUERIES), metavar="NAME", help="all unless given: q0 to q23"
    )
    parser.add_argument(
        "--budget",
        type=float,
        default=_BUDGET_S,
        metavar="SECONDS",
        help=f"for each query (default {_BUDGET_S:g}); a smaller one makes its phases shorter",
    )
    parser.add_argument(
        "--work",
        choices=("park", "compute"),
        default="park",
        help="of each event: waiting, which needs no processor (default), or computing",
    )
    parser.add_argument(
        "--at-once", type=int, default=3, help="queries that run beside each other where they wait (default 3)"
    )
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep what was run there, and go on from there")
    parser.add_argument("--score", action="store_true", help="score what --keep has, without a Flink")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there, too")
    parser.add_argument("--rest", metavar="URL", help="a JobManager on this machine, with two free slots a query")
    parser.add_argument("--gateway", type=int, metavar="PORT", help="of the SQL gateway beside it")
    return parser


def _record(options: argparse.Namespace, wanted: Sequence[NexmarkQuery]) -> dict[str, QueryRun]:
    """Run what is missing of each query; those that compute one after the other, since they need the processor."""
    at_once = max(1, options.at_once) if options.work == "park" else 1
    own = FlinkOptions(free_port(), slots=2 * at_once, settings=_SETTINGS)
    with (
        measured_flink(options.rest, options.gateway, own) as (rest, gateway),
        tempfile.TemporaryDirectory(prefix="sluice-nexmark-") as scratch,
        closing(FlinkClient(rest)) as client,
        ThreadPoolExecutor(at_once) as together,
    ):
        jar = Path(scratch) / "functions.jar"
        jar.write_bytes(compiled_jar(FUNCTIONS, gateway))
        flink = FlinkAddress(client, urlsplit(rest).port or 80, gateway, jar, Path(scratch))
        runs = together.map(lambda query: _run(options, flink, query), wanted)
        return dict(zip((query.name for query in wanted), runs, strict=True))


def _run(options: argparse.Namespace, flink: FlinkAddress, query: NexmarkQuery) -> QueryRun:
    """Run what is missing of a query; what does not finish says so."""
    kept = KeptRuns(options.keep, options.work)
    run = kept.find(query.name) or QueryRun(query.name, options.work, query.bids)
    run.failure = ""
    try:
        for name in run_query(flink, query, run, Timing.within(options.budget)):
            kept.keep(run)
            phase = run.phases[name]
            print(
                f"{query.name} {name}: {phase.rate_per_s:.0f} of {phase.asked_per_s} rows/s",
                file=sys.stderr,
                flush=True,
            )
    except (SqlFailed, RunFailed, FlinkRefusal) as failure:
        run.failure = str(failure).splitlines()[-1]
        kept.keep(run)
        print(f"{query.name}: {run.failure}", file=sys.stderr, flush=True)
    return run


def _row(name: str, run: QueryRun | None) -> ScoredQuery:
    if run is None or "load 1" not in run.phases:
        return ScoredQuery(name, run, None, run.failure if run else "nothing was run of it")
    try:
        return ScoredQuery(name, run, predict_query(run.phases["load 1"], second=run.phases.get("load 2")), run.failure)
    except DocumentError as error:
        return ScoredQuery(name, run, None, f"not imported: {error}")
