"""Filters of telemetry's lists, shared by pages and REST."""

from __future__ import annotations

from datetime import timedelta

from django.db.models import QuerySet

from apps.core.clock import shared_now
from apps.core.filters import BooleanFilter, ChoiceFilter, ListFilter, TextFilter, TimeFilter, sort_paths
from apps.telemetry.choices import AgentKind, LiveState
from apps.telemetry.models import Agent
from apps.telemetry.selectors import SILENT_S

__all__ = ["AgentFilter", "EnrolmentFilter", "LiveFilter", "SourceFilter", "TableFilter"]


class AgentFilter(ListFilter):
    """`?cluster=eu-1&kind=agent&heard=false`."""

    cluster = TextFilter("cluster__slug", label="Slug of the cluster")
    name = TextFilter(label="Its name")
    kind = ChoiceFilter(choices=AgentKind.choices)
    enabled = BooleanFilter(label="Whether what it sends is taken")
    heard = BooleanFilter(method="heard_lately", label="Whether it has reported lately")
    last_seen = TimeFilter()
    sorts = sort_paths("name", "kind", "enrolled_at", "last_seen", "version", cluster="cluster__slug")

    def heard_lately(self, agents: QuerySet[Agent], value: bool) -> QuerySet[Agent]:
        since = shared_now() - timedelta(seconds=SILENT_S)
        return agents.filter(last_seen__gte=since) if value else agents.exclude(last_seen__gte=since)


class EnrolmentFilter(ListFilter):
    """`?cluster=eu-1&sort=expires_at`."""

    cluster = TextFilter("cluster__slug", label="Slug of the cluster")
    created_at = TimeFilter()
    expires_at = TimeFilter()
    sorts = sort_paths("created_at", "expires_at", "last_used_at", cluster="cluster__slug")


class SourceFilter(ListFilter):
    """`?cluster=eu-1&kind=log_file`."""

    cluster = TextFilter("cluster__slug", label="Slug of the cluster")
    source_id = TextFilter(label="Its id")
    kind = TextFilter(label="Kind of the collector")
    sorts = sort_paths("source_id", "kind", "updated_at", cluster="cluster__slug")


class TableFilter(ListFilter):
    """`?cluster=eu-1&name=hosts`."""

    cluster = TextFilter("cluster__slug", label="Slug of the cluster")
    name = TextFilter(label="Its name")
    sorts = sort_paths("name", "updated_at", cluster="cluster__slug")


class LiveFilter(ListFilter):
    """`?cluster=eu-1&query=rtt&state=running`."""

    cluster = TextFilter("query__cluster__slug", label="Slug of the cluster")
    query = TextFilter("query__name", label="Name of the query")
    state = ChoiceFilter(choices=LiveState.choices)
    started_at = TimeFilter()
    sorts = sort_paths("started_at", "stopped_at", "state", query="query__name", cluster="query__cluster__slug")
