"""Runner of a job in a worker: shared by every task, so that tasks only load, compute and store."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import structlog
from celery import current_task
from celery.exceptions import SoftTimeLimitExceeded
from django.conf import settings
from django.db import connection

from apps.core.rest.problems import as_sluice_error
from apps.core.traces import note_on_span
from apps.jobs.models import Job
from apps.jobs.services import (
    JobCancelled,
    JobSuperseded,
    job_cancelled,
    job_fail,
    job_heartbeat,
    job_progress,
    job_start,
    job_succeed,
)
from apps.ledger.origin import Origin, changes_from

__all__ = ["JobOutcome", "JobReporter", "run_job"]

HEARTBEAT_S = 5.0
_WRITES_PER_S = 4.0
_WORK_SHARE = 0.9  # of a task's time limit; the rest is for its longest step, and for its end

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class JobOutcome:
    """Outcome of a job. `store(job)` runs in the transaction that ends it, once; it may return a fuller Outcome
    (with the addresses of the rows it wrote). `follow()` runs after that transaction: what takes time and follows of
    what was stored, and what the schedule makes up for where its worker is killed before."""

    result: Mapping[str, object] = field(default_factory=dict)
    url: str = ""
    api_url: str = ""
    store: Callable[[Job], JobOutcome | None] | None = None
    follow: Callable[[], None] | None = None


class JobReporter:
    """`report(fraction, step)` from inside the work. Written at most four times a second; raises when to stop.

    Attributes
    ----------
    job
        The job being run, with its `params`.
    held
        Contexts that the work enters and that last until its outcome is stored.
    """

    def __init__(self, job: Job) -> None:
        self.job = job
        self.held = ExitStack()
        self.stop: Exception | None = None
        self.noted: tuple[float, str] | None = None
        self._next_write = 0.0
        self._step = ""
        self._ends_s = time.monotonic() + _WORK_SHARE * settings.CELERY_TASK_SOFT_TIME_LIMIT

    def __call__(self, fraction: float, step: str = "") -> None:
        if self.stop is not None:
            raise self.stop
        now = time.monotonic()
        if now < self._next_write and step == self._step:
            return
        self._next_write, self._step = now + 1 / _WRITES_PER_S, step
        self.noted = None
        job_progress(self.job, fraction, step)

    def note(self, fraction: float, step: str = "") -> None:
        """Report from inside a transaction, whose rows nobody else may wait for: a heartbeat writes it, beside it."""
        if self.stop is not None:
            raise self.stop
        self.noted = fraction, step

    @property
    def left_s(self) -> float:
        """Seconds that the work may still take without being ended by the time limit of tasks."""
        return self._ends_s - time.monotonic()


def run_job(job_id: Any, work: Callable[[JobReporter], JobOutcome]) -> Job | None:
    """Start the job, do `work(report)`, store its outcome; or store why not. None when there was nothing to do.

    Refusals (`SluiceError`, the engine's errors) become the job's error with code, message and faults. Anything else
    is logged with its traceback and stored as a message with the job's id. A database that does not answer is let
    through: the job stays running without a sign of life, and the sweep has it done again.
    """
    request = getattr(current_task, "request", None)
    delivery = getattr(request, "delivery_info", None) or {}
    worker = str(getattr(request, "hostname", "") or "")
    job = job_start(job_id, redelivered=bool(delivery.get("redelivered")), worker=worker)
    if job is None:
        return None
    note_on_span(job=str(job.pk), job_kind=job.kind, job_attempt=job.attempt)
    ended = _attempt(job, work)
    note_on_span(job_state=ended.state if ended is not None else "superseded")
    return ended


def _attempt(job: Job, work: Callable[[JobReporter], JobOutcome]) -> Job | None:
    """Do the work of a started job; None when another attempt has taken it over."""
    report = JobReporter(job)
    context = structlog.contextvars.bound_contextvars(job=str(job.pk), attempt=job.attempt)
    with report.held, changes_from(Origin(job=job)), context:
        try:
            with _heartbeats(report):
                outcome = work(report)
            ended = job_succeed(job, outcome.result, outcome.url, outcome.api_url, outcome.store)
            _follow(outcome)
            return ended
        except JobCancelled:
            return job_cancelled(job)
        except JobSuperseded as reason:
            _log.info("stopped: %s", reason)
            return None
        except SoftTimeLimitExceeded:
            message = "It exceeded the time limit of jobs. Use a shorter horizon or a wider subinterval."
            return job_fail(job, {"code": "too_long", "message": message, "faults": []})
        except Exception as error:
            return _failed(job, error)


def _follow(outcome: JobOutcome) -> None:
    """Do what follows of what is stored: the job has succeeded, whatever comes of it."""
    if outcome.follow is None:
        return
    try:
        outcome.follow()
    except Exception:
        _log.exception("what follows of a job failed unexpectedly")


def _failed(job: Job, error: Exception) -> Job:
    refusal = as_sluice_error(error)
    if refusal is not None and refusal.status == 503:
        raise error
    if refusal is not None:
        return job_fail(job, refusal)
    _log.exception("job failed unexpectedly")
    message = f"Something went wrong inside Sluice. The worker's log has it under job {job.pk}."
    return job_fail(job, {"code": "internal", "message": message, "faults": []})


@contextmanager
def _heartbeats(report: JobReporter) -> Iterator[None]:
    """Heartbeats from a thread: the work may be silent for long inside compiled code."""
    ended = threading.Event()

    def beat() -> None:
        while report.stop is None and not ended.wait(HEARTBEAT_S):
            try:
                if report.noted is not None:
                    job_progress(report.job, *report.noted)
                else:
                    job_heartbeat(report.job)
            except (JobCancelled, JobSuperseded) as reason:
                report.stop = reason
            except Exception:
                _log.warning("the heartbeat could not be stored", exc_info=True)
        connection.close()

    thread = threading.Thread(target=beat, name="job-heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
