"""Spark queries that are watched, their micro-batches, and the fits that predict them."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.utils import timezone

from apps.core.limits import MAX_FAULT, MAX_GENERATION, MAX_NAME, MAX_URL
from apps.fleet.choices import InputOrigin
from apps.fleet.models import Cluster
from engine.microbatch.model import MAX_DRIFT, BatchModel
from engine.microbatch.progress import BatchProgress
from engine.microbatch.settings import MAX_EXECUTORS, SparkSettings
from engine.records import record_fields

__all__ = [
    "MAX_OWN_TRIGGER_S",
    "MIN_OWN_TRIGGER_S",
    "SETTINGS",
    "BatchFit",
    "FitReason",
    "MicroBatch",
    "SparkQuery",
    "SparkQueryOrigin",
    "SparkQueryState",
]


class SparkQueryOrigin(models.TextChoices):
    """Way by which the progress of a Spark query arrives."""

    OWN = "own", "Sluice"  #: its own stream processor, which registers itself
    LISTENER = "listener", "Listener"  #: a StreamingQueryListener posts each micro-batch
    URL = "url", "URL"  #: asked every half minute
    FILE = "file", "File"  #: uploaded by a person


class SparkQueryState(models.TextChoices):
    """State of a Spark query, by the last progress of it."""

    AWAITED = "awaited", "Awaited"  #: no progress yet
    REPORTING = "reporting", "Reporting"  #: its last progress is recent
    SILENT = "silent", "Silent"  #: its last progress is not recent
    UNREACHABLE = "unreachable", "Unreachable"  #: its URL does not answer, or with something else
    RECORDED = "recorded", "Recorded"  #: a file, which ends where it ends


class FitReason(models.TextChoices):
    """Reason of a fit. The words end a sentence: fitted …"""

    FIRST = "first", "to its first micro-batches"
    SETTINGS = "settings", "after a change of settings"
    REQUEST = "request", "on request"
    DRIFT = "drift", "by itself, after drift"


#: Settings of a Spark query that its latency hangs on; a change of one begins a new fit.
SETTINGS = tuple(record_fields(SparkSettings))
MIN_OWN_TRIGGER_S, MAX_OWN_TRIGGER_S = 0.1, 600  # of Sluice's stream processor
_COUNT: Any = [MinValueValidator(1), MaxValueValidator(100_000)]
_EXECUTORS: Any = [MinValueValidator(1), MaxValueValidator(MAX_EXECUTORS)]


class SparkQuery(models.Model):
    """A query of Spark Structured Streaming whose progress Sluice reads."""

    cluster = models.ForeignKey(
        Cluster,
        null=True,
        blank=True,
        on_delete=models.CASCADE,
        related_name="spark_queries",
        help_text="Null: Sluice's own stream processor, which serves every cluster.",
    )
    name = models.CharField(max_length=MAX_NAME)
    origin = models.CharField(max_length=8, choices=SparkQueryOrigin.choices)
    url = models.CharField(max_length=MAX_URL, blank=True, help_text="Address that is asked for its progress.")
    spark_name = models.CharField(
        max_length=MAX_NAME, blank=True, help_text="Its name or id in Spark, where several queries report in one place."
    )
    spark_identity = models.CharField(
        max_length=MAX_NAME, blank=True, help_text="Its name in Spark, or its id without one, as last reported."
    )

    trigger_s = models.FloatField(
        default=0.0,
        validators=[MinValueValidator(0), MaxValueValidator(86_400)],
        help_text="Trigger interval, seconds; 0: a batch begins when the one before has ended.",
    )
    executors = models.PositiveIntegerField(default=1, validators=_EXECUTORS)
    cores_per_executor = models.PositiveIntegerField(default=1, validators=_COUNT, help_text="Cores of one executor.")
    input_partitions = models.PositiveIntegerField(default=1, validators=_COUNT, help_text="Partitions of its sources.")
    shuffle_partitions = models.PositiveIntegerField(default=200, validators=_COUNT)
    max_rows_per_trigger = models.PositiveBigIntegerField(
        null=True,
        blank=True,
        validators=[MinValueValidator(1), MaxValueValidator(10**15)],
        help_text="Limit of a batch, such as maxOffsetsPerTrigger; null: none.",
    )
    stateful = models.BooleanField(default=False, help_text="Whether it keeps state between batches.")
    setting_origins = models.JSONField(
        default=dict, blank=True, help_text="{setting: measured or assumed}; others are default."
    )
    settings_since = models.DateTimeField(
        null=True, blank=True, help_text="Since when the present settings are in force."
    )

    constraint_s = models.FloatField(
        null=True, blank=True, validators=[MinValueValidator(1e-6)], help_text="Latency constraint, seconds."
    )
    statistic = models.CharField(max_length=12, default="mean", help_text="Of the constraint: mean or q0.95.")
    auto_refit = models.BooleanField(default=False, help_text="Whether it is fitted anew by itself when it drifts.")

    wanted_trigger_s = models.FloatField(
        null=True,
        blank=True,
        validators=[MinValueValidator(MIN_OWN_TRIGGER_S), MaxValueValidator(MAX_OWN_TRIGGER_S)],
        help_text="Trigger interval that the stream processor is to run with; null: its own.",
    )
    applied_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    applied_at = models.DateTimeField(null=True, blank=True, help_text="When settings were last applied.")

    fault = models.CharField(max_length=MAX_FAULT, blank=True, help_text="Why its URL was last of no use.")
    asked_at = models.DateTimeField(null=True, blank=True, help_text="When its URL was last asked.")
    reported_at = models.DateTimeField(null=True, blank=True, help_text="When progress last arrived, also of no batch.")
    drift_share = models.FloatField(
        null=True, blank=True, help_text="Median of |measured / predicted - 1|; null: not judged."
    )
    drift_bias = models.FloatField(null=True, blank=True, help_text="Median of measured / predicted - 1.")
    drifting_since = models.DateTimeField(null=True, blank=True, help_text="Null: it does not drift.")
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["name", "pk"]
        verbose_name = "Spark query"
        verbose_name_plural = "Spark queries"
        constraints = [
            models.UniqueConstraint(fields=["cluster", "name"], name="spark_query_once_per_cluster"),
            models.UniqueConstraint(
                fields=["origin"], condition=models.Q(origin=SparkQueryOrigin.OWN), name="one_own_spark_query"
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def setting_values(self) -> dict[str, Any]:
        """Values of `SETTINGS` by name."""
        return {name: getattr(self, name) for name in SETTINGS}

    @property
    def drift_direction(self) -> str:
        """Whether its batches are slower or faster than predicted, or scatter to both sides."""
        bias = self.drift_bias or 0.0
        return "slower" if bias > MAX_DRIFT else "faster" if bias < -MAX_DRIFT else "scattered"

    @property
    def drift_size(self) -> float:
        """The share by which they are slower or faster, in the median."""
        return abs(self.drift_bias or 0.0)

    def setting_origin(self, name: str) -> InputOrigin:
        """Origin of a setting's value."""
        return InputOrigin(self.setting_origins.get(name, InputOrigin.DEFAULT))

    @property
    def spark_settings(self) -> SparkSettings:
        """The settings as the engine computes with them."""
        return SparkSettings(**self.setting_values)

    @property
    def is_own(self) -> bool:
        return self.origin == SparkQueryOrigin.OWN


class BatchFit(models.Model):
    """Fixed time and time per row of a query's batches, fitted to some of them; the newest of a query is in force."""

    query = models.ForeignKey(SparkQuery, on_delete=models.CASCADE, related_name="fits")
    fixed_s = models.FloatField(help_text="F: seconds of a batch without rows.")
    per_row_s = models.FloatField(help_text="k: seconds per row.")
    sd_s = models.FloatField(help_text="Standard deviation of batches around the fit.")
    batches = models.PositiveIntegerField(help_text="Micro-batches it rests on.")
    least_rows = models.FloatField(help_text="Rows of the smallest of them.")
    most_rows = models.FloatField()
    first_at = models.DateTimeField(help_text="Beginning of the first micro-batch it rests on.")
    since = models.DateTimeField(help_text="In force since.")
    reason = models.CharField(max_length=8, choices=FitReason.choices)
    setting_values = models.JSONField(default=dict, help_text="Settings under which the micro-batches ran.")
    requested_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )

    class Meta:
        ordering = ["-since", "-pk"]
        indexes = [models.Index(fields=["query", "-since"], name="fit_of_query")]

    def __str__(self) -> str:
        return f"{self.query} from {self.since:%Y-%m-%d %H:%M:%S}"

    @property
    def model(self) -> BatchModel:
        """The fit as the engine computes with it."""
        return BatchModel(self.fixed_s, self.per_row_s, self.sd_s, self.batches, self.least_rows, self.most_rows)


class MicroBatch(models.Model):
    """One micro-batch that ran, and what the fit then in force predicted of it."""

    query = models.ForeignKey(SparkQuery, on_delete=models.CASCADE, related_name="batches")
    run_id = models.CharField(max_length=MAX_GENERATION, help_text="Of the run in Spark: another start is another.")
    batch = models.BigIntegerField(help_text="Its number in Spark.")
    begins_at = models.DateTimeField()
    rows = models.BigIntegerField()
    rows_per_s = models.FloatField(null=True, help_text="Arrival rate as Spark reports it.")
    duration_s = models.FloatField(help_text="From the trigger to the commit.")
    parts_s = models.JSONField(default=dict, help_text="Seconds by part, such as addBatch and walCommit.")
    state = models.JSONField(default=list, help_text="Figures of each stateful operator.")
    event_lag_s = models.FloatField(null=True, help_text="How far the largest event time lay behind its beginning.")
    trigger_s = models.FloatField(help_text="Trigger interval then in force.")
    is_warm_up = models.BooleanField(help_text="Whether it is one of the first of its run, which fits leave out.")
    predicted_s = models.FloatField(null=True, help_text="Duration that the fit then in force predicted; null: none.")
    fit = models.ForeignKey(BatchFit, null=True, on_delete=models.SET_NULL, related_name="+")
    fit_batches = models.PositiveIntegerField(default=0, help_text="Micro-batches that this fit then rested on.")
    received_at = models.DateTimeField(default=timezone.now, db_index=True)

    class Meta:
        ordering = ["-begins_at", "-batch"]
        verbose_name_plural = "micro-batches"
        constraints = [models.UniqueConstraint(fields=["query", "run_id", "batch"], name="micro_batch_once")]
        indexes = [models.Index(fields=["query", "-begins_at"], name="micro_batch_by_time")]

    def __str__(self) -> str:
        return f"{self.query} batch {self.batch}"

    @property
    def progress(self) -> BatchProgress:
        """The batch as the engine computes with it."""
        return BatchProgress(self.run_id, self.batch, self.begins_at, self.rows, self.duration_s)
