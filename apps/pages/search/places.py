"""Pages and actions of the console that a search finds by their words."""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass

from apps.pages.context import url_of
from apps.pages.search.hits import SearchHit

__all__ = ["FIRST_ACTIONS", "places_of"]


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
    _Place("Overview", "pages:overview", "overview", "home attention objectives"),
    _Place("Incidents", "pages:incidents", "bell", "alarm acknowledge breached history"),
    _Place("Routing of incidents", "pages:incident-routing", "bell", "mail webhook notify retention"),
    _Place("Queries", "pages:queries", "queries", "list"),
    _Place("Admission", "pages:admissions", "admission", "requests decisions queue previews"),
    _Place("Placement", "pages:placement", "placement", "moves search nodes cores"),
    _Place("Provisioning", "pages:provisioning", "tune", "bench how many nodes pools cost"),
    _Place("What-ifs", "pages:what-ifs", "tune", "answers scenarios"),
    _Place("Load histories", "pages:histories", "arrivals", "past weeks forecast"),
    _Place("Backtests", "pages:backtests", "undo", "replay policy past"),
    _Place("Resource plans", "pages:resource-plans", "tune", "spark map reduce"),
    _Place("Spark queries", "pages:spark-queries", "queries", "micro-batch progress"),
    _Place("Arrivals", "pages:arrivals", "arrivals", "sources rates traces"),
    _Place("Sources", "pages:sources", "sources", "agents telemetry live"),
    _Place("History of the stream", "pages:stream-history", "log", "batch jobs parquet spark statistics days"),
    _Place("Connections", "pages:connections", "link", "engines flink spark prometheus kafka jobs"),
    _Place("Configs", "pages:configs", "tune", "rollouts agents canary"),
    _Place("Accuracy", "pages:accuracy", "accuracy", "coverage bias trust calibration"),
    _Place("Fleet", "pages:fleet", "nodes", "nodes machines"),
    _Place("Pools", "pages:pools", "nodes", "node types"),
    _Place("Links", "pages:links", "link", "network bandwidth"),
    _Place("Reports", "pages:reports", "log", "pdf mail schedule"),
    _Place("Jobs", "pages:jobs", "jobs", "background work progress", of_cluster=False),
    _Place("Saved views", "pages:saved-views", "tune", "filters lists default", of_cluster=False),
    _Place("Settings", "accounts:settings", "settings", "time zone keyboard profile", of_cluster=False),
    _Place("Tokens", "accounts:tokens", "key", "api secret", of_cluster=False),
    _Place("People", "pages:people", "people", "users roles", "admin", of_cluster=False),
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
