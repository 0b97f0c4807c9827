"""Reads of connections and their imported jobs."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db.models import Count, F, Q, QuerySet

from apps.connections.choices import ConnectionEngine, ConnectionOrigin, ConnectionState
from apps.connections.models import Connection, ImportedJob
from apps.core.clock import shared_now
from apps.core.filters import ChoiceFilter, ListFilter, TextFilter, TimeFilter, sort_paths
from apps.fleet.models import Cluster
from apps.queries.models import Query
from engine.measurement.causes import ENGINE_AWAY, LatenessCause

__all__ = [
    "AWAY_POLLS",
    "STALE_AFTER",
    "ConnectionFilter",
    "ImportedJobFilter",
    "connections_away",
    "connections_due",
    "connections_listed",
    "engines_lost",
    "imported_job_of",
    "jobs_listed",
    "jobs_unobserved",
    "next_round_at",
    "statistics_age",
]


AWAY_POLLS = 4  #: an engine is away once it missed so many of its polls: a restart takes a moment
STALE_AFTER = timedelta(minutes=5)  # statistics that are older are said to be old
_YOUNG = timedelta(minutes=1)  # a connection that was just imported is asked more often, for statistics that hold
_YOUNG_POLL_S = 4.0


def connections_listed() -> QuerySet[Connection]:
    """Connections with cluster, `job_count` and `running_count`."""
    rows = Connection.objects.select_related("cluster", "created_by")
    running = Count("jobs", filter=Q(jobs__state="running"), distinct=True)
    return rows.annotate(job_count=Count("jobs", distinct=True), running_count=running)


def jobs_listed() -> QuerySet[ImportedJob]:
    """Imported jobs with their connection, cluster, query and version."""
    return ImportedJob.objects.select_related("connection__cluster", "query__cluster", "version")


def imported_job_of(query: Query) -> ImportedJob | None:
    """The job of an engine that a query is; None for any other query."""
    return jobs_listed().filter(query=query).first()


def connections_away(cluster: Cluster) -> QuerySet[Connection]:
    """Connections of a cluster that do not answer, or with something else, the longest first."""
    wrong = (ConnectionState.AWAY, ConnectionState.REFUSED)
    return connections_listed().filter(cluster=cluster, state__in=wrong).order_by("state_since")


def engines_lost(cluster: Cluster, now: datetime) -> list[Connection]:
    """Connections of a cluster whose jobs were imported, and that answer nothing legible for longer than some polls."""
    rows = connections_away(cluster).filter(imported_at__isnull=False).defer("findings", "look")
    return [row for row in rows if (now - row.state_since).total_seconds() > AWAY_POLLS * row.poll_interval_s]


def jobs_unobserved(cluster: Cluster, now: datetime) -> dict[int, LatenessCause]:
    """Queries that are jobs of an engine that is away, of which nothing can be observed, by their keys."""
    lost = {row.pk: LatenessCause(ENGINE_AWAY, row.name, state=row.state) for row in engines_lost(cluster, now)}
    rows = ImportedJob.objects.filter(connection__in=lost, query__isnull=False) if lost else ImportedJob.objects.none()
    return {query_id: lost[connection_id] for query_id, connection_id in rows.values_list("query_id", "connection_id")}


def connections_due(now: datetime | None = None) -> list[Connection]:
    """Connections whose next round is due, the longest unasked first.

    One that answers nothing is asked at a tenth of its pace, at least every five minutes.
    """
    present = now or shared_now()
    rows = Connection.objects.filter(origin=ConnectionOrigin.URL, imported_at__isnull=False)
    rows = rows.exclude(state=ConnectionState.PAUSED).order_by(F("asked_at").asc(nulls_first=True), "pk")
    return [row for row in rows if row.asked_at is None or row.asked_at + _interval(row, present) <= present]


def next_round_at(connection: Connection, now: datetime | None = None) -> datetime | None:
    """When a connection is asked next; now where that is overdue, None for one that is not asked."""
    is_asked = connection.origin == ConnectionOrigin.URL and connection.imported_at is not None
    if not is_asked or connection.state == ConnectionState.PAUSED:
        return None
    present = now or shared_now()
    due_at = present if connection.asked_at is None else connection.asked_at + _interval(connection, present)
    return max(due_at, present)


def _interval(connection: Connection, now: datetime) -> timedelta:
    interval_s = connection.poll_interval_s
    if connection.state in {ConnectionState.AWAY, ConnectionState.REFUSED}:
        interval_s = max(interval_s, min(300.0, 10.0 * interval_s))
        # a restart takes a moment: within the first minute the pace stays
        interval_s = connection.poll_interval_s if now - connection.state_since < _YOUNG else interval_s
    elif connection.imported_at is not None and now - connection.imported_at < _YOUNG:
        interval_s = min(interval_s, _YOUNG_POLL_S)
    return timedelta(seconds=interval_s)


def statistics_age(job: ImportedJob, now: datetime | None = None) -> timedelta | None:
    """Age of a job's statistics; None where nothing was measured yet."""
    return None if job.measured_at is None else (now or shared_now()) - job.measured_at


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
