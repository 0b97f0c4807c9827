"""Signals from other apps to the results."""

from __future__ import annotations

from typing import Any

from django.db.models.signals import post_save

from apps.results.services import alerts_settle
from apps.telemetry.choices import LiveState
from apps.telemetry.models import LiveQuery

__all__ = ["connect"]


def connect() -> None:
    """Called once, when Django is ready."""
    post_save.connect(_live_saved, sender=LiveQuery, dispatch_uid="results.live_saved")


def _live_saved(sender: type, instance: LiveQuery, **_: Any) -> None:
    if instance.state == LiveState.STOPPED:
        alerts_settle(query=instance.query)
