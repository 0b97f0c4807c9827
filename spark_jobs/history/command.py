"""The command of the history's batch jobs: one run at a time, of some jobs or all."""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from spark_jobs.history.archive import (
    KINDS,
    day_files,
    day_folder,
    file_bytes,
    history_folder,
    kept_days,
    retention_of,
    settle_days,
)
from spark_jobs.history.jobs import JOBS, DaySpan, HistoryContext, last_days
from spark_jobs.session import DEFAULT_MASTER, NoJava, WrongOptions, spark_session

__all__ = ["BUSY", "main"]

BUSY = 75  #: exit status while another run is under way: come again
_DAYS, _MAX_DAYS = 7, 3650
#: Many small files are found by the driver and read by few tasks.
_SETTINGS = {
    "spark.sql.files.openCostInBytes": "65536",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000000",
}
_WORDS = 300

Outcome = dict[str, dict[str, Any]]  #: figures of each job


def main(arguments: Sequence[str]) -> int:
    """Run jobs: 0, 1 when one failed, 2 for what cannot be asked, 75 while another run is under way."""
    options = _options(arguments)
    report = _print_json if options.json else _print_words
    folder = history_folder(os.environ)
    try:
        retention_days = retention_of(os.environ)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _only_run(folder) as is_alone:
            if not is_alone:
                print("history: another run is under way", file=sys.stderr)
                return BUSY
            outcome = _run(folder, options, retention_days, report)
    except (NoJava, WrongOptions, OSError) as error:
        print(f"history: {error}", file=sys.stderr)
        return 2 if isinstance(error, WrongOptions) else 1
    if options.json:
        print(json.dumps({"jobs": outcome, "days": _days(folder)}), flush=True)
    else:
        _print_figures(outcome)
    return int(any("fault" in figures for figures in outcome.values()))


def _run(
    folder: Path, options: argparse.Namespace, retention_days: int, report: Callable[[float, str], None]
) -> Outcome:
    """Figures of each job with `duration_s`; of one that failed its `fault`. The others go on."""
    report(0.0, "Starting Spark")
    master = _submitted_master() or DEFAULT_MASTER
    spark = spark_session("Sluice history", folder=folder / "spark", master=master, more=_SETTINGS)
    share = 0.0
    context = HistoryContext(
        spark,
        folder,
        options.span,
        now=options.now,
        retention_days=retention_days,
        report=lambda words: report(share, words),
    )
    outcome: Outcome = {}
    try:
        settle_days(folder)
        for number, name in enumerate(options.jobs):
            share = (number + 1) / (len(options.jobs) + 1)
            report(share, f"{name}: {options.span}")
            began_s = time.perf_counter()
            try:
                figures = JOBS[name](context)
            except Exception as error:  # Spark reports what fails in many classes
                figures = {"fault": f"{type(error).__name__}: {str(error).strip()[:_WORDS]}"}
            outcome[name] = figures | {"duration_s": round(time.perf_counter() - began_s, 2)}
    finally:
        spark.stop()
    return outcome


def _days(folder: Path) -> dict[str, dict[str, Any]]:
    """Days, files and bytes that the history has, by kind."""
    found = {}
    for kind in KINDS:
        if days := kept_days(folder, kind):
            sizes = [file_bytes(path) for day in days for path in day_files(day_folder(folder, kind, day))]
            found[kind] = {"first": days[0].isoformat(), "last": days[-1].isoformat(), "days": len(days)}
            found[kind] |= {"files": len(sizes), "bytes": sum(sizes)}
    return found


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="sluice history", description="Batch jobs over the history that the stream processor keeps."
    )
    parser.add_argument("jobs", nargs="*", type=_job, metavar="JOB", help=f"{', '.join(JOBS)}; all unless named")
    parser.add_argument("--days", type=_whole_days, default=_DAYS, help=f"how many days, up to the last ({_DAYS})")
    parser.add_argument("--since", type=_day, help="the first UTC day, such as 2026-11-20, in the place of --days")
    parser.add_argument("--until", type=_day, help="the last UTC day (today)")
    parser.add_argument("--json", action="store_true", help="print each step and the outcome as a line of JSON")
    options = parser.parse_args(arguments)
    options.jobs = [name for name in JOBS if name in options.jobs or not options.jobs]
    options.now = datetime.now(UTC)
    until = options.until or options.now.date()
    options.span = DaySpan(options.since, until) if options.since else last_days(until, options.days)
    if options.span.since > until:
        parser.error(f"--since is {options.span.since.isoformat()}; allowed: up to the last day, {until.isoformat()}")
    return options


def _job(text: str) -> str:
    if text not in JOBS:
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: {', '.join(JOBS)}")
    return text


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: a day such as 2026-11-20") from None


def _whole_days(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= _MAX_DAYS:
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: a whole number from 1 to {_MAX_DAYS}")
    return int(text)


@contextmanager
def _only_run(folder: Path) -> Iterator[bool]:
    """Hold the lock of the history's jobs; the kernel releases it however this process ends."""
    with (folder / ".jobs.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True


def _submitted_master() -> str | None:
    """The master that `spark-submit` was told; None where this is no application of it."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return None
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()
    return SparkConf().get("spark.master", None)


def _print_json(share: float, words: str) -> None:
    print(json.dumps({"progress": round(share, 3), "step": words}), flush=True)


def _print_words(share: float, words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def _print_figures(outcome: Outcome) -> None:
    for job, figures in outcome.items():
        plain = {name: value for name, value in figures.items() if isinstance(value, (str, int, float))}
        print(f"{job}: {', '.join(f'{name} {_short(value)}' for name, value in plain.items())}", flush=True)


def _short(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
