"""Pages of reports: the list, one report with its files, definitions with their schedule, and webhooks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.accounts.permissions import signed_in_user
from apps.core.deliveries import DeliveryState
from apps.core.errors import Missing, SluiceError
from apps.pages.base import ClusterPage, done, try_service
from apps.pages.crud import Crud
from apps.pages.reports.forms import DefinitionForm, WebhookForm
from apps.pages.saved_views.bar import open_views
from apps.reports.calendar import ScheduledRun
from apps.reports.choices import FORMATS, ReportKind, ReportState, Trigger
from apps.reports.deliveries import delivery_send_again, webhook_secret
from apps.reports.lifecycle import REPORT, report_download, report_facts
from apps.reports.models import Delivery, Report, ReportDefinition, Webhook
from apps.reports.renderings import html_sections
from apps.reports.selectors import (
    ReportFilter,
    definitions_listed,
    next_run_text,
    schedule_sentence,
    webhooks_listed,
)
from apps.reports.services import (
    definition_create,
    definition_delete,
    definition_update,
    schedule_preview,
    schedule_remove,
    schedule_set,
    webhook_create,
    webhook_delete,
    webhook_renew_secret,
)
from apps.saved_views.models import SavedList
from apps.ui.feedback import toast
from apps.ui.marks import state_icon, state_mark
from apps.ui.numbers import MISSING
from apps.ui.tables import Choice, Column, Filter, Table
from apps.ui.times import time_tag
from engine.words import counted, listed

__all__ = [
    "DefinitionCrud",
    "DefinitionRun",
    "DeliverySendAgain",
    "ReportCrud",
    "ReportFile",
    "ReportPage",
    "ReportsPage",
    "SchedulePreview",
    "WebhookCrud",
    "WebhookRenew",
    "WebhooksPage",
]


_REPORT_MARKS = {ReportState.WRITING: "running", ReportState.READY: "succeeded", ReportState.FAILED: "failed"}


def report_mark(report: Report) -> SafeString:
    """A report's state as shape and word."""
    return state_mark(_REPORT_MARKS[ReportState(report.state)], report.get_state_display())


def reports_table(request: HttpRequest, page: ClusterPage) -> Table:
    """Reports that were written, newest first."""
    rows = REPORT.visible().filter(definition__cluster=page.cluster)
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


class ReportsPage(ClusterPage):
    """`/c/<slug>/reports/`"""

    template_name = "pages/reports/list.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        table = reports_table(request, self)
        definitions = [_line(row) for row in definitions_listed().filter(cluster=self.cluster).order_by("name")]
        context = {
            "table": table,
            "definitions": definitions,
            "sentence": _sentence(definitions),
            "mail_missing": not settings.EMAIL_CONFIGURED and any(line.row.emails for line in definitions),
        }
        return self.page(context)


@dataclass(frozen=True)
class DefinitionLine:
    """A definition as the page lists it, with its next run."""

    row: ReportDefinition
    when: str
    next: datetime | None
    next_text: str
    readers: str
    icon: str


def _line(row: Any) -> DefinitionLine:
    schedule = getattr(row, "schedule", None)
    readers = [*row.emails, *(hook.name for hook in row.webhooks.all())]
    said = "Written by hand" if schedule is None else schedule_sentence(schedule)
    return DefinitionLine(
        row=row,
        when=said[:1].upper() + said[1:] if row.enabled else "Its schedule rests",
        next=schedule.next_at if schedule is not None and row.enabled else None,
        next_text=next_run_text(schedule.next_at, schedule.time_zone) if schedule and schedule.next_at else "",
        readers=listed(readers, 4),
        icon=state_icon(_REPORT_MARKS[ReportState(row.last_state)]) if row.last_state else "",
    )


def _sentence(definitions: Sequence[DefinitionLine]) -> str:
    if not definitions:
        return "No report is defined yet."
    due = [(line.next, line) for line in definitions if line.next]
    if not due:
        return f"{counted(len(definitions), 'report')} defined, none with a schedule that runs."
    _, line = min(due, key=lambda pair: pair[0])
    return f"{counted(len(definitions), 'report')} defined. Next: {line.row.name}, {line.next_text}."


_DELIVERY_MARKS = {
    DeliveryState.WAITING: "queued",
    DeliveryState.SENDING: "running",
    DeliveryState.SENT: "succeeded",
    DeliveryState.FAILED: "failed",
}


class _ReportView(ClusterPage):
    """A page or an action of one report of the cluster."""

    def report(self, pk: UUID) -> Report:
        return self.find(REPORT.visible().filter(definition__cluster=self.cluster), "report", pk=pk)


class ReportPage(_ReportView):
    """`/c/<slug>/reports/<id>/`: as it prints."""

    template_name = "pages/reports/report.html"

    def get(self, request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
        row = self.report(pk)
        facts = report_facts(row)
        context = {
            "report": row,
            "mark": report_mark(row),
            "facts": facts,
            "sections": html_sections(facts.blocks) if facts is not None else [],
            "deliveries": [DeliveryLine(delivery) for delivery in row.deliveries.all()],
            "files": list(FORMATS),
        }
        return self.page(context)


class ReportFile(_ReportView):
    """`/c/<slug>/reports/<id>/<format>/`: a file to keep."""

    http_method_names = ["get", "head"]

    def get(self, request: HttpRequest, slug: str, pk: UUID, form: str) -> HttpResponse:
        if form not in FORMATS:
            raise Missing(f"There is no format {form!r}; there are {', '.join(FORMATS)}.")
        return report_download(self.report(pk), form)


class ReportCrud(Crud):
    """Reports with their files: written by jobs, deleted here."""

    noun, keyword = "report", "run"
    back = "pages:reports"
    text_deleted = "The report is deleted."
    service_delete = staticmethod(REPORT.delete)

    def rows(self) -> QuerySet[Report]:
        return REPORT.visible().filter(definition__cluster=self.cluster)


class DeliverySendAgain(_ReportView):
    """POST: send a report to one reader again."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, slug: str, pk: UUID, number: int) -> HttpResponse:
        delivery = get_object_or_404(self.report(pk).deliveries, pk=number)
        delivery_send_again(delivery=delivery)
        return done(request, f"It is on its way to {delivery.target}.", "pages:report", slug, pk)


@dataclass(frozen=True)
class DeliveryLine:
    """A delivery, and when it is tried again."""

    row: Delivery

    @property
    def mark(self) -> SafeString:
        return state_mark(_DELIVERY_MARKS[DeliveryState(self.row.state)], self.row.get_state_display())

    @property
    def is_later(self) -> bool:
        return self.row.state == DeliveryState.WAITING and self.row.attempts > 0

    @property
    def can_send(self) -> bool:
        return self.row.state in {DeliveryState.FAILED, DeliveryState.SENT} or self.is_later


_NAMES = {
    "rule.every": "every",
    "rule.days": "days",
    "rule.day": "day",
    "rule.at": "at",
    "rule.month": "month",
    "rule.hours": "hours",
    "rule.rrule": "rrule",
    "rule": "every",
    "parameters.sections": "sections",
    "parameters.horizon_days": "horizon_days",
    "parameters.growth": "growth",
    "parameters.query": "query",
    "parameters.team": "team",
    "parameters": "query",
    "emails": "emails",
}


class DefinitionCrud(Crud):
    """`/c/<slug>/reports/new/` and `…/definitions/<number>/`: a report's definition with its schedule."""

    noun, keyword = "report definition", "definition"
    form_class = DefinitionForm
    form_keyword = "definition"
    fault_fields = _NAMES
    template_name = "pages/reports/form.html"
    back = "pages:reports"
    text_deleted = "{row} and its reports are deleted."
    service_delete = staticmethod(definition_delete)

    def rows(self) -> QuerySet[ReportDefinition]:
        return definitions_listed().filter(cluster=self.cluster)

    def form_arguments(self, row: ReportDefinition | None) -> dict[str, object]:
        if self.request.method == "POST":
            return {"cluster": self.cluster}
        initial = DefinitionForm.beginning(self.cluster) if row is None else DefinitionForm.shown(row)
        return {"cluster": self.cluster, "initial": initial}

    def context(self, row: ReportDefinition | None) -> dict[str, object]:
        rest_body = {
            "cluster": self.slug,
            "kind": "provisioning",
            "name": "Weekly provisioning",
            "parameters": {"horizon_days": 28, "growth": 0.6},
            "emails": ["ops@example.org"],
        }
        return {"rest_body": rest_body}

    @transaction.atomic
    def store(self, form: DefinitionForm, row: ReportDefinition | None) -> ReportDefinition:
        """Definition and schedule, both or none. A schedule that stays as it is keeps its next due time."""
        if row is None:
            row = definition_create(cluster=self.cluster, user=signed_in_user(self.request), **form.values)
        else:
            definition_update(definition=row, **form.values)
        schedule, rule, zone = getattr(row, "schedule", None), form.rule, form.cleaned_data["time_zone"]
        if rule is None:
            if schedule is not None:
                schedule_remove(schedule=schedule)
        elif schedule is None or (schedule.rule, schedule.time_zone) != (rule, zone):
            schedule_set(definition=row, rule=rule, time_zone=zone)
        return row


class DefinitionRun(ClusterPage):
    """POST: write a report now. The schedule stays as it is."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, slug: str, pk: int) -> HttpResponse:
        definition = self.find(definitions_listed().filter(cluster=self.cluster), "report definition", pk=pk)
        report, _ = REPORT.request(definition=definition, user=signed_in_user(request))
        toast(request, f"{report.definition} is being written.")
        return redirect("pages:report", slug, report.pk)


class SchedulePreview(ClusterPage):
    """POST: the next five runs of what the form says, or what is wrong with it."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, slug: str) -> HttpResponse:
        form = DefinitionForm(request.POST, cluster=self.cluster)
        form.is_valid()
        zone, read = form.cleaned_data.get("time_zone") or "", None
        runs: list[ScheduledRun] = []
        faults: list[str] = []
        if form.rule is not None:
            try:
                read, runs = schedule_preview(rule=form.rule, time_zone=zone)
            except SluiceError as error:
                faults = [fault.message for fault in error.faults] or [error.message]
        context = {"zone": zone, "rule": read, "runs": runs, "faults": faults}
        return render(request, "pages/reports/runs.html", context)


class WebhooksPage(ClusterPage):
    """`/c/<slug>/reports/webhooks/`: the list, and a form to add one. The secret is shown once, in the answer."""

    template_name = "pages/reports/webhooks.html"
    scope = "operate"  # an address often holds a secret

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        return self.show(WebhookForm())

    def post(self, request: HttpRequest, slug: str) -> HttpResponse:
        form = WebhookForm(request.POST)
        if form.is_valid():
            webhook, ok = try_service(form, lambda: webhook_create(cluster=self.cluster, **form.cleaned_data))
            if ok:
                return self.show(WebhookForm(), made=webhook, secret=webhook_secret(webhook))
        return self.show(form, 422)

    def show(self, form: WebhookForm, status: int = 200, **context: Any) -> HttpResponse:
        rows = webhooks_listed().filter(cluster=self.cluster)
        rest = {"cluster": self.slug, "name": "chat", "url": "https://hooks.example.org/sluice"}
        return self.page({"form": form, "webhooks": rows, "rest_body": rest, **context}, status)


class WebhookRenew(WebhooksPage):
    """POST: a new secret for a webhook; the page shows it once."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:  # type: ignore[override]
        row = webhook_renew_secret(webhook=self.find(webhooks_listed().filter(cluster=self.cluster), "webhook", pk=pk))
        return self.show(WebhookForm(), made=row, secret=webhook_secret(row))


class WebhookCrud(Crud):
    """Webhooks of a cluster: added on their page, deleted here."""

    noun = "webhook"
    back = "pages:report-webhooks"
    text_deleted = "Webhook {row} is deleted."
    service_delete = staticmethod(webhook_delete)

    def rows(self) -> QuerySet[Webhook]:
        return webhooks_listed().filter(cluster=self.cluster)
