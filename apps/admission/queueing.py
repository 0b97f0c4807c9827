"""The queue: requests that wait for their start, and are asked again when it is due or the cluster has changed.

A request's stretch of arrivals begins when it was previewed. Its start lies so many seconds into that stretch, and so
does the end of its patience.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from apps.admission.choices import AdmissionState
from apps.admission.models import AdmissionRequest
from apps.admission.questions import question_changes, question_of
from apps.admission.services import admission_submit, admission_withdraw
from apps.core.errors import SluiceError
from apps.queries.choices import QueryState
from engine.errors import EngineError

__all__ = ["change_to_start", "is_due", "is_over", "patience_ends_at", "queue_review"]

_log = logging.getLogger(__name__)


def queue_review() -> int:
    """Ask again about every queued request that is due, whose cluster has changed or whose patience has ended.

    Returns how many were sent to the engine; they are applied by the worker if they are admitted. One that cannot be
    looked at now does not keep the others waiting: its turn comes with the next review.
    """
    queued = AdmissionRequest.objects.filter(state=AdmissionState.QUEUED).order_by("decided_at")
    sent = 0
    for request in queued.select_related("cluster", "query", "version__query", "job"):
        try:
            sent += _reviewed(request)
        except (SluiceError, EngineError) as error:
            _log.warning("queued request %s is not reviewed now: %s", request.pk, error)
    return sent


def _reviewed(request: AdmissionRequest) -> bool:
    """Look after one queued request; whether it was sent to the engine."""
    if request.query.state not in {QueryState.QUEUED, QueryState.RUNNING}:
        admission_withdraw(request=request, user=None, reason="Its query was stopped")
        return False
    if (request.job is not None and not request.job.is_finished) or not _is_to_be_asked(request):
        return False
    admission_submit(request=request, user=request.requested_by, purpose="queue")
    return True


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
