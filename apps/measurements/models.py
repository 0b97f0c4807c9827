"""Measured sums of operators, raw and by the hour, statistics from them, and states of the stream processor."""

from __future__ import annotations

from django.db import models

from agent.wire import SUMS
from apps.core.limits import DIGEST_LENGTH, MAX_ELEMENT_NAME, MAX_GENERATION
from apps.fleet.models import Cluster
from apps.queries.models import Query

__all__ = ["OperatorStatistic", "StatisticsHour", "StatisticsWindow", "StreamStretch", "StreamWork"]


class StreamWork(models.TextChoices):
    """The words end a sentence: the stream processor was …"""

    STEADY = "steady", "at work"
    WARMING = "warming", "warming up"
    AWAY = "away", "away"
    CATCHING_UP = "catching_up", "catching up"


class StreamStretch(models.Model):
    """A stretch of time in which the stream processor did one thing; the next begins where it ends."""

    work = models.CharField(max_length=12, choices=StreamWork.choices)
    ready_since = models.DateTimeField(
        null=True, help_text="As the stream processor reports it; another value is another start."
    )
    begins_at = models.DateTimeField()
    ends_at = models.DateTimeField(db_index=True, help_text="When it was last seen so.")

    class Meta:
        ordering = ["-ends_at", "-pk"]

    def __str__(self) -> str:
        return f"{self.work} from {self.begins_at:%Y-%m-%d %H:%M:%S}"


class _Sums(models.Model):
    """Sums of one operator at one place: a column of each of `agent.wire.SUMS`, added below."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="+")
    query = models.ForeignKey(Query, on_delete=models.CASCADE, related_name="+")
    plan = models.CharField(max_length=DIGEST_LENGTH, help_text="Digest of the pipeline that ran.")
    operator = models.CharField(max_length=MAX_ELEMENT_NAME)
    fingerprint = models.CharField(
        max_length=DIGEST_LENGTH, help_text="Of what the operator does; a redeploy keeps it."
    )
    place = models.CharField(max_length=MAX_GENERATION, help_text="Id of the agent, or stream.")
    starts_at = models.DateTimeField()
    width_s = models.FloatField()

    class Meta:
        abstract = True


_KEY = ["query", "plan", "operator", "place", "starts_at"]
for _sum in SUMS:
    _Sums.add_to_class(_sum.name, models.FloatField(default=0.0, help_text=f"{_sum.help} ({_sum.unit})"))


class StatisticsWindow(_Sums):
    """One subinterval of stimulus time, as the stream processor last told it."""

    batch = models.BigIntegerField(help_text="Of the stream processor; a row of a later one replaces this.")
    measured = models.BooleanField(help_text="Whether CPU time was taken by operator and not apportioned.")

    class Meta:
        ordering = ["starts_at", "pk"]
        constraints = [models.UniqueConstraint(fields=_KEY, name="one_statistics_window")]
        indexes = [
            models.Index(fields=["query", "starts_at"], name="window_of_query"),
            models.Index(fields=["cluster", "starts_at"], name="window_of_cluster"),
        ]


class StatisticsHour(_Sums):
    """Subintervals of an hour, added up when they are no longer kept one by one."""

    windows = models.PositiveIntegerField()
    measured_windows = models.PositiveIntegerField()

    class Meta:
        ordering = ["starts_at", "pk"]
        constraints = [models.UniqueConstraint(fields=_KEY, name="one_statistics_hour")]


class OperatorStatistic(models.Model):
    """Statistics of an operator of a query, by its fingerprint: the plan it is part of may come and go."""

    query = models.ForeignKey(Query, on_delete=models.CASCADE, related_name="operator_statistics")
    fingerprint = models.CharField(max_length=DIGEST_LENGTH)
    operator = models.CharField(max_length=MAX_ELEMENT_NAME, help_text="Its name in the newest plan.")
    selectivity = models.FloatField()
    selectivity_error = models.FloatField(null=True, help_text="Standard error; null with one subinterval.")
    cycles_per_event = models.FloatField()
    cycles_error = models.FloatField(null=True)
    events = models.BigIntegerField(help_text="Events of the sample behind it.")
    batches = models.JSONField(default=list, help_text="[{events, outputs, cycles}] of the sample.")
    cost_dispersion = models.FloatField(null=True, help_text="Of costs, over so many records; null: not measured.")
    cost_dispersion_events = models.FloatField(null=True)
    cost_units = models.BigIntegerField(default=0, help_text="Behind it.")
    cost_unit = models.CharField(max_length=12, blank=True, help_text="What these are: runs, epochs, subintervals.")
    first_at = models.DateTimeField(help_text="Beginning of the sample.")
    last_at = models.DateTimeField(help_text="End of the sample.")
    whole = models.PositiveIntegerField(help_text="Subintervals measured in full.")
    units = models.PositiveIntegerField(default=0, help_text="Subintervals, or blocks of them, that errors rest on.")
    extrapolated = models.PositiveIntegerField(help_text="Subintervals whose CPU time was apportioned.")
    missing = models.PositiveIntegerField(help_text="Subintervals of the span without a report.")
    shares = models.JSONField(default=dict, help_text="{place: share of the events}.")
    ready = models.BooleanField()
    reason = models.CharField(max_length=120, blank=True, help_text="Why it is not ready.")
    more_events = models.BigIntegerField(default=0)
    more_s = models.FloatField(null=True, help_text="Expected time until it is ready; null: nothing arrives.")
    lacking_since = models.DateTimeField(null=True, help_text="Since when it lacks measurements; null: it is ready.")
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["query", "operator"]
        constraints = [models.UniqueConstraint(fields=["query", "fingerprint"], name="one_statistic_per_fingerprint")]

    def __str__(self) -> str:
        return f"{self.query_id}/{self.operator}"
