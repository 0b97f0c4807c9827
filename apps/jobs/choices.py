"""States and kinds of jobs."""

from django.db import models

__all__ = ["FINISHED", "JobKind", "JobState"]


class JobState(models.TextChoices):
    """Where a job is in its life."""

    QUEUED = "queued", "Queued"  #: written, not yet taken by a worker
    RUNNING = "running", "Running"  #: a worker has it
    SUCCEEDED = "succeeded", "Succeeded"  #: result stored
    FAILED = "failed", "Failed"  #: error stored
    CANCELLED = "cancelled", "Cancelled"  #: stopped on request, nothing stored


FINISHED = frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED})


class JobKind(models.TextChoices):
    """What a job does; the value is the name of its Celery task."""

    ESTIMATE = "workers.estimate_cluster", "Estimate a cluster"
    ESTIMATE_DOCUMENT = "workers.estimate_document", "Estimate a document"
    ADMISSION_PREVIEW = "workers.preview_admission", "Preview an admission"
    IMPORT = "workers.import_deployment", "Import a deployment"
    PLACEMENT = "workers.search_placement", "Search a placement"
    MOVES = "workers.apply_moves", "Move operators"
    PLANS = "workers.compare_plans", "Compare plans"
    FORECAST = "workers.forecast_load", "Forecast load"
    WHAT_IF = "workers.answer_what_if", "Answer a what-if"
    REPORT = "workers.run_report", "Write a report"
    BACKTEST = "workers.run_backtest", "Replay a recorded period"
    REPLAY = "workers.replay_schedule", "Replay under other policies"
