"""Tasks of the schedule: resend lost jobs, refresh estimates, ask Spark queries, purge old rows."""

from __future__ import annotations

from celery import shared_task

from apps.connections.polls import polls_purge
from apps.core.rest.idempotency import idempotency_purge
from apps.estimates.accuracy import accuracy_purge
from apps.estimates.calibration import calibrations_purge
from apps.estimates.refresh import estimate_refresh_all, estimates_of_telemetry_thin
from apps.estimates.services import document_estimates_purge
from apps.exports.notices import decision_notices_purge
from apps.incidents.services import incidents_purge
from apps.jobs.runs import runs_purge
from apps.jobs.selectors import jobs_lost
from apps.jobs.services import job_resend
from apps.kubernetes.services import reviews_purge
from apps.measurements.retention import statistics_purge
from apps.measurements.stream_processor import stretches_purge
from apps.microbatch.services import batches_purge, spark_queries_poll
from apps.predictions.executions import executions_purge
from apps.queries.arrivals.uploads import uploads_purge
from apps.queries.imports import imports_purge
from apps.results.retention import results_purge
from apps.rollouts.configs.services import configs_purge
from apps.telemetry.ingest.streams import generations_purge, plans_purge

__all__ = ["poll_spark_queries", "purge", "refresh_estimates", "sweep_jobs"]


@shared_task(name="workers.sweep_jobs")
def sweep_jobs() -> int:
    """Send jobs again that were lost on their way or with their worker."""
    lost = list(jobs_lost())
    for job in lost:
        job_resend(job)
    return len(lost)


@shared_task(name="workers.refresh_estimates")
def refresh_estimates() -> int:
    """Catch up with changes whose estimate could not be asked for when they happened."""
    return estimate_refresh_all()


@shared_task(name="workers.poll_spark_queries")
def poll_spark_queries() -> int:
    """Ask the URLs of Spark queries for their progress; returns how many answered with some."""
    return spark_queries_poll()


@shared_task(name="workers.purge")
def purge() -> int:
    """Delete what is past its retention: idempotency records, imports, uploads, runs, results, measurements,
    configs.
    """
    return (
        idempotency_purge()
        + document_estimates_purge()
        + imports_purge()
        + reviews_purge()
        + decision_notices_purge()
        + uploads_purge()
        + runs_purge()
        + results_purge()
        + statistics_purge()
        + stretches_purge()
        + accuracy_purge()
        + calibrations_purge()
        + plans_purge()
        + generations_purge()
        + estimates_of_telemetry_thin()
        + configs_purge()
        + batches_purge()
        + executions_purge()
        + incidents_purge()
        + polls_purge()
    )
