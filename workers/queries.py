"""Tasks of queries: import, measure, estimate, admit."""

from __future__ import annotations

from celery import shared_task

from apps.admission import previews
from apps.admission.services import queue_review
from apps.admission.trials import trials_advance
from apps.estimates import work as estimates_work
from apps.estimates.accuracy import accuracy_observe_all
from apps.estimates.objectives import objectives_refresh_all
from apps.estimates.refresh import live_estimates_refresh, refresh_by_telemetry, telemetry_pace
from apps.jobs.models import JobKind
from apps.jobs.runner import run_job
from apps.measurements.services import refine_all
from apps.measurements.stream_processor import stream_observe
from apps.predictions.executions import executions_observe_all
from apps.queries import imports

__all__ = [
    "advance_trials",
    "estimate_cluster",
    "estimate_document",
    "import_deployment",
    "observe_accuracy",
    "observe_executions",
    "preview_admission",
    "refine_measurements",
    "refresh_objectives",
    "review_queue",
    "simulate_cluster",
]


@shared_task(name=JobKind.ADMISSION_PREVIEW.value)
def preview_admission(job_id: str) -> None:
    run_job(job_id, previews.preview_admission)


@shared_task(name="workers.advance_trials")
def advance_trials() -> int:
    """End trials that are over; returns how many."""
    return trials_advance()


@shared_task(name="workers.review_queue")
def review_queue() -> int:
    return queue_review()


@shared_task(name=JobKind.ESTIMATE.value)
def estimate_cluster(job_id: str) -> None:
    run_job(job_id, estimates_work.estimate_cluster)


@shared_task(name=JobKind.ESTIMATE_DOCUMENT.value)
def estimate_document(job_id: str) -> None:
    run_job(job_id, estimates_work.estimate_document)


@shared_task(name=JobKind.IMPORT.value)
def import_deployment(job_id: str) -> None:
    run_job(job_id, imports.run_import)


@shared_task(name="workers.refine_measurements")
def refine_measurements() -> int:
    """Refine statistics from the measurements of live queries; returns the number of inputs, sources and placements
    changed.
    """
    stream_observe()
    with refresh_by_telemetry():
        changes = refine_all(pace_of=telemetry_pace)
    return changes.inputs + changes.sources + changes.placements


@shared_task(name="workers.observe_accuracy")
def observe_accuracy() -> int:
    """Compare estimates with the latency measured since; returns the number of intervals judged."""
    stream_observe()  # so that what is said of it reaches to the end of every interval that is judged
    count = accuracy_observe_all()
    live_estimates_refresh()
    return count


@shared_task(name="workers.refresh_objectives")
def refresh_objectives() -> int:
    """Judge objectives by what was measured since; returns the number of states that changed."""
    return objectives_refresh_all()


@shared_task(name="workers.observe_executions")
def observe_executions() -> int:
    """Hold executions of live queries against their predictions; returns how many were observed."""
    return executions_observe_all()


@shared_task(name=JobKind.SIMULATION.value)
def simulate_cluster(job_id: str) -> None:
    run_job(job_id, estimates_work.simulate_cluster)
