"""Rows that belong to no domain: remembered answers to repeated requests."""

from __future__ import annotations

from django.db import models
from django.utils import timezone

__all__ = ["IdempotencyRecord"]


class IdempotencyRecord(models.Model):
    """The answer given to a POST with an `Idempotency-Key`, replayed when the same request comes again."""

    owner = models.CharField(max_length=80, help_text="Who sent it: user:ID.")
    key = models.CharField(max_length=255)
    path = models.CharField(max_length=500)
    fingerprint = models.CharField(max_length=64, help_text="SHA-256 of method, path and body.")
    status = models.PositiveSmallIntegerField(null=True)
    body = models.JSONField(null=True)
    headers = models.JSONField(default=dict)
    created_at = models.DateTimeField(default=timezone.now, db_index=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["owner", "key"], name="one_answer_per_key")]
