"""Tasks: answer a what-if."""

from __future__ import annotations

from celery import shared_task

from apps.jobs.models import JobKind
from apps.jobs.runner import run_job
from apps.planning.what_ifs import work

__all__ = ["answer_what_if"]


@shared_task(name=JobKind.WHAT_IF.value)
def answer_what_if(job_id: str) -> None:
    run_job(job_id, work.answer_what_if)
