"""Work of forecast jobs: load histories and snapshot, ask the engine, store the forecast."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable

from apps.fleet.models import Cluster
from apps.jobs.models import Job
from apps.jobs.runner import JobOutcome, JobReporter
from apps.planning.forecasts.histories import coarsen_buckets, history_values
from apps.planning.forecasts.services import DEFAULT_DAYS, forecast_store
from apps.planning.models import LoadHistory
from apps.queries.arrivals.times import zone_of
from apps.queries.models import ArrivalSeries
from apps.queries.snapshots.cluster import cluster_snapshot
from engine.errors import Fault, InfeasibleError
from engine.forecasts.forecast import SourceHistory
from engine.forecasts.outlook import outlook

__all__ = ["forecast_bucket_s", "forecast_cluster"]

_SLICES_PER_SUBINTERVAL = 4  # snapshots are at a quarter of a subinterval
_POOL_SHARES = (-0.3, -0.2, -0.1, 0.0, 0.1, 0.2)  # pools judged: smaller and larger by these shares
_DAY_S = 86_400
_MAX_STEPS = 5_376  # of a forecast: 56 days by quarters of an hour


def forecast_cluster(report: JobReporter) -> JobOutcome:
    """Forecast the load of the job's cluster and what it does to its objectives."""
    cluster, params = report.job.cluster, report.job.params
    report(0.0, "Taking a snapshot")
    snapshot = cluster_snapshot(cluster)
    rows = list(LoadHistory.objects.filter(cluster=cluster))
    if not rows:
        message = "the cluster has no load history any more"
        raise InfeasibleError(f"No forecast: {message}", [Fault("cluster", message)])
    horizon_s = int(params.get("horizon_days", DEFAULT_DAYS)) * _DAY_S
    bucket_s = forecast_bucket_s((row.bucket_s for row in rows), horizon_s)
    histories = _histories(cluster, rows, bucket_s)
    seed = int(params.get("seed", 0))
    started = time.perf_counter()
    forecast = outlook(
        snapshot.deployment if snapshot.deployment.operators else None,
        histories,
        bucket_s=bucket_s,
        horizon=horizon_s // bucket_s,
        mace_every=_SLICES_PER_SUBINTERVAL,
        extra_nodes=_extra_nodes(len(snapshot.deployment.nodes)),
        closed=snapshot.closed_nodes,
        seed=seed,
        zone=zone_of(cluster.time_zone),
        progress=report,
    )
    duration_s = time.perf_counter() - started
    digests = {row.source_id: row.digest for row in rows}

    def store(job: Job) -> JobOutcome:
        row = forecast_store(
            job=job,
            cluster=cluster,
            snapshot=snapshot,
            histories=digests,
            outlook=forecast,
            seed=seed,
            duration_s=duration_s,
        )
        facts = {
            "forecast": row.pk,
            "sources": len(forecast.sources),
            "refused": len(forecast.refused),
            "threatened": sum(bool(query.violations) for query in forecast.answer.queries),
            "duration_s": round(duration_s, 3),
        }
        return JobOutcome(facts, f"/c/{cluster.slug}/provisioning/forecast/", f"/api/v1/forecasts/{row.pk}")

    return JobOutcome(store=store)


def _extra_nodes(present: int) -> list[int]:
    """Differences to the present pool, each of at least one node."""
    differences = {0}
    for share in _POOL_SHARES:
        differences.add(round(present * share) or (int(share > 0) - int(share < 0)))
    return sorted(differences)


def forecast_bucket_s(buckets_s: Iterable[int], horizon_s: int) -> int:
    """Bucket of a forecast: the shortest that all histories add up to, divides a day and leaves it few enough steps."""
    common_s = math.lcm(*buckets_s)
    widths = range(common_s, _DAY_S + 1, common_s)
    return next(width for width in widths if _DAY_S % width == 0 and horizon_s <= _MAX_STEPS * width)


def _histories(cluster: Cluster, rows: list[LoadHistory], bucket_s: int) -> dict[str, SourceHistory]:
    """Histories in buckets of this length, with the mean rate of each source's stretch of arrivals."""
    stretches = ArrivalSeries.objects.filter(cluster=cluster).defer("data", "spec")
    means = {row.source_id: row.mean_eps for row in stretches}
    histories = {}
    for row in rows:
        start_s, values = coarsen_buckets(row.starts_at.timestamp(), history_values(row), row.bucket_s, bucket_s)
        histories[row.source_id] = SourceHistory(values, start_s, means.get(row.source_id, 0.0))
    return histories
