"""Tasks: estimate a cluster, estimate a document."""

from __future__ import annotations

from celery import shared_task

from apps.estimates import work
from apps.jobs.models import JobKind
from apps.jobs.runner import run_job

__all__ = ["estimate_cluster", "estimate_document"]


@shared_task(name=JobKind.ESTIMATE.value)
def estimate_cluster(job_id: str) -> None:
    run_job(job_id, work.estimate_cluster)


@shared_task(name=JobKind.ESTIMATE_DOCUMENT.value)
def estimate_document(job_id: str) -> None:
    run_job(job_id, work.estimate_document)
