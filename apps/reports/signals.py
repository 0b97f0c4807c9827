"""What happens to a report when its job ends without one."""

from __future__ import annotations

from typing import Any

from apps.core.events import announce
from apps.jobs.models import Job, JobKind, JobState
from apps.jobs.services import job_ended
from apps.reports.choices import ReportState
from apps.reports.models import Report

__all__ = ["connect"]

_CANCELLED = {"code": "cancelled", "message": "Its job was cancelled.", "faults": []}


def connect() -> None:
    job_ended.connect(_ended, dispatch_uid="reports.job_ended")


def _ended(sender: type[Job], job: Job, **_: Any) -> None:
    if job.kind != JobKind.REPORT or job.state == JobState.SUCCEEDED:
        return
    error = job.error if job.state == JobState.FAILED else _CANCELLED
    writing = Report.objects.filter(pk=job.params["report"], state=ReportState.WRITING)
    if writing.update(state=ReportState.FAILED, error=error):
        announce(f"report:{job.params['report']}")
        announce("reports")
