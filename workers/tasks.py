"""Every Celery task, for Celery's discovery."""

from workers import lifecycle
from workers.connections import (
    check_connection,
    import_connection,
    poll_connection,
    poll_connections,
    refresh_connection,
)
from workers.housekeeping import purge, refresh_estimates, sweep_jobs
from workers.planning import (
    apply_moves,
    renew_forecasts,
    review_plans,
    run_due_history,
    run_history,
)
from workers.queries import (
    advance_trials,
    estimate_cluster,
    estimate_document,
    import_deployment,
    observe_accuracy,
    observe_executions,
    preview_admission,
    refine_measurements,
    refresh_objectives,
    review_queue,
    simulate_cluster,
)
from workers.reports import run_due_reports, run_report, send_deliveries
from workers.rollouts import advance_rollouts, renew_refined, replay_schedule

__all__ = [
    "advance_rollouts",
    "advance_trials",
    "apply_moves",
    "check_connection",
    "estimate_cluster",
    "estimate_document",
    "import_connection",
    "import_deployment",
    "lifecycle",
    "observe_accuracy",
    "observe_executions",
    "poll_connection",
    "poll_connections",
    "preview_admission",
    "purge",
    "refine_measurements",
    "refresh_connection",
    "refresh_estimates",
    "refresh_objectives",
    "renew_forecasts",
    "renew_refined",
    "replay_schedule",
    "review_plans",
    "review_queue",
    "run_due_history",
    "run_due_reports",
    "run_history",
    "run_report",
    "send_deliveries",
    "simulate_cluster",
    "sweep_jobs",
]
