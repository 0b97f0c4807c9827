"""Model versions, predictions of queries that never ran, and what their executions showed."""

from __future__ import annotations

import uuid

from django.conf import settings
from django.db import models
from django.utils import timezone

from apps.core.limits import DIGEST_LENGTH, MAX_MESSAGE, MAX_NOTE
from apps.core.models import PackedJSONField
from apps.fleet.models import Cluster
from apps.jobs.models import Job
from apps.predictions.choices import (
    ExecutionOrigin,
    FineTuningState,
    ModelOrigin,
    ModelState,
    PredictionPurpose,
    PredictionState,
    TargetMetric,
)
from apps.queries.models import Query, QueryVersion

__all__ = ["FineTuning", "ModelVersion", "ObservedExecution", "Prediction"]


class ModelVersion(models.Model):
    """Weights of a model with its card. Shipped versions belong to no cluster, fine-tuned ones to that of their runs.

    A cluster without a version of its own in force is predicted for by the newest shipped one.
    """

    cluster = models.ForeignKey(Cluster, null=True, blank=True, on_delete=models.CASCADE, related_name="model_versions")
    number = models.PositiveIntegerField(help_text="Counts the versions of a cluster, or the shipped ones, from 1.")
    origin = models.CharField(max_length=12, choices=ModelOrigin.choices)
    state = models.CharField(max_length=12, choices=ModelState.choices, default=ModelState.AVAILABLE, db_index=True)
    digest = models.CharField(max_length=DIGEST_LENGTH, help_text="SHA-256 of the weights.")
    card = models.JSONField(help_text="What it was trained on, ranges of its features, errors.")
    weights = models.BinaryField(null=True, help_text="The .npz of a fine-tuned version; shipped ones are in a file.")
    parent = models.ForeignKey("self", null=True, blank=True, on_delete=models.SET_NULL, related_name="children")
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(default=timezone.now)
    in_force_at = models.DateTimeField(null=True, blank=True, help_text="When it was last put in force.")

    class Meta:
        ordering = ["-created_at", "-pk"]
        constraints = [
            models.UniqueConstraint(fields=["cluster", "number"], name="model_number_once_per_cluster"),
            models.UniqueConstraint(
                fields=["cluster"], condition=models.Q(state=ModelState.IN_FORCE), name="one_model_in_force"
            ),
            models.UniqueConstraint(
                fields=["digest"], condition=models.Q(cluster__isnull=True), name="shipped_model_once"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.get_origin_display().lower()} {self.number}"


class Prediction(models.Model):
    """Costs of a version's candidate placements as a model predicted them, and the one that was chosen."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="predictions")
    query = models.ForeignKey(Query, on_delete=models.CASCADE, related_name="predictions")
    version = models.ForeignKey(QueryVersion, on_delete=models.CASCADE, related_name="predictions")
    model = models.ForeignKey(ModelVersion, null=True, on_delete=models.SET_NULL, related_name="predictions")
    requested_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    purpose = models.CharField(max_length=12, choices=PredictionPurpose.choices)
    target = models.CharField(max_length=2, choices=TargetMetric.choices, default=TargetMetric.END_TO_END_LATENCY)
    state = models.CharField(max_length=12, choices=PredictionState.choices)
    placement = models.JSONField(default=dict, help_text="Node of each operator in the chosen candidate.")
    costs = models.JSONField(default=dict, help_text="Predicted costs of the chosen candidate with their intervals.")
    answer = PackedJSONField(help_text="Candidates, heuristics, hosts, reasons and assumptions.")
    trace = PackedJSONField(null=True, help_text="Query, hosts and placement as the model took them.")
    candidates = models.PositiveIntegerField(default=0, help_text="Candidates that were predicted.")
    elapsed_s = models.FloatField(help_text="From the question to the answer.")
    created_at = models.DateTimeField(default=timezone.now, db_index=True)

    class Meta:
        ordering = ["-created_at", "-pk"]
        indexes = [models.Index(fields=["version", "-created_at"], name="prediction_by_version")]

    def __str__(self) -> str:
        return f"{self.version} ({self.get_state_display().lower()})"


class ObservedExecution(models.Model):
    """A stretch of an execution beside the prediction that was made of it before. Null: not observed."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="executions")
    query = models.ForeignKey(Query, on_delete=models.CASCADE, related_name="executions")
    version = models.ForeignKey(QueryVersion, on_delete=models.CASCADE, related_name="executions")
    prediction = models.ForeignKey(Prediction, null=True, on_delete=models.SET_NULL, related_name="executions")
    model = models.ForeignKey(ModelVersion, null=True, on_delete=models.SET_NULL, related_name="executions")
    origin = models.CharField(max_length=10, choices=ExecutionOrigin.choices)
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField(db_index=True)
    predicted = models.JSONField(help_text="Costs as predicted: means, intervals and votes.")
    throughput_eps = models.FloatField(null=True, help_text="T: events/s that arrived at the sinks.")
    processing_latency_s = models.FloatField(null=True, help_text="Lp: mean.")
    end_to_end_latency_s = models.FloatField(null=True, help_text="Le: mean.")
    backpressure = models.BooleanField(null=True, help_text="R_O: whether its sources had to wait.")
    success = models.BooleanField(null=True, help_text="S: whether it put out anything.")
    q_throughput = models.FloatField(null=True, help_text="q-error: the larger ratio of predicted and observed.")
    q_processing_latency = models.FloatField(null=True)
    q_end_to_end_latency = models.FloatField(null=True)
    trace = PackedJSONField(help_text="Query, hosts and placement as the model took them.")
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["-ends_at", "-pk"]
        constraints = [models.UniqueConstraint(fields=["query", "ends_at"], name="one_execution_per_stretch")]
        indexes = [models.Index(fields=["cluster", "-ends_at"], name="execution_by_time")]

    def __str__(self) -> str:
        return f"{self.version} until {self.ends_at:%Y-%m-%d %H:%M:%S}"


class FineTuning(models.Model):
    """A model trained further on a cluster's observed executions, and the guard's judgement of it."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="fine_tunings")
    job = models.OneToOneField(Job, null=True, blank=True, on_delete=models.SET_NULL, related_name="fine_tuning")
    requested_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    state = models.CharField(max_length=10, choices=FineTuningState.choices, default=FineTuningState.RUNNING)
    message = models.CharField(max_length=MAX_MESSAGE, blank=True)
    note = models.CharField(max_length=MAX_NOTE, blank=True)
    base = models.ForeignKey(ModelVersion, null=True, on_delete=models.SET_NULL, related_name="fine_tunings")
    model = models.OneToOneField(
        ModelVersion, null=True, blank=True, on_delete=models.SET_NULL, related_name="fine_tuning"
    )
    observations = models.PositiveIntegerField(default=0, help_text="Executions it was trained on.")
    held_out = models.PositiveIntegerField(default=0, help_text="Executions it was judged on.")
    result = models.JSONField(default=dict, help_text="Errors of both models on the executions held out, by metric.")
    created_at = models.DateTimeField(default=timezone.now, db_index=True)

    class Meta:
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return f"fine-tuning of {self.cluster_id} ({self.get_state_display().lower()})"
