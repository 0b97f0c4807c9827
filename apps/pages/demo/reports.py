"""The demo's report: the fleet, every Monday at seven, with one that was written already."""

from __future__ import annotations

from collections.abc import Callable

from apps.accounts.models import User
from apps.fleet.models import Cluster
from apps.jobs.choices import JobKind
from apps.jobs.models import Job
from apps.jobs.running import run_job
from apps.reports.choices import ReportKind, ReportState
from apps.reports.models import Report, ReportDefinition
from apps.reports.scheduling import schedule_set
from apps.reports.services import definition_create
from apps.reports.work import write_report
from apps.reports.writing import report_for

__all__ = ["reports_build"]

_WEEKLY = "Weekly provisioning"
_LATENCY = "Latency for Payments"


def reports_build(cluster: Cluster, user: User, say: Callable[[str], None]) -> None:
    """Define what is not defined yet, and write one report if there is none."""
    weekly = ReportDefinition.objects.filter(cluster=cluster, name=_WEEKLY).first()
    if weekly is None:
        weekly = definition_create(cluster=cluster, kind=ReportKind.PROVISIONING, name=_WEEKLY, user=user)
        rule = {"every": "week", "days": ["mon"], "at": "07:00"}
        schedule_set(definition=weekly, rule=rule, time_zone="Europe/Berlin")
    if not ReportDefinition.objects.filter(cluster=cluster, name=_LATENCY).exists():
        parameters = {"team": "Payments"}
        definition_create(cluster=cluster, kind=ReportKind.LATENCY, name=_LATENCY, parameters=parameters, user=user)
    if not Report.objects.filter(definition=weekly, state=ReportState.READY).exists():
        say("Writing the provisioning report")
        _write(weekly, user)


def _write(definition: ReportDefinition, user: User) -> None:
    """Here and now, so that the demo needs neither broker nor worker."""
    report = report_for(definition=definition, user=user)
    report.job = Job.objects.create(
        kind=JobKind.REPORT,
        title=f"Report {definition.name}",
        params={"report": str(report.pk)},
        cluster=definition.cluster,
        requested_by=user,
    )
    report.save(update_fields=["job"])
    ended = run_job(report.job.pk, write_report)
    if ended is None or ended.error:
        raise RuntimeError(f"{report}: {ended.error if ended else 'not run'}")
