"""Filters of lists of estimates and observations, shared by pages and REST."""

from __future__ import annotations

from datetime import UTC, datetime

import django_filters
from django.core.validators import MaxValueValidator, MinValueValidator

from apps.estimates.models import AccuracyObservation, EstimateRun
from apps.fleet.choices import Evidence
from apps.measurements.models import StreamWork

__all__ = ["CALENDAR", "AccuracyFilter", "EstimateRunFilter"]


# Times at the ends of the calendar have no form in UTC.
CALENDAR = [MinValueValidator(datetime(1900, 1, 1, tzinfo=UTC)), MaxValueValidator(datetime(9000, 1, 1, tzinfo=UTC))]


class EstimateRunFilter(django_filters.FilterSet):
    """`?cluster=eu-1&query=checkout&since=…&until=…`."""

    cluster = django_filters.CharFilter(field_name="cluster__slug", label="Slug of the cluster")
    query = django_filters.CharFilter(field_name="queries__query__name", label="Name of a query that is part of it")
    since = django_filters.IsoDateTimeFilter(
        field_name="created_at", lookup_expr="gte", label="Not older than", validators=CALENDAR
    )
    until = django_filters.IsoDateTimeFilter(
        field_name="created_at", lookup_expr="lt", label="Older than", validators=CALENDAR
    )

    class Meta:
        model = EstimateRun
        fields = ["cluster", "query", "since", "until"]


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
