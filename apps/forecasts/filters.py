"""Filters of lists of forecasts and load histories, shared by pages and REST."""

from __future__ import annotations

import django_filters as filters

from apps.fleet.choices import Evidence
from apps.forecasts.choices import HistoryOrigin
from apps.forecasts.models import Forecast, LoadHistory

__all__ = ["ForecastFilter", "LoadHistoryFilter"]


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
