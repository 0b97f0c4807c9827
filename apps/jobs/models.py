"""Background jobs: their kinds and states, and one row each; and the base of the runs that they answer."""

from __future__ import annotations

import uuid
from typing import Any

from django.conf import settings
from django.db import models
from django.utils import timezone

from apps.core.limits import MAX_MESSAGE, MAX_NOTE, MAX_PAGE_URL
from apps.core.models import PackedJSONField

__all__ = ["BRIEF", "FINISHED", "LATER", "Job", "JobKind", "JobState", "Run", "queue_of"]


class JobState(models.TextChoices):
    """State of a job."""

    QUEUED = "queued", "Queued"  #: written, not yet taken by a worker
    RUNNING = "running", "Running"  #: a worker has it
    SUCCEEDED = "succeeded", "Succeeded"  #: result stored
    FAILED = "failed", "Failed"  #: error stored
    CANCELLED = "cancelled", "Cancelled"  #: stopped on request, nothing stored


FINISHED = frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED})


class JobKind(models.TextChoices):
    """Kind of a job; the value is the name of its Celery task."""

    ESTIMATE = "workers.estimate_cluster", "Estimate a cluster"
    ESTIMATE_DOCUMENT = "workers.estimate_document", "Estimate a document"
    ADMISSION_PREVIEW = "workers.preview_admission", "Preview an admission"
    ADMISSION_PARTS = "workers.complete_preview", "Complete a preview"
    DRY_RUN = "workers.preview_dry_run", "Preview a dry run"
    DECISION_REPLAY = "workers.replay_decisions", "Replay decisions"
    IMPORT = "workers.import_deployment", "Import a deployment"
    PLACEMENT = "workers.search_placement", "Search a placement"
    MOVES = "workers.apply_moves", "Move operators"
    PLANS = "workers.compare_plans", "Compare plans"
    FORECAST = "workers.forecast_load", "Forecast load"
    WHAT_IF = "workers.answer_what_if", "Answer a what-if"
    EVENT = "workers.answer_event", "Answer an event"
    REPORT = "workers.run_report", "Write a report"
    BACKTEST = "workers.run_backtest", "Replay a recorded period"
    EVACUATION = "workers.plan_evacuation", "Plan an evacuation"
    STAGE_PLAN = "workers.size_stage", "Plan a stage's resources"
    REPLAY = "workers.replay_schedule", "Replay under other policies"
    FINE_TUNING = "workers.fine_tune_model", "Fine-tune a model"
    CONNECTION_CHECK = "workers.check_connection", "Check a connection"
    CONNECTION_IMPORT = "workers.import_connection", "Import an engine's jobs"
    CONNECTION_REFRESH = "workers.refresh_connection", "Refresh a connection"
    SIMULATION = "workers.simulate_cluster", "Simulate a cluster"
    PARALLELISM = "workers.plan_parallelism", "Plan a parallelism"
    REMEDIES = "workers.find_remedies", "Find what helps a query"
    CAPACITIES = "workers.complete_capacities", "Complete capacities"
    HISTORY = "workers.run_history", "Run jobs over the history"


# What a person waits for in front of the screen, and takes seconds. Searches and replays may take minutes: they would
# make others wait.
_QUICK = frozenset(
    {
        JobKind.ADMISSION_PREVIEW,
        JobKind.DRY_RUN,
        JobKind.DECISION_REPLAY,
        JobKind.ESTIMATE,
        JobKind.ESTIMATE_DOCUMENT,
        JobKind.IMPORT,
        JobKind.WHAT_IF,
        JobKind.PARALLELISM,
        JobKind.EVACUATION,
        JobKind.REMEDIES,
        JobKind.STAGE_PLAN,
        JobKind.CAPACITIES,
        JobKind.CONNECTION_CHECK,
        JobKind.CONNECTION_IMPORT,
        JobKind.CONNECTION_REFRESH,
    }
)


# Verdicts take a second or less, and API servers hang up on those who wait behind an import. Whoever reads a verdict
# waits for the rest of its page.
_FIRST = frozenset({JobKind.ADMISSION_PREVIEW, JobKind.DRY_RUN, JobKind.ADMISSION_PARTS})
BRIEF = "brief"  #: parameter of a job of a kind that may take minutes, and that takes seconds as it was asked
LATER = "later"  #: parameter of a job that goes to the background for its size, or after others of its kind


def queue_of(kind: str, *, is_asked: bool, is_later: bool) -> str:
    """The queue of jobs of a kind that somebody asked for or nobody, and that are `LATER` or not."""
    is_awaited = kind in _QUICK and is_asked and not is_later
    return settings.INTERACTIVE_QUEUE if is_awaited else settings.BACKGROUND_QUEUE


class Job(models.Model):
    """A unit of background work: its request, progress and outcome."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    kind = models.CharField(max_length=60, choices=JobKind.choices)
    title = models.CharField(max_length=MAX_NOTE)
    cluster = models.ForeignKey("fleet.Cluster", null=True, blank=True, on_delete=models.CASCADE, related_name="jobs")
    requested_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL)
    params = models.JSONField(default=dict)
    state = models.CharField(max_length=12, choices=JobState.choices, default=JobState.QUEUED, db_index=True)
    progress = models.FloatField(default=0.0, help_text="0 to 1.")
    step = models.CharField(max_length=MAX_NOTE, blank=True, help_text="What it does now, in words.")
    attempt = models.PositiveSmallIntegerField(default=0, help_text="Starts so far; only the last one may store.")
    dedupe_key = models.CharField(max_length=200, blank=True, help_text="At most one job of a key waits at a time.")
    worker = models.CharField(max_length=120, blank=True, help_text="Which worker has or had it.")
    cancel_requested = models.BooleanField(default=False)
    result = models.JSONField(null=True, blank=True, help_text="Small facts of the outcome.")
    result_url = models.CharField(max_length=MAX_PAGE_URL, blank=True, help_text="Page of the outcome.")
    result_api_url = models.CharField(max_length=MAX_PAGE_URL, blank=True, help_text="REST resource of the outcome.")
    error = models.JSONField(null=True, blank=True, help_text="{code, message, faults} when failed.")
    traceparent = models.CharField(max_length=55, blank=True, help_text="Where in which trace it was asked for.")
    request_id = models.CharField(max_length=64, blank=True, help_text="Id of the request that asked for it.")
    created_at = models.DateTimeField(default=timezone.now, db_index=True)
    sent_at = models.DateTimeField(default=timezone.now, help_text="When its task was last sent.")
    started_at = models.DateTimeField(null=True, blank=True)
    heartbeat_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-created_at"]
        constraints = [
            models.UniqueConstraint(
                fields=["dedupe_key"],
                condition=models.Q(state=JobState.QUEUED) & ~models.Q(dedupe_key=""),
                name="one_job_of_a_key_waits",
            )
        ]

    def __str__(self) -> str:
        return self.title

    @property
    def is_finished(self) -> bool:
        return self.state in FINISHED

    @property
    def queue(self) -> str:
        """The queue its task waits in: what somebody asked for and takes seconds never waits for anything else."""
        return queue_of(self.kind, is_asked=self._is_asked, is_later=self._is_later)

    @property
    def priority(self) -> int:
        """Rank among the waiting tasks of its queue, the least first.

        Verdicts go first, and parts of previews, which people look at; then what else takes seconds in a smaller
        cluster and somebody asked for, brief searches and moves that were applied among it. Where nobody did, as the
        estimate after a query started, it is of the schedule's rank. Searches and replays come last, those that nobody
        asked for after the others.
        """
        if self.kind in _FIRST and not (self.kind == JobKind.ADMISSION_PARTS and self._is_later):
            return settings.FIRST_PRIORITY
        if self.kind not in _QUICK and self.kind != JobKind.MOVES and BRIEF not in self.params:
            return settings.LONG_PRIORITY if self._is_asked else settings.LONG_UNASKED_PRIORITY
        return settings.ASKED_PRIORITY if self._is_asked else settings.SCHEDULED_PRIORITY

    @property
    def _is_asked(self) -> bool:
        return self.requested_by_id is not None

    @property
    def _is_later(self) -> bool:
        return LATER in self.params


class Run(models.Model):
    """Base of all runs: who asked, the job that answers, the state, and the answer."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    job = models.OneToOneField(Job, null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    requested_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    state = models.CharField(max_length=12, default="asked", db_index=True)
    message = models.CharField(
        max_length=MAX_MESSAGE, blank=True, help_text="Why it ended as it did, where that needs words."
    )
    result: Any = PackedJSONField(null=True, help_text="The engine's answer.")
    created_at = models.DateTimeField(default=timezone.now, db_index=True)
    started_at = models.DateTimeField(null=True, blank=True, help_text="When a worker took its snapshot.")
    finished_at = models.DateTimeField(null=True, blank=True, help_text="When nothing worked on it any more.")
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        abstract = True
        ordering = ["-created_at"]
