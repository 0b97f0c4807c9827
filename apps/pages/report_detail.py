"""One report: its rendering, its files, its way to its readers."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404

from apps.core.delivering import DeliveryState
from apps.core.errors import Missing
from apps.pages.base import ClusterPage, done
from apps.pages.reports import report_mark
from apps.reports.choices import FORMATS
from apps.reports.delivering import delivery_send_again
from apps.reports.files import report_download
from apps.reports.models import Delivery, Report
from apps.reports.selectors import reports_listed
from apps.reports.writing import report_delete, report_facts
from apps.ui.marks import state_mark

__all__ = ["DeliverySendAgain", "ReportDelete", "ReportFile", "ReportPage"]

_MARKS = {
    DeliveryState.WAITING: "queued",
    DeliveryState.SENDING: "running",
    DeliveryState.SENT: "succeeded",
    DeliveryState.FAILED: "failed",
}


class _OneReport(ClusterPage):
    """A page or an action of one report of the cluster."""

    def report(self, pk: UUID) -> Report:
        row = reports_listed().filter(definition__cluster=self.cluster, pk=pk).first()
        if row is None:
            raise Missing(f"Cluster {self.slug!r} has no report {pk}.")
        return row


class ReportPage(_OneReport):
    """`/c/<slug>/reports/<id>/`: as it prints."""

    template_name = "pages/reports/report.html"

    def get(self, request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
        row = self.report(pk)
        facts = report_facts(row)
        context: dict[str, Any] = {
            "report": row,
            "mark": report_mark(row),
            "facts": facts,
            "deliveries": [_delivery(one) for one in row.deliveries.all()],
            "files": list(FORMATS),
        }
        if facts is not None:
            # drawing takes reportlab, which pages without a report need not load
            from apps.reports.outline.build import outline, title_lines
            from apps.reports.render.html import html_parts

            context |= {"title": title_lines(facts), "sections": html_parts(outline(facts))}
        return self.page(context)


class ReportFile(_OneReport):
    """`/c/<slug>/reports/<id>/<format>/`: a file to keep."""

    http_method_names = ["get", "head"]

    def get(self, request: HttpRequest, slug: str, pk: UUID, form: str) -> HttpResponse:
        if form not in FORMATS:
            raise Missing(f"There is no format {form!r}; there are {', '.join(FORMATS)}.")
        return report_download(self.report(pk), form)


class ReportDelete(_OneReport):
    """POST: delete a report with its files."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
        report_delete(report=self.report(pk))
        return done(request, "The report is deleted.", "pages:reports", slug)


class DeliverySendAgain(_OneReport):
    """POST: send a report to one reader again."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, slug: str, pk: UUID, number: int) -> HttpResponse:
        delivery = get_object_or_404(self.report(pk).deliveries, pk=number)
        delivery_send_again(delivery=delivery)
        return done(request, f"It is on its way to {delivery.target}.", "pages:report", slug, pk)


def _delivery(row: Delivery) -> dict[str, Any]:
    is_later = row.state == DeliveryState.WAITING and row.attempts > 0
    return {
        "row": row,
        "mark": state_mark(_MARKS[DeliveryState(row.state)], row.get_state_display()),
        "next": row.next_try_at if is_later else None,
        "can_send": row.state in {DeliveryState.FAILED, DeliveryState.SENT} or is_later,
    }
