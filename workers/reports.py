"""Tasks of reports: start those that are due, write one, send deliveries and alerts."""

from __future__ import annotations

from celery import shared_task

from apps.core.deliveries import SEND_TASK
from apps.exports.notices import decision_deliveries_send_due
from apps.incidents.notices import incident_deliveries_send_due
from apps.jobs.models import JobKind
from apps.jobs.runner import run_job
from apps.reports.deliveries import deliveries_send_due
from apps.reports.schedules import reports_run_due
from apps.reports.work import write_report
from apps.results.notices import alert_deliveries_send_due

__all__ = ["run_due_reports", "run_report", "send_deliveries"]


@shared_task(name="workers.run_due_reports")
def run_due_reports() -> int:
    return reports_run_due()


@shared_task(name=JobKind.REPORT.value)
def run_report(job_id: str) -> None:
    run_job(job_id, write_report)


@shared_task(name=SEND_TASK)
def send_deliveries() -> int:
    """Alerts and incidents first: they are short, and somebody may have to act."""
    return (
        alert_deliveries_send_due()
        + incident_deliveries_send_due()
        + decision_deliveries_send_due()
        + deliveries_send_due()
    )
