"""Table of the connections of a cluster, and the marks of their states."""

from __future__ import annotations

from typing import Any

from django.db.models import Count
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.connections.choices import ConnectionEngine, ConnectionOrigin, ConnectionState
from apps.connections.models import Connection
from apps.connections.selectors import ConnectionFilter, connections_listed, next_round_at
from apps.core.addresses import server_of
from apps.fleet.models import Cluster
from apps.pages.saved_views.bar import open_views
from apps.saved_views.models import SavedList
from apps.ui.marks import Mark, icon
from apps.ui.numbers import MISSING, count
from apps.ui.sentences import sentence
from apps.ui.tables import Choice, Column, Filter, Table
from apps.ui.times import time_tag

__all__ = ["connection_address", "connection_mark", "connections_sentence", "connections_table"]

_MARKS = {
    ConnectionState.NEW: Mark("assumed", "", "New"),
    ConnectionState.CONNECTED: Mark("ok", "ok", "Connected"),
    ConnectionState.AWAY: Mark("unknown", "watch", "Away"),
    ConnectionState.REFUSED: Mark("reject", "bad", "Refused"),
    ConnectionState.PAUSED: Mark("pause", "", "Paused"),
}
_COMMAND = "./sluice connect http://HOST:8081"


def connection_mark(connection: Connection) -> Mark:
    """Shape, colour and word of its state."""
    return _MARKS[ConnectionState(connection.state)]


def connection_address(connection: Connection) -> str:
    """Host and port of its address, which everybody may see; the rest may hold a secret."""
    return server_of(connection.url) or ("upload" if connection.origin == ConnectionOrigin.UPLOAD else MISSING)


def connections_sentence(cluster: Cluster) -> SafeString:
    """3 engines: 2 connected, 1 away. 5 of 6 jobs run."""
    rows = list(connections_listed().filter(cluster=cluster).defer("look", "findings"))
    counts = [(state, sum(row.state == state for row in rows)) for state in _MARKS]
    return sentence(
        "pages/connections/sentences/list.html",
        total=len(rows),
        states=[(_MARKS[state].label.lower(), number) for state, number in counts if number],
        jobs=sum(row.job_count for row in rows),
        running=sum(row.running_count for row in rows),
    )


def connections_table(request: HttpRequest, cluster: Cluster, *, can_change: bool) -> Table:
    """Connections by name; chips by state and engine."""
    rows = Connection.objects.filter(cluster=cluster).order_by()
    by_state = dict(rows.values_list("state").annotate(number=Count("pk")))
    by_engine = dict(rows.values_list("engine").annotate(number=Count("pk")))
    states = [
        Choice(state, mark.label, by_state.get(state, 0), mark.drawing, mark.tone or "muted")
        for state, mark in _MARKS.items()
    ]
    engines = [
        Choice(value, label, by_engine[value]) for value, label in ConnectionEngine.choices if value in by_engine
    ]
    filters = [Filter("state", states, all_count=sum(by_state.values()))]
    if len(engines) > 1:
        filters.append(Filter("engine", engines, all_label="Every engine"))
    return Table(
        request,
        _columns(cluster.slug),
        connections_listed().filter(cluster=cluster).defer("look", "findings", "ca_pem"),
        caption="Connections",
        default_sort="name",
        filters=filters,
        filterset=ConnectionFilter,
        search=["name", "url"] if can_change else ["name"],
        search_label="Name or address" if can_change else "Name",
        page_size=25,
        views=open_views(request, SavedList.CONNECTIONS),
        file_name=f"connections-{cluster.slug}",
        empty=_empty(cluster, can_change=can_change),
    )


def _empty(cluster: Cluster, *, can_change: bool) -> dict[str, str]:
    text = format_html(
        "Paste the address of a Flink JobManager, a Spark driver or a Prometheus, or upload their answers. Its jobs "
        "become queries with measured statistics. From a terminal: <code>{}</code>",
        _COMMAND,
    )
    empty = {"icon": "link", "title": "No engine is connected yet", "text": text}
    if can_change:
        url = reverse("pages:connection-new", args=[cluster.slug])
        empty |= {"url": url, "action": "Connect an engine", "action_icon": "plus"}
    return empty


def _columns(slug: str) -> list[Column]:
    def name(row: Connection) -> SafeString:
        mark, url = connection_mark(row), reverse("pages:connection", args=[slug, row.pk])
        shape = icon(mark.drawing, mark.tone or "muted")
        return format_html('<span class="nm">{}<a class="name" href="{}">{}</a></span>', shape, url, row.name)

    return [
        Column("name", "Connection", name, sort="name", csv=lambda row: row.name),
        Column("engine", "Engine", _engine, sort="engine", csv=lambda row: row.engine),
        Column("address", "Address", connection_address, css=lambda row: "long"),
        Column("state", "State", _state, sort="state", csv=lambda row: row.state, css=lambda row: "long"),
        Column("jobs", "Jobs", _jobs, sort="job_count", csv=lambda row: row.job_count, num=True, high_first=True),
        Column(
            "answered",
            "Last poll",
            lambda row: time_tag(row.answered_at),
            sort="answered_at",
            csv=lambda row: row.answered_at,
            num=True,
            high_first=True,
        ),
        Column(
            "next",
            "Next poll",
            lambda row: time_tag(next_round_at(row), relative=False),
            csv=next_round_at,
            num=True,
        ),
    ]


def _engine(row: Connection) -> Any:
    if not row.engine_version:
        return row.get_engine_display()
    return format_html('{} <span class="muted sm">{}</span>', row.get_engine_display(), row.engine_version)


def _state(row: Connection) -> SafeString:
    mark = connection_mark(row)
    since = time_tag(row.state_since)
    return format_html('{} <span class="muted sm">since {}</span>', mark.label, since)


def _jobs(row: Any) -> Any:
    if not row.job_count:
        return MISSING
    if row.running_count == row.job_count:
        return count(row.job_count)
    return format_html('{} <span class="muted sm">of {} run</span>', count(row.running_count), count(row.job_count))
