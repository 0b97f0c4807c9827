"""Reading queries, arrivals and the memory of nodes, and filters of lists."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from django.db.models import Count, Exists, F, FloatField, Max, OuterRef, QuerySet, Subquery, Sum, Window
from django.db.models.functions import Cast, Coalesce, DenseRank

from apps.core.errors import Missing
from apps.core.filters import ChoiceFilter, LabelFilter, ListFilter, NumberFilter, TextFilter, TimeFilter, sort_paths
from apps.fleet.choices import ABSENT, Evidence
from apps.fleet.models import Cluster
from apps.queries.arrivals import series
from apps.queries.bodies import latest_version, with_operators
from apps.queries.choices import ArrivalOrigin, ObjectiveState, QueryState
from apps.queries.models import ArrivalSeries, Operator, OperatorInput, Placement, Query, QueryVersion
from engine.document.elements import Operator as EngineOperator
from engine.document.memory import NodeMemory, state_need_bytes

__all__ = [
    "ArrivalFilter",
    "QueryFilter",
    "SourceReaders",
    "VersionFilter",
    "arrivals_chart",
    "arrivals_listed",
    "cluster_memory",
    "nodes_over_memory",
    "queries_listed",
    "queries_never_run",
    "queries_reading",
    "queries_waiting",
    "query_by_name",
    "readers_by_source",
    "row_need_bytes",
    "version_current",
    "version_never_ran",
    "version_numbered",
    "versions_listed",
]


def queries_listed() -> QuerySet[Query]:
    """Queries with cluster, running version, status, `latest_number` and `operator_count` of the newest version."""
    newest = QueryVersion.objects.filter(query=OuterRef("pk")).order_by("-number")
    operators = newest.annotate(n=Count("operators")).values("n")[:1]
    return Query.objects.select_related("cluster", "running_version", "objective_status", "team").annotate(
        latest_number=Max("versions__number"), operator_count=Subquery(operators)
    )


def queries_waiting(cluster: Cluster) -> list[str]:
    """Names of queries that wait to be admitted: they are no part of what is estimated, placed or sized."""
    queued = cluster.queries.filter(state=QueryState.QUEUED).order_by("name")
    return list(queued.values_list("name", flat=True))


def query_by_name(cluster: Cluster, name: str) -> Query:
    """A cluster's query by its name."""
    query = cluster.queries.select_related("cluster", "running_version", "team").filter(name=name).first()
    if query is None:
        raise Missing(f"Cluster {cluster.slug!r} has no query {name!r}.", [("query", f"no query {name!r}")])
    return query


def versions_listed(query: Query) -> QuerySet[QueryVersion]:
    """A query's versions, newest first, with their operators."""
    return with_operators(query.versions.select_related("created_by"))


def version_current(query: Query) -> QueryVersion:
    """The version that runs, or else the newest, with its operators."""
    if query.running_version_id:
        return with_operators(QueryVersion.objects.filter(pk=query.running_version_id)).get()
    version = latest_version(query)
    if version is None:
        raise Missing(f"Query {query.name!r} has no version.")
    return version


def version_numbered(query: Query, number: int) -> QueryVersion:
    """A version by its number."""
    version = versions_listed(query).filter(number=number).first()
    if version is None:
        numbers = ", ".join(str(n) for n in query.versions.values_list("number", flat=True)[:10])
        raise Missing(
            f"Query {query.name!r} has no version {number}. There are: {numbers}.", [("version", "does not exist")]
        )
    return version


def version_never_ran(version: QueryVersion) -> bool:
    """Whether a version has an input whose cost nobody has measured or assumed: a model predicts it then."""
    return OperatorInput.objects.filter(operator__version=version, cycles_per_event=None).exists()


def queries_never_run(queries: Iterable[int]) -> set[int]:
    """Those of some queries, by id, whose running version, or else the newest, never ran."""
    ids = list(queries)
    if not ids:
        return set()
    newest = QueryVersion.objects.filter(query=OuterRef("pk")).order_by("-number").values("pk")[:1]
    unknown = OperatorInput.objects.filter(operator__version=OuterRef("current"), cycles_per_event=None)
    rows = Query.objects.filter(pk__in=ids).annotate(current=Coalesce("running_version_id", Subquery(newest)))
    rows = rows.filter(Exists(unknown))
    return set(rows.order_by().values_list("pk", flat=True))


def queries_reading(arrivals: ArrivalSeries) -> list[str]:
    """Names of the queries, stopped ones aside, of which a version reads a source."""
    operators = Operator.objects.filter(
        inputs__source_id=arrivals.source_id, version__query__cluster=arrivals.cluster_id
    ).exclude(version__query__state=QueryState.STOPPED)
    return sorted(set(operators.values_list("version__query__name", flat=True)))


class SourceReaders(NamedTuple):
    """Queries that read a source: the first names, and the number of all."""

    names: list[str]
    total: int


def readers_by_source(cluster: Cluster, sources: Sequence[str], first: int | None = None) -> dict[str, SourceReaders]:
    """Queries, stopped ones aside, of which a version reads each of some sources: all names, or the `first`."""
    inputs = OperatorInput.objects.filter(operator__version__query__cluster=cluster, source_id__in=sources)
    pairs = inputs.exclude(operator__version__query__state=QueryState.STOPPED)
    query = "operator__version__query__name"
    place = Window(DenseRank(), partition_by=F("source_id"), order_by=query)
    named = pairs if first is None else pairs.annotate(place=place).filter(place__lte=first)
    totals = pairs.order_by().values_list("source_id").annotate(total=Count("operator__version__query", distinct=True))
    readers = {source: SourceReaders([], total) for source, total in totals}
    for source, name in named.order_by("source_id", query).values_list("source_id", query).distinct():
        readers[source].names.append(name)
    return readers


def arrivals_listed() -> QuerySet[ArrivalSeries]:
    """Arrivals without their data."""
    return ArrivalSeries.objects.select_related("cluster", "team").defer("data")


def arrivals_chart(arrivals: ArrivalSeries, points: int) -> dict[str, object]:
    """A source's rate over the horizon in at most `points` parts: when each begins, its mean and highest events/s."""
    first, mean, largest = series.downsampled(series.unpack(arrivals.data), points)
    return {
        "slice_s": arrivals.slice_s,
        "starts_at": arrivals.starts_at,
        "t_s": (first * arrivals.slice_s).tolist(),
        "mean_eps": (mean / arrivals.slice_s).tolist(),
        "max_eps": (largest / arrivals.slice_s).tolist(),
    }


class QueryFilter(ListFilter):
    """`?cluster=eu-1&state=running&objective_state=breached&name__contains=check&sort=-updated_at`."""

    cluster = TextFilter("cluster__slug", label="Slug of the cluster")
    state = ChoiceFilter(choices=QueryState.choices)
    objective_state = ChoiceFilter("objective_status__state", choices=ObjectiveState.choices, label="Of its objective")
    team = TextFilter("team__name", label="Its team")
    labels = LabelFilter()
    name = TextFilter(label="Its name")
    priority = NumberFilter(whole=True)
    created_at = TimeFilter()
    updated_at = TimeFilter()
    sorts = sort_paths(
        "name",
        "state",
        "priority",
        "created_at",
        "updated_at",
        team="team__name",
        cluster="cluster__slug",
        objective_state="objective_status__state",
        headroom_share="objective_status__headroom_share",
    )


class VersionFilter(ListFilter):
    """`?number__gte=3`."""

    number = NumberFilter(whole=True)
    created_at = TimeFilter()
    sorts = sort_paths("number", "created_at")


class ArrivalFilter(ListFilter):
    """`?cluster=eu-1&source_id__contains=click&evidence=measured`."""

    cluster = TextFilter("cluster__slug", label="Slug of the cluster")
    source_id = TextFilter(label="The source's id")
    team = TextFilter("team__name", label="The team that owns it")
    labels = LabelFilter()
    origin = ChoiceFilter(choices=ArrivalOrigin.choices)
    evidence = ChoiceFilter(choices=Evidence.choices)
    peak_eps = NumberFilter()
    sorts = sort_paths("source_id", "events", "peak_eps", "created_at", "updated_at", cluster="cluster__slug")


_FIELDS = (
    "node_id",
    "fraction",
    "operator__name",
    "operator__version__query__name",
    "operator__kind",
    "operator__stateless",
    "operator__extra",
)


def row_need_bytes(kind: str, stateless: bool | None, extra: Mapping[str, Any]) -> float | None:
    """Bytes of memory that a stored operator's state takes; None where nobody knows."""
    state = {key: extra.get(key) for key in ("state_bytes", "state_on_disk")}
    return state_need_bytes(EngineOperator("", (), (), kind=kind, stateless=stateless, **state))


def cluster_memory(
    cluster: Cluster, *, without: Query | None = None, of: Collection[str] | None = None
) -> dict[str, NodeMemory]:
    """Memory of every node that takes operators, or of some, by name; the operators of one query can be left out."""
    present = cluster.nodes.exclude(state__in=ABSENT).select_related("pool")
    nodes = {node.pk: node for node in (present if of is None else present.filter(name__in=of))}
    held = dict.fromkeys(nodes, 0.0)
    unknown: dict[int, dict[str, None]] = {pk: {} for pk in nodes}
    placements = Placement.objects.filter(node__in=nodes)
    if without is not None:
        placements = placements.exclude(operator__version__query=without)
    for pk, fraction, name, query, kind, stateless, extra in placements.values_list(*_FIELDS):
        need = row_need_bytes(kind, stateless, extra)
        if need is None:
            unknown[pk][f"{query}/{name}"] = None
        else:
            held[pk] += need * fraction
    return {
        node.name: NodeMemory(
            node.name,
            None if node.memory_for_state is None else float(node.memory_for_state),
            held[pk],
            tuple(unknown[pk]),
        )
        for pk, node in nodes.items()
    }


def nodes_over_memory(cluster: Cluster) -> list[NodeMemory]:
    """Nodes whose operators hold more state than the node has memory, the worst first.

    The database finds those that may be, by what their operators state, on disk or not; these alone are looked at.
    """
    stating = Operator.objects.filter(extra__has_key="state_bytes").values("pk")  # few: others are not looked up
    stated = Placement.objects.filter(node__cluster=cluster, operator__in=stating)
    stated = stated.exclude(node__state__in=ABSENT)
    state_bytes = Cast(F("operator__extra__state_bytes"), FloatField())
    held = stated.values("node__name", memory=Coalesce("node__memory_bytes", "node__pool__memory_bytes"))
    held = held.annotate(held=Sum(F("fraction") * state_bytes)).filter(held__gt=F("memory"))
    over = list(held.order_by().values_list("node__name", flat=True))
    entries = cluster_memory(cluster, of=over).values() if over else ()
    return sorted((entry for entry in entries if entry.over_bytes > 0.0), key=lambda entry: -entry.over_bytes)
