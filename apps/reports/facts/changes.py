"""What moved between the last report and this one."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db.models.fields.json import KT

from apps.admission.models import AdmissionRequest
from apps.queries.snapshots import Snapshot, snapshot_changes
from apps.reports.choices import ReportState
from apps.reports.models import Report

__all__ = ["change_facts", "report_before"]

_MOST = 200


def report_before(report: Report) -> Report | None:
    """The last finished report of the same definition."""
    rows = Report.objects.filter(
        definition=report.definition, state=ReportState.READY, covers_until__lt=report.covers_until
    )
    return rows.exclude(pk=report.pk).defer("html", "pdf", "csv", "facts").order_by("-covers_until").first()


def change_facts(report: Report, before: Report | None, snapshot: Snapshot) -> dict[str, Any]:
    """Parts of the snapshot that differ, in words, and the admissions decided since. Empty for a first report."""
    if before is None:
        return {"since": None, "parts": [], "decisions": []}
    moved = snapshot_changes(before.snapshot_parts, snapshot.parts)
    return {
        "since": before.covers_until.isoformat(),
        "parts": moved[:_MOST],
        "more_parts": max(0, len(moved) - _MOST),
        "decisions": _decisions(report, before.covers_until),
    }


def _decisions(report: Report, since: datetime) -> list[dict[str, Any]]:
    rows = AdmissionRequest.objects.filter(
        cluster=report.definition.cluster, decided_at__gt=since, decided_at__lte=report.covers_until
    )
    rows = rows.select_related("version__query", "decided_by").defer("result", "snapshot_parts")
    return [
        {
            "query": row.version.query.name,
            "version": row.version.number,
            "verdict": row.verdict,
            "state": row.state,
            "by": row.decided_by.username if row.decided_by else "",
            "overridden": row.overridden,
            "headline": row.headline or "",
            "at": row.decided_at.isoformat(),
        }
        for row in rows.annotate(headline=KT("result__headline")).order_by("decided_at")[:_MOST]
    ]
