"""Reads of Spark queries, their micro-batches and fits."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import pairwise

from django.db.models import Count, OuterRef, Prefetch, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce

from apps.core.clock import shared_now
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
from apps.fleet.models import Cluster
from apps.microbatch.models import BatchFit, MicroBatch, SparkQuery, SparkQueryOrigin, SparkQueryState

__all__ = [
    "RATE_BATCHES",
    "MicroBatchFilter",
    "SparkQueryFilter",
    "batches_newest",
    "fit_in_force",
    "newest_rate",
    "spark_queries_drifting",
    "spark_queries_listed",
    "spark_queries_visible",
    "spark_query_state",
]

_SILENT_AFTER = timedelta(minutes=2)  # an idle query of Spark reports every ten seconds
_SILENT_TRIGGERS = 3.0
RATE_BATCHES = 60  # newest micro-batches that the rate of a Spark query is taken from


def spark_queries_listed() -> QuerySet[SparkQuery]:
    """Spark queries with their cluster, `batch_count`, `last_batch_at` and `newest_fits` (the fit in force)."""
    batches = MicroBatch.objects.filter(query=OuterRef("pk"))
    counted = batches.order_by().values("query").annotate(n=Count("pk")).values("n")
    newest = BatchFit.objects.filter(query=OuterRef("query")).order_by("-since", "-pk")
    in_force = Prefetch("fits", BatchFit.objects.filter(pk=Subquery(newest.values("pk")[:1])), to_attr="newest_fits")
    rows = SparkQuery.objects.select_related("cluster", "applied_by").prefetch_related(in_force)
    return rows.annotate(
        batch_count=Coalesce(Subquery(counted), 0),
        last_batch_at=Subquery(batches.order_by("-begins_at").values("begins_at")[:1]),
    )


def spark_queries_visible(cluster: Cluster) -> QuerySet[SparkQuery]:
    """Those of a cluster and Sluice's own stream processor, which serves every cluster."""
    return spark_queries_listed().filter(Q(cluster=cluster) | Q(origin=SparkQueryOrigin.OWN))


def spark_queries_drifting(cluster: Cluster) -> QuerySet[SparkQuery]:
    """Visible queries whose batches differ from their predictions, the worst first."""
    return spark_queries_visible(cluster).exclude(drifting_since=None).order_by("-drift_share")


def spark_query_state(query: SparkQuery, now: datetime | None = None) -> SparkQueryState:
    """State of a query by its last progress."""
    if query.fault:
        return SparkQueryState.UNREACHABLE
    if query.reported_at is None:
        return SparkQueryState.AWAITED
    if query.origin == SparkQueryOrigin.FILE:
        return SparkQueryState.RECORDED
    patience = max(_SILENT_AFTER, timedelta(seconds=_SILENT_TRIGGERS * query.trigger_s))
    age = (now or shared_now()) - query.reported_at
    return SparkQueryState.REPORTING if age <= patience else SparkQueryState.SILENT


def fit_in_force(query: SparkQuery) -> BatchFit | None:
    """The newest fit; None until there is one."""
    listed: list[BatchFit] | None = getattr(query, "newest_fits", None)
    if listed is not None:
        return listed[0] if listed else None
    return BatchFit.objects.filter(query=query).first()


def batches_newest(query: SparkQuery, limit: int) -> list[MicroBatch]:
    """The newest micro-batches, oldest first."""
    return list(MicroBatch.objects.filter(query=query).order_by("-begins_at", "-batch")[:limit])[::-1]


def newest_rate(batches: Sequence[MicroBatch]) -> float | None:
    """Rows per second that arrived over these batches of one query, oldest first; None without two in a row.

    Rows of a batch came since the batch before it began. Where that one is not known, neither is their rate.
    """
    newest = batches[-RATE_BATCHES:]
    pairs = [
        (before, batch)
        for before, batch in pairwise(newest)
        if before.run_id == batch.run_id and batch.batch == before.batch + 1
    ]
    span_s = sum((batch.begins_at - before.begins_at).total_seconds() for before, batch in pairs)
    return sum(batch.rows for _, batch in pairs) / span_s if span_s > 0 else None


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
