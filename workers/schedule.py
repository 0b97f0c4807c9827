"""Tasks of the schedule: what the product does by itself, and how much of it there was to do."""

from __future__ import annotations

from collections.abc import Callable

from celery import shared_task
from django.utils import timezone

from apps.admission.kept_questions import kept_questions_purge
from apps.admission.previews import previews_purge, queue_review
from apps.admission.receipts import promises_purge, receipts_write_due
from apps.admission.trials import trials_advance
from apps.connections.job_import import polls_purge
from apps.connections.work import POLL_TASK, connection_poll_due, connections_poll
from apps.core.deliveries import SEND_TASK
from apps.core.rest.idempotency import idempotency_purge
from apps.estimates.accuracy import accuracy_observe_all, accuracy_purge
from apps.estimates.calibration import calibrations_purge
from apps.estimates.objectives import objectives_refresh_all
from apps.estimates.refresh import (
    estimate_refresh_all,
    estimates_of_telemetry_thin,
    live_estimates_refresh,
    refresh_by_telemetry,
    telemetry_pace,
)
from apps.exports.notices import decision_deliveries_send_due, decision_notices_purge
from apps.incidents.notices import alerts_renew, incident_deliveries_send_due
from apps.incidents.services import incidents_purge
from apps.jobs.runs import runs_purge
from apps.jobs.selectors import jobs_lost
from apps.jobs.services import job_resend
from apps.kubernetes.services import reviews_purge
from apps.ledger.chain import ledger_purge, ledger_seal
from apps.ledger.destinations import ledger_forward
from apps.measurements.services import refine_all
from apps.measurements.stream_processor import stream_observe, stretches_purge
from apps.measurements.subintervals import statistics_purge
from apps.microbatch.services import batches_purge, spark_queries_poll
from apps.planning.evacuation_steps import evacuations_advance
from apps.planning.forecasts import forecast_renew_all
from apps.planning.history_jobs import history_run_due
from apps.planning.plan_review import plans_review
from apps.predictions.executions import executions_observe_all, executions_purge
from apps.queries.arrivals.uploads import uploads_purge
from apps.reports.deliveries import deliveries_send_due
from apps.reports.services import reports_run_due
from apps.results.notices import alert_deliveries_send_due
from apps.results.services import results_purge
from apps.rollouts.rollout_services import rollouts_advance
from apps.rollouts.services import configs_purge
from apps.rollouts.versions import parts_renew
from apps.signin.password_resets import RESET_TASK, password_reset_send
from apps.signin.provider_accounts import provider_sessions_renew
from apps.signin.sessions import sessions_purge
from apps.telemetry.streams import generations_purge, plans_purge

__all__ = ["SCHEDULED", "send_deliveries"]

_PURGES: tuple[Callable[[], int], ...] = (
    sessions_purge,
    idempotency_purge,
    reviews_purge,
    decision_notices_purge,
    uploads_purge,
    kept_questions_purge,
    previews_purge,
    promises_purge,
    runs_purge,
    results_purge,
    statistics_purge,
    stretches_purge,
    accuracy_purge,
    calibrations_purge,
    plans_purge,
    generations_purge,
    estimates_of_telemetry_thin,
    configs_purge,
    batches_purge,
    executions_purge,
    incidents_purge,
    polls_purge,
    ledger_purge,
)


def resend_lost_jobs() -> int:
    """Send jobs again that were lost on their way or with their worker."""
    lost = list(jobs_lost())
    for job in lost:
        job_resend(job)
    return len(lost)


def refine_measurements() -> int:
    """Refine statistics from the measurements of live queries; returns the number of inputs, sources and placements
    changed.
    """
    stream_observe()
    with refresh_by_telemetry():
        changes = refine_all(pace_of=telemetry_pace)
    return changes.inputs + changes.sources + changes.placements


def observe_accuracy() -> int:
    """Compare estimates with the latency measured since; returns the number of intervals judged."""
    stream_observe()  # so that what is said of it reaches to the end of every interval that is judged
    count = accuracy_observe_all()
    live_estimates_refresh()
    return count


def send_deliveries() -> int:
    """Alerts and incidents first: they are short, and somebody may have to act."""
    return (
        alert_deliveries_send_due()
        + incident_deliveries_send_due()
        + decision_deliveries_send_due()
        + deliveries_send_due()
    )


#: Work of the schedule by the name of its task (`CELERY_BEAT_SCHEDULE`); each returns how much there was.
SCHEDULED: dict[str, Callable[[], int]] = {
    "workers.advance_evacuations": evacuations_advance,
    "workers.advance_rollouts": rollouts_advance,
    "workers.advance_trials": trials_advance,
    "workers.forward_ledger": ledger_forward,
    "workers.observe_accuracy": observe_accuracy,
    "workers.observe_executions": executions_observe_all,
    "workers.poll_connections": connections_poll,
    "workers.poll_spark_queries": spark_queries_poll,
    "workers.purge": lambda: sum(purge() for purge in _PURGES),
    "workers.refine_measurements": refine_measurements,
    "workers.refresh_estimates": estimate_refresh_all,
    "workers.refresh_objectives": objectives_refresh_all,
    "workers.renew_alerts": alerts_renew,
    "workers.renew_forecasts": forecast_renew_all,
    "workers.renew_provider_sessions": provider_sessions_renew,
    "workers.renew_refined": lambda: parts_renew(timezone.now()),
    "workers.review_plans": plans_review,
    "workers.review_queue": queue_review,
    "workers.seal_ledger": ledger_seal,
    "workers.run_due_history": history_run_due,
    "workers.run_due_reports": reports_run_due,
    "workers.sweep_jobs": resend_lost_jobs,
    "workers.write_receipts": receipts_write_due,
    SEND_TASK: send_deliveries,
}


def _make_task(name: str, work: Callable[[], int]) -> None:
    @shared_task(name=name)
    def do_scheduled() -> int:
        return work()


for _name, _work in SCHEDULED.items():
    _make_task(_name, _work)


@shared_task(name=POLL_TASK)
def poll_connection(pk: int) -> bool:
    """Ask one connection; returns whether it was refreshed."""
    return connection_poll_due(pk)


@shared_task(name=RESET_TASK)
def send_password_reset(name: str) -> int:
    """Mail a link to whom a user name or an address belongs to; returns how many mails have left."""
    return password_reset_send(name)
