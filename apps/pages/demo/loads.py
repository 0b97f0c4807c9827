"""The demo's load over the past weeks, and a forecast made of it."""

from __future__ import annotations

from typing import Any

from apps.accounts.models import User
from apps.fleet.models import Cluster
from apps.forecasts.forecasting import histories_mark
from apps.forecasts.models import Forecast, LoadHistory
from apps.forecasts.services import history_create_from_generator
from apps.forecasts.work import forecast_cluster
from apps.jobs.choices import FINISHED, JobKind
from apps.jobs.models import Job
from apps.pages.demo.doing import Doing

__all__ = ["forecast_build", "histories_build"]

# Rate of the busiest hour now over the mean of the source's arrivals, and growth per week: payments outgrow what reads
# them within about three weeks, the others do not.
_LOADS: dict[str, tuple[float, float]] = {"payments": (0.92, 0.022), "clicks": (0.8, 0.012), "positions": (0.78, 0.006)}
_OTHERS = (0.76, 0.004)
_WEEKS = 8


def histories_build(cluster: Cluster) -> None:
    """A history of eight weeks for every source that has none."""
    known = set(LoadHistory.objects.filter(cluster=cluster).values_list("source_id", flat=True))
    for seed, row in enumerate(cluster.arrivals.defer("data").order_by("source_id")):
        if row.source_id not in known:
            peak, growth = _LOADS.get(row.source_id, _OTHERS)
            history_create_from_generator(
                cluster=cluster,
                source_id=row.source_id,
                spec=_spec(peak * row.mean_eps, growth, seed),
                description=row.description,
            )


def _spec(peak_rate_eps: float, growth: float, seed: int) -> dict[str, Any]:
    return {
        "peak_rate_eps": round(peak_rate_eps, 1),
        "weeks": _WEEKS,
        "growth_per_week": growth,
        "daily_swing": 0.6,
        "weekend_dip": 0.15,
        "noise": 0.02,
        "seed": seed,
    }


def forecast_build(cluster: Cluster, user: User, later: Doing) -> None:
    """A forecast of the present histories, unless there is one."""
    asked = Job.objects.filter(cluster=cluster, kind=JobKind.FORECAST).exclude(state__in=FINISHED)
    if asked.exists() or Forecast.objects.filter(cluster=cluster).exists():
        return
    mark = histories_mark(cluster)
    params = {"cluster": cluster.slug, "horizon_days": 28, "seed": 0, "histories": mark}
    later.finish(later.job(JobKind.FORECAST, f"Forecast {cluster.slug}", cluster, user, params), forecast_cluster)
