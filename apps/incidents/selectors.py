"""Reading incidents: lists and their filters, one with its queries and timeline, and a cluster's routing."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from django.db.models import Count, Prefetch, Q, QuerySet, prefetch_related_objects

from apps.core.filters import (
    BooleanFilter,
    ChoiceFilter,
    ListFilter,
    PresenceFilter,
    TextFilter,
    TimeFilter,
    sort_paths,
)
from apps.fleet.models import Cluster
from apps.incidents.choices import ChannelKind, IncidentCause, IncidentSeverity, IncidentState
from apps.incidents.models import (
    Incident,
    IncidentChannel,
    IncidentEvent,
    IncidentQuery,
    IncidentRouting,
    IncidentSilence,
)

__all__ = [
    "IncidentChannelFilter",
    "IncidentFilter",
    "IncidentSilenceFilter",
    "channels_listed",
    "incident_in_full",
    "incident_rows",
    "incidents_listed",
    "incidents_open",
    "incidents_unseen",
    "incidents_with_members",
    "routing_of",
    "silence_of",
    "silences_listed",
]


def incidents_listed() -> QuerySet[Incident]:
    """Incidents, newest first, with cluster, who acknowledged, and their queries."""
    members = IncidentQuery.objects.select_related("query").order_by("first_at", "pk")
    return incident_rows().prefetch_related(Prefetch("members", members))


def incident_rows() -> QuerySet[Incident]:
    """Incidents, newest first, with cluster and who acknowledged, but none of their queries, which may be thousands."""
    return Incident.objects.select_related("cluster", "acknowledged_by")


def incidents_with_members(rows: Sequence[Incident], first: int | None = None) -> None:
    """Read the queries of incidents, or the `first` of each, in two statements: as `named`, their number as `total`."""
    members = IncidentQuery.objects.select_related("query").order_by("first_at", "pk")
    shown = members if first is None else members[:first]
    prefetch_related_objects(rows, Prefetch("members", shown, to_attr="named"))
    counts = IncidentQuery.objects.filter(incident__in=rows).order_by().values_list("incident")
    totals = dict(counts.annotate(n=Count("pk")))
    for row in rows:
        row.total = totals.get(row.pk, 0)  # type: ignore[attr-defined]


def incident_in_full() -> QuerySet[Incident]:
    """Incidents with their timeline and deliveries."""
    events = IncidentEvent.objects.select_related("user").order_by("at", "pk")
    return incidents_listed().prefetch_related(Prefetch("events", events), "notices__deliveries__notice")


def incidents_open(cluster: Cluster | None = None) -> QuerySet[Incident]:
    """Open incidents, the worst first, then the newest."""
    rows = incident_rows().filter(state=IncidentState.OPEN)
    rows = rows.filter(cluster=cluster) if cluster is not None else rows
    return rows.order_by("severity", "-opened_at")  # critical comes before warning


def incidents_unseen() -> QuerySet[Incident]:
    """Open incidents of all clusters that nobody has acknowledged, the worst first, with `member_count`."""
    rows = Incident.objects.filter(state=IncidentState.OPEN, acknowledged_at=None).select_related("cluster")
    members = Count("members", filter=Q(members__ended_at=None))
    return rows.annotate(member_count=members).order_by("severity", "-opened_at")


def routing_of(cluster: Cluster) -> IncidentRouting:
    """A cluster's routing; the defaults, unsaved, where nobody has said anything."""
    return IncidentRouting.objects.filter(cluster=cluster).first() or IncidentRouting(cluster=cluster)


def channels_listed() -> QuerySet[IncidentChannel]:
    """Channels by name, with their cluster."""
    return IncidentChannel.objects.select_related("cluster").order_by("name")


def silences_listed() -> QuerySet[IncidentSilence]:
    """Silences, the last to end first."""
    return IncidentSilence.objects.select_related("cluster", "created_by")


def silence_of(incident: Incident, now: datetime) -> IncidentSilence | None:
    """The silence in which an incident is told to nobody now. A subject matches its cause's, and each late query."""
    rows = IncidentSilence.objects.filter(cluster=incident.cluster, starts_at__lte=now, ends_at__gt=now)
    rows = rows.filter(cause_kind__in=["", incident.cause_kind])
    named = [row for row in rows if row.subject]
    if len(named) < len(rows):
        return next(row for row in rows if not row.subject)
    late = named and incident.members.filter(ended_at=None).values_list("query__name", flat=True)
    subjects = {incident.cause_subject, *late}
    if late and not all(any(row.subject == name for row in named) for name in late):
        subjects = {incident.cause_subject}  # a query beside it is late that nobody silenced
    return next((row for row in named if row.subject in subjects), None)


class IncidentChannelFilter(ListFilter):
    """`?cluster=eu-1&kind=slack`."""

    cluster = TextFilter("cluster__slug", label="Slug of the cluster")
    kind = ChoiceFilter(choices=ChannelKind.choices)
    sorts = sort_paths("name", "kind", "tried_at", cluster="cluster__slug")


class IncidentSilenceFilter(ListFilter):
    """`?cluster=eu-1`."""

    cluster = TextFilter("cluster__slug", label="Slug of the cluster")
    starts_at = TimeFilter()
    ends_at = TimeFilter()
    sorts = sort_paths("starts_at", "ends_at", cluster="cluster__slug")


class IncidentFilter(ListFilter):
    """`?cluster=eu-1&state=open&severity=critical&acknowledged=false&query=checkout`."""

    cluster = TextFilter("cluster__slug", label="Slug of the cluster")
    state = ChoiceFilter(choices=IncidentState.choices)
    severity = ChoiceFilter(choices=IncidentSeverity.choices)
    cause = ChoiceFilter("cause_kind", choices=IncidentCause.choices, label="Kind of its cause")
    measured = BooleanFilter(label="Whether it was measured; else estimates alone expect it")
    subject = TextFilter("cause_subject", label="The agent, source, node or connection of its cause")
    query = TextFilter("members__query__name", distinct=True, label="Name of a query that took part")
    acknowledged = PresenceFilter("acknowledged_at", label="Whether somebody has seen it")
    opened_at = TimeFilter()
    resolved_at = TimeFilter()
    sorts = sort_paths("opened_at", "resolved_at", "acknowledged_at", "state", "severity", cluster="cluster__slug")
