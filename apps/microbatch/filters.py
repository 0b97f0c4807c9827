"""Filters of lists of Spark queries and micro-batches, shared by pages and REST."""

from __future__ import annotations

import django_filters

from apps.microbatch.choices import SparkQueryOrigin
from apps.microbatch.models import MicroBatch, SparkQuery

__all__ = ["MicroBatchFilter", "SparkQueryFilter"]


class SparkQueryFilter(django_filters.FilterSet):
    """`?cluster=eu-1&origin=url&drifting=true`."""

    cluster = django_filters.CharFilter(field_name="cluster__slug", label="Slug of the cluster")
    origin = django_filters.ChoiceFilter(choices=SparkQueryOrigin.choices)
    drifting = django_filters.BooleanFilter(
        field_name="drifting_since", lookup_expr="isnull", exclude=True, label="Whether it drifts"
    )

    class Meta:
        model = SparkQuery
        fields = ["cluster", "origin", "drifting"]


class MicroBatchFilter(django_filters.FilterSet):
    """`?run_id=…&warm_up=false`."""

    run_id = django_filters.CharFilter(label="Run in Spark")
    warm_up = django_filters.BooleanFilter(field_name="is_warm_up", label="Whether it is one of the first of its run")

    class Meta:
        model = MicroBatch
        fields = ["run_id", "warm_up"]
