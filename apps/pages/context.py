"""Frame around every page: clusters, navigation with counts, running jobs.

Built on first use, so that fragments fetched by htmx do not pay for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Any

from django.db.models import Count, IntegerField, OuterRef, Q, QuerySet, Subquery, Value
from django.db.models.functions import Coalesce
from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse
from django.utils import timezone

from apps.admission.choices import AdmissionState
from apps.admission.models import AdmissionRequest
from apps.connections.choices import ConnectionState
from apps.connections.models import Connection
from apps.core.reach import is_seen_in_part, visible
from apps.estimates.models import ObjectiveStatus
from apps.fleet.models import Cluster, Node
from apps.incidents.choices import IncidentState
from apps.incidents.models import Incident
from apps.incidents.notices import incident_title
from apps.incidents.selectors import incidents_unseen
from apps.jobs.models import FINISHED, Job, JobState
from apps.queries.choices import ObjectiveState, QueryState
from apps.queries.models import Query
from apps.telemetry.models import Agent
from engine.words import counted

__all__ = ["MENU_CLUSTERS_LIMIT", "NavItem", "PageFrame", "clusters_with_counts", "frame", "menu_clusters", "url_of"]

_REMEMBERED = "cluster"
MENU_CLUSTERS_LIMIT = 10
_MENU_JOBS_LIMIT = 5
_MENU_INCIDENTS_LIMIT = 6
_JOBS_LIMIT = 100
_BOTTOM = ("Overview", "Queries", "Admission", "Placement")


def url_of(name: str, *args: Any) -> str:
    """The address of a named page, empty if it does not exist."""
    try:
        return reverse(name, args=args)
    except NoReverseMatch:
        return ""


def clusters_with_counts() -> QuerySet[Cluster]:
    """Clusters that the caller sees, with `node_count`, `query_count`, `running_count`, `waiting_count`,
    `agent_count`, open `incident_count`, `connection_count` with `lost_count` that do not answer well, and by state of
    their objectives `breached_count` and `risky_count`.
    """
    judged = ObjectiveStatus.objects.filter(query__cluster=OuterRef("pk"), query__state=QueryState.RUNNING)
    counts = {
        "node_count": Node.objects.filter(cluster=OuterRef("pk")),
        "query_count": Query.objects.filter(cluster=OuterRef("pk")),
        "running_count": Query.objects.filter(cluster=OuterRef("pk"), state=QueryState.RUNNING),
        "waiting_count": AdmissionRequest.objects.filter(
            cluster=OuterRef("pk"), state__in=[AdmissionState.AWAITING, AdmissionState.QUEUED]
        ),
        "agent_count": Agent.objects.filter(cluster=OuterRef("pk")),
        "connection_count": Connection.objects.filter(cluster=OuterRef("pk")),
        "lost_count": Connection.objects.filter(
            cluster=OuterRef("pk"), state__in=[ConnectionState.AWAY, ConnectionState.REFUSED]
        ),
        "breached_count": judged.filter(state=ObjectiveState.BREACHED),
        "risky_count": judged.filter(state=ObjectiveState.AT_RISK),
        "incident_count": Incident.objects.filter(cluster=OuterRef("pk"), state=IncidentState.OPEN),
    }
    return visible(Cluster.objects.all()).annotate(**{name: _count(rows) for name, rows in counts.items()})


def _count(rows: QuerySet[Any]) -> Coalesce:
    """A correlated count: joins would multiply the rows of several counts."""
    grouped = rows.order_by().annotate(all_rows=Value(1)).values("all_rows").annotate(n=Count("pk")).values("n")
    return Coalesce(Subquery(grouped, output_field=IntegerField()), 0)


def menu_clusters(text: str, limit: int) -> list[Any]:
    """The first clusters whose name, slug or environment has the text, with counts and addresses."""
    named = Q(name__icontains=text) | Q(slug__icontains=text) | Q(environment__icontains=text)
    clusters: list[Any] = list(clusters_with_counts().filter(named if text else Q())[:limit])
    for cluster in clusters:
        cluster.url = url_of("pages:queries" if is_seen_in_part(cluster.pk) else "pages:overview", cluster.slug)
    return clusters


@dataclass(frozen=True)
class NavItem:
    """An entry of the navigation. `key` is its letter after g, `hot` paints its count as something to look at."""

    label: str
    url: str
    icon: str
    key: str = ""
    count: int | None = None
    hot: bool = False
    note: str = ""
    current: bool = False


class PageFrame:
    """Read by templates as `frame`. Every attribute is computed once, when first read."""

    def __init__(self, request: HttpRequest) -> None:
        self.request = request
        user = getattr(request, "user", None)
        self.user = user if user is not None and user.is_authenticated else None
        self.zone = timezone.get_current_timezone_name()

    @property
    def offset(self) -> str:
        """+1, or +5:30."""
        offset = timezone.localtime().utcoffset() or timedelta()
        hours, minutes = divmod(abs(int(offset.total_seconds())) // 60, 60)
        sign = "−" if offset < timedelta() else "+"
        return f"{sign}{hours}" + (f":{minutes:02d}" if minutes else "")

    @cached_property
    def can_operate(self) -> bool:
        return self.user is not None and "operate" in self.user.scopes

    @cached_property
    def can_author(self) -> bool:
        return self.user is not None and "author" in self.user.scopes

    @cached_property
    def clusters(self) -> list[Any]:
        """The first clusters, one more than the menu shows where there are more."""
        return [] if self.user is None else menu_clusters("", MENU_CLUSTERS_LIMIT + 1)

    @property
    def clusters_shown(self) -> list[Any]:
        """Those that the menu shows."""
        return self.clusters[:MENU_CLUSTERS_LIMIT]

    @property
    def has_more_clusters(self) -> bool:
        """Whether the menu needs a search."""
        return len(self.clusters) > MENU_CLUSTERS_LIMIT

    @cached_property
    def cluster(self) -> Any:
        """The cluster of the address, else the last visited one, else the first."""
        match = self.request.resolver_match
        slug = match.kwargs.get("slug") if match and "pages" in match.app_names else None
        session = getattr(self.request, "session", None)
        chosen_slug = slug or (session.get(_REMEMBERED) if session is not None else None)
        chosen = next((cluster for cluster in self.clusters if cluster.slug == chosen_slug), None)
        if chosen is None and chosen_slug and self.has_more_clusters:
            chosen = clusters_with_counts().filter(slug=chosen_slug).first()
        is_named = chosen is not None and chosen.slug == slug
        chosen = chosen or next(iter(self.clusters), None)
        if is_named and session is not None and session.get(_REMEMBERED) != slug:
            session[_REMEMBERED] = slug
        return chosen

    @cached_property
    def incident_count(self) -> int:
        """Open incidents of all clusters that nobody has acknowledged."""
        return 0 if self.user is None else visible(incidents_unseen()).count()

    @cached_property
    def menu_incidents(self) -> list[Any]:
        """The worst of them, with title and address."""
        incidents: list[Any] = list(visible(incidents_unseen())[:_MENU_INCIDENTS_LIMIT]) if self.incident_count else []
        for incident in incidents:
            incident.title = incident_title(incident)
            incident.url = url_of("pages:incident", incident.cluster.slug, incident.pk)
        return incidents

    @cached_property
    def running_jobs(self) -> list[Job]:
        """Running jobs, then waiting ones: the newest hundred, without those of telemetry; the menu shows a few."""
        if self.user is None:
            return []
        unfinished = (
            visible(Job.objects.exclude(state__in=FINISHED))
            .exclude(params__has_key="by_telemetry")
            .defer("params", "result")[:_JOBS_LIMIT]
        )
        jobs = sorted(unfinished, key=lambda job: job.state != JobState.RUNNING)
        for job in jobs:
            job.url = url_of("pages:job", job.pk)
        return jobs

    @property
    def menu_jobs(self) -> list[Job]:
        return self.running_jobs[:_MENU_JOBS_LIMIT]

    @property
    def running_count(self) -> int:
        return len(self.running_jobs)

    @cached_property
    def groups(self) -> list[list[NavItem]]:
        if self.user is None:
            return []
        return [group for group in (self._of_cluster(), self._of_all()) if group]

    def _of_cluster(self) -> list[NavItem]:
        cluster = self.cluster
        if cluster is None:
            return []
        breached = cluster.breached_count
        note = f"{counted(breached, 'objective')} breached"
        if is_seen_in_part(cluster.pk):
            queries = ("Queries", "pages:queries", "queries", "q", None, False, "")
            return self._existing(queries, arguments=(cluster.slug,))
        return self._existing(
            ("Overview", "pages:overview", "overview", "o", breached or None, bool(breached), note),
            ("Incidents", "pages:incidents", "bell", "i", cluster.incident_count or None, False, "open"),
            ("Queries", "pages:queries", "queries", "q", cluster.query_count, False, ""),
            ("Admission", "pages:admissions", "admission", "a", cluster.waiting_count or None, False, "waiting"),
            ("Placement", "pages:placement", "placement", "p", None, False, ""),
            ("Provisioning", "pages:provisioning", "tune", "w", None, False, ""),
            ("Arrivals", "pages:arrivals", "arrivals", "r", None, False, ""),
            ("Sources", "pages:sources", "sources", "s", cluster.agent_count or None, False, "agents"),
            (
                "Connections",
                "pages:connections",
                "link",
                "c",
                cluster.lost_count or cluster.connection_count or None,
                bool(cluster.lost_count),
                "away or refused" if cluster.lost_count else "engines",
            ),
            ("Accuracy", "pages:accuracy", "accuracy", "y", None, False, ""),
            ("Fleet", "pages:fleet", "nodes", "f", cluster.node_count, False, ""),
            ("Reports", "pages:reports", "log", "e", None, False, ""),
            ("History", "pages:changes", "undo", "", None, False, ""),
            arguments=(cluster.slug,),
        )

    def _of_all(self) -> list[NavItem]:
        return self._existing(
            ("Jobs", "pages:jobs", "jobs", "j", None, False, ""),
            ("Settings", "accounts:settings", "settings", ",", None, False, ""),
            ("API", "pages:api", "code", "", None, False, ""),
            ("Help", "pages:help", "help", "h", None, False, ""),
        )

    def _existing(self, *entries: tuple[Any, ...], arguments: tuple[Any, ...] = ()) -> list[NavItem]:
        items = []
        for label, name, icon, key, count, hot, note in entries:
            url = url_of(name, *arguments)
            if url:
                items.append(NavItem(label, url, icon, key, count, hot, note, self._is_current(url, name)))
        return items

    def _is_current(self, url: str, name: str) -> bool:
        path = self.request.path
        if name == "pages:help" and path.startswith(url_of("pages:api")):
            return False  # it has an entry of its own
        if name == "pages:provisioning" and path.startswith(
            tuple(url_of(tab, self.cluster.slug) for tab in ("pages:backtests", "pages:events"))
        ):
            return True  # a tab of it
        return path == url if name == "pages:overview" else path.startswith(url)

    @property
    def keyed(self) -> list[NavItem]:
        return [item for group in self.groups for item in group if item.key]

    @cached_property
    def bottom(self) -> list[NavItem]:
        """Four places for the bar on phones; its fifth opens the rest."""
        by_label = {item.label: item for group in self.groups for item in group}
        return [by_label[label] for label in _BOTTOM if label in by_label]

    @cached_property
    def more(self) -> list[NavItem]:
        """Every place that the bar on phones has no room for."""
        return [item for group in self.groups for item in group if item.label not in _BOTTOM]

    @property
    def is_elsewhere(self) -> bool:
        """True on a page that the bar on phones lists under "More"."""
        return any(item.current for item in self.more)

    @cached_property
    def user_menu(self) -> list[NavItem]:
        entries = [
            ("Settings", "accounts:settings", "settings"),
            ("Tokens", "accounts:tokens", "key"),
            ("Jobs", "pages:jobs", "jobs"),
            ("API", "pages:api", "code"),
            ("Help", "pages:help", "help"),
        ]
        if self.user is not None and "admin" in self.user.scopes:
            entries.insert(2, ("People", "pages:people", "people"))
            entries.insert(3, ("Sluice itself", "pages:operation", "tune"))
        return [NavItem(label, url_of(name), icon) for label, name, icon in entries if url_of(name)]

    @property
    def search_url(self) -> str:
        return self._of_search("pages:search")

    @property
    def suggestions_url(self) -> str:
        return self._of_search("pages:search-suggestions")

    def _of_search(self, page: str) -> str:
        """The search finds all of a cluster: who sees a part of it searches its list of queries."""
        return url_of(page, self.cluster.slug) if self.cluster and not is_seen_in_part(self.cluster.pk) else ""

    @property
    def search_text(self) -> str:
        match = self.request.resolver_match
        return self.request.GET.get("q", "") if match and match.url_name == "search" else ""


def frame(request: HttpRequest) -> dict[str, PageFrame]:
    """Context processor."""
    return {"frame": PageFrame(request)}
