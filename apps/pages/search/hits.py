"""Rows of a cluster that a text is part of the name of, or that somebody looked at last."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Q, QuerySet

from apps.admission.models import AdmissionRequest
from apps.connections.models import Connection
from apps.fleet.models import Cluster, Node
from apps.pages.connections.tables import connection_address, connection_mark
from apps.pages.context import url_of
from apps.queries.choices import QueryState
from apps.queries.models import ArrivalSeries, Query
from apps.queries.selectors import queries_never_run
from apps.telemetry.models import Agent
from apps.ui.marks import STATES, VERDICTS

__all__ = ["SearchHit", "hits_named", "hits_of"]

_HITS_LIMIT = 20


@dataclass(frozen=True)
class SearchHit:
    """A search result."""

    kind: str
    drawing: str
    tone: str
    name: str
    note: str
    url: str


def hits_of(cluster: Cluster, text: str, limit: int = _HITS_LIMIT) -> list[SearchHit]:
    """At most `limit` of each kind: queries, nodes, sources, agents, connections, decisions."""
    queries = _queries(cluster).filter(_contains(text, "name", "team", "description")).order_by("name")
    nodes = _nodes(cluster).filter(_contains(text, "name", "pool__name"))
    sources = _sources(cluster).filter(_contains(text, "source_id", "description"))
    agents = cluster.agents.filter(_contains(text, "name", "host")).order_by("name")
    connections = _connections(cluster).filter(_contains(text, "name", "engine", "jobs__name")).distinct()
    decisions = _decisions(cluster).filter(query__name__icontains=text)
    return [
        *_query_hits(cluster, queries[:limit]),
        *_node_hits(cluster, nodes[:limit]),
        *_source_hits(cluster, sources[:limit]),
        *_agent_hits(cluster, agents[:limit]),
        *_connection_hits(cluster, connections[:limit]),
        *_decision_hits(cluster, decisions[:limit]),
    ]


def hits_named(cluster: Cluster, wanted: Sequence[tuple[str, str]]) -> list[SearchHit]:
    """The rows of a cluster that (kind, key) name, in that order; what is gone is left out.

    Keys are those of their pages: names of queries, nodes and agents, ids of sources, connections and decisions.
    """
    keys: dict[str, list[str]] = {}
    for kind, key in wanted:
        keys.setdefault(kind, []).append(key)
    found: dict[tuple[str, str], SearchHit] = {}
    for kind, hits, rows, field in _kinds(cluster):
        if kind in keys:
            chosen = list(rows.filter(**{f"{field}__in": keys[kind]}))
            named = zip(chosen, hits(cluster, chosen), strict=True)
            found |= {(kind, str(getattr(row, field))): hit for row, hit in named}
    return [found[key] for key in wanted if key in found]


def _kinds(cluster: Cluster) -> list[tuple[str, Any, QuerySet[Any], str]]:
    """(kind, hits of rows, rows, field of the key)."""
    return [
        ("query", _query_hits, _queries(cluster), "name"),
        ("node", _node_hits, _nodes(cluster), "name"),
        ("source", _source_hits, _sources(cluster), "pk"),
        ("agent", _agent_hits, cluster.agents.all(), "name"),
        ("connection", _connection_hits, _connections(cluster), "pk"),
        ("decision", _decision_hits, _decisions(cluster), "pk"),
    ]


def _queries(cluster: Cluster) -> QuerySet[Query]:
    return cluster.queries.select_related("objective_status")


def _nodes(cluster: Cluster) -> QuerySet[Node]:
    return cluster.nodes.select_related("pool")


def _sources(cluster: Cluster) -> QuerySet[ArrivalSeries]:
    return cluster.arrivals.defer("data")


def _connections(cluster: Cluster) -> QuerySet[Connection]:
    return cluster.connections.only("name", "engine", "origin", "url", "state")


def _decisions(cluster: Cluster) -> QuerySet[AdmissionRequest]:
    rows = AdmissionRequest.objects.filter(cluster=cluster).exclude(verdict="")
    return rows.select_related("version__query").defer("result", "snapshot_parts")


def _contains(text: str, *fields: str) -> Q:
    return Q(*[(f"{field}__icontains", text) for field in fields], _connector=Q.OR)


def _hit(kind: str, mark: Any, name: str, note: str, url: str) -> SearchHit:
    return SearchHit(kind, mark.drawing, mark.tone or "muted", name, note, url)


def _query_hits(cluster: Cluster, rows: Iterable[Query]) -> list[SearchHit]:
    listed = list(rows)
    new = queries_never_run(cluster) if listed else set()
    return [
        _hit(
            "Query",
            STATES[_query_state(row)],
            row.name,
            ", ".join([row.team] * bool(row.team) + ["never ran"] * (row.pk in new)),
            url_of("pages:query", cluster.slug, row.name),
        )
        for row in listed
    ]


def _query_state(query: Query) -> str:
    """State of its objective while it runs, else the query's own; "running" where it has neither."""
    standing = getattr(query, "objective_status", None)
    return str(standing.state if standing is not None and query.state == QueryState.RUNNING else query.state)


def _node_hits(cluster: Cluster, rows: Iterable[Node]) -> list[SearchHit]:
    return [
        _hit("Node", STATES[row.state], row.name, row.pool.name, url_of("pages:node", cluster.slug, row.name))
        for row in rows
    ]


def _source_hits(cluster: Cluster, rows: Iterable[ArrivalSeries]) -> list[SearchHit]:
    return [
        SearchHit(
            "Source",
            "arrivals",
            "muted",
            row.source_id,
            row.description,
            url_of("pages:arrivals-detail", cluster.slug, row.pk),
        )
        for row in rows
    ]


def _agent_hits(cluster: Cluster, rows: Iterable[Agent]) -> list[SearchHit]:
    return [
        SearchHit("Agent", "sources", "muted", row.name, row.host, url_of("pages:agent", cluster.slug, row.name))
        for row in rows
    ]


def _connection_hits(cluster: Cluster, rows: Iterable[Connection]) -> list[SearchHit]:
    return [
        _hit(
            "Connection",
            connection_mark(row),
            row.name,
            f"{row.get_engine_display()}, {connection_address(row)}",
            url_of("pages:connection", cluster.slug, row.pk),
        )
        for row in rows
    ]


def _decision_hits(cluster: Cluster, rows: Iterable[AdmissionRequest]) -> list[SearchHit]:
    return [
        _hit(
            "Decision",
            VERDICTS[row.verdict],
            f"{VERDICTS[row.verdict].label}: {row.version}",
            row.get_state_display(),
            url_of("pages:admission", cluster.slug, row.pk),
        )
        for row in rows
    ]
