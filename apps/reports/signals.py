"""Reports whose job ends without one: they fail with it."""

from __future__ import annotations

from apps.core.events import announce
from apps.jobs.models import Job, JobKind, JobState
from apps.jobs.services import on_unanswered
from apps.reports.choices import ReportState
from apps.reports.models import Report

__all__ = ["connect"]

_CANCELLED = {"code": "cancelled", "message": "Its job was cancelled.", "faults": []}


def connect() -> None:
    on_unanswered(JobKind.REPORT, _end_report)


def _end_report(job: Job) -> None:
    error = job.error if job.state == JobState.FAILED else _CANCELLED
    writing = Report.objects.filter(pk=job.params["report"], state=ReportState.WRITING)
    if writing.update(state=ReportState.FAILED, error=error):
        announce(f"report:{job.params['report']}")
        announce("reports")
