"""Every Celery task, for Celery's discovery."""

from workers import lifecycle
from workers.admissions import preview_admission, review_queue
from workers.estimates import estimate_cluster, estimate_document
from workers.housekeeping import purge, refresh_estimates, sweep_jobs
from workers.imports import import_deployment
from workers.placements import apply_moves, search_placement

__all__ = [
    "apply_moves",
    "estimate_cluster",
    "estimate_document",
    "import_deployment",
    "lifecycle",
    "preview_admission",
    "purge",
    "refresh_estimates",
    "review_queue",
    "search_placement",
    "sweep_jobs",
]
