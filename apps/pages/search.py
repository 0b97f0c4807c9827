"""One search over what a cluster has: queries, nodes, sources, decisions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db.models import Q
from django.http import HttpRequest, HttpResponse

from apps.admission.models import AdmissionRequest
from apps.fleet.models import Cluster
from apps.pages.base import ClusterPage
from apps.pages.context import url_of
from apps.ui.marks import STATES, VERDICTS

__all__ = ["Hit", "SearchPage", "hits_of"]

_MOST = 20


@dataclass(frozen=True)
class Hit:
    """Something found."""

    kind: str
    drawing: str
    tone: str
    name: str
    note: str
    url: str


class SearchPage(ClusterPage):
    """`/c/<slug>/search/?q=`"""

    template_name = "pages/search.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        text = request.GET.get("q", "").strip()
        return self.page({"text": text, "hits": hits_of(self.cluster, text) if text else []})


def hits_of(cluster: Cluster, text: str) -> list[Hit]:
    """At most 20 of each kind."""
    return [*_queries(cluster, text), *_nodes(cluster, text), *_sources(cluster, text), *_decisions(cluster, text)]


def _hit(kind: str, mark: Any, name: str, note: str, url: str) -> Hit:
    return Hit(kind, mark.drawing, mark.tone or "muted", name, note, url)


def _queries(cluster: Cluster, text: str) -> list[Hit]:
    wanted = Q(name__icontains=text) | Q(team__icontains=text) | Q(description__icontains=text)
    rows = cluster.queries.filter(wanted).order_by("name")[:_MOST]
    return [
        _hit("Query", STATES[row.state], row.name, row.team, url_of("pages:query", cluster.slug, row.name))
        for row in rows
    ]


def _nodes(cluster: Cluster, text: str) -> list[Hit]:
    rows = cluster.nodes.select_related("pool").filter(Q(name__icontains=text) | Q(pool__name__icontains=text))[:_MOST]
    return [
        _hit("Node", STATES[row.state], row.name, row.pool.name, url_of("pages:node", cluster.slug, row.name))
        for row in rows
    ]


def _sources(cluster: Cluster, text: str) -> list[Hit]:
    rows = cluster.arrivals.filter(Q(source_id__icontains=text) | Q(description__icontains=text)).defer("data")[:_MOST]
    return [
        Hit(
            "Source",
            "arrivals",
            "muted",
            row.source_id,
            row.description,
            url_of("pages:arrivals-detail", cluster.slug, row.pk),
        )
        for row in rows
    ]


def _decisions(cluster: Cluster, text: str) -> list[Hit]:
    rows = AdmissionRequest.objects.filter(cluster=cluster).exclude(verdict="").filter(query__name__icontains=text)
    rows = rows.select_related("version__query").defer("result", "snapshot_parts")[:_MOST]
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
