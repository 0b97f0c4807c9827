"""The queue: requests that wait for their start, and are asked again when it is due or the cluster has changed.

A request's stretch of arrivals begins when it was previewed. Its start lies so many seconds into that stretch, and so
does the end of its patience.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from apps.admission.choices import AdmissionState
from apps.admission.models import AdmissionRequest
from apps.admission.questions import question_changes, question_of
from apps.admission.services import admission_submit, admission_withdraw
from apps.queries.choices import QueryState

__all__ = ["change_to_start", "is_due", "is_over", "patience_ends_at", "queue_review"]


def queue_review() -> int:
    """Ask again about every queued request that is due, whose cluster has changed or whose patience has ended.

    Returns how many were sent to the engine; they are applied by the worker if they are admitted.
    """
    queued = AdmissionRequest.objects.filter(state=AdmissionState.QUEUED).order_by("decided_at")
    sent = 0
    for request in queued.select_related("cluster", "query", "version__query", "job"):
        if request.query.state not in {QueryState.QUEUED, QueryState.RUNNING}:
            admission_withdraw(request=request, user=None, reason="Its query was stopped")
        elif (request.job is None or request.job.is_finished) and _is_to_be_asked(request):
            admission_submit(request=request, user=request.requested_by, purpose="queue")
            sent += 1
    return sent


def _is_to_be_asked(request: AdmissionRequest) -> bool:
    return is_due(request) or is_over(request) or bool(question_changes(request, question_of(request)))


def change_to_start(request: AdmissionRequest) -> list[dict[str, Any]]:
    """The change that starts the request where it was put, once that time has come; before it there is none."""
    answer = request.result or {}
    if not is_due(request) or any(change["kind"] == "start_at" for change in request.changes):
        return []
    return [{"kind": "start_at", "p": answer["start_p"], "seconds": answer["start_s"]}]


def is_due(request: AdmissionRequest) -> bool:
    """Whether its expected start has come."""
    return request.starts_at is not None and timezone.now() >= request.starts_at


def is_over(request: AdmissionRequest) -> bool:
    """Whether it has waited for as long as its requester would."""
    return timezone.now() > patience_ends_at(request)


def patience_ends_at(request: AdmissionRequest) -> datetime:
    """When the requester no longer wants to wait."""
    asked_at = request.previewed_at or request.created_at
    return max(request.starts_at or asked_at, asked_at + timedelta(seconds=request.may_wait_s))
