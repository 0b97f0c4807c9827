"""Tasks: compare the plans of a query, find the queries whose plans are to be compared again."""

from __future__ import annotations

from celery import shared_task

from apps.jobs.models import JobKind
from apps.jobs.runner import run_job
from apps.planning.plans import work
from apps.planning.plans.review import plans_review

__all__ = ["compare_plans", "review_plans"]


@shared_task(name=JobKind.PLANS.value)
def compare_plans(job_id: str) -> None:
    run_job(job_id, work.compare_plans)


@shared_task(name="workers.review_plans")
def review_plans() -> int:
    return plans_review()
