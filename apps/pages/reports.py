"""Reports of a cluster: what is defined, when it is written next, what came of it."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.pages.base import ClusterPage
from apps.reports.choices import ReportKind, ReportState, Trigger
from apps.reports.models import Report, ReportDefinition
from apps.reports.selectors import definitions_listed, next_words, reports_listed, schedule_sentence
from apps.ui.marks import state_icon, state_mark
from apps.ui.numbers import MISSING, counted
from apps.ui.tables import Choice, Column, Filter, Table
from apps.ui.times import time_tag

__all__ = ["ReportsPage", "report_mark"]

_MARKS = {ReportState.WRITING: "running", ReportState.READY: "succeeded", ReportState.FAILED: "failed"}


class ReportsPage(ClusterPage):
    """`/c/<slug>/reports/`"""

    template_name = "pages/reports/list.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        table = reports_table(request, self)
        if table.wants_csv:
            return table.csv_response()
        definitions = [_line(row) for row in definitions_listed().filter(cluster=self.cluster).order_by("name")]
        context = {
            "table": table,
            "definitions": definitions,
            "sentence": _sentence(definitions),
            "mail_missing": not settings.EMAIL_CONFIGURED and any(line["row"].emails for line in definitions),
        }
        return self.page(context)


def report_mark(report: Report) -> SafeString:
    """A report's state as shape and word."""
    return state_mark(_MARKS[ReportState(report.state)], report.get_state_display())


def _line(row: ReportDefinition) -> dict[str, Any]:
    """A definition as the page lists it."""
    schedule = getattr(row, "schedule", None)
    readers = [*row.emails, *(hook.name for hook in row.webhooks.all())]
    said = "Written by hand" if schedule is None else schedule_sentence(schedule)
    return {
        "row": row,
        "when": said[:1].upper() + said[1:] if row.enabled else "Its schedule rests",
        "next": schedule.next_at if schedule is not None and row.enabled else None,
        "next_text": next_words(schedule.next_at, schedule.time_zone) if schedule and schedule.next_at else "",
        "readers": ", ".join(readers[:3]) + (f" and {len(readers) - 3} more" if len(readers) > 3 else ""),
        "icon": state_icon(_MARKS[ReportState(row.last_state)]) if row.last_state else "",
    }


def _sentence(definitions: list[dict[str, Any]]) -> str:
    if not definitions:
        return "No report is defined yet."
    due = sorted((line["next"], line) for line in definitions if line["next"]) if definitions else []
    if not due:
        return f"{counted(len(definitions), 'report')} defined, none with a schedule that runs."
    line = min((line for line in definitions if line["next"]), key=lambda one: one["next"])
    return f"{counted(len(definitions), 'report')} defined. Next: {line['row'].name}, {line['next_text']}."


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
            Filter(
                "report", chosen, lambda found, value: found.filter(definition_id=value), "Any report", as_menu=True
            ),
            Filter(
                "trigger",
                [Choice(value, str(label)) for value, label in Trigger.choices],
                lambda found, value: found.filter(trigger=value),
                "For any reason",
            ),
        ],
        search=["definition__name", "finding"],
        page_size=25,
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


def _sent(row: Report) -> SafeString | str:
    if not row.delivery_count:
        return MISSING
    if row.failed_count:
        return format_html('<span class="bad">{} of {} not sent</span>', row.failed_count, row.delivery_count)
    return str(row.delivery_count)
