"""Load of sources over weeks, and forecasts made of it."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import models
from django.utils import timezone

from apps.fleet.choices import Evidence
from apps.fleet.models import Cluster
from apps.forecasts.choices import HistoryOrigin
from apps.jobs.models import Job

__all__ = ["Forecast", "LoadHistory"]


class LoadHistory(models.Model):
    """Events of one source per bucket (an hour, mostly) over days or weeks.

    `data` is packed as `apps.queries.series` does; buckets of which nothing is known are NaN.
    """

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="load_histories")
    source_id = models.CharField(max_length=120, help_text="The source whose load it is.")
    origin = models.CharField(max_length=10, choices=HistoryOrigin.choices)
    evidence = models.CharField(max_length=10, choices=Evidence.choices, default=Evidence.ASSUMED)
    description = models.CharField(max_length=200, blank=True)
    spec = models.JSONField(default=dict, help_text="File and columns, or the generator's parameters.")
    bucket_s = models.PositiveIntegerField(help_text="Length of a bucket, seconds.")
    starts_at = models.DateTimeField(help_text="Where the first bucket begins.")
    buckets = models.PositiveIntegerField()
    missing = models.PositiveIntegerField(default=0, help_text="Buckets of which nothing is known.")
    events = models.FloatField(help_text="Total of the known buckets.")
    data = models.BinaryField()
    digest = models.CharField(max_length=64, help_text="SHA-256 of the uncompressed data.")
    created_at = models.DateTimeField(default=timezone.now)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["source_id"]
        verbose_name_plural = "load histories"
        constraints = [models.UniqueConstraint(fields=["cluster", "source_id"], name="history_once_per_source")]

    def __str__(self) -> str:
        return self.source_id

    @property
    def ends_at(self) -> datetime:
        return self.starts_at + timedelta(seconds=self.bucket_s * self.buckets)

    @property
    def mean_eps(self) -> float:
        return self.events / max(1, (self.buckets - self.missing) * self.bucket_s)


class Forecast(models.Model):
    """What the load of a cluster's sources will be, and what that does to its objectives."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="forecasts")
    job = models.OneToOneField(Job, null=True, blank=True, on_delete=models.SET_NULL, related_name="forecast")
    snapshot = models.CharField(max_length=64, help_text="Hash of the snapshot it was computed on.")
    snapshot_parts = models.JSONField(default=dict, help_text="{part: digest}, to say what has moved since.")
    histories = models.JSONField(default=dict, help_text="{source: digest} of the histories it was made of.")
    bucket_s = models.PositiveIntegerField()
    starts_at = models.DateTimeField(help_text="Where the first future bucket begins: the newest history's end.")
    horizon = models.PositiveIntegerField(help_text="Buckets forecast.")
    seed = models.PositiveIntegerField(default=0)
    result = models.JSONField(help_text="Models, backtests, dates of violations, probabilities, pools, assumptions.")
    series = models.BinaryField(null=True, help_text="The curves, JSON compressed with zstd.")
    duration_s = models.FloatField()
    created_at = models.DateTimeField(default=timezone.now, db_index=True)

    class Meta:
        ordering = ["-created_at", "-id"]

    def __str__(self) -> str:
        return f"{self.cluster_id} at {self.created_at:%Y-%m-%d %H:%M:%S}"

    @property
    def ends_at(self) -> datetime:
        return self.at(self.horizon)

    @property
    def is_over(self) -> bool:
        """Whether all it speaks of is in the past: the histories ended long before it was made, or none came since."""
        return self.ends_at <= timezone.now()

    def at(self, index: int) -> datetime:
        """Where a future bucket begins."""
        return self.starts_at + timedelta(seconds=self.bucket_s * index)
