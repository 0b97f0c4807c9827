"""``./sluice lab flink``: predictions from a job's calm part against what its overload comes to, on a real Flink.

Each run is a job of its own that begins with 45 s of calm. Their counters are all that is known of it: read, imported
and estimated by the product's code, for the schedule that follows. Latencies are measured from the scheduled arrival
of each event to its result. It starts a Flink for them, unless --rest and --gateway name one.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import fmean, median

from lab.benchmarks.flink.client import FlinkClient, FlinkRefusal, scheduled_job_jar
from lab.benchmarks.flink.cluster import measured_flink
from lab.benchmarks.flink.patterns import PATTERNS, Pattern
from lab.benchmarks.flink.prediction import STATISTICS, Score, score_run
from lab.benchmarks.flink.runs import FlinkRun, RunFailed, record_run
from lab.benchmarks.machine import machine
from launcher.engines.flink import FlinkOptions
from launcher.engines.folders import EngineMissing, FetchFailed
from launcher.places import free_port
from launcher.progress import PatienceError
from launcher.runner import StartFailed, Stopped

__all__ = ["TARGETS", "main"]

#: Largest median error of each statistic; share of intervals that hold.
TARGETS = {"worst": 0.05, "mean": 0.10}
_COVERAGE = 0.85
_SLOTS = 24
_WORDS = {"worst": "max", "q0.99": "p99", "mean": "mean"}


def main(arguments: Sequence[str]) -> int:
    """Run patterns, print the table; 0 if every target was met."""
    options = _parser().parse_args(arguments)
    unknown = [name for name in options.patterns if name not in PATTERNS]
    if unknown:
        print(f"patterns are {', '.join(unknown)}; allowed: {', '.join(PATTERNS)}", file=sys.stderr)
        return 2
    wanted = [PATTERNS[name] for name in options.patterns]
    if options.score is not None:
        runs = [FlinkRun.read(path) for path in sorted(options.score.glob("*.json.gz"))]
        runs = [run for run in runs if run.pattern in options.patterns]
    else:
        if (options.rest is None) != (options.gateway is None):
            print("--rest and --gateway belong together: one of them is missing", file=sys.stderr)
            return 2
        try:
            with measured_flink(options.rest, options.gateway, FlinkOptions(free_port(), slots=_SLOTS)) as found:
                runs = _record(*found, options, wanted)
        except (EngineMissing, FetchFailed, StartFailed, PatienceError) as failure:
            print(failure, file=sys.stderr)
            return 1
        except Stopped:
            return 130
    print(_report(runs), flush=True)
    scores = [score for run in runs for score in score_run(run)]
    print(_table(scores, wanted))
    missed = _missed(scores) if scores else ["nothing was measured"]
    print("\n".join(f"missed: {miss}" for miss in missed) or "every target was met")
    return 1 if missed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="sluice lab flink", description=__doc__.split("\n\n")[1])
    names = ", ".join(PATTERNS)
    parser.add_argument(
        "--patterns", nargs="+", default=list(PATTERNS), metavar="NAME", help=f"all unless given: {names}"
    )
    parser.add_argument(
        "--repeats", type=int, default=3, help="runs of each pattern, each of other arrivals (default 3)"
    )
    parser.add_argument("--at-once", type=int, default=4, help="jobs that park run beside each other (default 4)")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep what was recorded there")
    parser.add_argument("--score", type=Path, metavar="FOLDER", help="score what was kept there, without a Flink")
    parser.add_argument("--rest", metavar="URL", help="a JobManager on this machine")
    parser.add_argument("--gateway", type=int, metavar="PORT", help="of the SQL gateway beside it")
    return parser


def _record(rest: str, gateway: int, options: argparse.Namespace, wanted: Iterable[Pattern]) -> list[FlinkRun]:
    """Run every pattern; those that compute one after the other, since they need the processor."""
    client = FlinkClient(rest)
    try:
        jar = client.upload(scheduled_job_jar(gateway))
        tasks = list(itertools.product(range(1, options.repeats + 1), wanted))
        parked = [task for task in tasks if task[1].work == "park"]
        computing = [task for task in tasks if task[1].work != "park"]
        with tempfile.TemporaryDirectory(prefix="sluice-bench-flink-") as scratch:
            folder = Path(scratch)
            with ThreadPoolExecutor(options.at_once) as together:
                found = list(
                    together.map(lambda task: _run(client, jar, task[0], task[1], folder, options.keep), parked)
                )
            found += [_run(client, jar, seed, pattern, folder, options.keep) for seed, pattern in computing]
    finally:
        client.close()
    return [run for run in found if run is not None]


def _run(
    client: FlinkClient, jar: str, seed: int, pattern: Pattern, folder: Path, keep: Path | None
) -> FlinkRun | None:
    """Run a pattern; None, with the reason on the screen, where that fails."""
    try:
        run = record_run(client, jar, pattern, seed, folder)
    except (RunFailed, FlinkRefusal) as failure:
        print(f"{pattern.name} {seed}: {failure}", file=sys.stderr)
        return None
    if keep is not None:
        run.write(keep)
    print(f"{pattern.name} {seed}: longest {max(run.latencies_s):.2f} s", file=sys.stderr, flush=True)
    return run


def _report(runs: Sequence[FlinkRun]) -> str:
    results = sum(len(run.latencies_s) for run in runs)
    load = fmean([run.load for run in runs]) if runs else 0.0
    return f"{machine()}; load {load:.1f}; {len(runs)} runs, {results} results\n"


def _table(scores: Sequence[Score], patterns: Iterable[Pattern]) -> str:
    """Medians over the repeats of each pattern, and of all."""
    heads = [f"{_WORDS[name]} predicted / measured (s) | error" for name in STATISTICS]
    lines = [f"| pattern | runs | {' | '.join(heads)} | 90 % holds |", "|" + " --- |" * (3 + 2 * len(STATISTICS))]
    for pattern in patterns:
        own = [score for score in scores if score.pattern == pattern.name]
        if own:
            lines.append(_row(pattern.name, own))
    for work, words in (("park", "parked"), ("cpu", "CPU-bound")):
        own = [score for score in scores if PATTERNS[score.pattern].work == work]
        if own:
            lines.append(_row(f"**{words}**", own, is_total=True))
    return "\n".join(lines) + "\n"


def _row(name: str, scores: Sequence[Score], *, is_total: bool = False) -> str:
    cells = [name, str(sum(score.statistic == STATISTICS[0] for score in scores))]
    for statistic in STATISTICS:
        own = [score for score in scores if score.statistic == statistic]
        predicted, measured = median(s.estimate_s for s in own), median(s.measured_s for s in own)
        cells.append("" if is_total else f"{predicted:.2f} / {measured:.2f}")
        cells.append(f"{median(abs(score.error) for score in own):.1%}")
    held = sum(score.is_held for score in scores)
    return f"| {' | '.join([*cells, f'{held} of {len(scores)}'])} |"


def _missed(scores: Sequence[Score]) -> list[str]:
    """Targets that were missed, with the figure."""
    missed = []
    for statistic, target in TARGETS.items():
        error = median(abs(score.error) for score in scores if score.statistic == statistic)
        if error > target:
            missed.append(f"median error of {_WORDS[statistic]} is {error:.1%}, at most {target:.0%} was aimed at")
    held = fmean(score.is_held for score in scores)
    if held < _COVERAGE:
        missed.append(f"{held:.0%} of the 90 % intervals hold, {_COVERAGE:.0%} were aimed at")
    missed += [
        f"{score.pattern} {score.seed}: under {score.under_s:.2f} s was said, {score.measured_s:.2f} s came"
        for score in scores
        if score.is_false_under
    ]
    return missed
