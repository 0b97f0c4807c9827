"""The demo's report: the fleet, every Monday at seven, with one that was written already."""

from __future__ import annotations

from django.db import transaction

from apps.accounts.models import User
from apps.fleet.models import Cluster
from apps.jobs.choices import JobKind
from apps.pages.demo.doing import Doing
from apps.reports.choices import ReportKind, ReportState
from apps.reports.models import Report, ReportDefinition
from apps.reports.scheduling import schedule_set
from apps.reports.services import definition_create
from apps.reports.work import write_report
from apps.reports.writing import report_for

__all__ = ["reports_build"]

_WEEKLY = "Weekly provisioning"
_LATENCY = "Latency for Payments"


def reports_build(cluster: Cluster, user: User, later: Doing) -> None:
    """Define what is not defined yet, and write one report if there is none."""
    weekly = ReportDefinition.objects.filter(cluster=cluster, name=_WEEKLY).first()
    if weekly is None:
        weekly = definition_create(cluster=cluster, kind=ReportKind.PROVISIONING, name=_WEEKLY, user=user)
        rule = {"every": "week", "days": ["mon"], "at": "07:00"}
        schedule_set(definition=weekly, rule=rule, time_zone="Europe/Berlin")
    if not ReportDefinition.objects.filter(cluster=cluster, name=_LATENCY).exists():
        parameters = {"team": "Payments"}
        definition_create(cluster=cluster, kind=ReportKind.LATENCY, name=_LATENCY, parameters=parameters, user=user)
    if not Report.objects.filter(definition=weekly).exclude(state=ReportState.FAILED).exists():
        _write(weekly, user, later)


def _write(definition: ReportDefinition, user: User, later: Doing) -> None:
    with transaction.atomic():
        report = report_for(definition=definition, user=user)
        params = {"report": str(report.pk)}
        report.job = later.job(JobKind.REPORT, f"Report {definition.name}", definition.cluster, user, params)
        report.save(update_fields=["job"])
    later.finish(report.job, write_report)
