"""Filters of lists of reports, in pages and REST alike."""

from __future__ import annotations

import django_filters

from apps.reports.choices import ReportKind, ReportState, Trigger
from apps.reports.models import Report, ReportDefinition, ReportSchedule, Webhook

__all__ = ["DefinitionFilter", "ReportFilter", "ScheduleFilter", "WebhookFilter"]


class ReportFilter(django_filters.FilterSet):
    """`?cluster=eu-1&definition=3&kind=provisioning&state=ready&trigger=scheduled`."""

    cluster = django_filters.CharFilter(field_name="definition__cluster__slug", label="Slug of the cluster")
    definition = django_filters.NumberFilter(field_name="definition_id", label="Number of its definition")
    kind = django_filters.ChoiceFilter(field_name="definition__kind", choices=ReportKind.choices)
    state = django_filters.MultipleChoiceFilter(choices=ReportState.choices)
    trigger = django_filters.MultipleChoiceFilter(choices=Trigger.choices)

    class Meta:
        model = Report
        fields = ["cluster", "definition", "kind", "state", "trigger"]


class DefinitionFilter(django_filters.FilterSet):
    """`?cluster=eu-1&kind=latency&enabled=true`."""

    cluster = django_filters.CharFilter(field_name="cluster__slug", label="Slug of the cluster")
    kind = django_filters.ChoiceFilter(choices=ReportKind.choices)
    enabled = django_filters.BooleanFilter(label="Whether its schedule runs")

    class Meta:
        model = ReportDefinition
        fields = ["cluster", "kind", "enabled"]


class ScheduleFilter(django_filters.FilterSet):
    """`?cluster=eu-1&definition=3`."""

    cluster = django_filters.CharFilter(field_name="definition__cluster__slug", label="Slug of the cluster")
    definition = django_filters.NumberFilter(field_name="definition_id", label="Number of its definition")

    class Meta:
        model = ReportSchedule
        fields = ["cluster", "definition"]


class WebhookFilter(django_filters.FilterSet):
    """`?cluster=eu-1`."""

    cluster = django_filters.CharFilter(field_name="cluster__slug", label="Slug of the cluster")

    class Meta:
        model = Webhook
        fields = ["cluster"]
