"""The list of a cluster's incidents."""

from __future__ import annotations

from typing import Any

from django.db.models import Count
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.fleet.models import Cluster
from apps.incidents.choices import IncidentSeverity, IncidentState
from apps.incidents.filters import IncidentFilter
from apps.incidents.models import Incident
from apps.incidents.notices import incident_title
from apps.incidents.selectors import incidents_listed
from apps.ui.marks import Mark, icon
from apps.ui.numbers import MISSING
from apps.ui.tables import Choice, Column, Filter, Table
from apps.ui.times import time_tag
from engine.words import duration_words, listed

__all__ = ["incident_mark", "incidents_table", "lasted_words"]

_NAMED = 4
_SEVERITIES = {
    IncidentSeverity.CRITICAL: Mark("bad", "bad", "Critical"),
    IncidentSeverity.WARNING: Mark("watch", "watch", "Warning"),
}


def incident_mark(incident: Incident) -> Mark:
    """Severity while it is open; a ring once it is resolved."""
    if not incident.is_open:
        return Mark("ok", "ok", "Resolved")
    return _SEVERITIES[IncidentSeverity(incident.severity)]


def lasted_words(incident: Incident) -> str:
    """12 min; empty while it is open."""
    if incident.resolved_at is None:
        return ""
    return duration_words((incident.resolved_at - incident.opened_at).total_seconds())


def incidents_table(request: HttpRequest, cluster: Cluster) -> Table:
    """Newest first; chips by state and severity."""
    rows = Incident.objects.filter(cluster=cluster).order_by()
    by_state = dict(rows.values_list("state").annotate(number=Count("pk")))
    by_severity = dict(rows.values_list("severity").annotate(number=Count("pk")))
    states = [Choice(value, label, by_state.get(value, 0)) for value, label in IncidentState.choices]
    severities = [
        Choice(value, label, by_severity.get(value, 0), mark.drawing, mark.tone)
        for (value, label), mark in zip(IncidentSeverity.choices, _SEVERITIES.values(), strict=True)
    ]
    total = sum(by_state.values())
    return Table(
        request,
        _columns(cluster.slug),
        incidents_listed().filter(cluster=cluster).distinct(),  # a search by query joins rows of members
        caption="Incidents",
        default_sort="-opened",
        filters=[
            Filter("state", states, all_count=total),
            Filter("severity", severities, all_label="Every severity", all_count=total),
        ],
        filterset=IncidentFilter,
        search=["cause_subject", "members__query__name", "note"],
        search_label="Query, agent, node, connection or note",
        page_size=25,
        file_name=f"incidents-{cluster.slug}",
        empty={
            "icon": "ok",
            "title": "No incidents yet",
            "text": "One opens by itself when an objective is breached or at risk, or an engine stays away; queries "
            "that are late by one cause share it.",
        },
    )


def _columns(slug: str) -> list[Column]:
    def title(incident: Incident) -> SafeString:
        mark, url = incident_mark(incident), reverse("pages:incident", args=[slug, incident.pk])
        name = format_html('<a class="name" href="{}">{}</a>', url, incident_title(incident))
        shape = icon(mark.drawing, mark.tone or "muted")
        return format_html('<span class="nm">{}{}<span class="vh">{}</span></span>', shape, name, mark.label)

    return [
        Column("incident", "Incident", title, csv=incident_title),
        Column("state", "State", lambda row: row.get_state_display(), sort="state", csv=lambda row: row.state),
        Column("severity", "Severity", lambda row: row.get_severity_display(), sort="severity"),
        Column("queries", "Queries", _queries, csv=lambda row: " ".join(_names(row)), full=True),
        Column(
            "opened",
            "First seen",
            lambda row: time_tag(row.opened_at),
            sort="opened_at",
            csv=lambda row: row.opened_at,
            high_first=True,
        ),
        Column(
            "resolved",
            "Resolved",
            _resolved,
            sort="resolved_at",
            csv=lambda row: row.resolved_at,
            high_first=True,
        ),
        Column("seen", "Acknowledged", _acknowledged, csv=lambda row: row.acknowledged_at),
    ]


def _queries(incident: Incident) -> Any:
    return listed(_names(incident), _NAMED) or MISSING


def _names(incident: Incident) -> list[str]:
    return [member.query.name for member in incident.members.all()]


def _resolved(incident: Incident) -> Any:
    if incident.resolved_at is None:
        return format_html('<span class="muted">{}</span>', "not yet")
    lasted = lasted_words(incident)
    return format_html('{} <span class="muted sm">after {}</span>', time_tag(incident.resolved_at), lasted)


def _acknowledged(incident: Incident) -> Any:
    if incident.acknowledged_at is None:
        return format_html('<span class="muted">{}</span>', "not yet" if incident.is_open else MISSING)
    who = incident.acknowledged_by.get_username() if incident.acknowledged_by else "somebody"
    return format_html("{} {}", who, time_tag(incident.acknowledged_at))
