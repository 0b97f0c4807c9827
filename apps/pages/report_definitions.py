"""Defining reports: the form with its schedule and what it would mean, writing one now, deleting."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from apps.core.errors import Missing, SluiceError
from apps.pages.base import ClusterPage, done, try_service
from apps.pages.report_forms import DefinitionForm
from apps.reports.models import ReportDefinition
from apps.reports.scheduling import schedule_preview, schedule_remove, schedule_set
from apps.reports.selectors import definitions_listed
from apps.reports.services import definition_create, definition_delete, definition_update
from apps.reports.writing import report_request
from apps.ui.feedback import toast

__all__ = ["DefinitionDelete", "DefinitionEdit", "DefinitionNew", "DefinitionRun", "SchedulePreview"]

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


class _DefinitionPage(ClusterPage):
    scope = "operate"
    template_name = "pages/reports/form.html"

    def definition(self, pk: int) -> ReportDefinition:
        row = definitions_listed().filter(cluster=self.cluster, pk=pk).first()
        if row is None:
            raise Missing(f"Cluster {self.slug!r} has no report definition {pk}.")
        return row

    def show(self, form: DefinitionForm, row: ReportDefinition | None = None, status: int = 200) -> HttpResponse:
        rest = {
            "cluster": self.slug,
            "kind": "provisioning",
            "name": "Weekly provisioning",
            "parameters": {"horizon_days": 28, "growth": 0.6},
            "emails": ["ops@example.org"],
        }
        return self.page({"form": form, "row": row, "rest_body": rest}, status)

    def save(self, form: DefinitionForm, row: ReportDefinition | None = None) -> HttpResponse:
        if form.is_valid():
            saved, is_saved = try_service(form, lambda: self._store(form, row), _NAMES)
            if is_saved:
                return done(self.request, f"{saved} is saved.", "pages:reports", self.slug)
        return self.show(form, row, 422)

    @transaction.atomic
    def _store(self, form: DefinitionForm, row: ReportDefinition | None) -> ReportDefinition:
        """Definition and schedule, both or none. A schedule that stays as it is keeps its next due time."""
        if row is None:
            row = definition_create(cluster=self.cluster, user=self.request.user, **form.values)
        else:
            definition_update(definition=row, **form.values)
        schedule, rule, zone = getattr(row, "schedule", None), form.rule, form.cleaned_data["time_zone"]
        if rule is None:
            if schedule is not None:
                schedule_remove(schedule=schedule)
        elif schedule is None or (schedule.rule, schedule.time_zone) != (rule, zone):
            schedule_set(definition=row, rule=rule, time_zone=zone)
        return row


class DefinitionNew(_DefinitionPage):
    """`/c/<slug>/reports/new/`"""

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        return self.show(DefinitionForm(cluster=self.cluster, initial=DefinitionForm.beginning(self.cluster)))

    def post(self, request: HttpRequest, slug: str) -> HttpResponse:
        return self.save(DefinitionForm(request.POST, cluster=self.cluster))


class DefinitionEdit(_DefinitionPage):
    """`/c/<slug>/reports/definitions/<number>/`"""

    def get(self, request: HttpRequest, slug: str, pk: int) -> HttpResponse:
        row = self.definition(pk)
        return self.show(DefinitionForm(cluster=self.cluster, definition=row, initial=DefinitionForm.shown(row)), row)

    def post(self, request: HttpRequest, slug: str, pk: int) -> HttpResponse:
        row = self.definition(pk)
        return self.save(DefinitionForm(request.POST, cluster=self.cluster, definition=row), row)


class DefinitionDelete(_DefinitionPage):
    """POST: delete a definition with its schedule and its reports."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, slug: str, pk: int) -> HttpResponse:
        row = self.definition(pk)
        definition_delete(definition=row)
        return done(request, f"{row} and its reports are deleted.", "pages:reports", slug)


class DefinitionRun(_DefinitionPage):
    """POST: write a report now. The schedule stays as it is."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, slug: str, pk: int) -> HttpResponse:
        report = report_request(definition=self.definition(pk), user=request.user)
        toast(request, f"{report.definition} is being written.")
        return redirect("pages:report", slug, report.pk)


class SchedulePreview(ClusterPage):
    """POST: the next five runs of what the form says, or what is wrong with it."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, slug: str) -> HttpResponse:
        form = DefinitionForm(request.POST, cluster=self.cluster)
        form.is_valid()
        context: dict[str, Any] = {"zone": form.cleaned_data.get("time_zone") or ""}
        rule = form.rule
        if rule is None:
            return render(request, "pages/reports/runs.html", context)
        try:
            read, runs = schedule_preview(rule=rule, time_zone=context["zone"])
        except SluiceError as error:
            context["faults"] = [fault.message for fault in error.faults] or [error.message]
        else:
            context |= {"rule": read, "runs": runs}
        return render(request, "pages/reports/runs.html", context)
