"""Life of a job: submitted, started, reported on, ended. Each state change is one short transaction.

Exactly once in effect: a task may be delivered several times, but every start gives the job a new attempt number,
and only the attempt that is still the current one may store a result. A worker that was believed dead and comes back
finds its attempt superseded and stores nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import redis
from celery import current_app
from django.db import IntegrityError, transaction
from django.dispatch import Signal
from kombu.exceptions import OperationalError as BrokerError

from apps.accounts.models import User
from apps.core.clock import shared_now
from apps.core.errors import Conflict, SluiceError, Unavailable
from apps.core.events import announce
from apps.core.health import redis_client
from apps.core.logs import request_id, within_request
from apps.core.traces import span_parent, within_trace
from apps.jobs.models import FINISHED, Job, JobKind, JobState

__all__ = [
    "LOST_AFTER",
    "JobCancelled",
    "JobSuperseded",
    "job_cancel",
    "job_cancelled",
    "job_ended",
    "job_fail",
    "job_heartbeat",
    "job_name_result",
    "job_progress",
    "job_resend",
    "job_start",
    "job_submit",
    "job_succeed",
    "on_unanswered",
]


# Sent with `job` inside the transaction that ends it (succeeded, failed or cancelled), so that a receiver's writes
# stand or fall with it. A cancellation in the queue reaches no worker: only this tells that the job is over.
job_ended = Signal()


def on_unanswered(kind: JobKind, end: Callable[[Job], None]) -> None:
    """Call `end(job)` with every job of a kind that fails or is cancelled, inside the transaction that ends it."""

    def receive(sender: type[Job], job: Job, **_: Any) -> None:
        if job.kind == kind and job.state != JobState.SUCCEEDED:
            end(job)

    job_ended.connect(receive, weak=False, dispatch_uid=f"{kind} unanswered")


LOST_AFTER = timedelta(seconds=20)
MAX_ATTEMPTS = 5

_log = logging.getLogger(__name__)


class JobCancelled(Exception):
    """The job was cancelled; the worker stops and stores nothing."""


class JobSuperseded(Exception):
    """Another attempt has taken the job over; this one stops and stores nothing."""


def job_submit(
    kind: str,
    title: str,
    params: Mapping[str, object],
    cluster: Any = None,
    user: User | None = None,
    dedupe_key: str | None = None,
) -> Job:
    """Write a job and send its task by name once the present transaction is committed.

    With `dedupe_key`, a job of the same key that still waits in the queue is returned instead of a second one: it will
    see the newest state when it starts. One that nobody asked for becomes the user's, and is sent again if that lets it
    wait in a shorter queue, or before others.

    Raises
    ------
    Unavailable
        The broker does not answer. Raised before the row is written, so that the caller's whole transaction is undone.
        Should the broker go away in the moment after that, the job stays queued and is sent by the next sweep.
    """
    waiting = _waiting(dedupe_key)
    if waiting is not None:
        return _adopted(waiting, user)
    _require_broker()
    try:
        now = shared_now()
        with transaction.atomic():
            job = Job.objects.create(
                created_at=now,
                sent_at=now,
                kind=kind,
                title=title[:200],
                params=dict(params),
                cluster=cluster,
                requested_by=user if user is not None and user.pk else None,
                dedupe_key=dedupe_key or "",
                traceparent=span_parent(),
                request_id=request_id(),
            )
            transaction.on_commit(lambda: _send(job), robust=True)
    except IntegrityError:
        waiting = _waiting(dedupe_key)
        if waiting is None:
            raise
        return _adopted(waiting, user)
    _announce(job)
    return job


@transaction.atomic
def job_start(job_id: Any, *, redelivered: bool = False, worker: str = "") -> Job | None:
    """Take a job for this worker; None when there is nothing to do.

    A finished or unknown job is left alone. A running one is taken over if its worker is gone: the broker says so
    (`redelivered`), or it gave no sign of life for `LOST_AFTER`. Otherwise the delivery is a duplicate. After
    `MAX_ATTEMPTS` starts the job fails, since it seems to kill its worker.
    """
    job = Job.objects.select_for_update().filter(pk=job_id).first()
    if job is None or job.is_finished:
        return None
    now = shared_now()
    if job.state == JobState.RUNNING and not redelivered and not _is_silent(job, now):
        _log.info("job %s is running already, duplicate delivery ignored", job.pk)
        return None
    if job.cancel_requested:
        _end(job, JobState.CANCELLED, step="")
        return None
    if job.attempt >= MAX_ATTEMPTS:
        message = f"Its worker was lost {job.attempt} times; it is not tried again."
        _end(job, JobState.FAILED, error={"code": "worker_lost", "message": message, "faults": []})
        return None
    job.state, job.attempt, job.progress, job.step = JobState.RUNNING, job.attempt + 1, 0.0, ""
    job.started_at, job.heartbeat_at, job.worker = now, now, worker[:120]
    job.save(update_fields=["state", "attempt", "progress", "step", "started_at", "heartbeat_at", "worker"])
    _announce(job)
    return job


@transaction.atomic
def job_progress(job: Job, fraction: float, step: str) -> None:
    """Store the progress of this attempt. Raises JobCancelled or JobSuperseded when it should stop."""
    job.progress, job.step = min(1.0, max(0.0, float(fraction))), step[:200]
    _touch(job, progress=job.progress, step=job.step)
    announce(f"job:{job.pk}")


def job_name_result(job: Job, api_url: str) -> None:
    """Store where the result of a job is read, before there is one. A job that names its own keeps that."""
    if Job.objects.filter(pk=job.pk, result_api_url="").update(result_api_url=api_url):
        job.result_api_url = api_url


def job_heartbeat(job: Job) -> None:
    """Store a heartbeat of this attempt. Raises JobCancelled or JobSuperseded when it should stop."""
    _touch(job)


@transaction.atomic
def job_succeed(
    job: Job,
    result: Mapping[str, object] | None = None,
    url: str = "",
    api_url: str = "",
    store: Callable[[Job], Any] | None = None,
) -> Job:
    """Run `store(job)` and mark the job succeeded, in one transaction, if this attempt is still the current one.

    What `store` returns (`apps.jobs.runner.Outcome`, or None) replaces `result`, `url` and `api_url`.

    Raises
    ------
    JobCancelled, JobSuperseded
        Nothing was stored.
    """
    current = Job.objects.select_for_update().get(pk=job.pk)
    _require_current(current, job.attempt)
    outcome = store(current) if store is not None else None
    if outcome is not None:
        result, url, api_url = outcome.result, outcome.url, outcome.api_url
    _end(
        current,
        JobState.SUCCEEDED,
        progress=1.0,
        step="",
        result=dict(result or {}),
        result_url=url,
        result_api_url=api_url,
    )
    return current


@transaction.atomic
def job_fail(job: Job, error: SluiceError | Mapping[str, object]) -> Job:
    """Store why this attempt failed. An attempt that is no longer the current one changes nothing."""
    current = Job.objects.select_for_update().get(pk=job.pk)
    if current.state == JobState.RUNNING and current.attempt == job.attempt:
        _end(current, JobState.FAILED, error=error.as_dict() if isinstance(error, SluiceError) else dict(error))
    return current


@transaction.atomic
def job_cancel(job: Job) -> Job:
    """Cancel a job: a waiting one at once, a running one at its next step. Cancelling twice changes nothing.

    Raises
    ------
    Conflict
        It has ended already in another way.
    """
    current = Job.objects.select_for_update().get(pk=job.pk)
    if current.state in {JobState.SUCCEEDED, JobState.FAILED}:
        raise Conflict(f"The job has {current.get_state_display().lower()} already; there is nothing to cancel.")
    if current.state == JobState.RUNNING and not _is_silent(current, shared_now()):
        current.cancel_requested = True
        current.save(update_fields=["cancel_requested"])
        _announce(current)
    elif current.state != JobState.CANCELLED:
        _end(current, JobState.CANCELLED, cancel_requested=True, step="")
    return current


def job_cancelled(job: Job) -> Job:
    """Store that the worker has stopped after a cancellation."""
    with transaction.atomic():
        current = Job.objects.select_for_update().get(pk=job.pk)
        if current.state == JobState.RUNNING and current.attempt == job.attempt:
            _end(current, JobState.CANCELLED, step="")
        return current


def job_resend(job: Job) -> None:
    """Send a lost job's task again (`apps.jobs.selectors.jobs_lost`); job_start sorts out duplicates."""
    Job.objects.filter(pk=job.pk).update(sent_at=shared_now())
    _send(job)


def _waiting(dedupe_key: str | None) -> Job | None:
    if not dedupe_key:
        return None
    return Job.objects.filter(dedupe_key=dedupe_key, state=JobState.QUEUED).first()


def _adopted(job: Job, user: User | None) -> Job:
    """A waiting job that `user` asks for, too."""
    if user is None or not user.pk or job.requested_by_id is not None:
        return job
    place = job.queue, job.priority
    job.requested_by = user
    is_mine = Job.objects.filter(pk=job.pk, requested_by=None).update(requested_by=user)
    if is_mine and (job.queue, job.priority) != place:
        transaction.on_commit(lambda: _send(job), robust=True)
    return job


def _require_broker() -> None:
    try:
        with redis_client() as client:
            client.ping()
    except redis.RedisError as error:
        _log.warning("the broker does not answer: %s", error)
        message = "No work can be queued: Redis does not answer. Nothing was stored; try again later."
        raise Unavailable(message) from None


def _send(job: Job) -> None:
    try:
        with within_request(job.request_id), within_trace(job.traceparent):
            current_app.send_task(job.kind, args=[str(job.pk)], queue=job.queue, priority=job.priority, retry=False)
    except (BrokerError, redis.RedisError, OSError) as error:
        _log.warning("job %s could not be sent and waits for the next sweep: %s", job.pk, error)


def _is_silent(job: Job, now: Any) -> bool:
    return job.heartbeat_at is None or now - job.heartbeat_at > LOST_AFTER


def _touch(job: Job, **values: Any) -> None:
    """Update the row if this attempt is the current one, in one statement; else find out why not."""
    mine = Job.objects.filter(pk=job.pk, state=JobState.RUNNING, attempt=job.attempt, cancel_requested=False)
    if not mine.update(heartbeat_at=shared_now(), **values):
        _require_current(Job.objects.get(pk=job.pk), job.attempt)


def _require_current(current: Job, attempt: int) -> None:
    if current.attempt != attempt or current.state in FINISHED - {JobState.CANCELLED}:
        raise JobSuperseded(f"attempt {attempt} of job {current.pk}: attempt {current.attempt} is {current.state}")
    if current.cancel_requested or current.state == JobState.CANCELLED:
        raise JobCancelled(str(current.pk))


def _end(job: Job, state: str, **values: Any) -> None:
    job.state, job.finished_at = state, shared_now()
    for name, value in values.items():
        setattr(job, name, value)
    job.save(update_fields=["state", "finished_at", *values])
    job_ended.send(sender=Job, job=job)
    _announce(job)


def _announce(job: Job) -> None:
    """Announce a change of state; progress is announced to pages of this job only."""
    announce(f"job:{job.pk}")
    announce("jobs")
