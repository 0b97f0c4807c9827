"""Filters of lists of reports, in pages and REST alike."""

from __future__ import annotations

from apps.core.filters import BooleanFilter, ChoiceFilter, ListFilter, NumberFilter, TextFilter, TimeFilter, sort_paths
from apps.reports.choices import ReportKind, ReportState, Trigger

__all__ = ["DefinitionFilter", "ReportFilter", "ScheduleFilter", "WebhookFilter"]


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
