"""Capacities of queries and clusters as they are kept with estimates, with the time to saturation by forecast; REST."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.http import HttpResponse
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.accounts.choices import Scope
from apps.accounts.permissions import signed_in_user
from apps.core.errors import Missing
from apps.core.metrics import Family, Metric, metrics_response
from apps.core.reach import AskedOn, row_visible
from apps.core.rest.api import ApiMixin
from apps.core.rest.records import StoredRecordField
from apps.estimates.answers import CatchUpTimes
from apps.estimates.capacities import capacity_request
from apps.estimates.models import EstimateRun
from apps.estimates.selectors import query_estimate_latest, run_latest, run_staleness
from apps.fleet.models import Cluster
from apps.fleet.selectors import cluster_by_slug
from apps.jobs.api import JobSerializer, job_response
from apps.planning.forecast_findings import forecast_answer
from apps.planning.models import Forecast
from apps.queries.models import Query
from engine.capacity.answer import ClusterCapacity, QueryCapacity
from engine.forecasts.answer import ForecastAnswer

__all__ = [
    "CapacityMetricsView",
    "ClusterCapacityView",
    "QueryCapacityView",
    "SaturationTimes",
    "capacities_listed",
    "query_capacity",
    "saturation_words",
]

MAX_LISTED = 500  # queries of a cluster, those with the least headroom


@dataclass(frozen=True)
class NamedCapacity:
    """Capacity of one of a cluster's queries."""

    query: str
    query_id: int
    capacity: QueryCapacity


@dataclass(frozen=True)
class SaturationTimes:
    """Times to saturation by the newest forecast of a cluster's load; None of one without a forecast to come."""

    answer: ForecastAnswer | None = None

    @classmethod
    def of(cls, cluster: Cluster) -> SaturationTimes:
        """Those of the newest forecast, unless its time has passed."""
        forecast = Forecast.objects.filter(cluster=cluster).defer("series", "snapshot_parts").first()
        return cls(None if forecast is None or forecast.is_over else forecast_answer(forecast))

    def of_query(self, query: str, capacity: QueryCapacity) -> QueryCapacity:
        """Capacity of a query with its time to saturation, or with the reason for which nobody knows it."""
        found = ((self.answer and self.answer.saturation) or {}).get(query)
        return capacity.dated(found, is_load_forecast=self.answer is not None)

    def of_cluster(self, capacity: ClusterCapacity) -> ClusterCapacity:
        """Capacity of the cluster with its own."""
        found = self.answer and self.answer.cluster_saturation
        return capacity.dated(found, is_load_forecast=self.answer is not None)


def query_capacity(query: Query, kept: QueryCapacity) -> QueryCapacity:
    """A capacity as it was kept, with the time to saturation by the newest forecast."""
    return SaturationTimes.of(query.cluster).of_query(query.name, kept)


def capacities_listed(run: EstimateRun) -> tuple[Sequence[NamedCapacity], int]:
    """Capacities of a run's queries, least headroom first and those without a number last; how many are left out.

    Headroom is that to the objective where it breaks before a server is full.
    """
    rows = run.queries.order_by().values_list("query__name", "query_id", "result__capacity")
    times = SaturationTimes.of(run.cluster)
    found = [
        NamedCapacity(name, pk, times.of_query(name, QueryCapacity.parse(kept))) for name, pk, kept in rows if kept
    ]
    found.sort(
        key=lambda entry: (
            entry.capacity.tightest_factor is None,
            entry.capacity.tightest_factor or 0.0,
            entry.capacity.factor is None,
            entry.capacity.factor or 0.0,
            entry.query,
        )
    )
    return found[:MAX_LISTED], max(0, len(found) - MAX_LISTED)


def saturation_words(capacity: QueryCapacity | ClusterCapacity) -> str:
    """When it saturates by forecast, from now on, or why nobody knows."""
    if capacity.forecast is not None:
        return capacity.forecast.words_at(timezone.now())
    return str(capacity.no_forecast or "")


class _EstimatedSerializer(serializers.Serializer):
    saturation = serializers.CharField(help_text="When it saturates by forecast, or why nobody knows.")
    cluster = serializers.CharField()
    estimated_at = serializers.DateTimeField(help_text="When the estimate was made that it rests on.")
    is_stale = serializers.BooleanField(help_text="Whether the cluster has changed since.")


class QueryLatestCapacitySerializer(_EstimatedSerializer):
    """Largest rate that a running query sustains, what limits it, and where its objective breaks."""

    query = serializers.CharField()
    query_id = serializers.IntegerField()
    capacity = StoredRecordField(QueryCapacity)
    catch_up = StoredRecordField(CatchUpTimes, allow_null=True, help_text="Null: nothing holds it up.")


class NamedCapacitySerializer(serializers.Serializer):
    """Capacity of one query of a cluster."""

    query = serializers.CharField()
    query_id = serializers.IntegerField()
    capacity = StoredRecordField(QueryCapacity)


class ClusterLatestCapacitySerializer(_EstimatedSerializer):
    """Capacity of a cluster as a whole, and of its queries."""

    capacity = StoredRecordField(ClusterCapacity)
    queries = NamedCapacitySerializer(many=True, help_text="At most 500, the least headroom first.")
    more = serializers.IntegerField(help_text="Queries left out.")


class QueryCapacityView(ApiMixin, APIView):
    """Capacity of a query."""

    asked_on = AskedOn.NARROWED

    scopes = {"GET": Scope.READ, "POST": Scope.OPERATE}

    @extend_schema(responses=QueryLatestCapacitySerializer)
    def get(self, request: Request, pk: int) -> Response:
        """Largest sustained rate, by the newest estimate of the query."""
        query = row_visible(Query.objects.select_related("cluster"), pk=pk)
        return Response(self._answer(query))

    @extend_schema(request=None, responses={200: QueryLatestCapacitySerializer, 202: JobSerializer})
    def post(self, request: Request, pk: int) -> Response:
        """Look now for the rates at which the query's objective, and the first of another, break.

        202 with a job, or the capacity with `Prefer: wait=N`.
        """
        query = row_visible(Query.objects.select_related("cluster"), pk=pk)
        self._answer(query)  # refused where it has no capacity
        job = capacity_request(query=query, user=signed_in_user(request))
        address = f"/api/v1/queries/{query.pk}/capacity"
        return job_response(request, job, lambda _: self._answer(query), address=address)

    def _answer(self, query: Query) -> dict[str, Any]:
        row = query_estimate_latest(query)
        if row is None:
            raise Missing(f"Query {query.name} has no capacity: it does not run, or was not estimated yet.")
        kept = row.answer.capacity
        if kept is None:
            raise Missing(f"Query {query.name} has no capacity: its estimate was made without; the next one has it.")
        capacity = query_capacity(query, kept)
        found: dict[str, Any] = {"query": query.name, "query_id": query.pk, "capacity": capacity}
        found["saturation"] = saturation_words(capacity)
        found["catch_up"] = CatchUpTimes.of(row.answer, row.run.created_at)
        return dict(QueryLatestCapacitySerializer(found | _estimated(row.run)).data)


class ClusterCapacityView(ApiMixin, APIView):
    """Capacity of a cluster."""

    asked_on = AskedOn.NARROWED

    scopes = {"GET": Scope.READ}

    @extend_schema(responses=ClusterLatestCapacitySerializer)
    def get(self, request: Request, slug: str) -> Response:
        """Largest sustained rate of the cluster, all sources growing by one factor, and of each of its queries."""
        run, capacity = _cluster_capacity(slug)
        queries, more = capacities_listed(run)
        found = {"capacity": capacity, "saturation": saturation_words(capacity), "queries": queries, "more": more}
        return Response(ClusterLatestCapacitySerializer(found | _estimated(run)).data)


class CapacityMetricsView(ApiMixin, APIView):
    """Metrics for Prometheus."""

    asked_on = AskedOn.NARROWED

    scopes = {"GET": Scope.READ}

    @extend_schema(responses={(200, "text/plain"): OpenApiTypes.STR})
    def get(self, request: Request, slug: str) -> HttpResponse:
        """Capacities of the cluster's queries in Prometheus' text format; what is not known is left out."""
        run, capacity = _cluster_capacity(slug)
        families = _families(run, capacity, capacities_listed(run)[0])
        return metrics_response(request.headers.get("Accept", ""), families)


_NOW = Metric("sluice_capacity_now_per_second", "Rate of a query's sources, events a second.", "now_per_s", ("query",))
_OF_CAPACITIES = (  # of a query with `capacity`, of the whole with `cluster_capacity`
    Metric("rate_per_second", "Largest rate that is sustained.", "rate_per_s"),
    Metric("low_per_second", "Lower end of its 90 % interval.", "low_per_s"),
    Metric("high_per_second", "Upper end of its 90 % interval.", "high_per_s"),
    Metric("at_most_per_second", "Its upper limit where costs are unknown.", "at_most_per_s"),
    Metric("headroom_ratio", "Headroom as a share of the present rate, by the mean load of servers.", "headroom_share"),
    Metric(
        "tightest_factor", "Factor of the rate at which a server is full or an objective breaks.", "tightest_factor"
    ),
)
_OBJECTIVE = Metric(
    "sluice_capacity_objective_per_second", "Rate at which a query's objective breaks.", labels=("query",)
)
_FIRST = Metric("sluice_cluster_capacity_objective_per_second", "Rate at which the first objective breaks.")
_SATURATION = Metric("saturation_timestamp_seconds", "When it saturates by the mean of the forecast.")
_ESTIMATED = Metric("sluice_capacity_estimated_timestamp_seconds", "When capacities were estimated.")


def _families(run: EstimateRun, whole: ClusterCapacity, listed: Sequence[NamedCapacity]) -> Iterator[Family]:
    """All that is known. Statistics of seconds are left out as well: a scrape shows no grounds."""
    yield _ESTIMATED.family(((), run.created_at.timestamp()))
    yield _NOW.family(*(((entry.query,), entry.capacity.now_per_s) for entry in listed))
    of_queries = [((entry.query,), entry.capacity) for entry in listed]
    yield from _capacity_families("sluice_capacity", ("query",), of_queries)
    yield from _capacity_families("sluice_cluster_capacity", (), [((), whole)])
    objectives = [(labels, None if _is_rough(capacity) else capacity.objective) for labels, capacity in of_queries]
    yield _OBJECTIVE.family(*((labels, rate and rate.rate_per_s) for labels, rate in objectives))
    first = None if _is_rough(whole) or whole.broken_objectives else whole.first_objective
    yield _FIRST.family(((), first and first.rate_per_s))


def _capacity_families(
    prefix: str, names: tuple[str, ...], rows: Sequence[tuple[tuple[str, ...], QueryCapacity | ClusterCapacity]]
) -> Iterator[Family]:
    for metric in _OF_CAPACITIES:
        named = replace(metric, name=f"{prefix}_{metric.name}", labels=names)
        yield named.family(*((labels, None if _is_rough(row) else getattr(row, metric.field)) for labels, row in rows))
    moments = [(labels, row.forecast and row.forecast.at) for labels, row in rows]
    named = replace(_SATURATION, name=f"{prefix}_{_SATURATION.name}", labels=names)
    yield named.family(*((labels, moment and moment.timestamp()) for labels, moment in moments))


def _is_rough(capacity: QueryCapacity | ClusterCapacity) -> bool:
    """Whether its statistics cover too little time for its figures to be more than rough."""
    return capacity.measured_s is not None


def _cluster_capacity(slug: str) -> tuple[EstimateRun, ClusterCapacity]:
    cluster = cluster_by_slug(slug)
    run = run_latest(cluster)
    if run is None:
        raise Missing(f"Cluster {cluster.slug} has no capacity: nothing was estimated yet.")
    capacity = run.facts.capacity
    if capacity is None:
        raise Missing(f"Cluster {cluster.slug} has no capacity: nothing ran when it was estimated, or it was not told.")
    run.cluster = cluster
    return run, SaturationTimes.of(cluster).of_cluster(capacity)


def _estimated(run: EstimateRun) -> dict[str, Any]:
    created_at: datetime = run.created_at
    return {
        "cluster": run.cluster.slug,
        "estimated_at": created_at,
        "is_stale": run_staleness(run).is_stale,
    }
