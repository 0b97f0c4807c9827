"""Work of a run over the history: what the jobs lack is exported, Spark runs in a process of its own, and counted
arrivals are kept as load histories.
"""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, TypedDict, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from django.conf import settings
from django.utils import timezone

from apps.core.errors import Conflict, Impossible
from apps.estimates.models import AccuracyObservation
from apps.jobs.models import Job
from apps.jobs.runner import JobOutcome, JobReporter
from apps.planning.choices import HistoryJob
from apps.planning.history_jobs import history_folder
from apps.planning.load_histories import history_store_measured
from apps.queries.arrivals.grid import EventCounts
from apps.telemetry.models import LiveQuery
from engine.files import replace_file

__all__ = ["COMMAND", "EXPORTED_RUNS", "loads_store", "run_history", "scored_runs_export"]

#: The launcher finds the Java that Spark needs; the rest of the command are its options and jobs.
COMMAND = (sys.executable, "-P", "-m", "launcher", "history")
_DAYS = 7
_BUSY = 75  # exit status while another run, of a terminal say, is under way
_POLL_S = 1.0
_PATIENCE_S = 10.0
_MESSAGE = 300


def run_history(report: JobReporter) -> JobOutcome:
    """Run the job's batch jobs. One of them that fails says so in its figures and leaves the others alone."""
    jobs = report.job.params["jobs"]
    report(0.0, "Exporting scored runs")
    exported = scored_runs_export(history_folder(), now=timezone.now(), days=_DAYS + 1)
    answer = _answer([*COMMAND, "--json", "--days", str(_DAYS), *jobs], report)
    answer["jobs"].get(HistoryJob.CALIBRATION, {})["exported"] = exported

    def store(job: Job) -> JobOutcome:
        counted = answer["jobs"].get(HistoryJob.ARRIVALS, {})
        if counted.get("rows"):
            counted["histories"] = loads_store(history_folder() / "outputs" / HistoryJob.ARRIVALS)
        return JobOutcome(answer)

    return JobOutcome(store=store)


@final
class HistoryAnswer(TypedDict):
    """Last line of the process: figures by job, and the days that the history has by kind."""

    jobs: dict[str, dict[str, object]]
    days: dict[str, object]


@final
class HistoryStep(TypedDict):
    """A line before it: how far the process is."""

    progress: float
    step: str


def _answer(command: Sequence[str], report: JobReporter) -> HistoryAnswer:
    """The outcome that the process prints last; its steps are the job's progress."""
    answer: HistoryAnswer | None = None
    share, step = 0.0, "Starting Spark"
    with TemporaryFile() as errors, _process(command, errors) as process:
        for line in _lines(process):
            if line is not None and "jobs" in line:
                answer = line
            elif line is not None:
                share, step = line["progress"], line["step"]
            report(share, step)  # raises when the run is to stop
        status = process.wait()
        if status == _BUSY:
            raise Conflict("Another run over the history is under way; its jobs run one at a time.")
        if answer is None:
            errors.seek(0)
            said = errors.read().decode(errors="replace").strip().splitlines() or ["nothing"]
            raise Impossible(f"The process ended with {status} and said: {said[-1][:_MESSAGE]}.")
    return answer


@contextmanager
def _process(command: Sequence[str], errors: IO[bytes]) -> Iterator[subprocess.Popen[str]]:
    """A process that ends with the block: when the job is cancelled, or takes too long."""
    process = subprocess.Popen(
        command, cwd=settings.BASE_DIR, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True
    )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _lines(process: subprocess.Popen[str]) -> Iterator[HistoryAnswer | HistoryStep | None]:
    """The process's lines as objects, and None whenever there was none for a while."""
    lines: queue.Queue[str | None] = queue.Queue()
    output = process.stdout
    assert output is not None

    def read() -> None:
        with output:
            for text in output:
                lines.put(text)
        lines.put(None)

    threading.Thread(target=read, name="history-output", daemon=True).start()
    while True:
        try:
            text = lines.get(timeout=_POLL_S)
        except queue.Empty:
            yield None
            continue
        if text is None:
            return
        if text.startswith("{"):
            yield json.loads(text)


_SETTLED = timedelta(hours=1)  # after its end a day's runs are all judged
#: Columns of the file and the fields they come from, as `spark_jobs.history.figures.RUNS` reads them.
_FIELDS = {
    "origin": "origin",
    "evidence": "evidence",
    "statistic": "statistic",
    "windowed": "windowed",
    "estimate_s": "expected_s",
    "low_s": "stated_low_s",
    "high_s": "stated_high_s",
    "shown_low_s": "low_s",
    "shown_high_s": "high_s",
    "realised_s": "observed_s",
}
_TEXTS = ("cluster", "query", "origin", "evidence", "statistic")
_NUMBERS = ("at_s", "estimate_s", "low_s", "high_s", "shown_low_s", "shown_high_s", "realised_s")
EXPORTED_RUNS = pa.schema(
    [
        *((name, pa.string()) for name in _TEXTS),
        ("windowed", pa.bool_()),
        *((name, pa.float64()) for name in _NUMBERS),
    ]
)


def scored_runs_export(folder: Path, *, now: datetime, days: int) -> int:
    """Write the scored runs of the last days that were not written in whole before; returns how many.

    Left out is what counts in no figure: runs without an interval, of a disturbed stream processor, or set aside.
    """
    written = 0
    for back in range(days):
        day = now.astimezone(UTC).date() - timedelta(days=back)
        path = folder / "runs" / f"day={day.isoformat()}" / "runs.parquet"
        if not _is_whole(path, day) and (rows := _rows(day)):
            path.parent.mkdir(parents=True, exist_ok=True)
            sink = pa.BufferOutputStream()
            pq.write_table(pa.Table.from_pylist(rows, EXPORTED_RUNS), sink, compression="zstd")
            replace_file(path, sink.getvalue().to_pybytes())
            written += len(rows)
    return written


def _is_whole(path: Path, day: date) -> bool:
    """Whether the day's file was written when the day was over."""
    over = datetime.combine(day + timedelta(days=1), datetime.min.time(), UTC) + _SETTLED
    return path.exists() and path.stat().st_mtime > over.timestamp()


def _rows(day: date) -> list[dict[str, object]]:
    begin = datetime.combine(day, datetime.min.time(), UTC)
    observed = AccuracyObservation.objects.filter(
        starts_at__gte=begin,
        starts_at__lt=begin + timedelta(days=1),
        disturbed="",
        set_aside=False,
        stated_low_s__isnull=False,
        stated_high_s__isnull=False,
    )
    columns = observed.order_by("starts_at", "pk").values(
        "cluster__slug", "query__name", "starts_at", *_FIELDS.values()
    )
    return [
        {name: values[column] for name, column in _FIELDS.items()}
        | {
            "cluster": values["cluster__slug"],
            "query": f"{values['cluster__slug']}/{values['query__name']}",
            "at_s": values["starts_at"].timestamp(),
        }
        for values in columns.iterator()
    ]


def loads_store(folder: Path) -> int:
    """Keep the output of the job `arrivals` as load histories; returns how many were made or extended.

    Several queries that read a source count the same records: the most that any of them saw is taken. Counts of
    queries that are gone, and sources whose history somebody brought, are left alone.
    """
    rows = pq.read_table(folder, columns=["query", "starts_us", "width_us", "count"])
    by_query = {name.as_py(): rows.filter(pc.equal(rows["query"], name)) for name in rows["query"].unique()}
    parts: dict[tuple[int, str], list[pa.Table]] = defaultdict(list)
    clusters = {}
    for live in LiveQuery.objects.select_related("query__cluster", "source").order_by("pk"):
        cluster = live.query.cluster
        if (table := by_query.get(f"{cluster.slug}/{live.query.name}")) is not None:
            clusters[cluster.pk] = cluster
            parts[cluster.pk, live.source.source_id].append(table)
    stored = [
        history_store_measured(cluster=clusters[pk], source_id=source_id, trace=_trace(tables))
        for (pk, source_id), tables in parts.items()
    ]
    return sum(row is not None for row in stored)


def _trace(tables: list[pa.Table]) -> EventCounts:
    """One series of counts, the largest of each subinterval; of the width that came last where it was changed."""
    rows = pa.concat_tables(tables)
    newest = rows["width_us"][int(np.argmax(rows["starts_us"].to_numpy()))]
    rows = rows.filter(pc.equal(rows["width_us"], newest))
    largest = rows.group_by(["starts_us"]).aggregate([("count", "max")]).sort_by("starts_us")
    starts_s = largest["starts_us"].to_numpy() / 1e6
    return EventCounts(
        starts_s, np.full(len(starts_s), newest.as_py() / 1e6), largest["count_max"].to_numpy().astype(float)
    )
