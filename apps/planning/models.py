"""Scenarios that people keep, and what-ifs with their answers."""

from __future__ import annotations

import uuid

from django.conf import settings
from django.db import models
from django.utils import timezone

from apps.fleet.models import Cluster
from apps.jobs.models import Job
from apps.planning.choices import Find, Place, WhatIfState

__all__ = ["Scenario", "WhatIf"]


class Scenario(models.Model):
    """A named set of changes to a cluster: nodes, loads, objectives, queries."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="scenarios")
    name = models.CharField(max_length=80)
    description = models.CharField(max_length=300, blank=True)
    changes = models.JSONField(default=list, blank=True, help_text="As engine.provisioning reads them.")
    place = models.CharField(max_length=8, choices=Place.choices, default=Place.FILL)
    inputs = models.JSONField(
        default=dict, blank=True, help_text="Inputs of the bench it was saved from, to open it there again."
    )
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(default=timezone.now)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["cluster", "name"], name="scenario_name_once_per_cluster")]

    def __str__(self) -> str:
        return self.name


class WhatIf(models.Model):
    """A question about fleets, loads or objectives that are not there yet, and the engine's answer.

    The answer stays readable at any age, with the snapshot of the cluster it was computed on.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="what_ifs")
    find = models.CharField(max_length=16, choices=Find.choices, default=Find.COMPARE)
    scenarios = models.JSONField(default=list, help_text="[{name, changes, place, id?}] as they were when asked.")
    options = models.JSONField(default=dict, blank=True, help_text="Parameters of what is looked for.")
    fingerprint = models.CharField(max_length=64, db_index=True, help_text="Digest of the question.")
    from_bench = models.BooleanField(default=False, help_text="Asked by moving the bench; kept for a day.")
    job = models.OneToOneField(Job, null=True, blank=True, on_delete=models.SET_NULL, related_name="what_if")
    state = models.CharField(max_length=10, choices=WhatIfState.choices, default=WhatIfState.ASKED, db_index=True)
    snapshot = models.CharField(max_length=64, blank=True, help_text="Hash of the snapshot it was computed on.")
    snapshot_parts = models.JSONField(default=dict, help_text="{part: digest}, to say what has moved since.")
    result = models.BinaryField(null=True, help_text="The answer, JSON compressed with zstd.")
    duration_s = models.FloatField(null=True)
    requested_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(default=timezone.now, db_index=True)
    answered_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-created_at"]
        indexes = [models.Index(fields=["cluster", "fingerprint", "-created_at"], name="what_if_asked_before")]

    def __str__(self) -> str:
        return f"{self.get_find_display()} ({self.get_state_display()})"
