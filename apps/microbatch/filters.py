"""Filters of lists of Spark queries and micro-batches, shared by pages and REST."""

from __future__ import annotations

from apps.core.filters import (
    BooleanFilter,
    ChoiceFilter,
    ListFilter,
    NumberFilter,
    PresenceFilter,
    TextFilter,
    TimeFilter,
    sort_paths,
)
from apps.microbatch.choices import SparkQueryOrigin

__all__ = ["MicroBatchFilter", "SparkQueryFilter"]


class SparkQueryFilter(ListFilter):
    """`?cluster=eu-1&origin=url&drifting=true`."""

    cluster = TextFilter("cluster__slug", label="Slug of the cluster")
    name = TextFilter(label="Its name")
    origin = ChoiceFilter(choices=SparkQueryOrigin.choices)
    drifting = PresenceFilter("drifting_since", label="Whether it drifts")
    sorts = sort_paths("name", "origin", "created_at", "reported_at", "drift_share", cluster="cluster__slug")


class MicroBatchFilter(ListFilter):
    """`?run_id=…&warm_up=false&duration_s__gt=10`."""

    run_id = TextFilter(label="Run in Spark")
    warm_up = BooleanFilter("is_warm_up", label="Whether it is one of the first of its run")
    begins_at = TimeFilter()
    rows = NumberFilter(whole=True)
    duration_s = NumberFilter()
    sorts = sort_paths("begins_at", "batch", "rows", "duration_s", "event_lag_s")
