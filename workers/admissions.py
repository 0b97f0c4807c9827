"""Tasks: preview an admission, look after the queue."""

from __future__ import annotations

from celery import shared_task

from apps.admission import previews
from apps.admission.services import queue_review
from apps.jobs.models import JobKind
from apps.jobs.runner import run_job

__all__ = ["preview_admission", "review_queue"]


@shared_task(name=JobKind.ADMISSION_PREVIEW.value)
def preview_admission(job_id: str) -> None:
    run_job(job_id, previews.preview_admission)


@shared_task(name="workers.review_queue")
def review_queue() -> int:
    return queue_review()
