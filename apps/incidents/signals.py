"""Incidents follow the states of objectives: they are brought up to date whenever these were judged."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from apps.estimates.objectives import objectives_judged
from apps.fleet.models import Cluster
from apps.incidents.refresh import incidents_refresh

__all__ = ["connect"]


def connect() -> None:
    """Called once, when the app is ready."""
    objectives_judged.connect(_judged, dispatch_uid="incidents.refresh")


def _judged(sender: Any, *, cluster: Cluster, now: datetime, **_: Any) -> None:
    incidents_refresh(cluster, now=now)
