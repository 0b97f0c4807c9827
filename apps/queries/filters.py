"""Filters of the lists of queries, their versions and arrivals, shared by pages and REST."""

from __future__ import annotations

from apps.core.filters import ChoiceFilter, ListFilter, NumberFilter, TextFilter, TimeFilter, sort_paths
from apps.fleet.choices import Evidence
from apps.queries.choices import ArrivalOrigin, ObjectiveState, QueryState

__all__ = ["ArrivalFilter", "QueryFilter", "VersionFilter"]


class QueryFilter(ListFilter):
    """`?cluster=eu-1&state=running&objective_state=breached&name__contains=check&sort=-updated_at`."""

    cluster = TextFilter("cluster__slug", label="Slug of the cluster")
    state = ChoiceFilter(choices=QueryState.choices)
    objective_state = ChoiceFilter("objective_status__state", choices=ObjectiveState.choices, label="Of its objective")
    team = TextFilter(label="Its team")
    name = TextFilter(label="Its name")
    priority = NumberFilter(whole=True)
    created_at = TimeFilter()
    updated_at = TimeFilter()
    sorts = sort_paths(
        "name",
        "team",
        "state",
        "priority",
        "created_at",
        "updated_at",
        cluster="cluster__slug",
        objective_state="objective_status__state",
        headroom_share="objective_status__headroom_share",
    )


class VersionFilter(ListFilter):
    """`?number__gte=3`."""

    number = NumberFilter(whole=True)
    created_at = TimeFilter()
    sorts = sort_paths("number", "created_at")


class ArrivalFilter(ListFilter):
    """`?cluster=eu-1&source_id__contains=click&evidence=measured`."""

    cluster = TextFilter("cluster__slug", label="Slug of the cluster")
    source_id = TextFilter(label="The source's id")
    origin = ChoiceFilter(choices=ArrivalOrigin.choices)
    evidence = ChoiceFilter(choices=Evidence.choices)
    peak_eps = NumberFilter()
    sorts = sort_paths("source_id", "events", "peak_eps", "created_at", "updated_at", cluster="cluster__slug")
