"""Shortages that the forecast of load foresees within the horizon."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from apps.fleet.models import Cluster

__all__ = ["forecast_facts"]


def forecast_facts(cluster: Cluster, horizon_days: int, now: datetime) -> dict[str, Any]:
    text = "No forecast yet. Add load history and make one under Provisioning, Forecast."
    return {"available": False, "text": text, "horizon_days": horizon_days}
