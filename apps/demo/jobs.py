"""The demo's background jobs: forecast, comparison of scenarios, backtest, resource plans and report, done now or by
workers.
"""

from __future__ import annotations

import calendar
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from zoneinfo import ZoneInfo

from django.db import transaction
from django.utils import timezone

from apps.accounts.models import User
from apps.admission.choices import AdmissionState
from apps.admission.completion import complete_preview, completion_retry
from apps.admission.models import AdmissionRequest
from apps.admission.parts import parts_of, parts_under_way
from apps.core.clock import shared_now
from apps.fleet.models import Cluster
from apps.jobs.api import job_wait
from apps.jobs.models import Job, JobKind
from apps.jobs.runner import run_job
from apps.jobs.runs import RunKind
from apps.jobs.selectors import job_under_way
from apps.jobs.services import job_submit
from apps.planning.backtests import BACKTEST
from apps.planning.choices import FactorOf, PlanEngine, RequestTiming, ScenarioPlacement
from apps.planning.events import event_create
from apps.planning.forecasts import FORECAST
from apps.planning.load_histories import history_create_from_generator
from apps.planning.models import Forecast, LoadHistory
from apps.planning.resource_plans import RESOURCE_PLAN
from apps.planning.scenarios import scenario_create
from apps.planning.what_ifs import WHAT_IF
from apps.reports.choices import ReportKind, ReportState, Trigger
from apps.reports.lifecycle import REPORT
from apps.reports.models import Report, ReportDefinition
from apps.reports.services import definition_create, schedule_set

__all__ = [
    "DemoJobs",
    "backtest_build",
    "event_build",
    "forecast_build",
    "histories_build",
    "reports_build",
    "resource_plans_build",
    "scenarios_build",
]


@dataclass(frozen=True)
class DemoJobs:
    """Has runs answered.

    Attributes
    ----------
    in_background : bool
        Leave what the demo does not rest on to the workers; without, the demo needs neither broker nor worker.
    """

    in_background: bool = False

    def run(self, kind: RunKind[Any], user: User, **asked: Any) -> Any:
        """Request a run and have it answered here and now, unless workers have it.

        Raises
        ------
        RuntimeError
            It failed.
        """
        run, job = kind.request(user=user, by=_unasked_job if self.in_background else _job, **asked)
        if job is None or self.in_background:
            return run
        ended = run_job(job.pk, kind.work)
        if ended is None or ended.error:
            raise RuntimeError(f"{job.title}: {ended.error if ended else 'not run'}")
        return run

    def complete(self, request: AdmissionRequest, user: User) -> None:
        """Have the parts of a preview computed here and now, or wait for the worker that has taken them."""
        can_retry = any(part.can_be_retried for part in parts_of(request).values())
        job = request.parts_job if parts_under_way(request) else None
        if job is None and can_retry and request.state == AdmissionState.PREVIEW:
            job = completion_retry(request=request, user=user, by=_job)
        while job is not None and run_job(job.pk, complete_preview) is None and not job.is_finished:
            job_wait(job, 1.0)


def _unasked_job(user: User, **fields: Any) -> Job:
    """A job of the workers that nobody waits for: whatever a visitor asks for goes before it."""
    return job_submit(**fields)


def _job(user: User, dedupe_key: str, **fields: Any) -> Job:
    """A job that nobody is told of."""
    return Job.objects.create(requested_by=user, **fields)


# Rate of the busiest hour now over the mean of the source's arrivals, and growth per week: payments outgrow what reads
# them within about three weeks, the others do not.
_LOADS: dict[str, tuple[float, float]] = {"payments": (0.92, 0.022), "clicks": (0.8, 0.012), "positions": (0.78, 0.006)}
_OTHERS = (0.76, 0.004)
_WEEKS = 8


def histories_build(cluster: Cluster) -> None:
    """A history of eight weeks for every source that has none."""
    existing = set(LoadHistory.objects.filter(cluster=cluster).values_list("source_id", flat=True))
    for seed, row in enumerate(cluster.arrivals.defer("data").order_by("source_id")):
        if row.source_id not in existing:
            peak, growth = _LOADS.get(row.source_id, _OTHERS)
            history_create_from_generator(
                cluster=cluster,
                source_id=row.source_id,
                spec=_spec(peak * row.mean_eps, growth, seed),
                description=row.description,
            )


def _spec(peak_rate_eps: float, growth: float, seed: int) -> dict[str, object]:
    return {
        "peak_rate_eps": round(peak_rate_eps, 1),
        "weeks": _WEEKS,
        "growth_per_week": growth,
        "daily_swing": 0.6,
        "weekend_dip": 0.15,
        "noise": 0.02,
        "seed": seed,
    }


def forecast_build(cluster: Cluster, user: User, later: DemoJobs) -> None:
    """A forecast of the present histories, unless there is one."""
    if not job_under_way(JobKind.FORECAST, cluster) and not Forecast.objects.filter(cluster=cluster).exists():
        later.run(FORECAST, user, cluster=cluster)


_EVENT = "Sale weekend"
_EVENT_AFTER = timedelta(days=18)  # more than it takes to have nodes that are ordered now


def event_build(cluster: Cluster, user: User) -> None:
    """Plan the sale of the Friday in three weeks, to be worked out by whoever looks, unless there is an event."""
    if cluster.planned_events.exists():
        return
    first = timezone.localtime(shared_now() + _EVENT_AFTER, ZoneInfo(cluster.time_zone))
    friday = first + timedelta(days=(calendar.FRIDAY - first.weekday()) % 7)
    event_create(
        cluster=cluster,
        name=_EVENT,
        user=user,
        description="Prices fall on Friday morning; shops and vans have the whole weekend of it.",
        factors=[{"of": FactorOf.SOURCE, "name": "payments", "by": 3.0}, {"of": FactorOf.REST, "by": 1.5}],
        starts_at=friday.replace(hour=8, minute=0, second=0, microsecond=0),
        ends_at=(friday + timedelta(days=3)).replace(hour=0, minute=0, second=0, microsecond=0),
    )


_SCENARIOS: tuple[dict[str, Any], ...] = (
    {
        "name": "Quiet weekend, 10 nodes",
        "description": "What could be switched off from Friday evening on.",
        "changes": [{"scale_source": "*", "by": 0.8}, {"resize_pool": "compute", "nodes": 2}],
        "inputs": {"factor": 0.8, "pool": "compute", "nodes": 10},
    },
    {
        "name": "Friday peak, 14 nodes",
        "description": "The evening that is coming, with two more compute nodes.",
        "changes": [{"scale_source": "*", "by": 1.3}, {"resize_pool": "compute", "nodes": 6}],
        "inputs": {"factor": 1.3, "pool": "compute", "nodes": 14},
    },
)
_NO_CHANGES = {"name": "Now", "changes": [], "place": str(ScenarioPlacement.KEEP)}


def scenarios_build(cluster: Cluster, user: User, later: DemoJobs) -> None:
    """Save the scenarios and compare them, unless there are some."""
    if cluster.scenarios.exists():
        return
    with transaction.atomic():
        saved = [
            scenario_create(cluster=cluster, user=user, place=str(ScenarioPlacement.SEARCH), **scenario)
            for scenario in _SCENARIOS
        ]
    later.run(WHAT_IF, user, cluster=cluster, scenarios=[_NO_CHANGES, *(scenario.pk for scenario in saved)])


def backtest_build(cluster: Cluster, user: User, later: DemoJobs) -> None:
    """Replay the week of the load histories, unless there is a backtest."""
    if cluster.backtests.exists():
        return
    later.run(BACKTEST, user, cluster=cluster, policy={"admission": "everything"}, ask=RequestTiming.START)


def resource_plans_build(cluster: Cluster, user: User, later: DemoJobs) -> None:
    """A plan of each engine, unless there is one: sessions for Spark, many log lines as a map-reduce stage."""
    if cluster.resource_plans.exists():
        return
    sessions, logs = (cluster.queries.get(name=name) for name in ("session-stitch", "log-anomalies"))
    limits: dict[str, Any] = {"statistic": "q0.95", "headroom": 0.2, "stateful": True}
    RESOURCE_PLAN.create(
        cluster=cluster, user=user, engine=PlanEngine.MICROBATCH, query=sessions, constraint_s=5.0, **limits
    )
    stage: dict[str, Any] = {"engine": PlanEngine.STAGE, "query": logs, "rate": 60_000.0}
    later.run(RESOURCE_PLAN, user, cluster=cluster, constraint_s=1.0, headroom=0.2, **stage)


_WEEKLY = "Weekly provisioning"
_LATENCY = "Latency for Payments"


def reports_build(cluster: Cluster, user: User, later: DemoJobs) -> None:
    """Create the missing report definitions, and write one report if there is none."""
    weekly = ReportDefinition.objects.filter(cluster=cluster, name=_WEEKLY).first()
    if weekly is None:
        weekly = definition_create(cluster=cluster, kind=ReportKind.PROVISIONING, name=_WEEKLY, user=user)
        rule = {"every": "week", "days": ["mon"], "at": "07:00"}
        schedule_set(definition=weekly, rule=rule, time_zone="Europe/Berlin")
    if not ReportDefinition.objects.filter(cluster=cluster, name=_LATENCY).exists():
        parameters = {"team": "Payments"}
        definition_create(cluster=cluster, kind=ReportKind.LATENCY, name=_LATENCY, parameters=parameters, user=user)
    if not Report.objects.filter(definition=weekly).exclude(state=ReportState.FAILED).exists():
        later.run(REPORT, user, definition=weekly, trigger=Trigger.DEMO)
