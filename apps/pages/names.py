"""Suggestions for fields in which a name is searched for."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from django.http import HttpRequest, HttpResponse

from apps.core.errors import Malformed
from apps.fleet.choices import NodeState
from apps.fleet.models import Cluster
from apps.microbatch.selectors import spark_queries_visible
from apps.pages.base import ClusterPage
from apps.queries.choices import QueryState
from apps.queries.models import Operator
from apps.queries.snapshots.elements import operator_id

__all__ = ["NamesPart"]

_LIMIT = 20

Pair = tuple[str, str]  # a value and its label


class NamesPart(ClusterPage):
    """`/c/<slug>/search/names/?of=queries&query=che`: names that have what was typed, whatever its field is called."""

    template_name = "ui/name_options.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        of = request.GET.get("of", "")
        if of not in _FINDERS:
            message = f"of is {of!r}; allowed: {', '.join(_FINDERS)}"
            raise Malformed(f"{message}.", [("of", message)])
        typed = next((value for name, value in request.GET.items() if name != "of"), "").strip()
        return self.page({"names": list(_FINDERS[of](self.cluster, typed))[:_LIMIT]})


def _queries(cluster: Cluster, typed: str) -> Iterable[Pair]:
    names = cluster.queries.filter(name__icontains=typed).order_by("name").values_list("name", flat=True)
    return _same(names[:_LIMIT])


def _nodes(cluster: Cluster, typed: str) -> Iterable[Pair]:
    return _same(cluster.nodes.filter(name__icontains=typed).order_by("name").values_list("name", flat=True)[:_LIMIT])


def _active_nodes(cluster: Cluster, typed: str) -> Iterable[Pair]:
    active = cluster.nodes.filter(state=NodeState.ACTIVE, name__icontains=typed)
    return _same(active.order_by("name").values_list("name", flat=True)[:_LIMIT])


def _sources(cluster: Cluster, typed: str) -> Iterable[Pair]:
    """The last of several names apart by commas is the one that is typed."""
    before, comma, last = typed.rpartition(",")
    rows = cluster.arrivals.filter(source_id__icontains=last.strip()).order_by("source_id")
    names = rows.values_list("source_id", flat=True)[:_LIMIT]
    return _same(f"{before}{comma} {name}".strip() for name in names)


def _agents(cluster: Cluster, typed: str) -> Iterable[Pair]:
    return _same(cluster.agents.filter(name__icontains=typed).order_by("name").values_list("name", flat=True)[:_LIMIT])


def _operators(cluster: Cluster, typed: str) -> Iterable[Pair]:
    query, _, name = typed.partition("/")
    rows = Operator.objects.filter(version__running_as__cluster=cluster)
    if name or "/" in typed:
        rows = rows.filter(version__query__name__icontains=query, name__icontains=name)
    elif typed:
        rows = rows.filter(version__query__name__icontains=typed) | rows.filter(name__icontains=typed)
    names = rows.order_by("version__query__name", "position").values_list("version__query__name", "name")
    return _same(operator_id(*pair) for pair in names[:_LIMIT])


def _places(cluster: Cluster, typed: str) -> Iterable[Pair]:
    return [*_nodes(cluster, typed), *_operators(cluster, typed)]


def _plan_sources(cluster: Cluster, typed: str) -> Iterable[Pair]:
    """Spark queries by their fit, and queries that are not stopped by their statistics."""
    text = typed.removeprefix("query:").removeprefix("spark:")
    sparks = spark_queries_visible(cluster).filter(name__icontains=text).values_list("pk", "name")[:_LIMIT]
    queries = cluster.queries.exclude(state=QueryState.STOPPED).filter(name__icontains=text).order_by("name")
    return [
        *((f"spark:{pk}", f"{name}, a Spark query") for pk, name in sparks),
        *((f"query:{name}", name) for name in queries.values_list("name", flat=True)[:_LIMIT]),
    ]


def _same(names: Iterable[str]) -> list[Pair]:
    return [(name, "") for name in names]


_FINDERS: dict[str, Callable[[Cluster, str], Iterable[Pair]]] = {
    "queries": _queries,
    "nodes": _nodes,
    "active-nodes": _active_nodes,
    "sources": _sources,
    "agents": _agents,
    "operators": _operators,
    "places": _places,
    "plan-sources": _plan_sources,
}
