"""Task: replay a recorded period through another policy."""

from __future__ import annotations

from celery import shared_task

from apps.backtests import work
from apps.jobs.choices import JobKind
from apps.jobs.running import run_job

__all__ = ["run_backtest"]


@shared_task(name=JobKind.BACKTEST.value)
def run_backtest(job_id: str) -> None:
    run_job(job_id, work.run_backtest)
