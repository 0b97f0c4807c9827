"""Recorded period that a backtest replays: what ran, what arrived, who asked, and what was decided."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
from django.db.models import QuerySet

from apps.admission.candidates import candidate_of
from apps.admission.choices import AdmissionState, Verdict
from apps.admission.models import AdmissionRequest
from apps.admission.selectors import admission_headline
from apps.estimates.choices import RunOrigin
from apps.estimates.models import AccuracyObservation, QueryEstimate
from apps.estimates.selectors import run_latest
from apps.fleet.models import Cluster
from apps.planning.backtest_records import SegmentGrid, source_records
from apps.planning.choices import MoveState, RequestTiming
from apps.planning.models import BacktestRun, PlacementMove
from apps.queries.arrivals.series import arrival_rows, load_arrays
from apps.queries.choices import QueryState
from apps.queries.models import Query
from apps.queries.snapshots.cluster import SLICES_PER_SUBINTERVAL, candidate_document, cluster_snapshot
from apps.queries.snapshots.elements import engine_source
from apps.queries.snapshots.relatives import StoppedRelatives
from engine.arrays import FloatArray
from engine.backtest.answers import join_request
from engine.backtest.period import RecordedDecision, RecordedPeriod, RecordedRequest, RecordedStop
from engine.document.deployment import Deployment, Replica
from engine.errors import EngineError

__all__ = ["load_period"]

_LEFT_OUT = (
    AdmissionState.ESTIMATING,
    AdmissionState.FAILED,
    AdmissionState.WITHDRAWN,
    AdmissionState.SUPERSEDED,
)


def load_period(run: BacktestRun, grid: SegmentGrid) -> RecordedPeriod:
    """The recorded period: what ran when it began, what arrived, who asked, and what was decided."""
    cluster = run.cluster
    snapshot = cluster_snapshot(cluster, with_waiting=False)
    rows = _requests_of_period(run, grid)
    relatives = StoppedRelatives(cluster)
    requests = [_request(run, row, relatives, snapshot.deployment, grid) for row in rows]
    base, notes = _initial_deployment(run, snapshot.deployment, requests, grid)
    period = RecordedPeriod(
        deployment=base,
        since_s=grid.since_s,
        width_s=grid.width_s,
        segments=grid.segments,
        sources=source_records(cluster, grid),
        requests=tuple(requests),
        mace_every=SLICES_PER_SUBINTERVAL,
        closed_nodes=snapshot.closed_nodes,
        added_s=_waits_by_query(cluster),
        measured_s=_measured_latencies(cluster, grid),
        recorded_moves=_count_moves(cluster, grid),
        notes=tuple(notes + _grid_notes(grid)),
    )
    return _with_stopped_queries(period, relatives, {request.query for request in requests})


def _requests_of_period(run: BacktestRun, grid: SegmentGrid) -> list[AdmissionRequest]:
    """The last request of every query in the period; one that was applied comes before one that was not."""
    rows = _since(run.cluster, grid).exclude(verdict="")
    rows = rows.exclude(state__in=_LEFT_OUT).select_related("cluster", "query", "version__query__cluster")
    until_s = max(grid.until_s, run.until.timestamp()) if run.ask == RequestTiming.START else grid.until_s
    newest: dict[int, AdmissionRequest] = {}
    for row in rows.filter(created_at__lt=_datetime_of(until_s)).order_by("created_at"):
        previous = newest.get(row.query_id)
        if previous is None or row.state == AdmissionState.APPLIED or previous.state != AdmissionState.APPLIED:
            newest[row.query_id] = row
    return sorted(newest.values(), key=lambda row: (row.created_at, row.query.name))


def _since(cluster: Cluster, grid: SegmentGrid) -> QuerySet[AdmissionRequest]:
    return AdmissionRequest.objects.filter(cluster=cluster, created_at__gte=_datetime_of(grid.since_s))


def _request(
    run: BacktestRun, row: AdmissionRequest, relatives: StoppedRelatives, present: Deployment, grid: SegmentGrid
) -> RecordedRequest:
    candidate = relatives.beside(candidate_of(row))
    candidate.pop("sources", None)  # the period has all sources
    is_early = run.ask == RequestTiming.START
    decided_at = row.decided_at or row.created_at
    started_s = None
    if row.state == AdmissionState.APPLIED:
        started_s = grid.since_s if is_early else decided_at.timestamp()
    return RecordedRequest(
        at_s=grid.since_s if is_early else row.created_at.timestamp(),
        candidate=candidate,
        decided=RecordedDecision(_outcome(row), _reason(row), started_s, _placement(row, present)),
        changes=row.asked_changes,
        id=str(row.pk),
    )


def _outcome(row: AdmissionRequest) -> str:
    states: dict[str, str] = {
        AdmissionState.APPLIED: "admitted",
        AdmissionState.QUEUED: "queued",
        AdmissionState.AWAITING: "review",
        AdmissionState.DECLINED: "rejected",
    }
    verdicts: dict[str, str] = {Verdict.REJECT: "rejected", Verdict.REVIEW: "review"}
    return states.get(row.state) or verdicts.get(row.verdict, "not applied")


def _reason(row: AdmissionRequest) -> str:
    if row.overridden:
        return f"Against the verdict: {row.decision_reason}"
    if row.state == AdmissionState.DECLINED:
        return f"Declined: {row.decision_reason}"
    return admission_headline(row)


def _placement(row: AdmissionRequest, present: Deployment) -> dict[str, tuple[Replica, ...]]:
    """The query's present placement, or the one that was decided."""
    placed = {op.id: op.replicas for op in present.operators if op.query == row.query.name and op.replicas}
    decision = row.decision
    return placed or (dict(decision.placement) if decision is not None else {})


def _initial_deployment(
    run: BacktestRun, present: Deployment, requests: list[RecordedRequest], grid: SegmentGrid
) -> tuple[Deployment, list[str]]:
    """The deployment at the beginning: what runs now without what was admitted since, with every source that is
    read.
    """
    applied = _since(run.cluster, grid).filter(state=AdmissionState.APPLIED)
    base = present
    for name in sorted(set(applied.values_list("query__name", flat=True)) & set(present.queries)):
        base = base.without_query(name)
    read = {entry.source for operator in base.operators for entry in operator.inputs}
    read |= {
        entry["from"]
        for request in requests
        for operator in request.candidate["operators"]
        for entry in operator["inputs"]
    }
    notes = ["Operators are where they are now, and statistics and nodes are those of now, from the beginning on."]
    return _with_sources(base, run.cluster, read), notes


def _with_sources(base: Deployment, cluster: Cluster, read: Iterable[str]) -> Deployment:
    """The deployment with the sources that are read and no others."""
    names = set(read)
    own = {source.id: source for source in base.sources if source.id in names}
    rows = arrival_rows(cluster, names - own.keys())
    more = load_arrays(rows)
    own |= {row.source_id: engine_source(row, more[row.source_id], row.source_id) for row in rows}
    return replace(base, sources=tuple(own[name] for name in sorted(own)))


def _with_stopped_queries(period: RecordedPeriod, relatives: StoppedRelatives, asked: set[str]) -> RecordedPeriod:
    """The period with the queries that were stopped in the period; those that did not ask within it run from the
    beginning.
    """
    rows = Query.objects.filter(
        cluster=relatives.cluster,
        state=QueryState.STOPPED,
        updated_at__gte=_datetime_of(period.since_s),
        updated_at__lt=_datetime_of(period.starts_s(period.segments)),
    )
    notes = list(period.notes)
    base, stops = period.deployment, []
    for query in rows.order_by("name"):
        stops.append(RecordedStop(query.updated_at.timestamp(), query.name))
        if query.name in asked:
            continue
        try:
            base = _with_query_running(replace(period, deployment=base), relatives, query)
        except EngineError as error:
            notes.append(f"{query.name}, which was stopped, is left out: {error.message}.")
    if stops:
        notes.append("A stop is dated by the query's last change; a stopped query is placed where it was admitted.")
    return replace(period, deployment=base, stops=tuple(stops), notes=tuple(notes))


def _with_query_running(period: RecordedPeriod, relatives: StoppedRelatives, query: Query) -> Deployment:
    applied = query.admissions.filter(state=AdmissionState.APPLIED).select_related("version").first()
    version = applied.version if applied else query.versions.first()
    candidate = relatives.beside(candidate_document(version))
    candidate.pop("sources", None)
    read = {source.id for source in period.deployment.sources}
    read |= {entry["from"] for operator in candidate["operators"] for entry in operator["inputs"]}
    base = _with_sources(period.deployment, relatives.cluster, read)
    request = RecordedRequest(period.since_s, candidate, RecordedDecision("admitted", ""))
    return join_request(period, request, base, _placement(applied, base) if applied else {})


def _waits_by_query(cluster: Cluster) -> dict[str, float]:
    """By live query, the part of its latency that Flow does not estimate: epoch, trigger, overhead and work."""
    latest = run_latest(cluster)
    rows = QueryEstimate.objects.filter(run=latest).select_related("query").only("query__name", "result")
    return {row.query.name: row.answer.live.added_s for row in rows if row.answer.live is not None}


def _measured_latencies(cluster: Cluster, grid: SegmentGrid) -> dict[str, FloatArray]:
    """By live query, the largest latency measured in every segment."""
    rows = AccuracyObservation.objects.exclude(origin=RunOrigin.SIMULATED).filter(
        cluster=cluster, starts_at__gte=_datetime_of(grid.since_s), starts_at__lt=_datetime_of(grid.until_s)
    )
    latencies: dict[str, FloatArray] = {}
    for name, at, observed_s in rows.values_list("query__name", "starts_at", "observed_s").iterator():
        values = latencies.setdefault(name, np.full(grid.segments, np.nan))
        i = min(grid.segments - 1, int((at.timestamp() - grid.since_s) // grid.width_s))
        values[i] = np.fmax(values[i], observed_s)
    return latencies


def _count_moves(cluster: Cluster, grid: SegmentGrid) -> int:
    moves = PlacementMove.objects.filter(run__cluster=cluster, state=MoveState.DONE)
    return moves.filter(applied_at__gte=_datetime_of(grid.since_s), applied_at__lt=_datetime_of(grid.until_s)).count()


def _grid_notes(grid: SegmentGrid) -> list[str]:
    if not grid.is_coarser:
        return []
    return [f"Segments of {grid.width_s / 3600:g} h are coarser than the records, so that there are not too many."]


def _datetime_of(at_s: float) -> datetime:
    return datetime.fromtimestamp(at_s, UTC)
