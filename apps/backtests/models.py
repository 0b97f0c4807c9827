"""Backtests: a recorded period, the policy it was replayed through, and what came of it."""

from __future__ import annotations

import uuid

from django.conf import settings
from django.db import models
from django.utils import timezone

from apps.backtests.choices import Asked, BacktestState
from apps.fleet.models import Cluster
from apps.jobs.models import Job

__all__ = ["BacktestRun"]


class BacktestRun(models.Model):
    """A replay of a cluster's records through a policy, beside what was really decided."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="backtests")
    since = models.DateTimeField(help_text="Beginning of the period, as asked for.")
    until = models.DateTimeField(help_text="End of the period, as asked for.")
    policy = models.JSONField(default=dict, help_text="As engine.backtest.policy reads it, with every field.")
    ask = models.CharField(
        max_length=8, choices=Asked.choices, default=Asked.RECORDED, help_text="When requests are asked in the replay."
    )
    job = models.OneToOneField(Job, null=True, blank=True, on_delete=models.SET_NULL, related_name="backtest")
    state = models.CharField(max_length=10, choices=BacktestState.choices, default=BacktestState.ASKED, db_index=True)
    facts = models.JSONField(default=dict, blank=True, help_text="The answer in a few numbers, for lists.")
    result = models.BinaryField(null=True, help_text="The answer, JSON compressed with zstd.")
    duration_s = models.FloatField(null=True)
    requested_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(default=timezone.now, db_index=True)
    answered_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return f"Backtest of {self.cluster_id}, {self.since:%Y-%m-%d %H:%M} to {self.until:%Y-%m-%d %H:%M}"
