"""Capacities of queries and clusters as they are kept with estimates, with the time to saturation by forecast; REST."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.http import HttpResponse
from django.shortcuts import get_object_or_404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.accounts.choices import Scope
from apps.core.errors import Missing
from apps.core.metrics import CONTENT_TYPE, Metric, metric_label, metric_lines
from apps.core.rest.api import ApiMixin
from apps.core.rest.records import StoredRecordField
from apps.estimates.answers import CatchUpTimes
from apps.estimates.models import EstimateRun
from apps.estimates.selectors import query_estimate_latest, run_latest, run_staleness
from apps.fleet.models import Cluster
from apps.fleet.selectors import cluster_by_slug
from apps.planning.forecast_findings import forecast_answer
from apps.planning.models import Forecast
from apps.queries.models import Query
from engine.capacity.answer import KNOWN, ClusterCapacity, QueryCapacity, SaturationForecast

__all__ = [
    "CapacityMetricsView",
    "ClusterCapacityView",
    "QueryCapacityView",
    "capacities_listed",
    "query_capacity",
    "with_forecast",
]

MAX_LISTED = 500  # queries of a cluster, those with the least headroom


@dataclass(frozen=True)
class NamedCapacity:
    """Capacity of one of a cluster's queries."""

    query: str
    query_id: int
    capacity: QueryCapacity


def query_capacity(query: Query, kept: QueryCapacity) -> QueryCapacity:
    """A capacity as it was kept, with the time to saturation by the newest forecast."""
    return with_forecast(kept, _forecasts(query.cluster).get(query.name)) if kept.state == KNOWN else kept


def with_forecast(capacity: QueryCapacity, forecast: SaturationForecast | None) -> QueryCapacity:
    """A capacity with its time to saturation; one that is not known has none."""
    return capacity if capacity.state != KNOWN or forecast is None else replace(capacity, forecast=forecast)


def _forecasts(cluster: Cluster) -> Mapping[str, SaturationForecast]:
    """Times to saturation by query, of the newest forecast unless its time has passed."""
    forecast = Forecast.objects.filter(cluster=cluster).defer("series", "snapshot_parts").first()
    if forecast is None or forecast.is_over:
        return {}
    return forecast_answer(forecast).saturation or {}


def capacities_listed(run: EstimateRun) -> tuple[Sequence[NamedCapacity], int]:
    """Capacities of a run's queries, least headroom first and those without a number last; how many are left out."""
    rows = run.queries.order_by().values_list("query__name", "query_id", "result__capacity")
    forecasts = _forecasts(run.cluster)
    found = [
        NamedCapacity(name, pk, with_forecast(QueryCapacity.parse(kept), forecasts.get(name)))
        for name, pk, kept in rows
        if kept
    ]
    found.sort(key=lambda entry: (entry.capacity.factor is None, entry.capacity.factor or 0.0, entry.query))
    return found[:MAX_LISTED], max(0, len(found) - MAX_LISTED)


class _EstimatedSerializer(serializers.Serializer):
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

    scopes = {"GET": Scope.READ}

    @extend_schema(responses=QueryLatestCapacitySerializer)
    def get(self, request: Request, pk: int) -> Response:
        """Largest sustained rate, by the newest estimate of the query."""
        query = get_object_or_404(Query.objects.select_related("cluster"), pk=pk)
        row = query_estimate_latest(query)
        if row is None:
            raise Missing(f"Query {query.name} has no capacity: it does not run, or was not estimated yet.")
        kept = row.answer.capacity
        if kept is None:
            raise Missing(f"Query {query.name} has no capacity: its estimate was made without; the next one has it.")
        found: dict[str, Any] = {"query": query.name, "query_id": query.pk, "capacity": query_capacity(query, kept)}
        found["catch_up"] = CatchUpTimes.of(row.answer, row.run.created_at)
        return Response(QueryLatestCapacitySerializer(found | _estimated(row.run)).data)


class ClusterCapacityView(ApiMixin, APIView):
    """Capacity of a cluster."""

    scopes = {"GET": Scope.READ}

    @extend_schema(responses=ClusterLatestCapacitySerializer)
    def get(self, request: Request, slug: str) -> Response:
        """Largest sustained rate of the cluster, all sources growing by one factor, and of each of its queries."""
        run, capacity = _cluster_capacity(slug)
        queries, more = capacities_listed(run)
        found = {"capacity": capacity, "queries": queries, "more": more}
        return Response(ClusterLatestCapacitySerializer(found | _estimated(run)).data)


class CapacityMetricsView(ApiMixin, APIView):
    """Metrics for Prometheus."""

    scopes = {"GET": Scope.READ}

    @extend_schema(responses={(200, "text/plain"): OpenApiTypes.STR})
    def get(self, request: Request, slug: str) -> HttpResponse:
        """Capacities of the cluster's queries in Prometheus' text format; what is not known is left out."""
        run, _ = _cluster_capacity(slug)
        text = "".join(f"{line}\n" for line in _metric_lines(run, capacities_listed(run)[0]))
        return HttpResponse(text, content_type=CONTENT_TYPE)


_OF_QUERIES = (
    Metric("sluice_capacity_now_per_second", "Rate of a query's sources, events a second.", "now_per_s"),
    Metric("sluice_capacity_rate_per_second", "Largest rate that a query sustains.", "rate_per_s"),
    Metric("sluice_capacity_low_per_second", "Lower end of its 90 % interval.", "low_per_s"),
    Metric("sluice_capacity_high_per_second", "Upper end of its 90 % interval.", "high_per_s"),
    Metric("sluice_capacity_at_most_per_second", "Its upper limit where costs are unknown.", "at_most_per_s"),
    Metric("sluice_capacity_headroom_ratio", "Headroom as a share of the present rate.", "headroom_share"),
)
_OBJECTIVE = Metric("sluice_capacity_objective_per_second", "Rate at which a query's objective breaks.", "")
_ESTIMATED = Metric("sluice_capacity_estimated_timestamp_seconds", "When capacities were estimated.", "")


def _metric_lines(run: EstimateRun, listed: Sequence[NamedCapacity]) -> Iterator[str]:
    yield from metric_lines(_ESTIMATED, [("", run.created_at.timestamp())])
    labels = [metric_label("query", entry.query) for entry in listed]
    for metric in _OF_QUERIES:
        values = [getattr(entry.capacity, metric.field) for entry in listed]
        yield from metric_lines(metric, list(zip(labels, values, strict=True)))
    objectives = [entry.capacity.objective for entry in listed]
    rates = [None if objective is None else objective.rate_per_s for objective in objectives]
    yield from metric_lines(_OBJECTIVE, list(zip(labels, rates, strict=True)))


def _cluster_capacity(slug: str) -> tuple[EstimateRun, ClusterCapacity]:
    cluster = cluster_by_slug(slug)
    run = run_latest(cluster)
    if run is None:
        raise Missing(f"Cluster {cluster.slug} has no capacity: nothing was estimated yet.")
    capacity = run.facts.capacity
    if capacity is None:
        raise Missing(f"Cluster {cluster.slug} has no capacity: nothing ran when it was estimated, or it was not told.")
    run.cluster = cluster
    return run, capacity


def _estimated(run: EstimateRun) -> dict[str, Any]:
    created_at: datetime = run.created_at
    return {
        "cluster": run.cluster.slug,
        "estimated_at": created_at,
        "is_stale": run_staleness(run).is_stale,
    }
