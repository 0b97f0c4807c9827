"""States of objectives, judged by estimates and by latencies measured, and stored for lists to filter by."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import NamedTuple

from django.db import transaction
from django.db.models import F, Max, OuterRef, Q, QuerySet, Subquery
from django.dispatch import Signal

from apps.core.clock import shared_now
from apps.core.events import announce
from apps.estimates.causes import ChainReports, estimate_causes, measured_causes
from apps.estimates.choices import DecidedBy, RunOrigin
from apps.estimates.models import AccuracyObservation, ObjectiveStatus, QueryEstimate
from apps.estimates.selectors import run_latest
from apps.fleet.models import Cluster
from apps.measurements.models import StreamStretch
from apps.measurements.stream_processor import stream_disturbances
from apps.queries.choices import ObjectiveState, QueryState
from apps.queries.models import Query
from apps.results.models import ResultWindow
from apps.telemetry.models import LiveQuery
from engine.latency_state import KNOWN, LatencyStanding
from engine.measurement.causes import LatenessCause
from engine.measurement.objectives import (
    MAX_PERIOD_S,
    LatencyResult,
    MeasuredLatency,
    judge_objective,
    measure_latency,
)

__all__ = [
    "STATISTIC",
    "Observer",
    "latencies_between",
    "latencies_measured",
    "latency_results",
    "objectives_judged",
    "objectives_refresh",
    "objectives_refresh_all",
    "observe_with",
]

#: Queries of a cluster of which nothing can be observed at a moment, by their keys, each with the reason.
Observer = Callable[[Cluster, datetime], Mapping[int, LatenessCause]]
_observers: list[Observer] = []  # of the apps above, registered once when they are ready; the same in every process

#: Sent with `cluster` and `now` after the objectives of a cluster were judged and stored.
objectives_judged = Signal()
_LATE = (ObjectiveState.BREACHED, ObjectiveState.AT_RISK)
_TRIES = 3
_MOVED = 0.1  # of what was measured: open pages are told of no less
_WRITTEN = [field.name for field in ObjectiveStatus._meta.fields if field.name not in {"id", "query"}]
_COMPARED = [name for name in _WRITTEN if name not in {"since", "updated_at"}]


def observe_with(observer: Observer) -> None:
    """Ask an app above, too, of which queries nothing can be observed: of those that another engine runs."""
    if observer not in _observers:
        _observers.append(observer)


def objectives_refresh_all(now: datetime | None = None) -> int:
    """Judge the objectives of every cluster; returns how many states changed."""
    return sum(objectives_refresh(cluster, now=now) for cluster in Cluster.objects.all())


def objectives_refresh(cluster: Cluster, now: datetime | None = None, among: Collection[int] | None = None) -> int:
    """Judge the objectives of a cluster's running queries by what is known now; returns how many states changed.

    A query of which neither a measurement nor an estimate speaks has no status. `among` are the queries whose estimates
    differ from those of the run before, by their keys: the others are not judged anew, and only point to the new run.

    They are judged without a transaction, and stored by a short one if they were judged by what is still in force. What
    has moved meanwhile is judged again; of what moves each time the round that follows it is believed.
    """
    present = now or shared_now()
    for _ in range(_TRIES):
        changed = _keep(cluster, _judge(cluster, present, among))
        if changed is not None:
            return changed
    return 0


class _Judged(NamedTuple):
    """Objectives that were judged, and what they were judged by."""

    rows: list[ObjectiveStatus]
    basis: _Basis
    among: Collection[int] | None
    now: datetime


class _Basis(NamedTuple):
    """The newest run, of running queries what runs and what is promised, and when a status was stored last."""

    run: int | None
    promises: dict[int, tuple[object, ...]]
    stored_at: datetime | None


def _basis(cluster: Cluster) -> _Basis:
    run = run_latest(cluster)
    rows = Query.objects.filter(cluster=cluster, state=QueryState.RUNNING).order_by()
    promises = rows.values_list("pk", "running_version", "objective_statistic", "objective_bound_s")
    statuses = ObjectiveStatus.objects.filter(query__cluster=cluster)
    stored_at = statuses.aggregate(newest=Max("updated_at"))["newest"]
    return _Basis(None if run is None else run.pk, {pk: tuple(promise) for pk, *promise in promises}, stored_at)


def _judge(cluster: Cluster, now: datetime, among: Collection[int] | None) -> _Judged:
    basis = _basis(cluster)
    rows = Query.objects.filter(cluster=cluster, state=QueryState.RUNNING)
    of_run = QueryEstimate.objects.filter(run=basis.run).defer("series", "result")
    if among is not None:
        rows, of_run = rows.filter(pk__in=among), of_run.filter(query__in=among)
    estimates = {row.query_id: row for row in of_run}
    ends = _high_ends(of_run)
    queries = list(rows)
    measured = latencies_measured(queries, now)
    chain = ChainReports(cluster, now)
    unobserved = dict(chain.unobserved())
    for observer in _observers:
        unobserved.update(observer(cluster, now))
    judged = [
        row
        for query in queries
        if (
            row := _status(
                query, estimates.get(query.pk), ends, measured[query.pk], now, is_observed=query.pk not in unobserved
            )
        )
    ]
    _add_causes(chain, judged, unobserved)
    return _Judged(judged, basis, among, now)


@transaction.atomic
def _keep(cluster: Cluster, judged: _Judged) -> int | None:
    """Store what was judged; returns how many states changed, or None where it was judged by what is gone by now."""
    # one at a time: of two that store at once, the later must not count the state from its own beginning
    Cluster.objects.select_for_update(no_key=True).filter(pk=cluster.pk).first()
    if _basis(cluster) != judged.basis:
        return None
    statuses = ObjectiveStatus.objects.filter(query__cluster=cluster)
    if judged.among is not None:
        statuses.exclude(query__in=Query.objects.filter(cluster=cluster, state=QueryState.RUNNING)).delete()
        _point_to(QueryEstimate.objects.filter(run=judged.basis.run))
        statuses = statuses.filter(query__in=judged.among)
    before = {row.query_id: row for row in statuses}
    for row in judged.rows:
        was = before.get(row.query_id)
        row.since = was.since if was is not None and was.state == row.state else judged.now
    _store(judged.rows, before)
    changed = sum(_state(before.get(row.query_id)) != row.state for row in judged.rows)
    if changed or any(_has_moved(row, before.get(row.query_id)) for row in judged.rows):
        announce(f"cluster:{cluster.slug}")
    transaction.on_commit(partial(objectives_judged.send, Cluster, cluster=cluster, now=judged.now), robust=True)
    return changed


def _point_to(rows: QuerySet[QueryEstimate]) -> None:
    """Have the statuses of queries whose estimate stands in another run by now point to it there."""
    newest = rows.order_by().filter(query=OuterRef("query")).values("pk")[:1]
    stale = ObjectiveStatus.objects.filter(query__in=rows.order_by().values("query"), estimate__isnull=False)
    stale.exclude(estimate__in=rows.order_by()).update(estimate=Subquery(newest))


def _status(
    query: Query,
    estimate: QueryEstimate | None,
    ends: Mapping[int, float | None],
    measured: MeasuredLatency,
    now: datetime,
    *,
    is_observed: bool,
) -> ObjectiveStatus | None:
    bound_s = query.objective_bound_s or None
    if estimate is not None and estimate.statistic != (query.objective_statistic or STATISTIC):
        estimate = None  # the objective was changed since: what was estimated is of another statistic
    judged = judge_objective(
        bound_s,
        estimate.estimate_s if estimate else None,
        ends[estimate.pk] if estimate else None,
        LatencyStanding(estimate.certainty) if estimate else KNOWN,
        measured,
        is_observed=is_observed,
    )
    if judged is None:
        return None
    return ObjectiveStatus(
        query=query,
        estimate=estimate,
        since=now,
        statistic=query.objective_statistic or STATISTIC,
        bound_s=bound_s,
        updated_at=now,
        state=judged.state,
        decided_by=judged.decided_by,
        value_s=judged.value_s,
        headroom_share=judged.headroom_share(bound_s),
        measured_s=measured.value_s,
        measured_at=None if measured.newest_at_s is None else datetime.fromtimestamp(measured.newest_at_s, UTC),
        results=measured.results,
        results_needed=measured.needed,
        span_s=measured.span_s if measured.results else 0.0,
        left_out=measured.left_out,
        lacking=measured.lacking,
    )


def _high_ends(rows: QuerySet[QueryEstimate]) -> dict[int, float | None]:
    """Upper ends of estimates by their keys: under the policies in force, and infinite where nobody knows one."""
    ends = dict(rows.order_by().values_list("pk", "high_s"))
    held = Q(high_s=None) | Q(bound_s=None) | Q(high_s__lte=F("bound_s"))
    lacking = rows.filter(held, state=ObjectiveState.AT_RISK).order_by()
    for pk, high_s in lacking.values_list("pk", "result__scheduling__high_s"):
        ends[pk] = math.inf if high_s is None else high_s
    return ends


def _add_causes(chain: ChainReports, rows: list[ObjectiveStatus], unobserved: Mapping[int, LatenessCause]) -> None:
    """The causes of those that are late, or may be, and why the others cannot be observed."""
    for row in rows:
        if row.decided_by == DecidedBy.NOTHING:
            row.set_causes([unobserved[row.query_id]])
    late = [row for row in rows if row.state in _LATE]
    if not late:
        return
    estimates = QueryEstimate.objects.defer("series").in_bulk([row.estimate_id for row in late if row.estimate_id])
    for row in late:
        estimate = estimates.get(row.estimate_id or 0)
        causes: list[LatenessCause] = []
        if row.decided_by == DecidedBy.MEASUREMENT:
            bottleneck = estimate.answer.bottleneck if estimate else None
            causes = measured_causes(chain, row.query, row.measured_s or 0.0, bottleneck)
        elif estimate is not None:
            causes = estimate_causes(estimate.answer, row.value_s or 0.0, row.statistic)
        row.set_causes(causes)


def _store(rows: list[ObjectiveStatus], before: Mapping[int, ObjectiveStatus]) -> None:
    """Write those that differ, and drop those of queries that neither run nor are known of."""
    gone = before.keys() - {row.query_id for row in rows}
    ObjectiveStatus.objects.filter(query__in=gone).delete()
    changed = [row for row in rows if _differs(row, before.get(row.query_id))]
    ObjectiveStatus.objects.bulk_create(
        changed, update_conflicts=True, unique_fields=["query"], update_fields=_WRITTEN, batch_size=500
    )


def _differs(row: ObjectiveStatus, before: ObjectiveStatus | None) -> bool:
    if before is None:
        return True
    return any(getattr(row, _attribute(name)) != getattr(before, _attribute(name)) for name in _COMPARED)


def _attribute(name: str) -> str:
    return "estimate_id" if name == "estimate" else name


def _state(row: ObjectiveStatus | None) -> str:
    return "" if row is None else row.state


def _has_moved(row: ObjectiveStatus, before: ObjectiveStatus | None) -> bool:
    """Whether what pages show of a query is another by so much that they should show it anew."""
    if before is None or row.lacking != before.lacking or _kinds(row) != _kinds(before):
        return True
    return abs((row.measured_s or 0.0) - (before.measured_s or 0.0)) > _MOVED * (before.measured_s or 0.0)


def _kinds(row: ObjectiveStatus) -> list[tuple[str, str]]:
    return [(cause.kind, cause.subject) for cause in row.lateness]


STATISTIC = "worst"  #: of a query without an objective
_NOT_REPORTED = (RunOrigin.LIVE, RunOrigin.SIMULATED)  # of the one windows count, of the other nothing was measured
_LONGEST_WINDOW = timedelta(days=2)  # that its result comes after its beginning
_MAX_WINDOWS = 4000  # of a query that are looked at: an hour of windows of a second


def latencies_measured(queries: Iterable[Query], now: datetime) -> dict[int, MeasuredLatency]:
    """The latency of each query over the recent past, by the statistic of its objective.

    Of a live query from its windows in their first revision, of one that another engine runs from what that reported.
    """
    named = {query.pk: query for query in queries}
    live = set(LiveQuery.objects.filter(query__in=named).values_list("query_id", flat=True))
    stretches = stream_disturbances(now - timedelta(seconds=2.0 * MAX_PERIOD_S), now) if live else []
    reports = _reports([pk for pk in named if pk not in live], now)
    measured = {}
    for pk, query in named.items():
        statistic = query.objective_statistic or STATISTIC
        results = _windows(pk, stretches) if pk in live else reports.get((pk, statistic), [])
        measured[pk] = measure_latency(results, statistic, now.timestamp())
    return measured


def _windows(query_id: int, stretches: Sequence[StreamStretch]) -> list[LatencyResult]:
    rows = ResultWindow.objects.filter(query_id=query_id, revision=0, latency_s__gte=0.0).order_by("-window_us")
    return [
        LatencyResult(at.timestamp(), latency_s, disturbed=_is_disturbed(at, latency_s, stretches))
        for at, latency_s in rows.values_list("emitted_at", "latency_s")[:_MAX_WINDOWS]
    ]


def _is_disturbed(emitted_at: datetime, latency_s: float, stretches: Sequence[StreamStretch]) -> bool:
    begun_at = emitted_at - timedelta(seconds=latency_s)
    return any(row.begins_at < emitted_at and row.ends_at > begun_at for row in stretches)


def _reports(query_ids: list[int], now: datetime) -> dict[tuple[int, str], list[LatencyResult]]:
    """Reports of other engines by query and statistic. A quantile is reported as such: several are one by their mean,
    since the quantile of all results is not known.
    """
    rows = AccuracyObservation.objects.filter(
        query__in=query_ids, ends_at__gt=now - timedelta(seconds=MAX_PERIOD_S), ends_at__lte=now
    ).exclude(origin__in=_NOT_REPORTED)
    reports: dict[tuple[int, str], list[LatencyResult]] = {}
    for query_id, statistic, ends_at, observed_s, windows in rows.values_list(
        "query_id", "statistic", "ends_at", "observed_s", "windows"
    ):
        reports.setdefault((query_id, statistic), []).append(LatencyResult(ends_at.timestamp(), observed_s, windows))
    for (_, statistic), results in reports.items():
        if statistic.startswith("q"):
            results[:] = _as_one_mean(results)
    return reports


def latency_results(query: Query, since: datetime, now: datetime) -> list[LatencyResult]:
    """Every latency measured of a query in a stretch of time, oldest first, at most the newest 4,000."""
    if LiveQuery.objects.filter(query=query).exists():
        results = _windows(query.pk, stream_disturbances(since, now))
    else:
        rows = AccuracyObservation.objects.filter(query=query, ends_at__gte=since).exclude(origin__in=_NOT_REPORTED)
        rows = rows.filter(statistic=query.objective_statistic or STATISTIC).order_by("-ends_at")
        columns = rows.values_list("ends_at", "observed_s", "windows")[:_MAX_WINDOWS]
        results = [LatencyResult(ends_at.timestamp(), observed_s, windows) for ends_at, observed_s, windows in columns]
    return sorted(result for result in results if since.timestamp() <= result.at_s <= now.timestamp())


def latencies_between(
    query: Query, statistic: str, since: datetime, until: datetime, version: int
) -> list[LatencyResult]:
    """Latencies measured of a version of a query in a stretch of the past, at most the newest 4,000.

    Windows in their first revision where agents measured it, else what another engine reported of the statistic. A
    quantile that was reported is one of its own stretch, so that several are their mean; nothing simulated counts.
    """
    windows = ResultWindow.objects.filter(
        query=query, revision=0, latency_s__gte=0.0, emitted_at__gt=since, emitted_at__lte=until
    )
    span = [int(moment.timestamp() * 1e6) for moment in (since - _LONGEST_WINDOW, until)]
    windows = windows.filter(window_us__range=span)  # the index goes by it, and would be read whole
    windows = windows.filter(version_number=version)  # those of a plan that has gone are of none that is known
    found = list(windows.order_by("-window_us").values_list("emitted_at", "latency_s")[:_MAX_WINDOWS])
    if found:
        stretches = stream_disturbances(since - timedelta(seconds=MAX_PERIOD_S), until)
        return [
            LatencyResult(at.timestamp(), latency_s, disturbed=_is_disturbed(at, latency_s, stretches))
            for at, latency_s in found
        ]
    rows = AccuracyObservation.objects.filter(query=query, statistic=statistic, version=version)
    rows = rows.filter(starts_at__gte=since, ends_at__lte=until).exclude(origin__in=_NOT_REPORTED).order_by("-ends_at")
    reports = [
        LatencyResult(ends_at.timestamp(), observed_s, results)
        for ends_at, observed_s, results in rows.values_list("ends_at", "observed_s", "windows")[:_MAX_WINDOWS]
    ]
    return _as_one_mean(reports) if statistic.startswith("q") else reports


def _as_one_mean(reports: Sequence[LatencyResult]) -> list[LatencyResult]:
    """Reports of a quantile by their mean: the quantile of all results is not known."""
    total = sum(report.results for report in reports)
    mean_s = sum(report.latency_s * report.results for report in reports) / total if total else 0.0
    return [report._replace(latency_s=mean_s) for report in reports]
