"""Reading reports, definitions, schedules and webhooks, and the filters of their lists."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from django.db.models import Count, OuterRef, Prefetch, QuerySet, Subquery

from apps.core.filters import BooleanFilter, ChoiceFilter, ListFilter, NumberFilter, TextFilter, TimeFilter, sort_paths
from apps.reports.calendar import read_rule
from apps.reports.choices import ReportKind, ReportState, Trigger
from apps.reports.models import Report, ReportDefinition, ReportSchedule, Webhook

__all__ = [
    "DefinitionFilter",
    "ReportFilter",
    "ScheduleFilter",
    "WebhookFilter",
    "definitions_listed",
    "next_run_text",
    "schedule_sentence",
    "schedules_listed",
    "webhooks_listed",
]


def definitions_listed() -> QuerySet[ReportDefinition]:
    """Every definition with its schedule, webhooks, and its last report's id and state."""
    last = Report.objects.filter(definition=OuterRef("pk")).order_by("-created_at")
    return (
        ReportDefinition.objects.select_related("cluster", "schedule", "created_by")
        .prefetch_related(Prefetch("webhooks", Webhook.objects.order_by("name")))
        .annotate(
            last_report=Subquery(last.values("pk")[:1]),
            last_state=Subquery(last.values("state")[:1]),
            last_at=Subquery(last.values("created_at")[:1]),
            last_finding=Subquery(last.values("finding")[:1]),
        )
    )


def schedules_listed() -> QuerySet[ReportSchedule]:
    """Every schedule, the next one to be due first."""
    return ReportSchedule.objects.select_related("definition__cluster")


def webhooks_listed() -> QuerySet[Webhook]:
    """Every webhook with how many definitions use it."""
    return Webhook.objects.select_related("cluster").annotate(definition_count=Count("definitions", distinct=True))


def schedule_sentence(schedule: ReportSchedule) -> str:
    """every Monday at 07:00 Europe/Berlin; next 23 Nov, 07:00."""
    said = f"{read_rule(schedule.rule).sentence} {schedule.time_zone}"
    if schedule.next_at is None:
        return f"{said}; it has ended"
    return f"{said}; next {next_run_text(schedule.next_at, schedule.time_zone)}"


def next_run_text(moment: datetime, time_zone: str) -> str:
    """23 Nov, 07:00, in the schedule's own zone."""
    local: Any = moment.astimezone(ZoneInfo(time_zone))
    return f"{local.day} {local:%b}, {local:%H:%M}"


class ReportFilter(ListFilter):
    """`?cluster=eu-1&definition=3&kind=provisioning&state=ready&trigger=scheduled`."""

    cluster = TextFilter("definition__cluster__slug", label="Slug of the cluster")
    definition = NumberFilter("definition_id", whole=True, label="Number of its definition")
    kind = ChoiceFilter("definition__kind", choices=ReportKind.choices)
    state = ChoiceFilter(choices=ReportState.choices)
    trigger = ChoiceFilter(choices=Trigger.choices)
    created_at = TimeFilter()
    covers_until = TimeFilter()
    sorts = sort_paths("created_at", "written_at", "covers_until", "state", name="definition__name")


class DefinitionFilter(ListFilter):
    """`?cluster=eu-1&kind=latency&enabled=true`."""

    cluster = TextFilter("cluster__slug", label="Slug of the cluster")
    name = TextFilter(label="Its name")
    kind = ChoiceFilter(choices=ReportKind.choices)
    enabled = BooleanFilter(label="Whether its schedule runs")
    sorts = sort_paths("name", "kind", "created_at", "updated_at", cluster="cluster__slug")


class ScheduleFilter(ListFilter):
    """`?cluster=eu-1&definition=3`."""

    cluster = TextFilter("definition__cluster__slug", label="Slug of the cluster")
    definition = NumberFilter("definition_id", whole=True, label="Number of its definition")
    next_at = TimeFilter()
    sorts = sort_paths("next_at", "last_due_at", definition="definition_id")


class WebhookFilter(ListFilter):
    """`?cluster=eu-1`."""

    cluster = TextFilter("cluster__slug", label="Slug of the cluster")
    name = TextFilter(label="Its name")
    sorts = sort_paths("name", "created_at", "updated_at", cluster="cluster__slug")
