"""Reading estimates: runs, staleness, history, load of each node's cores as one server, and filters of lists."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.core.cache import cache
from django.db.models import BooleanField, Case, ExpressionWrapper, FloatField, Q, QuerySet, Value, When
from django.db.models.functions import Coalesce

from apps.core.filters import (
    BooleanFilter,
    ChoiceFilter,
    ListFilter,
    NumberFilter,
    TextFilter,
    TimeFilter,
    sort_paths,
)
from apps.estimates.choices import Certainty, DecidedBy, MeasurementLack, RunOrigin, TrustState, UnscoredReason
from apps.estimates.models import EstimateRun, NodeEstimate, ObjectiveStatus, QueryEstimate
from apps.fleet.choices import Evidence
from apps.fleet.models import Cluster
from apps.jobs.models import FINISHED, Job, JobKind
from apps.measurements.models import StreamWork
from apps.queries.choices import ObjectiveState, QueryState
from apps.queries.models import Query
from apps.queries.snapshots.cluster import cluster_snapshot, snapshot_changes
from engine.estimation.answer import CoreLoad, combine_cores

__all__ = [
    "UNKNOWN_RANK",
    "AccuracyFilter",
    "CalibrationFilter",
    "EstimateRunFilter",
    "HistoryPoint",
    "ObjectiveStatusFilter",
    "ServerLoad",
    "Staleness",
    "UnscoredFilter",
    "estimate_under_way",
    "node_estimates",
    "objective_statuses",
    "objectives_by_headroom",
    "query_estimate_latest",
    "query_history",
    "run_latest",
    "run_staleness",
    "servers_by_node",
]

#: Headroom by which a latency that nobody knows is ranked: less than all that holds, more than all that does not.
UNKNOWN_RANK = -1e-9


@dataclass(frozen=True)
class ServerLoad:
    """A node or link in an estimate; a node by the rule of `engine.estimation.answer`."""

    name: str
    node_name: str
    mean_load: float
    peak_load: float
    excess_s: float
    excess: list[float]


def servers_by_node(rows: Iterable[NodeEstimate]) -> list[ServerLoad]:
    """One entry per node and per link, the most excess first, then the highest load."""
    groups: dict[str, list[NodeEstimate]] = {}
    for row in rows:
        groups.setdefault(row.node_name or row.server, []).append(row)
    merged = [_merged(name, cores) for name, cores in groups.items()]
    return sorted(merged, key=lambda server: (-server.excess_s, -server.peak_load, server.name))


def _merged(name: str, cores: list[NodeEstimate]) -> ServerLoad:
    load = combine_cores(CoreLoad(core.mean_load, core.peak_load, tuple(core.excess)) for core in cores)
    return ServerLoad(
        name=name,
        node_name=cores[0].node_name,
        mean_load=load.mean,
        peak_load=load.peak,
        excess_s=max(core.excess_s for core in cores),
        excess=list(load.excess_s),
    )


_LARGE = 300  # parts; a snapshot of more takes a good part of a second
_KEPT_S = 10


@dataclass(frozen=True)
class Staleness:
    """Whether a run is stale, and which inputs have changed since."""

    is_stale: bool
    changes: Sequence[str]


@dataclass(frozen=True)
class HistoryPoint:
    """A query's estimate in one of the past runs."""

    at: datetime
    run_id: int
    estimate_s: float
    worst_s: float
    low_s: float | None
    high_s: float | None
    bound_s: float | None
    state: str


def run_latest(cluster: Cluster) -> EstimateRun | None:
    """The newest estimate of a cluster."""
    return EstimateRun.objects.filter(cluster=cluster).select_related("job").first()


def estimate_under_way(cluster: Cluster) -> Job | None:
    """The running estimate a page shows: none that telemetry requested."""
    jobs = Job.objects.filter(cluster=cluster, kind=JobKind.ESTIMATE).exclude(state__in=FINISHED)
    return jobs.exclude(params__has_key="by_telemetry").order_by("-created_at").first()


def run_staleness(run: EstimateRun) -> Staleness:
    """Compare a run's snapshot with the cluster's present one. Of a large cluster the answer may be `_KEPT_S` old."""
    key = f"staleness:{run.pk}"
    cached = cache.get(key)
    if cached is not None:
        return cached
    present = cluster_snapshot(run.cluster)
    moved = present.digest != run.snapshot
    staleness = Staleness(moved, snapshot_changes(run.snapshot_parts, present.parts) if moved else ())
    if len(present.parts) > _LARGE:
        cache.set(key, staleness, _KEPT_S)
    return staleness


def objectives_by_headroom(run: EstimateRun) -> QuerySet[QueryEstimate]:
    """Every query of a run with its status: those that never catch up, least headroom, those without an objective.

    Latencies that nobody knows come before those that hold.

    Headroom is counted from the larger of measurement and estimate; of a run of the past from the estimate.
    """

    def judged(state: ObjectiveState) -> Q:
        return Q(status__state=state) | Q(status__isnull=True, state=state)

    unknown = Case(When(judged(ObjectiveState.UNKNOWN), then=Value(UNKNOWN_RANK)), output_field=FloatField())
    headroom = Coalesce("status__headroom_share", "headroom_share", unknown)
    endless = Q(certainty=Certainty.ENDLESS) & judged(ObjectiveState.BREACHED)
    is_endless = ExpressionWrapper(endless, output_field=BooleanField())
    return (
        run.queries.select_related("query", "version", "status")
        .defer("series")
        .order_by(is_endless.desc(), headroom.asc(nulls_last=True), "query__name")
    )


def objective_statuses() -> QuerySet[ObjectiveStatus]:
    """Statuses of running queries with query, cluster and estimate."""
    rows = ObjectiveStatus.objects.filter(query__state=QueryState.RUNNING)
    return rows.select_related("query__cluster", "estimate").defer("estimate__series", "estimate__result")


def node_estimates(run: EstimateRun) -> QuerySet[NodeEstimate]:
    """Every server of a run, the most excess first, then the highest load."""
    return run.nodes.order_by("-excess_s", "-peak_load", "server")


def query_estimate_latest(query: Query) -> QueryEstimate | None:
    """The newest estimate of a query, if the newest run of its cluster holds one."""
    run = run_latest(query.cluster)
    if run is None:
        return None
    return run.queries.select_related("run", "run__cluster", "query", "version", "status").filter(query=query).first()


def query_history(query: Query, *, limit: int = 200) -> list[HistoryPoint]:
    """A query's estimates over the past runs, oldest first."""
    rows = QueryEstimate.objects.filter(query=query).order_by("-run__created_at", "-run_id")
    fields = ("run__created_at", "run_id", "estimate_s", "worst_s", "low_s", "high_s", "bound_s", "state")
    return [HistoryPoint(*row) for row in reversed(list(rows.values_list(*fields)[:limit]))]


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
