"""Forecasts: requested, stored, renewed daily or when load histories change."""

from __future__ import annotations

import hashlib
import json
import logging
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from django.db import transaction
from django.utils import timezone

from apps.accounts.models import User
from apps.core.errors import Fault, Impossible, Malformed, SluiceError
from apps.core.events import announce
from apps.fleet.models import Cluster
from apps.jobs.models import Job, JobKind
from apps.jobs.services import job_submit
from apps.planning.models import Forecast, LoadHistory
from apps.queries.snapshots.cluster import Snapshot

if TYPE_CHECKING:  # it loads numba, which only workers need
    from engine.forecasts.outlook import Outlook

__all__ = [
    "HORIZON_DAYS",
    "MAX_FORECASTS",
    "forecast_renew_all",
    "forecast_request",
    "forecast_store",
    "histories_digest",
]

_log = logging.getLogger(__name__)

HORIZON_DAYS = (1, 56)
DEFAULT_DAYS = 28
MAX_FORECASTS, MAX_FORECAST_SERIES = 60, 10  # forecasts of a cluster that keep their findings, and their curves
_RENEW_AFTER = timedelta(days=1)


def histories_digest(cluster: Cluster) -> str:
    """A digest of a cluster's histories; empty without any."""
    rows = LoadHistory.objects.filter(cluster=cluster).order_by("source_id").values_list("source_id", "digest")
    digests = list(rows)
    return hashlib.sha256(json.dumps(digests).encode()).hexdigest()[:16] if digests else ""


def forecast_request(
    *, cluster: Cluster, horizon_days: int = DEFAULT_DAYS, seed: int = 0, user: User | None = None
) -> Job:
    """Request a forecast of a cluster. One that still waits for a worker is returned instead of a second one.

    Raises
    ------
    Malformed
        A horizon or seed out of range.
    Impossible
        The cluster has no load history.
    """
    low, high = HORIZON_DAYS
    faults = []
    if not low <= horizon_days <= high:
        faults.append(Fault("horizon_days", f"horizon_days is {horizon_days}; allowed: {low} to {high}"))
    if not 0 <= seed < 2**31:
        faults.append(Fault("seed", f"seed is {seed}; allowed: 0 to 2147483647"))
    if faults:
        raise Malformed(f"{faults[0].path}: {faults[0].message}.", faults)
    mark = histories_digest(cluster)
    if not mark:
        message = f"{cluster.slug} has no load history; upload or generate one first"
        raise Impossible(f"cluster: {message}.", [("cluster", message)])
    return job_submit(
        kind=JobKind.FORECAST,
        title=f"Forecast {cluster.slug}",
        params={"cluster": cluster.slug, "horizon_days": horizon_days, "seed": seed, "histories": mark},
        cluster=cluster,
        user=user,
        dedupe_key=f"forecast:{cluster.pk}:{horizon_days}:{seed}",
    )


def forecast_store(
    *,
    job: Job | None,
    cluster: Cluster,
    snapshot: Snapshot,
    histories: dict[str, str],
    outlook: Outlook,
    seed: int,
    duration_s: float,
) -> Forecast:
    """Store a forecast. Called inside the job's transaction."""
    with transaction.atomic():
        row = Forecast.objects.create(
            cluster=cluster,
            job=job,
            requested_by=job.requested_by if job is not None else None,
            finished_at=timezone.now(),
            snapshot=snapshot.digest,
            snapshot_parts=snapshot.parts,
            histories=histories,
            bucket_s=int(outlook.bucket_s),
            starts_at=datetime.fromtimestamp(outlook.starts_s, UTC),
            horizon=outlook.horizon,
            seed=seed,
            result=outlook.answer.to_dict(),
            series=outlook.series(),
            duration_s=duration_s,
        )
        ids = list(Forecast.objects.filter(cluster=cluster).values_list("pk", flat=True)[: MAX_FORECASTS + 20])
        Forecast.objects.filter(pk__in=ids[MAX_FORECAST_SERIES:MAX_FORECASTS], series__isnull=False).update(series=None)
        Forecast.objects.filter(pk__in=ids[MAX_FORECASTS:]).delete()
        announce(f"cluster:{cluster.slug}")
    return row


def forecast_renew_all() -> int:
    """Request a forecast of every cluster whose histories have changed, or whose newest is a day old; returns the
    number.

    A request that failed is not repeated before a day is over, unless the histories change.
    """
    asked = 0
    for cluster in Cluster.objects.filter(load_histories__isnull=False).distinct():
        mark = histories_digest(cluster)
        since = timezone.now() - _RENEW_AFTER
        jobs = Job.objects.filter(kind=JobKind.FORECAST, cluster=cluster, created_at__gte=since)
        if jobs.filter(params__histories=mark).exists():
            continue
        try:
            forecast_request(cluster=cluster)
            asked += 1
        except SluiceError as error:
            _log.warning("cluster %s is not forecast now: %s", cluster.slug, error)
    return asked
