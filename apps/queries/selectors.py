"""Reading queries, versions and arrivals."""

from __future__ import annotations

from typing import Any

from django.db.models import Count, Exists, Max, OuterRef, QuerySet, Subquery
from django.db.models.functions import Coalesce

from apps.core.errors import Missing
from apps.fleet.models import Cluster
from apps.queries.arrivals import series
from apps.queries.bodies import latest_version, with_operators
from apps.queries.choices import QueryState
from apps.queries.models import ArrivalSeries, Operator, OperatorInput, Query, QueryVersion

__all__ = [
    "arrivals_chart",
    "arrivals_listed",
    "queries_listed",
    "queries_never_run",
    "queries_reading",
    "query_by_name",
    "readers_by_source",
    "version_current",
    "version_never_ran",
    "version_numbered",
    "versions_listed",
]


def queries_listed() -> QuerySet[Query]:
    """Queries with cluster, running version, status, `latest_number` and `operator_count` of the newest version."""
    newest = QueryVersion.objects.filter(query=OuterRef("pk")).order_by("-number")
    operators = newest.annotate(n=Count("operators")).values("n")[:1]
    return Query.objects.select_related("cluster", "running_version", "objective_status").annotate(
        latest_number=Max("versions__number"), operator_count=Subquery(operators)
    )


def query_by_name(cluster: Cluster, name: str) -> Query:
    """A cluster's query by its name."""
    query = cluster.queries.select_related("cluster", "running_version").filter(name=name).first()
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


def queries_never_run(cluster: Cluster) -> set[int]:
    """Ids of the queries whose running version, or else the newest, never ran."""
    newest = QueryVersion.objects.filter(query=OuterRef("pk")).order_by("-number").values("pk")[:1]
    unknown = OperatorInput.objects.filter(operator__version=OuterRef("current"), cycles_per_event=None)
    rows = cluster.queries.annotate(current=Coalesce("running_version_id", Subquery(newest))).filter(Exists(unknown))
    return set(rows.order_by().values_list("pk", flat=True))


def queries_reading(arrivals: ArrivalSeries) -> list[str]:
    """Names of the queries, stopped ones aside, of which a version reads a source."""
    operators = Operator.objects.filter(
        inputs__source_id=arrivals.source_id, version__query__cluster=arrivals.cluster_id
    ).exclude(version__query__state=QueryState.STOPPED)
    return sorted(set(operators.values_list("version__query__name", flat=True)))


def readers_by_source(cluster: Cluster) -> dict[str, list[str]]:
    """For each source of a cluster the names of the queries, stopped ones aside, of which a version reads it."""
    inputs = OperatorInput.objects.filter(operator__version__query__cluster=cluster).exclude(source_id="")
    pairs = inputs.exclude(operator__version__query__state=QueryState.STOPPED)
    readers: dict[str, set[str]] = {}
    for source_id, name in pairs.values_list("source_id", "operator__version__query__name").distinct():
        readers.setdefault(source_id, set()).add(name)
    return {source_id: sorted(names) for source_id, names in readers.items()}


def arrivals_listed() -> QuerySet[ArrivalSeries]:
    """Arrivals without their data."""
    return ArrivalSeries.objects.select_related("cluster").defer("data")


def arrivals_chart(arrivals: ArrivalSeries, points: int) -> dict[str, Any]:
    """A source's rate over the horizon in at most `points` parts: when each begins, its mean and highest events/s."""
    first, mean, largest = series.downsampled(series.unpack(arrivals.data), points)
    return {
        "slice_s": arrivals.slice_s,
        "starts_at": arrivals.starts_at,
        "t_s": (first * arrivals.slice_s).tolist(),
        "mean_eps": (mean / arrivals.slice_s).tolist(),
        "max_eps": (largest / arrivals.slice_s).tolist(),
    }
