"""Tasks of connections: check, import and refresh as jobs, and the rounds of the schedule."""

from __future__ import annotations

from celery import shared_task

from apps.connections import work
from apps.jobs.models import JobKind
from apps.jobs.runner import run_job

__all__ = ["check_connection", "import_connection", "poll_connection", "poll_connections", "refresh_connection"]


@shared_task(name=JobKind.CONNECTION_CHECK.value)
def check_connection(job_id: str) -> None:
    run_job(job_id, work.check_connection)


@shared_task(name=JobKind.CONNECTION_IMPORT.value)
def import_connection(job_id: str) -> None:
    run_job(job_id, work.import_connection)


@shared_task(name=JobKind.CONNECTION_REFRESH.value)
def refresh_connection(job_id: str) -> None:
    run_job(job_id, work.refresh_connection)


@shared_task(name="workers.poll_connections")
def poll_connections() -> int:
    """Send a task for each connection whose round is due; returns how many."""
    return work.connections_poll()


@shared_task(name=work.POLL_TASK)
def poll_connection(pk: int) -> bool:
    """Ask one connection; returns whether it was refreshed."""
    return work.connection_poll_due(pk)
