"""What became of estimates: one row for each interval in which a live query's latency was measured."""

from __future__ import annotations

from django.db import models

from apps.fleet.choices import Evidence
from apps.fleet.models import Cluster
from apps.measurements.stream_models import StreamWork
from apps.queries.models import Query

__all__ = ["AccuracyObservation"]


class AccuracyObservation(models.Model):
    """The estimate in force and the latency measured in one interval, of the same statistic."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="accuracy")
    query = models.ForeignKey(Query, on_delete=models.CASCADE, related_name="accuracy")
    estimate = models.ForeignKey(
        "estimates.QueryEstimate", null=True, on_delete=models.SET_NULL, related_name="observations"
    )
    version = models.PositiveIntegerField(help_text="Number of the version that ran.")
    estimated_at = models.DateTimeField(help_text="When the estimate was made.")
    starts_at = models.DateTimeField(db_index=True)
    ends_at = models.DateTimeField()
    statistic = models.CharField(max_length=8, help_text="worst, mean or q0.99, of the objective.")
    evidence = models.CharField(max_length=10, choices=Evidence.choices, help_text="What the estimate rested on.")
    expected_s = models.FloatField()
    low_s = models.FloatField(null=True, help_text="The 90 % interval as it was shown, widened by the trust factor.")
    high_s = models.FloatField(null=True)
    half_s = models.FloatField(null=True, help_text="Half of the interval before it was widened.")
    factor = models.FloatField(default=1.0, help_text="By which it was widened.")
    observed_s = models.FloatField()
    windows = models.PositiveIntegerField(help_text="Windows whose latency was measured.")
    left_out = models.PositiveIntegerField(
        default=0, help_text="Windows that were incomplete, revised, or of clocks that contradict each other."
    )
    disturbed = models.CharField(
        max_length=12,
        blank=True,
        choices=StreamWork.choices,
        help_text="What the stream processor did instead of its work; the interval is then left out of every figure.",
    )
    covered = models.BooleanField(null=True, help_text="Whether the interval held; null: there was none.")
    parts = models.JSONField(
        null=True, help_text="Parts of the estimate in seconds: flow, epoch, trigger, overhead, work."
    )
    kinds = models.JSONField(default=dict, help_text="{operator kind: [cycles/s expected, cycles/s measured]}.")

    class Meta:
        ordering = ["-starts_at", "query__name"]
        constraints = [models.UniqueConstraint(fields=["query", "starts_at"], name="one_observation_per_interval")]
        indexes = [models.Index(fields=["cluster", "-starts_at"], name="accuracy_by_time")]

    def __str__(self) -> str:
        return f"{self.query_id} at {self.starts_at:%Y-%m-%d %H:%M:%S}"

    @property
    def error_s(self) -> float:
        """Expected less observed: above 0 the estimate was too high."""
        return self.expected_s - self.observed_s
