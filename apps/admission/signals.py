"""Admission requests whose job ends without an answer: they fail or are withdrawn with it."""

from __future__ import annotations

from apps.admission.choices import AdmissionState
from apps.admission.models import AdmissionRequest
from apps.admission.services import admission_announce, release_queued_query
from apps.jobs.models import Job, JobKind, JobState
from apps.jobs.services import on_unanswered

__all__ = ["connect"]

# A queued request survives the cancellation of one look at it: the next review asks again.
_ENDS = {
    (JobState.FAILED, AdmissionState.ESTIMATING): AdmissionState.FAILED,
    (JobState.FAILED, AdmissionState.QUEUED): AdmissionState.FAILED,
    (JobState.CANCELLED, AdmissionState.ESTIMATING): AdmissionState.WITHDRAWN,
}


def connect() -> None:
    on_unanswered(JobKind.ADMISSION_PREVIEW, _end_request)


def _end_request(job: Job) -> None:
    rows = AdmissionRequest.objects.select_related("cluster", "query")
    request = rows.filter(pk=job.params["admission"]).first()
    state = _ENDS.get((JobState(job.state), AdmissionState(request.state))) if request is not None else None
    if request is None or state is None:
        return
    request.state = state
    request.save(update_fields=["state", "updated_at"])
    release_queued_query(request)
    admission_announce(request)
