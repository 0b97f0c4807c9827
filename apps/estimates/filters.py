"""Filters of lists of estimates and observations, shared by pages and REST."""

from __future__ import annotations

from django.db.models import QuerySet

from apps.core.filters import (
    BooleanFilter,
    ChoiceFilter,
    ListFilter,
    NumberFilter,
    TextFilter,
    TimeFilter,
    sort_paths,
)
from apps.estimates.choices import DecidedBy, MeasurementLack, RunOrigin, TrustState, UnscoredReason
from apps.fleet.choices import Evidence
from apps.measurements.models import StreamWork
from apps.queries.choices import ObjectiveState

__all__ = ["AccuracyFilter", "CalibrationFilter", "EstimateRunFilter", "ObjectiveStatusFilter", "UnscoredFilter"]


class EstimateRunFilter(ListFilter):
    """`?cluster=eu-1&query=checkout&since=…&until=…`."""

    cluster = TextFilter("cluster__slug", label="Slug of the cluster")
    query = TextFilter("queries__query__name", distinct=True, label="Name of a query that is part of it")
    created_at = TimeFilter()
    since = TimeFilter("created_at", operator="gte", label="Not older than")
    until = TimeFilter("created_at", operator="lt", label="Older than")
    sorts = sort_paths("created_at", "duration_s", cluster="cluster__slug")


class AccuracyFilter(ListFilter):
    """`?cluster=eu-1&query=checkout&origin=flink&evidence=measured&since=…&until=…`."""

    cluster = TextFilter("cluster__slug", label="Slug of the cluster")
    query = TextFilter("query__name", label="Name of the query")
    origin = ChoiceFilter(choices=RunOrigin.choices, label="Origin of the runs")
    evidence = ChoiceFilter(choices=Evidence.choices, label="What the estimate rested on")
    covered = BooleanFilter(label="Whether the 90 % interval held")
    disturbed = ChoiceFilter(choices=StreamWork.choices, label="What the stream processor did instead of its work")
    starts_at = TimeFilter()
    since = TimeFilter("starts_at", operator="gte", label="Not older than")
    until = TimeFilter("starts_at", operator="lt", label="Older than")
    observed_s = NumberFilter(label="Latency that was measured")
    sorts = sort_paths("starts_at", "observed_s", "expected_s", query="query__name", cluster="cluster__slug")


class UnscoredFilter(ListFilter):
    """`?cluster=eu-1&query=checkout&reason=incomplete&since=…`."""

    cluster = TextFilter("cluster__slug", label="Slug of the cluster")
    query = TextFilter("query__name", label="Name of the query")
    reason = ChoiceFilter(choices=UnscoredReason.choices, label="Why it was not scored")
    starts_at = TimeFilter()
    since = TimeFilter("starts_at", operator="gte", label="Not older than")
    until = TimeFilter("starts_at", operator="lt", label="Older than")
    sorts = sort_paths("starts_at", "windows", "reason", query="query__name", cluster="cluster__slug")


class CalibrationFilter(ListFilter):
    """`?cluster=eu-1&query=checkout&origin=live&trust=lost&in_force=true`."""

    cluster = TextFilter("cluster__slug", label="Slug of the cluster")
    query = TextFilter("query__name", label="Name of the query")
    origin = ChoiceFilter(choices=RunOrigin.choices, label="Origin of the runs")
    evidence = ChoiceFilter(choices=Evidence.choices, label="What the estimates rested on")
    trust = ChoiceFilter(choices=TrustState.choices, label="State of trust")
    in_force = BooleanFilter("until", method="kept_in_force", label="Those in force")
    sorts = sort_paths("since", query="query__name", cluster="cluster__slug")

    def kept_in_force(self, queryset: QuerySet, value: bool) -> QuerySet:
        """Calibrations in force, or those that were."""
        return queryset.filter(until__isnull=value)


class ObjectiveStatusFilter(ListFilter):
    """`?cluster=eu-1&state=breached&decided_by=measurement&sort=headroom_share`."""

    cluster = TextFilter("query__cluster__slug", label="Slug of the cluster")
    query = TextFilter("query__name", label="Name of the query")
    team = TextFilter("query__team", label="Team of the query")
    state = ChoiceFilter(choices=ObjectiveState.choices)
    decided_by = ChoiceFilter(choices=DecidedBy.choices, label="Evidence that decided")
    lacking = ChoiceFilter(choices=MeasurementLack.choices, label="Why the measurement does not count")
    headroom_share = NumberFilter(label="Share of the objective that is left")
    measured_s = NumberFilter(label="Latency that was measured lately")
    since = TimeFilter(label="Since when the state is what it is")
    sorts = sort_paths(
        "headroom_share", "measured_s", "since", "state", query="query__name", cluster="query__cluster__slug"
    )
