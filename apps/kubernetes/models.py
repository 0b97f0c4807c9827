"""Answers to Kubernetes, one for each review, their grounds, and where reviews come from."""

from __future__ import annotations

import uuid

from django.conf import settings
from django.db import models
from django.utils import timezone

from apps.admission.models import AdmissionRequest
from apps.core.limits import DIGEST_LENGTH, MAX_HOST_NAME, MAX_MESSAGE, MAX_NOTE
from apps.fleet.models import Cluster

__all__ = ["MAX_KUBERNETES_UID", "KubernetesReview", "ReviewBasis", "ReviewOrigin"]


class ReviewOrigin(models.TextChoices):
    """Sender of a review."""

    WEBHOOK = "webhook", "API server"  #: an AdmissionReview
    MANIFEST = "manifest", "Manifest"  #: a manifest that was asked about, as by a pipeline


class ReviewBasis(models.TextChoices):
    """Ground of an answer."""

    VERDICT = "verdict", "Verdict"  #: of an admission
    RUNNING = "running", "Runs already"  #: the version that runs, with as much parallelism
    UNCHANGED = "unchanged", "Nothing changed"  #: the specification is as it was
    STOPS = "stops", "Takes no load"  #: deleted or suspended
    LESS = "less", "Less than measured"  #: asks for less parallelism than its statistics are of
    UNKNOWN = "unknown", "Not known"  #: no statistics, and none can be predicted
    LATE = "late", "No verdict in time"
    OTHER = "other", "Not for Sluice"  #: a kind that it does not decide on


MAX_KUBERNETES_UID = 128


class KubernetesReview(models.Model):
    """A review of an object, and what Kubernetes was answered. Its verdict is that of an ordinary admission request."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="kubernetes_reviews")
    uid = models.CharField(max_length=MAX_KUBERNETES_UID, help_text="Of the review: asked twice, answered once.")
    digest = models.CharField(max_length=DIGEST_LENGTH, help_text="Of what was asked.")
    origin = models.CharField(max_length=8, choices=ReviewOrigin.choices, default=ReviewOrigin.WEBHOOK)
    api_version = models.CharField(max_length=MAX_HOST_NAME)
    kind = models.CharField(max_length=MAX_NOTE)
    namespace = models.CharField(max_length=MAX_HOST_NAME, blank=True)
    name = models.CharField(max_length=MAX_HOST_NAME)
    operation = models.CharField(max_length=10)
    username = models.CharField(max_length=MAX_HOST_NAME, blank=True, help_text="Who changes it in Kubernetes.")
    dry_run = models.BooleanField(default=False)
    asked_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+", help_text="Of the token."
    )
    admission = models.ForeignKey(
        AdmissionRequest, null=True, on_delete=models.SET_NULL, related_name="kubernetes_reviews"
    )
    allowed = models.BooleanField(null=True, help_text="Null: not answered yet.")
    basis = models.CharField(max_length=10, choices=ReviewBasis.choices, blank=True)
    message = models.TextField(max_length=4 * MAX_MESSAGE, blank=True)
    warnings = models.JSONField(default=list)
    waited_s = models.FloatField(default=0.0, help_text="From the question to the answer.")
    created_at = models.DateTimeField(default=timezone.now, db_index=True)

    class Meta:
        ordering = ["-created_at"]
        constraints = [models.UniqueConstraint(fields=["cluster", "uid"], name="one_answer_per_review")]

    def __str__(self) -> str:
        return f"{self.operation} {self.kind} {self.path}"

    @property
    def path(self) -> str:
        """Namespace and name."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name
