"""Search: the page with every hit, and the suggestions of the box in the top bar."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from typing import Any

from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse

from apps.accounts.permissions import signed_in_user
from apps.admission.models import AdmissionRequest
from apps.connections.models import Connection
from apps.fleet.models import Cluster, Node
from apps.pages.base import ClusterPage, recent_of
from apps.pages.connections.tables import connection_address, connection_mark
from apps.pages.context import url_of
from apps.pages.labels import LABELS_TEXT, with_labels_text
from apps.queries.choices import QueryState
from apps.queries.models import ArrivalSeries, Query
from apps.queries.selectors import queries_never_run
from apps.telemetry.models import Agent
from apps.ui.marks import STATES, VERDICTS

__all__ = ["SearchPage", "SearchSuggestions"]

_OF_EACH_KIND = 4
_RECENT = 6
_MAX_TEXT = 200  # beyond it no name is that long
_HITS_LIMIT = 20


class SearchPage(ClusterPage):
    """`/c/<slug>/search/?q=`; without a text what was looked at last."""

    template_name = "pages/search/page.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        text = request.GET.get("q", "").strip()[:_MAX_TEXT]
        if not text:
            recent = hits_named(self.cluster, recent_of(request, slug))
            return self.page({"text": text, "hits": [], "recent": recent})
        places = places_of(text, slug, signed_in_user(request).scopes, 20)
        return self.page({"text": text, "hits": [*hits_of(self.cluster, text), *places], "recent": []})


class SearchSuggestions(ClusterPage):
    """`/c/<slug>/search/suggestions/?q=`: the options of the search box, best first."""

    template_name = "pages/search/suggestions.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        text = request.GET.get("q", "").strip()[:_MAX_TEXT]
        places = places_of(text, slug, signed_in_user(request).scopes, _OF_EACH_KIND)
        if not text:
            hits = hits_named(self.cluster, recent_of(request, slug)[:_RECENT])
            return self.page({"text": text, "groups": _grouped([("Recent", hits), ("Actions", places)])})
        rows = sorted(hits_of(self.cluster, text, _OF_EACH_KIND), key=lambda hit: _rank(hit, text))
        pages = [place for place in places if place.kind == "Page"]
        actions = [place for place in places if place.kind == "Action"]
        named = [("In this cluster", rows), ("Pages", pages), ("Actions", actions)]
        return self.page({"text": text, "groups": _grouped(named)})


def _rank(hit: SearchHit, text: str) -> int:
    """Names that are the text first, then those that begin with it."""
    name, typed = hit.name.lower(), text.lower()
    return 0 if name == typed else 1 if name.startswith(typed) else 2


def _grouped(groups: list[tuple[str, list[SearchHit]]]) -> list[tuple[str, list[tuple[int, SearchHit]]]]:
    """Each group's hits with their numbers in the whole list; empty groups are left out."""
    numbered, number = [], 0
    for title, hits in groups:
        if hits:
            numbered.append((title, list(enumerate(hits, number))))
            number += len(hits)
    return numbered


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
    queries = with_labels_text(_queries(cluster)).filter(
        _contains(text, "name", "team__name", "description", LABELS_TEXT)
    )
    queries = queries.order_by("name")
    nodes = with_labels_text(_nodes(cluster)).filter(_contains(text, "name", "pool__name", LABELS_TEXT))
    sources = with_labels_text(_sources(cluster)).filter(_contains(text, "source_id", "description", LABELS_TEXT))
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
    return cluster.queries.select_related("objective_status", "team")


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
    new = queries_never_run(row.pk for row in listed)
    return [
        _hit(
            "Query",
            STATES[_query_state(row)],
            row.name,
            ", ".join([str(row.team)] * bool(row.team) + ["never ran"] * (row.pk in new)),
            url_of("pages:query", cluster.slug, row.name),
        )
        for row in listed
    ]


def _query_state(query: Query) -> str:
    """State of its objective while it runs, else the query's own; "running" where it has neither."""
    standing = getattr(query, "objective_status", None)
    return str(standing.mark if standing is not None and query.state == QueryState.RUNNING else query.state)


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


@dataclass(frozen=True)
class _Place:
    """A page, or an action where `scope` is more than reading. `words` find it besides its label."""

    label: str
    page: str
    icon: str
    words: str = ""
    scope: str = "read"
    of_cluster: bool = True


_ACTIONS = (
    _Place("Preview a query", "pages:admission-new", "admission", "admit admission run request", "operate"),
    _Place("New query", "pages:query-new", "plus", "create add describe operators", "operate"),
    _Place("New arrival source", "pages:arrivals-new", "arrivals", "upload trace generator create add", "operate"),
    _Place("New node", "pages:node-new", "nodes", "create add register machine", "operate"),
    _Place("New pool", "pages:pool-new", "nodes", "create add node type", "operate"),
    _Place("New link", "pages:link-new", "link", "create add bandwidth delay", "operate"),
    _Place("Evacuate nodes", "pages:evacuation-new", "nodes", "drain empty maintenance upgrade rack", "operate"),
    _Place("Import nodes", "pages:fleet-import", "upload", "csv table links bulk", "operate"),
    _Place("Import a document", "pages:import-new", "upload", "deployment json", "operate"),
    _Place("Connect an engine", "pages:connection-new", "link", "flink spark prometheus kafka url import", "operate"),
    _Place("New live query", "pages:live-new", "sources", "template telemetry start create", "operate"),
    _Place("New telemetry source", "pages:source-new", "sources", "collector records create add", "operate"),
    _Place("Define a report", "pages:report-new", "log", "new create schedule mail pdf", "operate"),
    _Place("Add a load history", "pages:history-new", "arrivals", "upload forecast past weeks new", "operate"),
    _Place("Watch a Spark query", "pages:spark-query-new", "queries", "new micro-batch streaming", "operate"),
    _Place("Cluster settings", "pages:cluster-edit", "settings", "time zone horizon rules currency", "operate"),
    _Place("New cluster", "pages:cluster-new", "plus", "create add", "operate", of_cluster=False),
)
_PAGES = (
    _Place("Policy", "pages:policy", "admission", "quota freeze override evidence priority class margin"),
    _Place("Overview", "pages:overview", "overview", "home attention objectives"),
    _Place("Incidents", "pages:incidents", "bell", "alarm acknowledge breached history"),
    _Place("Channels of incidents", "pages:incident-channels", "bell", "slack teams pagerduty opsgenie silence mute"),
    _Place("Panel to embed", "pages:embed-link", "link", "iframe embed share wall wiki grafana"),
    _Place("Routing of incidents", "pages:incident-routing", "bell", "mail webhook notify retention"),
    _Place("Queries", "pages:queries", "queries", "list"),
    _Place("Admission", "pages:admissions", "admission", "requests decisions queue previews"),
    _Place("Replays of decisions", "pages:month-replay", "undo", "month today otherwise verdicts past again"),
    _Place("Placement", "pages:placement", "placement", "moves search nodes cores"),
    _Place("Provisioning", "pages:provisioning", "tune", "bench how many nodes pools cost"),
    _Place("What-ifs", "pages:what-ifs", "tune", "answers scenarios"),
    _Place("Load histories", "pages:histories", "arrivals", "past weeks forecast"),
    _Place("Backtests", "pages:backtests", "undo", "replay policy past"),
    _Place("Events", "pages:events", "queue", "black friday peak season plan check-list factor"),
    _Place("Resource plans", "pages:resource-plans", "tune", "spark map reduce"),
    _Place("Spark queries", "pages:spark-queries", "queries", "micro-batch progress"),
    _Place("Arrivals", "pages:arrivals", "arrivals", "sources rates traces"),
    _Place("Sources", "pages:sources", "sources", "agents telemetry live"),
    _Place("History of the stream", "pages:stream-history", "log", "batch jobs parquet spark statistics days"),
    _Place("History", "pages:changes", "undo", "changes log audit ledger who undo deleted restore"),
    _Place("Connections", "pages:connections", "link", "engines flink spark prometheus kafka jobs"),
    _Place("Configs", "pages:configs", "tune", "rollouts agents canary"),
    _Place("Accuracy", "pages:accuracy", "accuracy", "coverage bias trust calibration"),
    _Place("Fleet", "pages:fleet", "nodes", "nodes machines"),
    _Place("Pools", "pages:pools", "nodes", "node types"),
    _Place("Links", "pages:links", "link", "network bandwidth"),
    _Place("Evacuations", "pages:evacuations", "nodes", "drain maintenance rolling upgrade rack away"),
    _Place("Reports", "pages:reports", "log", "pdf mail schedule"),
    _Place("Whole history", "pages:ledger", "log", "ledger audit refused people tokens", "admin", of_cluster=False),
    _Place("Webhook of the history", "pages:ledger-webhook", "log", "audit cloudevents", "admin", of_cluster=False),
    _Place("Jobs", "pages:jobs", "jobs", "background work progress", of_cluster=False),
    _Place("Saved views", "pages:saved-views", "tune", "filters lists default", of_cluster=False),
    _Place("Settings", "accounts:settings", "settings", "time zone keyboard profile", of_cluster=False),
    _Place("Tokens", "accounts:tokens", "key", "api secret", of_cluster=False),
    _Place("Sign-in", "signin:settings", "key", "sessions second factor code password link", of_cluster=False),
    _Place("People", "pages:people", "people", "users roles", "admin", of_cluster=False),
    _Place("Invitations", "signin:invitations", "people", "invite new person link", "admin", of_cluster=False),
    _Place("Service accounts", "signin:service-accounts", "key", "programs ci tokens", "admin", of_cluster=False),
    _Place("API", "pages:api", "code", "rest curl openapi", of_cluster=False),
    _Place("Help", "pages:help", "help", "glossary guides words", of_cluster=False),
)
FIRST_ACTIONS = 4  # shown before anything is typed


def places_of(text: str, slug: str, scopes: Set[str], limit: int) -> list[SearchHit]:
    """Pages and actions whose label or words have every typed word in them, labels that begin with it first.

    Without a text the first actions.
    """
    if not text:
        return _hits("Action", _allowed(_ACTIONS, scopes), slug)[:FIRST_ACTIONS]
    words = text.lower().split()

    def matching(places: Iterable[_Place]) -> list[_Place]:
        kept = [place for place in places if all(word in f"{place.label} {place.words}".lower() for word in words)]
        return sorted(kept, key=lambda place: not place.label.lower().startswith(text.lower()))

    actions = _hits("Action", matching(_allowed(_ACTIONS, scopes)), slug)
    return [*_hits("Page", matching(_allowed(_PAGES, scopes)), slug)[:limit], *actions[:limit]]


def _allowed(places: Iterable[_Place], scopes: Set[str]) -> list[_Place]:
    return [place for place in places if place.scope in scopes]


def _hits(kind: str, places: Iterable[_Place], slug: str) -> list[SearchHit]:
    addressed = [(place, url_of(place.page, *([slug] if place.of_cluster else []))) for place in places]
    return [SearchHit(kind, place.icon, "muted", place.label, "", url) for place, url in addressed]
