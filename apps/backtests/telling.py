"""A cluster's records of a period as the story that the engine replays."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
from django.db.models import QuerySet

from apps.admission.choices import AdmissionState, Verdict
from apps.admission.models import AdmissionRequest
from apps.admission.questions import candidate_of
from apps.backtests.choices import Asked
from apps.backtests.models import BacktestRun
from apps.backtests.records import Grid, records_of
from apps.estimates.accuracy_models import AccuracyObservation
from apps.estimates.models import QueryEstimate
from apps.estimates.selectors import run_latest
from apps.estimates.work import SLICES_PER_SUBINTERVAL
from apps.fleet.models import Cluster
from apps.placements.choices import MoveState
from apps.placements.models import PlacementMove
from apps.queries.arrays import arrays_of, arrival_rows
from apps.queries.choices import QueryState
from apps.queries.models import Query
from apps.queries.snapshots import candidate_document, cluster_snapshot
from engine.backtest.deciding import joined
from engine.backtest.story import Decided, Request, Stop, Story
from engine.deployment import Deployment, Replica, Source
from engine.elements import FloatArray
from engine.errors import EngineError

__all__ = ["story_of"]

_LEFT_OUT = (
    AdmissionState.ESTIMATING,
    AdmissionState.FAILED,
    AdmissionState.WITHDRAWN,
    AdmissionState.SUPERSEDED,
)
_WAITS = ("epoch_s", "trigger_s", "overhead_s", "work_s")


def story_of(run: BacktestRun, grid: Grid) -> Story:
    """What ran when the period began, what arrived, who asked, and what was decided."""
    cluster = run.cluster
    snapshot = cluster_snapshot(cluster)
    rows = _requests(run, grid)
    requests = [_request(run, row, snapshot.deployment, grid) for row in rows]
    base, notes = _began(run, snapshot.deployment, requests, grid)
    story = Story(
        deployment=base,
        since_s=grid.since_s,
        width_s=grid.width_s,
        segments=grid.segments,
        sources=records_of(cluster, grid),
        requests=tuple(requests),
        mace_every=SLICES_PER_SUBINTERVAL,
        closed_nodes=snapshot.closed_nodes,
        added_s=_waits(cluster),
        measured_s=_measured(cluster, grid),
        recorded_moves=_moves(cluster, grid),
        notes=tuple(notes + _grid_notes(grid)),
    )
    return _with_stopped(story, cluster, {request.query for request in requests})


def _requests(run: BacktestRun, grid: Grid) -> list[AdmissionRequest]:
    """The last request of every query in the period; one that was applied comes before one that was not."""
    rows = _since(run.cluster, grid).exclude(verdict="")
    rows = rows.exclude(state__in=_LEFT_OUT).select_related("cluster", "query", "version__query__cluster")
    until_s = max(grid.until_s, run.until.timestamp()) if run.ask == Asked.START else grid.until_s
    found: dict[int, AdmissionRequest] = {}
    for row in rows.filter(created_at__lt=_moment(until_s)).order_by("created_at"):
        known = found.get(row.query_id)
        if known is None or row.state == AdmissionState.APPLIED or known.state != AdmissionState.APPLIED:
            found[row.query_id] = row
    return sorted(found.values(), key=lambda row: (row.created_at, row.query.name))


def _since(cluster: Cluster, grid: Grid) -> QuerySet[AdmissionRequest]:
    return AdmissionRequest.objects.filter(cluster=cluster, created_at__gte=_moment(grid.since_s))


def _request(run: BacktestRun, row: AdmissionRequest, present: Deployment, grid: Grid) -> Request:
    candidate = candidate_of(row)
    candidate.pop("sources", None)  # the story has every source
    is_early = run.ask == Asked.START
    decided_at = row.decided_at or row.created_at
    started_s = None
    if row.state == AdmissionState.APPLIED:
        started_s = grid.since_s if is_early else decided_at.timestamp()
    return Request(
        at_s=grid.since_s if is_early else row.created_at.timestamp(),
        candidate=candidate,
        decided=Decided(_outcome(row), _reason(row), started_s, _placement(row, present)),
        changes=tuple(row.changes),
        id=str(row.pk),
    )


def _outcome(row: AdmissionRequest) -> str:
    states = {
        AdmissionState.APPLIED: "admitted",
        AdmissionState.QUEUED: "queued",
        AdmissionState.AWAITING: "review",
        AdmissionState.DECLINED: "rejected",
    }
    verdicts = {Verdict.REJECT: "rejected", Verdict.REVIEW: "review"}
    return states.get(row.state) or verdicts.get(row.verdict, "not applied")


def _reason(row: AdmissionRequest) -> str:
    headline = str((row.result or {}).get("headline", ""))
    if row.overridden:
        return f"Against the verdict: {row.decision_reason}"
    if row.state == AdmissionState.DECLINED:
        return f"Declined: {row.decision_reason}"
    return headline


def _placement(row: AdmissionRequest, present: Deployment) -> dict[str, tuple[Replica, ...]]:
    """Where the query runs now, or where it was decided to run."""
    placed = {op.id: op.replicas for op in present.operators if op.query == row.query.name and op.replicas}
    decided = (row.result or {}).get("placement") or {}
    return placed or {
        name: tuple(Replica(part["node"], part["core"], part["fraction"]) for part in parts)
        for name, parts in decided.items()
    }


def _began(run: BacktestRun, present: Deployment, requests: list[Request], grid: Grid) -> tuple[Deployment, list[str]]:
    """What runs now without what was let in since, with every source that anything reads."""
    applied = _since(run.cluster, grid).filter(state=AdmissionState.APPLIED)
    base = present
    for name in sorted(set(applied.values_list("query__name", flat=True)) & set(present.queries)):
        base = base.without_query(name)
    read = {entry.source for operator in base.operators for entry in operator.inputs}
    read |= {
        entry["from"] for one in requests for operator in one.candidate["operators"] for entry in operator["inputs"]
    }
    notes = ["Operators are where they are now, and statistics and nodes are those of now, from the beginning on."]
    return _with_sources(base, run.cluster, read), notes


def _with_sources(base: Deployment, cluster: Cluster, read: Iterable[str]) -> Deployment:
    """The deployment with the sources that are read and no others."""
    names = set(read)
    own = {source.id: source for source in base.sources if source.id in names}
    more = arrays_of(arrival_rows(cluster, names - own.keys()))
    own |= {name: Source(name, values) for name, values in more.items()}
    return replace(base, sources=tuple(own[name] for name in sorted(own)))


def _with_stopped(story: Story, cluster: Cluster, asked: set[str]) -> Story:
    """Queries that were stopped in the period: running until then, and before it if they did not ask within it."""
    rows = Query.objects.filter(
        cluster=cluster,
        state=QueryState.STOPPED,
        updated_at__gte=_moment(story.since_s),
        updated_at__lt=_moment(story.starts_s(story.segments)),
    )
    notes = list(story.notes)
    base, stops = story.deployment, []
    for query in rows.order_by("name"):
        stops.append(Stop(query.updated_at.timestamp(), query.name))
        if query.name in asked:
            continue
        try:
            base = _as_it_ran(replace(story, deployment=base), cluster, query)
        except EngineError as error:
            notes.append(f"{query.name}, which was stopped, is left out: {error.message}.")
    if stops:
        notes.append("A stop is dated by the query's last change; a stopped query is placed where it was admitted.")
    return replace(story, deployment=base, stops=tuple(stops), notes=tuple(notes))


def _as_it_ran(story: Story, cluster: Cluster, query: Query) -> Deployment:
    applied = query.admissions.filter(state=AdmissionState.APPLIED).select_related("version").first()
    version = applied.version if applied else query.versions.first()
    candidate = candidate_document(version)
    candidate.pop("sources", None)
    read = {source.id for source in story.deployment.sources}
    read |= {entry["from"] for operator in candidate["operators"] for entry in operator["inputs"]}
    base = _with_sources(story.deployment, cluster, read)
    request = Request(story.since_s, candidate, Decided("admitted", ""))
    return joined(story, request, base, _placement(applied, base) if applied else {})


def _waits(cluster: Cluster) -> dict[str, float]:
    """By live query, what its latency has beside Flow's."""
    latest = run_latest(cluster)
    rows = QueryEstimate.objects.filter(run=latest).select_related("query").only("query__name", "result")
    found = {row.query.name: (row.result or {}).get("live") for row in rows}
    return {name: sum(float(live.get(part) or 0.0) for part in _WAITS) for name, live in found.items() if live}


def _measured(cluster: Cluster, grid: Grid) -> dict[str, FloatArray]:
    """By live query, the largest latency measured in every segment."""
    rows = AccuracyObservation.objects.filter(
        cluster=cluster, starts_at__gte=_moment(grid.since_s), starts_at__lt=_moment(grid.until_s)
    )
    found: dict[str, FloatArray] = {}
    for name, at, observed_s in rows.values_list("query__name", "starts_at", "observed_s").iterator():
        values = found.setdefault(name, np.full(grid.segments, np.nan))
        i = min(grid.segments - 1, int((at.timestamp() - grid.since_s) // grid.width_s))
        values[i] = np.fmax(values[i], observed_s)
    return found


def _moves(cluster: Cluster, grid: Grid) -> int:
    moves = PlacementMove.objects.filter(run__cluster=cluster, state=MoveState.DONE)
    return moves.filter(applied_at__gte=_moment(grid.since_s), applied_at__lt=_moment(grid.until_s)).count()


def _grid_notes(grid: Grid) -> list[str]:
    if not grid.is_coarser:
        return []
    return [f"Segments of {grid.width_s / 3600:g} h are coarser than the records, so that there are not too many."]


def _moment(at_s: float) -> datetime:
    return datetime.fromtimestamp(at_s, UTC)
