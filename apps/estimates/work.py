"""The work of estimation jobs: load, ask the engine, say how to store. `apps.jobs.runner.run_job` runs it."""

from __future__ import annotations

import time
from collections import Counter

from django.utils import timezone

from apps.core.models import unpack_json
from apps.estimates.choices import RunOrigin
from apps.estimates.models import DocumentEstimate, EstimateRun
from apps.estimates.services import document_estimate_store, estimate_store
from apps.estimates.simulations import SIMULATION_SEEDS, SimulationOutcome, simulation_store
from apps.jobs.models import Job
from apps.jobs.runner import JobOutcome, JobReporter
from apps.queries.snapshots.cluster import SLICES_PER_SUBINTERVAL, cluster_snapshot
from engine.document.deployment import Deployment
from engine.estimation.estimate import estimate
from engine.simulation.comparison import compare_with_simulations

__all__ = ["estimate_cluster", "estimate_document", "simulate_cluster"]


def estimate_cluster(report: JobReporter) -> JobOutcome:
    """Estimate everything that runs in the job's cluster."""
    cluster = report.job.cluster
    report(0.0, "Taking a snapshot")
    snapshot = cluster_snapshot(cluster)
    started = time.perf_counter()
    answer = estimate(snapshot.deployment, mace_every=SLICES_PER_SUBINTERVAL, progress=report)
    duration_s = time.perf_counter() - started

    def store(job: Job) -> JobOutcome:
        run = estimate_store(job=job, cluster=cluster, snapshot=snapshot, estimate=answer, duration_s=duration_s)
        return _outcome(run)

    return JobOutcome(store=store)


def estimate_document(report: JobReporter) -> JobOutcome:
    """Estimate the document that the job's row holds."""
    row = DocumentEstimate.objects.get(pk=report.job.params["document_estimate"])
    report(0.0, "Reading the document")
    deployment = Deployment.parse(unpack_json(row.document))
    answer = estimate(deployment, flow_slices=row.flow_slices, progress=report).answer()

    def store(job: Job) -> JobOutcome:
        document_estimate_store(row=row, answer=answer)
        facts = {
            "digest": deployment.digest,
            **{name: getattr(answer, name) for name in ("mace_wc", "flow_wc", "flow_by_input_wc")},
        }
        return JobOutcome(facts, "", f"/api/v1/estimates/documents/{row.pk}")

    return JobOutcome(store=store)


def simulate_cluster(report: JobReporter) -> JobOutcome:
    """Hold an estimate of what runs in the job's cluster against simulations of it, in the order of stimulus time."""
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

    def store(job: Job) -> JobOutcome:
        rows = simulation_store(cluster=cluster, comparison=comparison, at=at)
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

    return JobOutcome(store=store)


def _outcome(run: EstimateRun) -> JobOutcome:
    states = Counter(run.queries.order_by().values_list("state", flat=True))
    result = {"estimate": run.pk, "queries": dict(states), "duration_s": round(run.duration_s, 3)}
    return JobOutcome(result, f"/c/{run.cluster.slug}/", f"/api/v1/estimates/{run.pk}")
