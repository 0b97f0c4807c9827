"""Tasks: forecast a cluster's load, renew forecasts."""

from __future__ import annotations

from celery import shared_task

from apps.jobs.models import JobKind
from apps.jobs.runner import run_job
from apps.planning.forecasts import work
from apps.planning.forecasts.services import forecast_renew_all

__all__ = ["forecast_load", "renew_forecasts"]


@shared_task(name=JobKind.FORECAST.value)
def forecast_load(job_id: str) -> None:
    run_job(job_id, work.forecast_cluster)


@shared_task(name="workers.renew_forecasts")
def renew_forecasts() -> int:
    """Forecast again what is a day old, or whose histories have changed."""
    return forecast_renew_all()
