"""Filters of lists of observations, shared by pages and API."""

from __future__ import annotations

import django_filters

from apps.estimates.filters import CALENDAR
from apps.estimates.models import AccuracyObservation
from apps.fleet.choices import Evidence
from apps.measurements.stream_models import StreamWork

__all__ = ["AccuracyFilter"]


class AccuracyFilter(django_filters.FilterSet):
    """`?cluster=eu-1&query=checkout&evidence=measured&since=…&until=…`."""

    cluster = django_filters.CharFilter(field_name="cluster__slug", label="Slug of the cluster")
    query = django_filters.CharFilter(field_name="query__name", label="Name of the query")
    evidence = django_filters.ChoiceFilter(choices=Evidence.choices, label="What the estimate rested on")
    covered = django_filters.BooleanFilter(label="Whether the 90% interval held")
    disturbed = django_filters.ChoiceFilter(
        choices=StreamWork.choices, label="What the stream processor did instead of its work"
    )
    since = django_filters.IsoDateTimeFilter(
        field_name="starts_at", lookup_expr="gte", label="Not older than", validators=CALENDAR
    )
    until = django_filters.IsoDateTimeFilter(
        field_name="starts_at", lookup_expr="lt", label="Older than", validators=CALENDAR
    )

    class Meta:
        model = AccuracyObservation
        fields: list[str] = []
