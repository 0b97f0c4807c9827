"""Every Celery task, for Celery's discovery."""

from workers import lifecycle
from workers.admissions import preview_admission, review_queue
from workers.backtests import run_backtest
from workers.estimates import estimate_cluster, estimate_document
from workers.forecasts import forecast_load, renew_forecasts
from workers.housekeeping import purge, refresh_estimates, sweep_jobs
from workers.imports import import_deployment
from workers.measurements import observe_accuracy, refine_measurements
from workers.placements import apply_moves, search_placement
from workers.planning import answer_what_if
from workers.plans import compare_plans, review_plans
from workers.refinement import advance_rollouts, renew_refined
from workers.reports import run_due_reports, run_report, send_deliveries
from workers.scheduling import replay_schedule

__all__ = [
    "advance_rollouts",
    "answer_what_if",
    "apply_moves",
    "compare_plans",
    "estimate_cluster",
    "estimate_document",
    "forecast_load",
    "import_deployment",
    "lifecycle",
    "observe_accuracy",
    "preview_admission",
    "purge",
    "refine_measurements",
    "refresh_estimates",
    "renew_forecasts",
    "renew_refined",
    "replay_schedule",
    "review_plans",
    "review_queue",
    "run_backtest",
    "run_due_reports",
    "run_report",
    "search_placement",
    "send_deliveries",
    "sweep_jobs",
]
