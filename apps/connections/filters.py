"""Filters of lists of connections and imported jobs, shared by pages and REST."""

from __future__ import annotations

from apps.connections.choices import ConnectionEngine, ConnectionOrigin, ConnectionState
from apps.core.filters import ChoiceFilter, ListFilter, TextFilter, TimeFilter, sort_paths

__all__ = ["ConnectionFilter", "ImportedJobFilter"]


class ConnectionFilter(ListFilter):
    """`?cluster=eu-1&engine=flink&state=away`."""

    cluster = TextFilter("cluster__slug", label="Slug of the cluster")
    name = TextFilter(label="Its name")
    engine = ChoiceFilter(choices=ConnectionEngine.choices)
    origin = ChoiceFilter(choices=ConnectionOrigin.choices)
    state = ChoiceFilter(choices=ConnectionState.choices)
    sorts = sort_paths("name", "engine", "state", "state_since", "answered_at", "created_at", cluster="cluster__slug")


class ImportedJobFilter(ListFilter):
    """`?connection=3&state=running`."""

    cluster = TextFilter("connection__cluster__slug", label="Slug of the cluster")
    connection = TextFilter("connection__name", label="Name of the connection")
    name = TextFilter(label="Its name in the engine")
    state = TextFilter(label="State in the engine's word, such as running")
    started_at = TimeFilter()
    sorts = sort_paths("name", "state", "started_at", "seen_at", "measured_at", query="query__name")
