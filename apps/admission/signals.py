"""What happens to a request when its job ends without an answer."""

from __future__ import annotations

from typing import Any

from apps.admission.choices import AdmissionState
from apps.admission.models import AdmissionRequest
from apps.admission.services import admission_announce
from apps.jobs.choices import JobKind, JobState
from apps.jobs.models import Job
from apps.jobs.signals import job_ended

__all__ = ["connect"]

_STATES = {JobState.FAILED: AdmissionState.FAILED, JobState.CANCELLED: AdmissionState.WITHDRAWN}


def connect() -> None:
    job_ended.connect(_ended, dispatch_uid="admission.job_ended")


def _ended(sender: type[Job], job: Job, **_: Any) -> None:
    if job.kind != JobKind.ADMISSION_PREVIEW or job.state not in _STATES:
        return
    rows = AdmissionRequest.objects.select_related("cluster")
    for request in rows.filter(pk=job.params["admission"], state=AdmissionState.ESTIMATING):
        request.state = _STATES[job.state]
        request.save(update_fields=["state", "updated_at"])
        admission_announce(request)
