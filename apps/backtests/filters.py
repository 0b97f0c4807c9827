"""Filters of lists of backtests, shared by pages and API."""

from __future__ import annotations

import django_filters

from apps.backtests.choices import BacktestState
from apps.backtests.models import BacktestRun

__all__ = ["BacktestFilter"]


class BacktestFilter(django_filters.FilterSet):
    """`?cluster=eu-1&state=answered`."""

    cluster = django_filters.CharFilter(field_name="cluster__slug", label="Slug of the cluster")
    state = django_filters.MultipleChoiceFilter(choices=BacktestState.choices)

    class Meta:
        model = BacktestRun
        fields = ["cluster", "state"]
