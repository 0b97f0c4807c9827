"""Simulated runs: the estimate of what runs in a cluster, scored by simulations of the same snapshot.

They are of an origin of their own. Nothing was measured, so they scale no estimate of a query and count in no other
origin's figures.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from django.db import transaction
from django.db.models import Max

from apps.accounts.models import User
from apps.core.errors import Impossible
from apps.core.events import announce
from apps.estimates.accuracy import scored_run, work_by_kind
from apps.estimates.calibration import (
    CalibrationGroup,
    calibrations_in_force,
    calibrations_refresh,
    evidence_of,
    group_of,
    is_windowed,
)
from apps.estimates.choices import RunOrigin
from apps.estimates.intervals import scaled_result
from apps.estimates.models import AccuracyObservation, IntervalCalibration
from apps.estimates.services import operators_of
from apps.fleet.models import Cluster
from apps.jobs.models import Job, JobKind
from apps.jobs.services import job_submit
from apps.queries.choices import QueryState
from apps.queries.models import Query

if TYPE_CHECKING:
    from engine.simulation.comparison import SimulationComparison

__all__ = ["SIMULATION_SEEDS", "simulation_request", "simulation_store"]

SIMULATION_SEEDS = 5  #: simulations of a snapshot


def simulation_request(*, cluster: Cluster, user: User | None = None) -> Job:
    """Request simulations of everything that runs in `cluster`; ones that still wait for a worker are returned.

    Raises
    ------
    Impossible
        Nothing runs there.
    """
    if not Query.objects.filter(cluster=cluster, state=QueryState.RUNNING).exists():
        message = f"no query runs in {cluster.slug}"
        raise Impossible(f"There is nothing to simulate: {message}.", [("cluster", message)])
    simulated = AccuracyObservation.objects.filter(cluster=cluster, origin=RunOrigin.SIMULATED)
    last_seed: int = simulated.aggregate(last=Max("seed"))["last"] or 0
    return job_submit(
        kind=JobKind.SIMULATION,
        title=f"Simulate {cluster.slug}",
        params={"cluster": cluster.slug, "first_seed": last_seed + 1},
        cluster=cluster,
        user=user,
        dedupe_key=f"simulate:{cluster.pk}",
    )


@transaction.atomic
def simulation_store(*, cluster: Cluster, comparison: SimulationComparison, at: datetime) -> list[AccuracyObservation]:
    """Keep a scored run for every query and seed; queries that were stopped meanwhile have none.

    All begin `at` the same moment and so weigh as one instant: they have a snapshot in common.
    """
    running = Query.objects.filter(cluster=cluster, state=QueryState.RUNNING).select_related("running_version")
    queries = {query.name: query for query in running.prefetch_related("running_version__operators")}
    calibrations = calibrations_in_force(cluster)
    scored = {
        name: _scaled(comparison.answer["queries"][name], query, calibrations)
        for name, query in queries.items()
        if name in comparison.answer["queries"]
    }
    expected = {
        name: operators_of(name, dict(comparison.answer), comparison.answer["subinterval_s"]) for name in scored
    }
    rows = [
        scored_run(
            scored[run.query],
            queries[run.query].running_version,
            run.observed_s,
            cluster_id=cluster.pk,
            query=queries[run.query],
            origin=RunOrigin.SIMULATED,
            seed=run.seed,
            estimated_at=at,
            starts_at=at,
            ends_at=at + timedelta(seconds=comparison.horizon_s),
            windows=run.results,
            kinds=work_by_kind(
                queries[run.query].running_version,
                expected[run.query],
                {name.removeprefix(f"{run.query}/"): cps for name, cps in run.work.items()},
            ),
        )
        for run in comparison.runs
        if run.query in scored
    ]
    AccuracyObservation.objects.bulk_create(rows)
    calibrations_refresh({group_of(row) for row in rows}, now=at)
    announce(f"accuracy:{cluster.slug}")
    return rows


def _scaled(
    result: Mapping[str, Any], query: Query, calibrations: Mapping[CalibrationGroup, IntervalCalibration]
) -> dict[str, Any]:
    """An answer with its interval scaled by the simulated runs before."""
    group = CalibrationGroup(
        cluster_id=query.cluster_id,
        origin=RunOrigin.SIMULATED,
        evidence=evidence_of(result),
        statistic=result["statistic"],
        windowed=is_windowed(query.running_version),
        query_id=query.pk,
    )
    return scaled_result(result, group, calibrations)
