"""Filters of lists of placement runs, shared by pages and API."""

from __future__ import annotations

import django_filters

from apps.placements.choices import RunState
from apps.placements.models import PlacementRun

__all__ = ["PlacementFilter"]


class PlacementFilter(django_filters.FilterSet):
    """`?cluster=eu-1&state=proposed&state=applied`."""

    cluster = django_filters.CharFilter(field_name="cluster__slug", label="Slug of the cluster")
    state = django_filters.MultipleChoiceFilter(choices=RunState.choices)

    class Meta:
        model = PlacementRun
        fields = ["cluster", "state"]
