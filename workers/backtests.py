"""Task: replay a recorded period through another policy."""

from __future__ import annotations

from celery import shared_task

from apps.jobs.models import JobKind
from apps.jobs.runner import run_job
from apps.planning.backtests import work

__all__ = ["run_backtest"]


@shared_task(name=JobKind.BACKTEST.value)
def run_backtest(job_id: str) -> None:
    run_job(job_id, work.run_backtest)
