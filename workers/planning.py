"""Tasks of runs of every kind, of what follows a placement, and of the schedule of planning."""

from __future__ import annotations

from typing import Any

from celery import shared_task

from apps.jobs.models import JobKind
from apps.jobs.runner import run_job
from apps.jobs.runs import RUN_KINDS, RunKind
from apps.planning import history_work, placement_moves
from apps.planning.forecasts import forecast_renew_all
from apps.planning.history_jobs import history_run_due
from apps.planning.plan_review import plans_review

__all__ = ["apply_moves", "renew_forecasts", "review_plans", "run_due_history", "run_history"]


def _make_task(kind: RunKind[Any]) -> None:
    @shared_task(name=str(kind.job))
    def answer_run(job_id: str) -> None:
        run_job(job_id, kind.work)


for _kind in RUN_KINDS.values():
    _make_task(_kind)


@shared_task(name=JobKind.MOVES.value)
def apply_moves(job_id: str) -> None:
    run_job(job_id, placement_moves.apply_moves)


@shared_task(name="workers.review_plans")
def review_plans() -> int:
    return plans_review()


@shared_task(name="workers.renew_forecasts")
def renew_forecasts() -> int:
    """Renew forecasts that are a day old, or whose histories have changed."""
    return forecast_renew_all()


@shared_task(name=JobKind.HISTORY.value)
def run_history(job_id: str) -> None:
    run_job(job_id, history_work.run_history)


@shared_task(name="workers.run_due_history")
def run_due_history() -> bool:
    """Run the jobs over the history when a day has ended; returns whether they were asked for."""
    return history_run_due()
