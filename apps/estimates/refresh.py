"""Refresh of estimates when their inputs, their waits or their calibration have changed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime, timedelta
from typing import Any

from django.db import models, transaction
from django.db.models.signals import post_delete, post_save
from django.utils import timezone

from apps.core.clock import shared_now
from apps.core.errors import SluiceError
from apps.estimates.calibration import CalibrationGroup, calibrations_in_force, group_applied, in_force
from apps.estimates.models import EstimateRun, IntervalCalibration, QueryEstimate
from apps.estimates.selectors import query_estimate_latest, run_latest
from apps.estimates.services import ESTIMATE, run_present
from apps.fleet.choices import Evidence
from apps.fleet.models import Cluster, Link, Node
from apps.fleet.services import cluster_changed
from apps.jobs.models import FINISHED, Job, JobKind, JobState
from apps.measurements.stream_processor import timing_now
from apps.queries.choices import QueryState
from apps.queries.models import ArrivalSeries, Operator, OperatorInput, Placement, Query
from apps.queries.snapshots.parts import is_large, parts_renew
from apps.telemetry.configs import live_served
from engine.errors import EngineError
from engine.measurement.changes import MIN_PACE_S, LastEstimate, Pace
from engine.measurement.microbatch import StageTiming

__all__ = [
    "connect",
    "estimate_refresh",
    "estimate_refresh_all",
    "estimates_of_telemetry_thin",
    "live_estimates_refresh",
    "refresh_by_telemetry",
    "refresh_paused",
    "telemetry_pace",
]

# (older than, one per); what is older than the last is dropped
_STEPS = (
    (timedelta(hours=2), timedelta(minutes=10)),
    (timedelta(days=2), timedelta(hours=1)),
    (timedelta(days=30), None),
)


_log = logging.getLogger(__name__)
_paused: ContextVar[bool] = ContextVar("refresh_paused", default=False)
_by_telemetry: ContextVar[bool] = ContextVar("refresh_by_telemetry", default=False)


def estimate_refresh(cluster: Cluster, *, by_telemetry: bool = False, compare: bool = True) -> Job | None:
    """Request an estimate if the newest one is of another snapshot; without `compare` its job finds that out. None:
    nothing to do.

    It never fails: it runs after somebody else's change, whose success must not hang on it. What could not be sent is
    caught up by the schedule (`estimate_refresh_all`).
    """
    if not cluster.queries.filter(state=QueryState.RUNNING).exists():
        if compare:
            parts_renew(cluster)  # previews are compared there, too
        return None
    try:
        if compare and run_present(cluster) is not None:
            return None
        return ESTIMATE.request(cluster=cluster, by_telemetry=by_telemetry, if_changed=not compare)[1]
    except (SluiceError, EngineError) as error:
        _log.warning("the estimate of cluster %s cannot be refreshed now: %s", cluster.slug, error)
        return None


def estimate_refresh_all() -> int:
    """Bring every cluster's estimate up to date; returns how many estimates were asked for.

    Of a cluster that is being estimated only the parts that pages compare with are read: no other estimate is asked for
    until that has ended, as a large one takes longer than the schedule's step.
    """
    jobs = Job.objects.filter(kind=JobKind.ESTIMATE, cluster__isnull=False).exclude(state__in=FINISHED)
    busy, count = set(jobs.values_list("cluster", flat=True)), 0
    for cluster in Cluster.objects.all():
        if cluster.pk in busy:
            parts_renew(cluster)
        else:
            count += estimate_refresh(cluster) is not None
    return count


def connect() -> None:
    """Watch the models that estimates rest on. A change of many rows in one transaction asks once."""
    for model, cluster_of in _WATCHED.items():
        receiver = _receiver(cluster_of)
        uid = f"estimates.refresh.{model.__name__}"
        post_save.connect(receiver, sender=model, weak=False, dispatch_uid=uid)
        post_delete.connect(receiver, sender=model, weak=False, dispatch_uid=uid)
    cluster_changed.connect(_changed_in_bulk, dispatch_uid="estimates.refresh.bulk")


@contextmanager
def refresh_paused() -> Iterator[None]:
    """Changes made inside do not ask for estimates: for whoever makes many of them and estimates at the end."""
    token = _paused.set(True)
    try:
        yield
    finally:
        _paused.reset(token)


@contextmanager
def refresh_by_telemetry() -> Iterator[None]:
    """Estimates that changes made inside ask for are telemetry's: quiet on pages, and thinned with age."""
    token = _by_telemetry.set(True)
    try:
        yield
    finally:
        _by_telemetry.reset(token)


class _Refresh:
    """Runs after commit; several of one cluster in one transaction are one."""

    def __init__(self, cluster_id: int) -> None:
        self.cluster_id = cluster_id
        self.by_telemetry = _by_telemetry.get()

    def __call__(self) -> None:
        cluster = Cluster.objects.filter(pk=self.cluster_id).first()
        if cluster is not None:
            # A request does not read the rows of a large cluster to find out whether they differ.
            estimate_refresh(cluster, by_telemetry=self.by_telemetry, compare=not is_large(cluster))


def _changed_in_bulk(sender: type[models.Model], cluster: Cluster, **_: Any) -> None:
    if not _paused.get():
        _ask_once(cluster.pk)


def _ask_once(cluster_id: int) -> None:
    pending = transaction.get_connection().run_on_commit
    if not any(isinstance(entry[1], _Refresh) and entry[1].cluster_id == cluster_id for entry in pending):
        transaction.on_commit(_Refresh(cluster_id), robust=True)


def _receiver(cluster_of: Callable[[Any], int | None]) -> Callable[..., None]:
    def changed(sender: type[models.Model], instance: models.Model, raw: bool = False, **_: Any) -> None:
        cluster_id = None if raw or _paused.get() else cluster_of(instance)
        if cluster_id is not None:
            _ask_once(cluster_id)

    return changed


def _cluster_running(operator_id: int) -> int | None:
    """The cluster in which the operator's version runs; None for a version that does not."""
    operators = Operator.objects.filter(pk=operator_id, version__running_as__state=QueryState.RUNNING)
    return operators.values_list("version__query__cluster_id", flat=True).first()


def _cluster_of_query(query: Query) -> int | None:
    return query.cluster_id if query.running_version_id or query.state == QueryState.STOPPED else None


_WATCHED: dict[type[models.Model], Callable[[Any], int | None]] = {
    Cluster: lambda cluster: cluster.pk,
    Node: lambda node: node.cluster_id,
    Link: lambda link: link.cluster_id,
    ArrivalSeries: lambda series: series.cluster_id,
    Query: _cluster_of_query,
    OperatorInput: lambda row: _cluster_running(row.operator_id),
    Placement: lambda row: _cluster_running(row.operator_id),
}


_MOVED = 0.2  # of the waits, or of a factor: less is within what batches differ by


def live_estimates_refresh() -> int:
    """Request estimates of clusters whose live waits or calibration have changed; returns how many.

    Neither is part of a snapshot, whose change asks for an estimate by itself.
    """
    timing = timing_now()
    moved: dict[int, Cluster] = {}
    calibrations: dict[int, Mapping[CalibrationGroup, IntervalCalibration]] = {}
    for live in live_served().select_related("query__cluster"):
        cluster = live.query.cluster
        newest = query_estimate_latest(live.query) if cluster.pk not in moved else None
        if newest is None:
            continue
        if cluster.pk not in calibrations:
            calibrations[cluster.pk] = calibrations_in_force(cluster)
        if _has_moved(newest, timing) or _is_recalibrated(newest, calibrations[cluster.pk]):
            moved[cluster.pk] = cluster
    for cluster in moved.values():
        try:
            ESTIMATE.request(cluster=cluster, by_telemetry=True)
        except SluiceError as error:
            _log.warning("the estimate of cluster %s cannot be refreshed now: %s", cluster.slug, error)
    return len(moved)


def telemetry_pace(cluster: Cluster) -> Pace:
    """Pace of estimates by measurements: the age of the newest one, and the state of live queries."""
    run = run_latest(cluster)
    if run is None:
        return Pace()
    rows = run.queries.filter(bound_s__isnull=False).only("run", "result", "estimate_s", "high_s", "bound_s")
    standings = [
        LastEstimate(row.answer.live.processing_s, row.estimate_s, row.high_s, row.bound_s)
        for row in rows
        if row.answer.live is not None
    ]
    return Pace(_age_s(run), standings)


def _age_s(run: EstimateRun) -> float:
    return (shared_now() - run.created_at).total_seconds()


def _has_moved(row: QueryEstimate, timing: StageTiming) -> bool:
    live = row.answer.live
    if live is None or (live.evidence == Evidence.ASSUMED and not timing.is_assumed):
        return True  # estimated before it was live, or before a batch was timed
    before = live.epoch_s + live.interval_s + live.overhead_s
    usual_s = max(0.0, timing.batch_s - live.mean_work_s)
    return abs(timing.epoch_s + timing.interval_s + usual_s - before) > _MOVED * before


def _is_recalibrated(row: QueryEstimate, calibrations: Mapping[CalibrationGroup, IntervalCalibration]) -> bool:
    """Whether its interval would be scaled otherwise by now, or trust in it has changed."""
    applied, group = row.answer.calibration, group_applied(row)
    if applied is None or group is None:
        return True
    now = in_force(group, calibrations)
    if now.trust.state != applied.trust.state:
        return True
    sides = ((now.factors.lower, applied.lower), (now.factors.upper, applied.upper))
    return _age_s(row.run) >= MIN_PACE_S and any(abs(value - before) > _MOVED * before for value, before in sides)


def estimates_of_telemetry_thin(now: datetime | None = None) -> int:
    """Keep all of two hours, one per ten minutes of two days, one per hour of thirty days, and each cluster's newest;
    returns how many runs are gone. Their jobs go when they are two hours old, unless they failed.
    """
    present = now or timezone.now()
    old = EstimateRun.objects.filter(by_telemetry=True, created_at__lt=present - _STEPS[0][0])
    gone: list[int] = []
    taken: set[tuple[int, timedelta, float]] = set()
    newest: set[int] = set()
    for pk, cluster, at in old.order_by("-created_at", "-pk").values_list("pk", "cluster_id", "created_at").iterator():
        step = [each for age, each in _STEPS if at < present - age][-1]
        place = (cluster, step, at.timestamp() // step.total_seconds()) if step else None
        if (place is None or place in taken) and cluster in newest:
            gone.append(pk)
        elif place:
            taken.add(place)
        newest.add(cluster)
    for i in range(0, len(gone), 500):
        EstimateRun.objects.filter(pk__in=gone[i : i + 500]).delete()
    jobs = Job.objects.filter(kind=JobKind.ESTIMATE, state=JobState.SUCCEEDED, params__has_key="by_telemetry")
    jobs.filter(finished_at__lt=present - _STEPS[0][0]).delete()
    return len(gone)
