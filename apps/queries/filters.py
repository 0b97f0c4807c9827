"""Filters of the lists of queries and arrivals, shared by pages and REST."""

from __future__ import annotations

import django_filters as filters

from apps.fleet.choices import Evidence
from apps.queries.choices import ArrivalOrigin, QueryState
from apps.queries.models import ArrivalSeries, Query

__all__ = ["ArrivalFilter", "QueryFilter"]


class QueryFilter(filters.FilterSet):
    cluster = filters.CharFilter(field_name="cluster__slug", help_text="Slug of the cluster.")
    state = filters.MultipleChoiceFilter(choices=QueryState.choices)
    team = filters.CharFilter()
    name = filters.CharFilter(lookup_expr="icontains", help_text="Part of the name.")

    class Meta:
        model = Query
        fields: list[str] = []


class ArrivalFilter(filters.FilterSet):
    cluster = filters.CharFilter(field_name="cluster__slug", help_text="Slug of the cluster.")
    source_id = filters.CharFilter(lookup_expr="icontains", help_text="Part of the source's id.")
    origin = filters.ChoiceFilter(choices=ArrivalOrigin.choices)
    evidence = filters.ChoiceFilter(choices=Evidence.choices)

    class Meta:
        model = ArrivalSeries
        fields: list[str] = []
