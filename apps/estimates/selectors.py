"""Reading estimates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.core.cache import cache
from django.db.models import F, QuerySet

from apps.estimates.models import EstimateRun, NodeEstimate, QueryEstimate
from apps.fleet.models import Cluster
from apps.jobs.choices import FINISHED, JobKind
from apps.jobs.models import Job
from apps.queries.models import Query
from apps.queries.snapshots import cluster_snapshot, snapshot_changes

__all__ = [
    "HistoryPoint",
    "Staleness",
    "estimate_under_way",
    "node_estimates",
    "objectives_by_headroom",
    "query_estimate_latest",
    "query_history",
    "run_latest",
    "run_staleness",
]

_LARGE = 300  # parts; a snapshot of more takes a good part of a second
_KEPT_S = 10


@dataclass(frozen=True)
class Staleness:
    """Whether a run still speaks of the cluster as it is, and what has moved since."""

    is_stale: bool
    changes: Sequence[str]


@dataclass(frozen=True)
class HistoryPoint:
    """A query's estimate in one of the past runs."""

    at: datetime
    run_id: int
    estimate_s: float
    worst_s: float
    high_s: float | None
    bound_s: float | None
    state: str


def run_latest(cluster: Cluster) -> EstimateRun | None:
    """The newest estimate of a cluster."""
    return EstimateRun.objects.filter(cluster=cluster).select_related("job").first()


def estimate_under_way(cluster: Cluster) -> Job | None:
    """The newest estimate that a page tells of while it is made: none that telemetry asked for."""
    jobs = Job.objects.filter(cluster=cluster, kind=JobKind.ESTIMATE).exclude(state__in=FINISHED)
    return jobs.exclude(params__has_key="by_telemetry").order_by("-created_at").first()


def run_staleness(run: EstimateRun) -> Staleness:
    """Compare a run's snapshot with the cluster's present one. Of a large cluster the answer may be `_KEPT_S` old."""
    key = f"staleness:{run.pk}"
    known = cache.get(key)
    if known is not None:
        return known
    present = cluster_snapshot(run.cluster)
    moved = present.digest != run.snapshot
    found = Staleness(moved, snapshot_changes(run.snapshot_parts, present.parts) if moved else ())
    if len(present.parts) > _LARGE:
        cache.set(key, found, _KEPT_S)
    return found


def objectives_by_headroom(run: EstimateRun) -> QuerySet[QueryEstimate]:
    """Every query of a run: least headroom first, queries without an objective last."""
    return (
        run.queries.select_related("query", "version")
        .defer("series")
        .order_by(F("headroom_share").asc(nulls_last=True), "query__name")
    )


def node_estimates(run: EstimateRun) -> QuerySet[NodeEstimate]:
    """Every server of a run, the most excess first, then the highest load."""
    return run.nodes.order_by("-excess_s", "-peak_load", "server")


def query_estimate_latest(query: Query) -> QueryEstimate | None:
    """The newest estimate of a query, if the newest run of its cluster holds one."""
    run = run_latest(query.cluster)
    if run is None:
        return None
    return run.queries.select_related("run", "run__cluster", "query", "version").filter(query=query).first()


def query_history(query: Query, *, most: int = 200) -> list[HistoryPoint]:
    """A query's estimates over the past runs, oldest first."""
    rows = QueryEstimate.objects.filter(query=query).order_by("-run__created_at", "-run_id")
    fields = ("run__created_at", "run_id", "estimate_s", "worst_s", "high_s", "bound_s", "state")
    return [HistoryPoint(*row) for row in reversed(list(rows.values_list(*fields)[:most]))]
