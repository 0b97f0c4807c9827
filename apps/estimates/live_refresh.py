"""Estimating live queries again when their waits or the trust in them have moved."""

from __future__ import annotations

import logging

from django.utils import timezone

from apps.core.errors import SluiceError
from apps.estimates.models import EstimateRun, QueryEstimate
from apps.estimates.policies import node_policies
from apps.estimates.selectors import query_estimate_latest, run_latest
from apps.estimates.services import estimate_request
from apps.estimates.trust import evidence_of, trust_of
from apps.fleet.choices import Evidence
from apps.fleet.models import Cluster
from apps.measurements.timing import timing_now
from apps.queries.models import Query
from apps.telemetry.configs import live_served
from engine.measurement.microbatch import Timing
from engine.measurement.pace import LEAST_S, Pace, Standing

__all__ = ["live_estimates_refresh", "telemetry_pace"]

_MOVED = 0.2  # of the waits, or of the factor: less is within what batches differ by
_log = logging.getLogger(__name__)


def live_estimates_refresh() -> int:
    """Ask for an estimate of clusters whose live queries' waits or trust, or agents' policies, have moved; how many.

    None of them is part of a snapshot, whose change asks for an estimate by itself.
    """
    timing = timing_now()
    moved: dict[int, Cluster] = {}
    policies: dict[int, dict[str, str]] = {}
    for live in live_served().select_related("query__cluster"):
        cluster = live.query.cluster
        newest = query_estimate_latest(live.query) if cluster.pk not in moved else None
        if newest is None:
            continue
        if cluster.pk not in policies:
            policies[cluster.pk] = node_policies(cluster)
        if newest.run.result.get("policies", {}) != policies[cluster.pk] or _has_moved(newest, live.query, timing):
            moved[cluster.pk] = cluster
    for cluster in moved.values():
        try:
            estimate_request(cluster=cluster, by_telemetry=True)
        except SluiceError as error:
            _log.warning("cluster %s is not estimated again now: %s", cluster.slug, error)
    return len(moved)


def telemetry_pace(cluster: Cluster) -> Pace:
    """When measurements of a cluster are worth an estimate: the age of its newest one, and how live queries stand."""
    run = run_latest(cluster)
    if run is None:
        return Pace()
    rows = run.queries.filter(bound_s__isnull=False).only("run", "result", "estimate_s", "high_s", "bound_s")
    standings = [
        Standing(row.result["live"]["flow_s"], row.estimate_s, row.high_s, row.bound_s)
        for row in rows
        if row.result.get("live")
    ]
    return Pace(_age_s(run), standings)


def _age_s(run: EstimateRun) -> float:
    return (timezone.now() - run.created_at).total_seconds()


def _has_moved(row: QueryEstimate, query: Query, timing: Timing) -> bool:
    said, trusted = row.result.get("live"), row.result.get("trust")
    if said is None or trusted is None or (said.get("evidence") == Evidence.ASSUMED and not timing.is_assumed):
        return True  # estimated before it was live, or before a batch was timed
    factor = trust_of(query, row.statistic, evidence_of(row.result))[0].factor
    if abs(factor - trusted["factor"]) > _MOVED * trusted["factor"] and _age_s(row.run) >= LEAST_S:
        return True
    before = said["epoch_s"] + said["interval_s"] + said["overhead_s"]
    usual_s = max(0.0, timing.batch_s - said["mean_work_s"])
    return abs(timing.epoch_s + timing.interval_s + usual_s - before) > _MOVED * before
