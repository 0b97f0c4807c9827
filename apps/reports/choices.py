"""Kinds and states of reports."""

from django.db import models

__all__ = ["FORMATS", "SECTIONS", "ReportKind", "ReportState", "Trigger"]


class ReportKind(models.TextChoices):
    """Subject of a report."""

    PROVISIONING = "provisioning", "Provisioning"  #: the fleet: headroom, shortage, what to buy
    LATENCY = "latency", "Latency"  #: for the users of a query or a team: worst case and objective


class ReportState(models.TextChoices):
    """State of a report."""

    WRITING = "writing", "Being written"  #: its job waits or runs
    READY = "ready", "Ready"  #: kept in every format, on its way to its readers
    FAILED = "failed", "Failed"  #: the job ended without one; `error` says why


class Trigger(models.TextChoices):
    """Why a report was written."""

    SCHEDULED = "scheduled", "Scheduled"  #: its time had come
    MADE_UP = "made_up", "Made up"  #: its time passed while nothing ran; one report for all times missed
    MANUAL = "manual", "By hand"  #: somebody asked for it
    DEMO = "demo", "With the demo"  #: it came with the demo


FORMATS: dict[str, tuple[str, str]] = {
    "html": ("text/html; charset=utf-8", "html"),
    "pdf": ("application/pdf", "pdf"),
    "csv": ("application/zip", "zip"),
    "json": ("application/json", "json"),
}

#: Parts of a provisioning report, in its order.
SECTIONS: dict[str, str] = {
    "objectives": "Objectives and headroom",
    "fleet": "Fleet now",
    "forecast": "Forecast of shortage",
    "events": "Planned events",
    "purchases": "Recommended purchases",
    "promises": "Promises against what came",
    "risks": "Risks",
    "changes": "Changes since the last report",
}
