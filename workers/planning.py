"""Tasks of planning: placements, plans, what-ifs, resource plans, forecasts and backtests."""

from __future__ import annotations

from celery import shared_task

from apps.jobs.models import JobKind
from apps.jobs.runner import run_job
from apps.planning.backtests import work as backtests_work
from apps.planning.forecasts import work as forecasts_work
from apps.planning.forecasts.services import forecast_renew_all
from apps.planning.history import work as history_work
from apps.planning.history.services import history_run_due
from apps.planning.placements import work as placements_work
from apps.planning.plans import work as plans_work
from apps.planning.plans.review import plans_review
from apps.planning.resource_plans import work as resource_plans_work
from apps.planning.what_ifs import work as what_ifs_work

__all__ = [
    "answer_what_if",
    "apply_moves",
    "compare_plans",
    "forecast_load",
    "renew_forecasts",
    "review_plans",
    "run_backtest",
    "run_due_history",
    "run_history",
    "search_placement",
    "size_stage",
]


@shared_task(name=JobKind.PLACEMENT.value)
def search_placement(job_id: str) -> None:
    run_job(job_id, placements_work.search_placement)


@shared_task(name=JobKind.MOVES.value)
def apply_moves(job_id: str) -> None:
    run_job(job_id, placements_work.apply_moves)


@shared_task(name=JobKind.PLANS.value)
def compare_plans(job_id: str) -> None:
    run_job(job_id, plans_work.compare_plans)


@shared_task(name="workers.review_plans")
def review_plans() -> int:
    return plans_review()


@shared_task(name=JobKind.WHAT_IF.value)
def answer_what_if(job_id: str) -> None:
    run_job(job_id, what_ifs_work.answer_what_if)


@shared_task(name=JobKind.FORECAST.value)
def forecast_load(job_id: str) -> None:
    run_job(job_id, forecasts_work.forecast_cluster)


@shared_task(name="workers.renew_forecasts")
def renew_forecasts() -> int:
    """Renew forecasts that are a day old, or whose histories have changed."""
    return forecast_renew_all()


@shared_task(name=JobKind.BACKTEST.value)
def run_backtest(job_id: str) -> None:
    run_job(job_id, backtests_work.run_backtest)


@shared_task(name=JobKind.STAGE_PLAN.value)
def size_stage(job_id: str) -> None:
    run_job(job_id, resource_plans_work.size_stage_plan)


@shared_task(name=JobKind.HISTORY.value)
def run_history(job_id: str) -> None:
    run_job(job_id, history_work.run_history)


@shared_task(name="workers.run_due_history")
def run_due_history() -> bool:
    """Run the jobs over the history when a day has ended; returns whether they were asked for."""
    return history_run_due()
