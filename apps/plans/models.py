"""Comparisons of the plans of a query."""

from __future__ import annotations

import uuid

from django.conf import settings
from django.core.validators import MinValueValidator
from django.db import models
from django.utils import timezone

from apps.jobs.models import Job
from apps.plans.choices import ComparisonReason, ComparisonState, Places
from apps.queries.models import Query, QueryVersion

__all__ = ["PlanComparison"]


class PlanComparison(models.Model):
    """One comparison: versions of a query and what the rules make of them, ranked on one snapshot of the cluster."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    query = models.ForeignKey(Query, on_delete=models.CASCADE, related_name="comparisons")
    job = models.ForeignKey(Job, null=True, blank=True, on_delete=models.SET_NULL, related_name="comparisons")
    requested_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="comparisons"
    )
    reason = models.CharField(max_length=10, choices=ComparisonReason.choices, default=ComparisonReason.ASKED)
    state = models.CharField(
        max_length=10, choices=ComparisonState.choices, default=ComparisonState.COMPUTING, db_index=True
    )
    message = models.CharField(max_length=500, blank=True, help_text="Why there is no ranking, where that needs words.")
    versions = models.JSONField(default=list, help_text="Numbers of the versions compared.")
    capacity_cps = models.FloatField(
        null=True,
        blank=True,
        validators=[MinValueValidator(0)],
        help_text="Judged on one node of this capacity; null: within the cluster.",
    )
    hop_cycles = models.FloatField(
        default=0.0, validators=[MinValueValidator(0)], help_text="Cycles an event spends in a queue; 0: not known."
    )
    places = models.CharField(max_length=4, choices=Places.choices, default=Places.KEEP)
    snapshot = models.CharField(max_length=64, blank=True, help_text="Digest of the cluster it was computed on.")
    basis = models.JSONField(default=dict, help_text="{version: digest of its operators and statistics}.")
    running = models.PositiveIntegerField(null=True, blank=True, help_text="Number of the version that ran.")
    samples = models.JSONField(default=list, help_text="[{operator, input, batches}] of the version drift is told by.")
    result = models.JSONField(null=True, blank=True, help_text="engine.plans' answer, whole.")
    recommended = models.CharField(max_length=40, blank=True, help_text="Key of the plan that is faster for sure.")
    drift = models.JSONField(null=True, blank=True, help_text="Newest check of its statistics against the present.")
    drift_digest = models.CharField(max_length=64, blank=True, help_text="Digest of the statistics last checked.")
    drift_at = models.DateTimeField(null=True, blank=True)
    adopted = models.ForeignKey(
        QueryVersion, null=True, blank=True, on_delete=models.SET_NULL, related_name="adopted_from"
    )
    adopted_key = models.CharField(max_length=40, blank=True)
    created_at = models.DateTimeField(default=timezone.now, db_index=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return f"Plans of {self.query.name} ({self.get_state_display()})"
