"""Applied decisions are told to webhooks."""

from __future__ import annotations

from typing import Any

from apps.admission.decisions import admission_applied
from apps.admission.models import AdmissionRequest
from apps.exports.notices import decision_notify

__all__ = ["connect"]


def connect() -> None:
    """Called once, when the app is ready."""
    admission_applied.connect(_applied, dispatch_uid="exports.notify")


def _applied(sender: Any, *, request: AdmissionRequest, **_: Any) -> None:
    decision_notify(request)
