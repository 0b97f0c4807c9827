"""The files of a finished report."""

from __future__ import annotations

import json

from django.http import HttpResponse
from django.utils.text import slugify

from apps.core.errors import Conflict
from apps.reports.choices import FORMATS, ReportState
from apps.reports.models import Report
from apps.reports.writing import report_facts, report_html

__all__ = ["file_name", "file_of", "report_download"]


def file_name(report: Report, kind: str) -> str:
    """weekly-provisioning-2026-11-23.pdf."""
    return f"{slugify(report.definition.name) or 'report'}-{report.covers_until:%Y-%m-%d}.{FORMATS[kind][1]}"


def file_of(report: Report, kind: str) -> bytes | None:
    """A finished report in one of `FORMATS`; None if it has none."""
    if kind == "json":
        facts = report_facts(report)
        return None if facts is None else json.dumps(facts, indent=1, ensure_ascii=False).encode()
    data = report_html(report) if kind == "html" else getattr(report, kind)
    return None if data is None else bytes(data)


def report_download(report: Report, form: str) -> HttpResponse:
    """A finished report as a file to keep."""
    data = file_of(report, form) if report.state == ReportState.READY else None
    if data is None:
        raise Conflict(f"The report is {report.get_state_display().lower()}; it has no files.")
    headers = {"Content-Disposition": f'attachment; filename="{file_name(report, form)}"'}
    return HttpResponse(data, content_type=FORMATS[form][0], headers=headers)
