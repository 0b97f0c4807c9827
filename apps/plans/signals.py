"""What happens to a comparison when its job ends without an answer."""

from __future__ import annotations

from typing import Any

from django.utils import timezone

from apps.jobs.models import Job, JobKind, JobState
from apps.jobs.services import job_ended
from apps.planning.choices import ComparisonState
from apps.planning.models import PlanComparison
from apps.queries.services import query_announce

__all__ = ["connect"]

_ENDS = {JobState.FAILED: ComparisonState.FAILED, JobState.CANCELLED: ComparisonState.CANCELLED}


def connect() -> None:
    job_ended.connect(_ended, dispatch_uid="plans.job_ended")


def _ended(sender: type[Job], job: Job, **_: Any) -> None:
    if job.kind != JobKind.PLANS or job.state == JobState.SUCCEEDED:
        return
    rows = PlanComparison.objects.select_related("query__cluster")
    row = rows.filter(pk=job.params["comparison"], state=ComparisonState.COMPUTING).first()
    if row is None:
        return
    row.state, row.finished_at = _ENDS[JobState(job.state)], timezone.now()
    row.message = (job.error or {}).get("message", "")[:500]
    row.save(update_fields=["state", "finished_at", "message"])
    query_announce(row.query)
