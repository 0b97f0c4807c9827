"""Filters of the list of incidents, shared by pages and REST."""

from __future__ import annotations

from apps.core.filters import ChoiceFilter, ListFilter, PresenceFilter, TextFilter, TimeFilter, sort_paths
from apps.incidents.choices import IncidentCause, IncidentSeverity, IncidentState

__all__ = ["IncidentFilter"]


class IncidentFilter(ListFilter):
    """`?cluster=eu-1&state=open&severity=critical&acknowledged=false&query=checkout`."""

    cluster = TextFilter("cluster__slug", label="Slug of the cluster")
    state = ChoiceFilter(choices=IncidentState.choices)
    severity = ChoiceFilter(choices=IncidentSeverity.choices)
    cause = ChoiceFilter("cause_kind", choices=IncidentCause.choices, label="Kind of its cause")
    subject = TextFilter("cause_subject", label="The agent, source, node or connection of its cause")
    query = TextFilter("members__query__name", distinct=True, label="Name of a query that took part")
    acknowledged = PresenceFilter("acknowledged_at", label="Whether somebody has seen it")
    opened_at = TimeFilter()
    resolved_at = TimeFilter()
    sorts = sort_paths("opened_at", "resolved_at", "acknowledged_at", "state", "severity", cluster="cluster__slug")
