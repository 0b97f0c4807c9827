"""Task: import a deployment document."""

from __future__ import annotations

from celery import shared_task

from apps.jobs.models import JobKind
from apps.jobs.runner import run_job
from apps.queries import imports

__all__ = ["import_deployment"]


@shared_task(name=JobKind.IMPORT.value)
def import_deployment(job_id: str) -> None:
    run_job(job_id, imports.run_import)
