"""What happens to a request when its job ends without an answer."""

from __future__ import annotations

from typing import Any

from apps.admission.choices import AdmissionState
from apps.admission.models import AdmissionRequest
from apps.admission.services import admission_announce, release_queued_query
from apps.jobs.models import Job, JobKind, JobState
from apps.jobs.services import job_ended

__all__ = ["connect"]

# A queued request survives the cancellation of one look at it: the next review asks again.
_ENDS = {
    (JobState.FAILED, AdmissionState.ESTIMATING): AdmissionState.FAILED,
    (JobState.FAILED, AdmissionState.QUEUED): AdmissionState.FAILED,
    (JobState.CANCELLED, AdmissionState.ESTIMATING): AdmissionState.WITHDRAWN,
}


def connect() -> None:
    job_ended.connect(_close_unanswered, dispatch_uid="admission.job_ended")


def _close_unanswered(sender: type[Job], job: Job, **_: Any) -> None:
    if job.kind != JobKind.ADMISSION_PREVIEW or job.state == JobState.SUCCEEDED:
        return
    rows = AdmissionRequest.objects.select_related("cluster", "query")
    request = rows.filter(pk=job.params["admission"]).first()
    state = _ENDS.get((JobState(job.state), AdmissionState(request.state))) if request is not None else None
    if request is None or state is None:
        return
    request.state = state
    request.save(update_fields=["state", "updated_at"])
    release_queued_query(request)
    admission_announce(request)
