"""The work of a run over the history: what the jobs lack is exported, Spark runs in a process of its own, and what
the console can use of the outcome is stored.
"""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from tempfile import TemporaryFile
from typing import IO, Any

from django.conf import settings
from django.utils import timezone

from apps.core.errors import Conflict, Impossible
from apps.jobs.models import Job
from apps.jobs.runner import JobOutcome, JobReporter
from apps.planning.choices import HistoryJob
from apps.planning.history.exports import scored_runs_export
from apps.planning.history.loads import loads_store
from apps.planning.history.services import history_folder

__all__ = ["COMMAND", "run_history"]

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


def _answer(command: Sequence[str], report: JobReporter) -> dict[str, Any]:
    """The outcome that the process prints last; its steps are the job's progress."""
    answer: dict[str, Any] | None = None
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


def _lines(process: subprocess.Popen[str]) -> Iterator[dict[str, Any] | None]:
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
