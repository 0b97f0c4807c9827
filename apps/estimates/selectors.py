"""Reading estimates: runs, staleness, history, load of each node's cores as one server, and filters of lists."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypedDict

from django.db.models import (
    BooleanField,
    Case,
    Count,
    ExpressionWrapper,
    F,
    FilteredRelation,
    FloatField,
    Max,
    Min,
    Q,
    QuerySet,
    Value,
    When,
)
from django.db.models.fields.json import KeyTextTransform, KeyTransform
from django.db.models.functions import Cast, Coalesce, NullIf
from django.db.models.lookups import GreaterThanOrEqual, IsNull

from apps.core.filters import (
    BooleanFilter,
    ChoiceFilter,
    ListFilter,
    NumberFilter,
    TextFilter,
    TimeFilter,
    sort_paths,
)
from apps.core.reach import visible
from apps.estimates.choices import Certainty, DecidedBy, MeasurementLack, RunOrigin, TrustState, UnscoredReason
from apps.estimates.models import EstimateRun, NodeEstimate, ObjectiveStatus, QueryEstimate
from apps.fleet.choices import Evidence
from apps.fleet.models import Cluster
from apps.jobs.models import FINISHED, Job, JobKind
from apps.measurements.models import StreamWork
from apps.queries.choices import ObjectiveState, QueryState
from apps.queries.models import Query
from apps.queries.snapshots.cluster import snapshot_changes
from apps.queries.snapshots.parts import parts_shown
from engine.estimation.answer import CoreLoad, combine_cores

__all__ = [
    "NO_ESTIMATE",
    "AccuracyFilter",
    "CalibrationFilter",
    "EstimateRunFilter",
    "HistoryPoint",
    "ObjectiveStatusFilter",
    "ServerLoad",
    "Staleness",
    "UnscoredFilter",
    "estimate_under_way",
    "estimates_named",
    "expected_counts",
    "least_headrooms",
    "node_estimates",
    "nodes_by_excess",
    "objective_statuses",
    "objectives_by_headroom",
    "places_by_load",
    "queries_judged",
    "query_estimate_latest",
    "query_history",
    "run_latest",
    "run_staleness",
    "servers_by_node",
    "servers_drawn",
    "state_counts",
]

#: Headroom by which a latency that nobody knows is ranked: less than all that holds, more than all that does not.
UNKNOWN_RANK = -1e-9
_ENDLESS = -1e300  # less than any headroom
NO_ESTIMATE = "no_estimate"  #: state of a running query that no estimate speaks of yet


class NodeTotals(TypedDict):
    """Figures of a node or link in a run; `node_name` is empty for a link."""

    place: str
    node_name: str
    mean: float
    peak: float
    excess: float


@dataclass(frozen=True)
class ServerLoad:
    """A node or link in an estimate; a node by the rule of `engine.estimation.answer`."""

    name: str
    node_name: str
    mean_load: float
    peak_load: float
    excess_s: float
    excess: list[float]


_PLACE = Case(When(node_name="", then=F("server")), default=F("node_name"))
_TOTALS = {"mean": Max("mean_load"), "peak": Max("peak_load"), "excess": Max("excess_s")}


def nodes_by_excess(run: EstimateRun) -> QuerySet[NodeEstimate, NodeTotals]:
    """Nodes and links of a run with their figures, by the rule of `engine.estimation.answer`, the most excess first.

    The excess over time is `servers_by_node`'s, of those that are drawn.
    """
    totals: Any = run.nodes.order_by().annotate(place=_PLACE).values("place", "node_name")
    return totals.annotate(**_TOTALS).order_by("-excess", "-peak", "place")


def places_by_load(rows: QuerySet[NodeEstimate]) -> QuerySet[NodeEstimate, dict[str, Any]]:
    """Nodes and links of several runs with their figures and `run__cluster__slug`, the highest peak load first."""
    totals: Any = rows.order_by().annotate(place=_PLACE).values("run__cluster__slug", "place")
    return totals.annotate(**_TOTALS).order_by("-peak", "run__cluster__slug", "place")


def servers_drawn(run: EstimateRun, places: Collection[str]) -> list[ServerLoad]:
    """Some nodes and links of a run with their excess over time, the most excess first."""
    rows = run.nodes.filter(Q(node_name__in=places) | Q(node_name="", server__in=places))
    return servers_by_node(rows.order_by("pk"))


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
    """The newest estimate of a cluster; its snapshot's parts, one for each query, are read where they are asked for."""
    return EstimateRun.objects.filter(cluster=cluster).select_related("job").defer("snapshot_parts").first()


def estimate_under_way(cluster: Cluster) -> Job | None:
    """The running estimate a page shows: none that telemetry requested."""
    jobs = Job.objects.filter(cluster=cluster, kind=JobKind.ESTIMATE).exclude(state__in=FINISHED)
    return jobs.exclude(params__has_key="by_telemetry").order_by("-created_at").first()


def run_staleness(run: EstimateRun) -> Staleness:
    """Compare a run's snapshot with the cluster's present one; of a large cluster with what a worker read last."""
    present = parts_shown(run.cluster, lambda: run.job)
    moved = present.digest != run.snapshot
    return Staleness(moved, snapshot_changes(run.snapshot_parts, present.parts) if moved else ())


def objectives_by_headroom(run: EstimateRun | None) -> QuerySet[QueryEstimate]:
    """Every query of a run with its status: those that never catch up, least headroom, those without an objective.

    Without a run there is none. Latencies that nobody knows come before those that hold. `shown_state` is the state by
    measurement and estimate, `rank` the headroom to sort by, null without an objective, `measured_rank` the latency
    measured.

    Headroom is counted from the larger of measurement and estimate; of a run of the past from the estimate.
    """
    estimates = QueryEstimate.objects.filter(run=run) if run is not None else QueryEstimate.objects.none()
    rows = estimates.select_related("query__team", "version", "status").defer("series")
    rows = rows.annotate(
        shown_state=Coalesce("status__state", "state"),
        measured_rank=Case(When(status__lacking="", then="status__measured_s")),
    ).annotate(rank=headroom_rank())
    endless = Q(certainty=Certainty.ENDLESS, shown_state=ObjectiveState.BREACHED)
    is_endless = ExpressionWrapper(endless, output_field=BooleanField())
    return rows.order_by(is_endless.desc(), F("rank").asc(nulls_last=True), "query__name")


def estimates_named(keys: Sequence[int]) -> list[QueryEstimate]:
    """Estimates by their keys, in that order, with query and status, without curve and answer.

    Those that are gone since their keys were read are left out.
    """
    rows = QueryEstimate.objects.select_related("query", "version", "status").defer("series", "result").in_bulk(keys)
    return [rows[key] for key in keys if key in rows]


def headroom_rank(estimate: str = "", status: str = "status__", state: str = "shown_state") -> Case:
    """Headroom to sort by: what never catches up has less than any, what nobody knows less than all that holds.

    `estimate` and `status` are the ways to an estimate and a status, `state` is the column that says what is shown.
    """
    headroom = Coalesce(f"{status}headroom_share", f"{estimate}headroom_share")
    is_open = Q(IsNull(headroom, True)) | Q(GreaterThanOrEqual(headroom, 0.0))  # in time so far, and it only grows
    unknown = Case(When(**{state: ObjectiveState.UNKNOWN}, then=Value(UNKNOWN_RANK)), output_field=FloatField())
    return Case(
        When(Q(**{state: ObjectiveState.BREACHED}) & is_open, then=Value(_ENDLESS)),
        default=Coalesce(headroom, unknown),
        output_field=FloatField(),
    )


def queries_judged(cluster: Cluster, run: EstimateRun | None) -> QuerySet[Query]:
    """A cluster's queries with what their list filters and sorts by, none of which is computed from rows in memory.

    `shown_state` is the state against the objective while a query runs, else its own; `rank` the headroom to sort by,
    `estimate_s` and `measured_rank` the latencies of a running one, null where they are not known; `tightest_factor` is
    that of its rate at which a server is full or its objective breaks.
    """
    rows = visible(cluster.queries.all()).annotate(
        newest=FilteredRelation("estimates", condition=Q(estimates__run=run.pk if run is not None else 0))
    )
    is_running = Q(state=QueryState.RUNNING)
    # not KT, which takes the first name for that of the column: here it is that of the relation
    kept = KeyTextTransform("tightest_factor", KeyTransform("capacity", "newest__result"))
    tightest_factor = Cast(NullIf(kept, Value("null")), FloatField())  # SQLite's text of JSON's null
    return (
        rows.annotate(
            shown_state=Case(
                When(is_running, then=Coalesce("objective_status__state", "newest__state", Value(NO_ESTIMATE))),
                default=F("state"),
            )
        )
        .annotate(
            rank=Case(When(is_running, then=headroom_rank("newest__", "objective_status__"))),
            estimate_s=Case(When(is_running, then="newest__estimate_s")),
            measured_rank=Case(When(is_running & Q(objective_status__lacking=""), then="objective_status__measured_s")),
            tightest_factor=Case(When(is_running, then=tightest_factor)),
            team_rank=F("team__name"),
        )
        .order_by("name")
    )


def state_counts(rows: QuerySet[Any]) -> dict[str, int]:
    """Numbers of rows by `shown_state`."""
    return dict(rows.order_by().values_list("shown_state").annotate(n=Count("pk")))


def expected_counts(rows: QuerySet[Query]) -> dict[str, int]:
    """Numbers of running queries by `shown_state` that an estimate alone decides."""
    rows = rows.filter(state=QueryState.RUNNING, objective_status__decided_by=DecidedBy.ESTIMATE)
    return state_counts(rows)


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


def least_headrooms(cluster: Cluster, *, limit: int = 100) -> list[tuple[datetime, float]]:
    """The least headroom share of an objective in each of the newest runs that know one, the oldest first."""
    runs = list(EstimateRun.objects.filter(cluster=cluster).values_list("pk", flat=True)[:limit])
    rows = QueryEstimate.objects.filter(run__in=runs, headroom_share__isnull=False)
    return list(rows.order_by("run__created_at").values_list("run__created_at").annotate(least=Min("headroom_share")))


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
    team = TextFilter("query__team__name", label="Team of the query")
    state = ChoiceFilter(choices=ObjectiveState.choices)
    decided_by = ChoiceFilter(choices=DecidedBy.choices, label="Evidence that decided")
    lacking = ChoiceFilter(choices=MeasurementLack.choices, label="Why the measurement does not count")
    headroom_share = NumberFilter(label="Share of the objective that is left")
    measured_s = NumberFilter(label="Latency that was measured lately")
    since = TimeFilter(label="Since when the state is what it is")
    sorts = sort_paths(
        "headroom_share", "measured_s", "since", "state", query="query__name", cluster="query__cluster__slug"
    )
