"""Placement runs: a search, the moves it proposes, and how far they are applied."""

from __future__ import annotations

import uuid

from django.conf import settings
from django.db import models
from django.utils import timezone

from apps.fleet.models import Cluster
from apps.jobs.models import Job
from apps.placements.choices import Algorithm, MoveKind, MoveState, Objective, RunState

__all__ = ["PlacementMove", "PlacementRun"]


class PlacementRun(models.Model):
    """A search for a better placement of what runs in a cluster: the question, the proposal, what became of it."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="placement_runs")
    job = models.ForeignKey(Job, null=True, blank=True, on_delete=models.SET_NULL, related_name="placement_searches")
    moves_job = models.ForeignKey(Job, null=True, blank=True, on_delete=models.SET_NULL, related_name="placement_moves")
    parent = models.ForeignKey("self", null=True, blank=True, on_delete=models.SET_NULL, related_name="children")
    requested_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="placement_runs"
    )
    algorithm = models.CharField(max_length=10, choices=Algorithm.choices, default=Algorithm.SEARCH)
    objective = models.CharField(max_length=10, choices=Objective.choices, default=Objective.WORST)
    budget_s = models.FloatField(default=5.0, help_text="How long it may search, in seconds.")
    seed = models.BigIntegerField(default=0)
    constraints = models.JSONField(default=dict, help_text="pin, forbid, apart, max_moves, may_split.")
    state = models.CharField(max_length=12, choices=RunState.choices, default=RunState.SEARCHING, db_index=True)
    message = models.CharField(max_length=500, blank=True, help_text="Why it ended as it did, where that needs words.")
    snapshot = models.CharField(max_length=64, blank=True, help_text="Digest of the cluster the search looked at.")
    snapshot_parts = models.JSONField(default=dict, help_text="{part: content}, to say what has moved since.")
    stop_requested = models.BooleanField(default=False, help_text="Stop the search and keep the best so far.")
    live = models.JSONField(default=dict, help_text="Best so far, for whoever looks while it searches.")
    facts = models.JSONField(default=dict, help_text="The proposal in a few numbers, for lists.")
    result = models.BinaryField(null=True, help_text="The engine's proposal, JSON compressed with zstd.")
    pace = models.FloatField(default=1.0, help_text="Pause after a batch as a multiple of its estimated duration.")
    batches = models.PositiveIntegerField(default=0, help_text="How many batches its moves are made in.")
    expected = models.CharField(max_length=64, blank=True, help_text="Digest of the cluster the last batch left.")
    expected_parts = models.JSONField(default=dict)
    resume_at = models.DateTimeField(null=True, blank=True, help_text="When the next batch is due.")
    applied_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="applied_placements"
    )
    created_at = models.DateTimeField(default=timezone.now, db_index=True)
    started_at = models.DateTimeField(null=True, blank=True, help_text="When the search took its snapshot.")
    proposed_at = models.DateTimeField(null=True, blank=True)
    applied_at = models.DateTimeField(null=True, blank=True, help_text="When applying began.")
    finished_at = models.DateTimeField(null=True, blank=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return f"Placement of {self.cluster}, {str(self.pk)[:8]}"


class PlacementMove(models.Model):
    """One step of a proposal: an operator that goes elsewhere, is split, or becomes one again."""

    run = models.ForeignKey(PlacementRun, on_delete=models.CASCADE, related_name="moves")
    number = models.PositiveIntegerField(help_text="Its place in the order, from 1.")
    batch = models.PositiveIntegerField(default=0, help_text="Moves of a batch are made together; 0 before applying.")
    operator = models.CharField(max_length=250, help_text="{query}/{operator}")
    query = models.CharField(max_length=64)
    before = models.JSONField(default=list, help_text="[{node, core, fraction}]; empty: it had no place.")
    after = models.JSONField(default=list, help_text="[{node, core, fraction}]")
    kind = models.CharField(max_length=6, choices=MoveKind.choices, default=MoveKind.MOVE)
    why = models.CharField(max_length=300, blank=True)
    state_bytes = models.FloatField(null=True)
    duration_s = models.FloatField(default=0.0, help_text="How long its state travels.")
    bump_s = models.FloatField(default=0.0, help_text="Latency it adds while it moves, by Flow.")
    bump_query = models.CharField(max_length=64, blank=True, help_text="The query that is delayed most.")
    state = models.CharField(max_length=8, choices=MoveState.choices, default=MoveState.PENDING)
    applied_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["number"]
        constraints = [models.UniqueConstraint(fields=["run", "number"], name="move_number_once_per_run")]

    def __str__(self) -> str:
        return f"{self.number}. {self.operator}"
