"""Table of the reports of a cluster, and the mark of a report's state."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.pages.base import ClusterPage
from apps.pages.saved_views.bar import open_views
from apps.reports.choices import ReportKind, ReportState, Trigger
from apps.reports.filters import ReportFilter
from apps.reports.models import Report, ReportDefinition
from apps.reports.selectors import reports_listed
from apps.saved_views.choices import SavedList
from apps.ui.marks import state_mark
from apps.ui.numbers import MISSING
from apps.ui.tables import Choice, Column, Filter, Table
from apps.ui.times import time_tag

__all__ = ["report_mark"]


REPORT_MARKS = {ReportState.WRITING: "running", ReportState.READY: "succeeded", ReportState.FAILED: "failed"}


def report_mark(report: Report) -> SafeString:
    """A report's state as shape and word."""
    return state_mark(REPORT_MARKS[ReportState(report.state)], report.get_state_display())


def reports_table(request: HttpRequest, page: ClusterPage) -> Table:
    """Reports that were written, newest first."""
    rows = reports_listed().filter(definition__cluster=page.cluster)
    names = ReportDefinition.objects.filter(cluster=page.cluster).order_by("name").values_list("pk", "name")
    chosen = [Choice(str(pk), name) for pk, name in names]
    return Table(
        request,
        _columns(page.slug),
        rows,
        caption="Reports",
        default_sort="-created",
        filters=[
            Filter("report", chosen, all_label="Any report", as_menu=True, name="definition"),
            Filter("trigger", [Choice(value, str(label)) for value, label in Trigger.choices], all_label="Any reason"),
        ],
        filterset=ReportFilter,
        search=["definition__name", "finding"],
        page_size=25,
        views=open_views(request, SavedList.REPORTS),
        file_name=f"reports-{page.slug}",
        empty={
            "icon": "log",
            "title": "No report was written yet",
            "text": "Write one now with its button above, or wait for its schedule."
            if chosen
            else "One that is defined is written by its schedule, or at once when you ask for it.",
        },
    )


def _columns(slug: str) -> list[Column]:
    return [
        Column(
            "name",
            "Report",
            lambda row: _named(row, slug),
            sort="definition__name",
            csv=lambda row: row.definition.name,
        ),
        Column(
            "created",
            "Written",
            lambda row: time_tag(row.created_at),
            sort="created_at",
            csv=lambda row: row.created_at.isoformat(),
            high_first=True,
        ),
        Column("trigger", "Why", lambda row: row.get_trigger_display(), sort="trigger", csv=lambda row: row.trigger),
        Column("state", "State", report_mark, sort="state", csv=lambda row: row.state),
        Column("finding", "Finding", _finding, csv=lambda row: row.finding),
        Column("sent", "Deliveries", _sent, csv=lambda row: row.delivery_count, num=True),
    ]


def _named(row: Report, slug: str) -> SafeString:
    url = reverse("pages:report", args=[slug, row.pk])
    kind = (
        ""
        if row.definition.kind == ReportKind.PROVISIONING
        else format_html(' <span class="muted sm">{}</span>', "latency")
    )
    return format_html('<a class="name" href="{}">{}</a>{}', url, row.definition.name, kind)


def _finding(row: Report) -> SafeString:
    text = row.finding or (row.error or {}).get("message", "")
    return format_html('<span class="rep-finding">{}</span>', text or MISSING)


def _sent(row: Any) -> SafeString | str:
    if not row.delivery_count:
        return MISSING
    if row.failed_count:
        return format_html('<span class="bad">{} of {} not sent</span>', row.failed_count, row.delivery_count)
    return str(row.delivery_count)
