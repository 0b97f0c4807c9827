"""Filters of planning runs, scenarios and load histories, shared by pages and REST."""

from __future__ import annotations

import django_filters
import django_filters as filters

from apps.fleet.choices import Evidence
from apps.planning.choices import ANSWER_STATES, COMPARISON_STATES, PLACEMENT_STATES, Find, HistoryOrigin, PlanEngine
from apps.planning.models import (
    BacktestRun,
    Forecast,
    LoadHistory,
    PlacementRun,
    PlanComparison,
    ResourcePlan,
    Scenario,
    WhatIf,
)

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


class PlacementFilter(django_filters.FilterSet):
    """`?cluster=eu-1&state=proposed&state=applied`."""

    cluster = django_filters.CharFilter(field_name="cluster__slug", label="Slug of the cluster")
    state = django_filters.MultipleChoiceFilter(choices=PLACEMENT_STATES)

    class Meta:
        model = PlacementRun
        fields = ["cluster", "state"]


class PlanComparisonFilter(django_filters.FilterSet):
    """`?cluster=eu-1&query=checkout&state=done`."""

    cluster = django_filters.CharFilter(field_name="query__cluster__slug", label="Slug of the cluster")
    query = django_filters.CharFilter(field_name="query__name", label="Name of the query")
    state = django_filters.MultipleChoiceFilter(choices=COMPARISON_STATES)

    class Meta:
        model = PlanComparison
        fields = ["cluster", "query", "state"]


class ScenarioFilter(django_filters.FilterSet):
    """`?cluster=eu-1&name=Friday`."""

    cluster = django_filters.CharFilter(field_name="cluster__slug", label="Slug of the cluster")
    name = django_filters.CharFilter(field_name="name", lookup_expr="icontains", label="Part of its name")

    class Meta:
        model = Scenario
        fields = ["cluster", "name"]


class WhatIfFilter(django_filters.FilterSet):
    """`?cluster=eu-1&find=survival&state=answered&bench=false`."""

    cluster = django_filters.CharFilter(field_name="cluster__slug", label="Slug of the cluster")
    find = django_filters.MultipleChoiceFilter(choices=Find.choices)
    state = django_filters.MultipleChoiceFilter(choices=ANSWER_STATES)
    bench = django_filters.BooleanFilter(field_name="from_bench", label="Asked by moving the bench")

    class Meta:
        model = WhatIf
        fields = ["cluster", "find", "state", "bench"]


class ResourcePlanFilter(django_filters.FilterSet):
    """`?cluster=eu-1&engine=microbatch&state=answered&feasible=true`."""

    cluster = django_filters.CharFilter(field_name="cluster__slug", label="Slug of the cluster")
    engine = django_filters.ChoiceFilter(choices=PlanEngine.choices)
    query = django_filters.CharFilter(field_name="query__name", label="Name of the query of its profile")
    spark_query = django_filters.NumberFilter(label="Number of its Spark query")
    state = django_filters.MultipleChoiceFilter(choices=ANSWER_STATES)
    feasible = django_filters.BooleanFilter(field_name="facts__feasible", label="Whether there is a plan")

    class Meta:
        model = ResourcePlan
        fields = ["cluster", "engine", "query", "spark_query", "state", "feasible"]


class LoadHistoryFilter(filters.FilterSet):
    cluster = filters.CharFilter(field_name="cluster__slug", help_text="Slug of the cluster.")
    source_id = filters.CharFilter(lookup_expr="icontains", help_text="Part of the source's id.")
    origin = filters.ChoiceFilter(choices=HistoryOrigin.choices)
    evidence = filters.ChoiceFilter(choices=Evidence.choices)

    class Meta:
        model = LoadHistory
        fields: list[str] = []


class ForecastFilter(filters.FilterSet):
    cluster = filters.CharFilter(field_name="cluster__slug", help_text="Slug of the cluster.")

    class Meta:
        model = Forecast
        fields: list[str] = []


class BacktestFilter(django_filters.FilterSet):
    """`?cluster=eu-1&state=answered`."""

    cluster = django_filters.CharFilter(field_name="cluster__slug", label="Slug of the cluster")
    state = django_filters.MultipleChoiceFilter(choices=ANSWER_STATES)

    class Meta:
        model = BacktestRun
        fields = ["cluster", "state"]
