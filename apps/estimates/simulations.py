"""Simulated runs: the estimate of what runs in a cluster, scored by simulations of the same snapshot.

They are of an origin of their own. Nothing was measured, so they scale no estimate of a query and count in no other
origin's figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated

from django.db.models import Max
from django.utils import timezone

from apps.accounts.models import User
from apps.core.errors import Impossible
from apps.core.events import announce
from apps.estimates.accuracy import scored_run, work_by_kind
from apps.estimates.answers import stored_estimates
from apps.estimates.calibration import (
    calibrations_in_force,
    calibrations_refresh,
    group_of,
    group_of_estimate,
    scaled_estimate,
)
from apps.estimates.choices import RunOrigin
from apps.estimates.models import AccuracyObservation
from apps.fleet.models import Cluster
from apps.jobs.models import Job, JobKind
from apps.jobs.runner import JobOutcome, JobReporter
from apps.jobs.services import job_submit
from apps.queries.choices import QueryState
from apps.queries.models import Query
from apps.queries.snapshots.cluster import SLICES_PER_SUBINTERVAL, cluster_snapshot
from engine.records import Flag, Record, Words

if TYPE_CHECKING:
    from engine.simulation.comparison import SimulationComparison

__all__ = ["SIMULATION_SEEDS", "SimulationOutcome", "simulate_cluster", "simulation_request"]

SIMULATION_SEEDS = 5  #: simulations of a snapshot


@dataclass(frozen=True)
class SimulationOutcome(Record):
    """Outcome of simulations of a cluster's snapshot; its runs are listed at `accuracy?origin=simulated`."""

    runs: Annotated[int, Words("Scored runs, one for each query and seed.")]
    coverage: Annotated[float | None, Words("Share of them that the interval held.")]
    horizon_s: Annotated[float, Words("Stretch that was simulated and estimated.")]
    cut: Annotated[Flag, Words("Whether it is the beginning of a horizon with too many events.")]
    left_out: Annotated[tuple[str, ...], Words("Queries with a window that does not close twice within it.")]
    cost_cv: Annotated[float, Words("Coefficient of variation of the costs that were drawn.")]


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


def simulate_cluster(report: JobReporter) -> JobOutcome:
    """Hold an estimate of what runs in the job's cluster against simulations of it, in the order of stimulus time."""
    from engine.simulation.comparison import compare_with_simulations  # numba with it, which only workers load

    cluster = report.job.cluster
    report(0.0, "Taking a snapshot")
    at = timezone.now()
    snapshot = cluster_snapshot(cluster)
    first = report.job.params["first_seed"]
    comparison = compare_with_simulations(
        snapshot.deployment,
        range(first, first + SIMULATION_SEEDS),
        mace_every=SLICES_PER_SUBINTERVAL,
        progress=report,
    )

    scored, rows = _scored_runs(cluster, comparison, at), list[AccuracyObservation]()

    def store(job: Job) -> JobOutcome:
        rows[:] = _store_runs(cluster, scored)
        held = [row.covered for row in rows if row.covered is not None]
        outcome = SimulationOutcome(
            runs=len(rows),
            coverage=sum(held) / len(held) if held else None,
            horizon_s=comparison.horizon_s,
            cut=comparison.is_cut,
            left_out=tuple(comparison.left_out),
            cost_cv=round(comparison.cost_cv, 4),
        )
        query = f"origin={RunOrigin.SIMULATED}"
        return JobOutcome(
            outcome.to_dict(),
            f"/c/{cluster.slug}/accuracy/?{query}",
            f"/api/v1/accuracy?cluster={cluster.slug}&{query}",
        )

    return JobOutcome(store=store, follow=lambda: _calibrate(rows, at))


def _calibrate(rows: Sequence[AccuracyObservation], at: datetime) -> None:
    calibrations_refresh({group_of(row) for row in rows}, now=at)


def _store_runs(cluster: Cluster, rows: Sequence[AccuracyObservation]) -> list[AccuracyObservation]:
    """Keep the scored runs of queries that run; those that were stopped meanwhile have none."""
    running = Query.objects.filter(cluster=cluster, state=QueryState.RUNNING)
    versions = dict(running.values_list("pk", "running_version__number"))
    kept = [row for row in rows if versions.get(row.query_id) == row.version]
    AccuracyObservation.objects.bulk_create(kept)
    announce(f"accuracy:{cluster.slug}")
    return kept


def _scored_runs(cluster: Cluster, comparison: SimulationComparison, at: datetime) -> list[AccuracyObservation]:
    """A scored run, not stored, for every query and seed.

    All begin `at` the same moment and so weigh as one instant: they have a snapshot in common.
    """
    running = Query.objects.filter(cluster=cluster, state=QueryState.RUNNING).select_related("running_version")
    queries = {query.name: query for query in running.prefetch_related("running_version__operators")}
    calibrations = calibrations_in_force(cluster)
    answer = comparison.estimate.answer()
    scored = {}
    for name, stored in stored_estimates(answer).items():
        if name in queries:
            group = group_of_estimate(stored, queries[name], RunOrigin.SIMULATED)
            scored[name] = scaled_estimate(stored, group, calibrations)
    return [
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
                scored[run.query].operators,
                {name.removeprefix(f"{run.query}/"): cps for name, cps in run.work.items()},
            ),
        )
        for run in comparison.runs
        if run.query in scored
    ]
