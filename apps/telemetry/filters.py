"""Filters of telemetry's lists, shared by pages and REST."""

from __future__ import annotations

from datetime import timedelta

import django_filters as filters
from django.db.models import QuerySet
from django.utils import timezone

from apps.telemetry.choices import AgentKind, LiveState
from apps.telemetry.models import Agent, EnrolmentToken, LiveQuery, StaticTable, TelemetrySource
from apps.telemetry.selectors import SILENT_S

__all__ = ["AgentFilter", "EnrolmentFilter", "LiveFilter", "SourceFilter", "TableFilter"]


class AgentFilter(filters.FilterSet):
    cluster = filters.CharFilter(field_name="cluster__slug", help_text="Slug of the cluster.")
    name = filters.CharFilter(lookup_expr="icontains", help_text="Part of the name.")
    kind = filters.ChoiceFilter(choices=AgentKind.choices)
    enabled = filters.BooleanFilter()
    heard = filters.BooleanFilter(method="heard_lately", help_text="Whether it has reported lately.")

    class Meta:
        model = Agent
        fields: list[str] = []

    def heard_lately(self, agents: QuerySet[Agent], name: str, value: bool) -> QuerySet[Agent]:
        since = timezone.now() - timedelta(seconds=SILENT_S)
        return agents.filter(last_seen__gte=since) if value else agents.exclude(last_seen__gte=since)


class EnrolmentFilter(filters.FilterSet):
    cluster = filters.CharFilter(field_name="cluster__slug", help_text="Slug of the cluster.")

    class Meta:
        model = EnrolmentToken
        fields: list[str] = []


class SourceFilter(filters.FilterSet):
    cluster = filters.CharFilter(field_name="cluster__slug", help_text="Slug of the cluster.")
    kind = filters.CharFilter(help_text="Of the collector.")

    class Meta:
        model = TelemetrySource
        fields: list[str] = []


class TableFilter(filters.FilterSet):
    cluster = filters.CharFilter(field_name="cluster__slug", help_text="Slug of the cluster.")

    class Meta:
        model = StaticTable
        fields: list[str] = []


class LiveFilter(filters.FilterSet):
    cluster = filters.CharFilter(field_name="query__cluster__slug", help_text="Slug of the cluster.")
    query = filters.CharFilter(field_name="query__name", help_text="Name of the query.")
    state = filters.ChoiceFilter(choices=LiveState.choices)

    class Meta:
        model = LiveQuery
        fields: list[str] = []
