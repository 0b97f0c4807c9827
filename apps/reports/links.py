"""Addresses of reports for readers outside the console: absolute, so they need `SLUICE_PUBLIC_URL`."""

from __future__ import annotations

from django.conf import settings

from apps.reports.choices import FORMATS
from apps.reports.models import Report

__all__ = ["api_links", "page_url"]


def page_url(report: Report) -> str:
    """The report's page."""
    return f"{settings.PUBLIC_URL}/c/{report.definition.cluster.slug}/reports/{report.pk}/"


def api_links(report: Report) -> dict[str, str]:
    """Its page, its REST resource, and its files."""
    base = f"{settings.PUBLIC_URL}/api/v1/reports/{report.pk}"
    return {"page": page_url(report), "self": base, **{name: f"{base}/{name}" for name in FORMATS}}
