"""Filters of planning runs, scenarios and load histories, shared by pages and REST."""

from __future__ import annotations

from apps.core.filters import BooleanFilter, ChoiceFilter, ListFilter, NumberFilter, TextFilter, TimeFilter, sort_paths
from apps.fleet.choices import Evidence
from apps.planning.choices import ANSWER_STATES, COMPARISON_STATES, PLACEMENT_STATES, Find, HistoryOrigin, PlanEngine

__all__ = [
    "BacktestFilter",
    "ForecastFilter",
    "LoadHistoryFilter",
    "PlacementFilter",
    "PlanComparisonFilter",
    "ResourcePlanFilter",
    "ScenarioFilter",
    "WhatIfFilter",
]


class PlacementFilter(ListFilter):
    """`?cluster=eu-1&state=proposed&state=applied`."""

    cluster = TextFilter("cluster__slug", label="Slug of the cluster")
    state = ChoiceFilter(choices=PLACEMENT_STATES)
    created_at = TimeFilter()
    applied_at = TimeFilter()
    sorts = sort_paths("created_at", "finished_at", "applied_at", "state", "objective", cluster="cluster__slug")


class PlanComparisonFilter(ListFilter):
    """`?cluster=eu-1&query=checkout&state=done`."""

    cluster = TextFilter("query__cluster__slug", label="Slug of the cluster")
    query = TextFilter("query__name", label="Name of the query")
    state = ChoiceFilter(choices=COMPARISON_STATES)
    created_at = TimeFilter()
    sorts = sort_paths("created_at", "finished_at", "state", query="query__name", cluster="query__cluster__slug")


class ScenarioFilter(ListFilter):
    """`?cluster=eu-1&name__contains=Friday`."""

    cluster = TextFilter("cluster__slug", label="Slug of the cluster")
    name = TextFilter(label="Its name")
    created_at = TimeFilter()
    updated_at = TimeFilter()
    sorts = sort_paths("name", "created_at", "updated_at", cluster="cluster__slug")


class WhatIfFilter(ListFilter):
    """`?cluster=eu-1&find=survival&state=answered&bench=false`."""

    cluster = TextFilter("cluster__slug", label="Slug of the cluster")
    find = ChoiceFilter(choices=Find.choices)
    state = ChoiceFilter(choices=ANSWER_STATES)
    bench = BooleanFilter("from_bench", label="Asked by moving the bench")
    created_at = TimeFilter()
    sorts = sort_paths("created_at", "duration_s", "find", "state", cluster="cluster__slug", answered_at="finished_at")


class ResourcePlanFilter(ListFilter):
    """`?cluster=eu-1&engine=microbatch&state=answered&feasible=true`."""

    cluster = TextFilter("cluster__slug", label="Slug of the cluster")
    engine = ChoiceFilter(choices=PlanEngine.choices)
    query = TextFilter("query__name", label="Name of the query of its profile")
    spark_query = NumberFilter("spark_query_id", whole=True, label="Number of its Spark query")
    state = ChoiceFilter(choices=ANSWER_STATES)
    feasible = BooleanFilter("facts__feasible", label="Whether there is a plan")
    created_at = TimeFilter()
    sorts = sort_paths("created_at", "engine", "state", "duration_s", query="query__name", cluster="cluster__slug")


class LoadHistoryFilter(ListFilter):
    """`?cluster=eu-1&source_id__contains=click&evidence=measured`."""

    cluster = TextFilter("cluster__slug", label="Slug of the cluster")
    source_id = TextFilter(label="The source's id")
    origin = ChoiceFilter(choices=HistoryOrigin.choices)
    evidence = ChoiceFilter(choices=Evidence.choices)
    starts_at = TimeFilter()
    sorts = sort_paths("source_id", "starts_at", "events", "created_at", "updated_at", cluster="cluster__slug")


class ForecastFilter(ListFilter):
    """`?cluster=eu-1&created_at__gte=2026-03-01T00:00:00Z`."""

    cluster = TextFilter("cluster__slug", label="Slug of the cluster")
    created_at = TimeFilter()
    sorts = sort_paths("created_at", "starts_at", "duration_s", cluster="cluster__slug")


class BacktestFilter(ListFilter):
    """`?cluster=eu-1&state=answered`."""

    cluster = TextFilter("cluster__slug", label="Slug of the cluster")
    state = ChoiceFilter(choices=ANSWER_STATES)
    created_at = TimeFilter()
    sorts = sort_paths("created_at", "since", "until", "state", cluster="cluster__slug", answered_at="finished_at")
