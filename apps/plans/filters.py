"""Filters of lists of comparisons."""

from __future__ import annotations

import django_filters

from apps.plans.choices import ComparisonState
from apps.plans.models import PlanComparison

__all__ = ["PlanComparisonFilter"]


class PlanComparisonFilter(django_filters.FilterSet):
    """`?cluster=eu-1&query=checkout&state=done`."""

    cluster = django_filters.CharFilter(field_name="query__cluster__slug", label="Slug of the cluster")
    query = django_filters.CharFilter(field_name="query__name", label="Name of the query")
    state = django_filters.MultipleChoiceFilter(choices=ComparisonState.choices)

    class Meta:
        model = PlanComparison
        fields = ["cluster", "query", "state"]
