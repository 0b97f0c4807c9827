"""Filters of lists of estimates, shared by pages and API."""

from __future__ import annotations

import django_filters

from apps.estimates.models import EstimateRun

__all__ = ["EstimateRunFilter"]


class EstimateRunFilter(django_filters.FilterSet):
    """`?cluster=eu-1&query=checkout&since=…&until=…`."""

    cluster = django_filters.CharFilter(field_name="cluster__slug", label="Slug of the cluster")
    query = django_filters.CharFilter(field_name="queries__query__name", label="Name of a query that is part of it")
    since = django_filters.IsoDateTimeFilter(field_name="created_at", lookup_expr="gte", label="Not older than")
    until = django_filters.IsoDateTimeFilter(field_name="created_at", lookup_expr="lt", label="Older than")

    class Meta:
        model = EstimateRun
        fields = ["cluster", "query", "since", "until"]
