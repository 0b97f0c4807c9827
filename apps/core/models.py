"""Rows that belong to no domain, and JSON compressed for large columns."""

from __future__ import annotations

import json
from typing import Any

import zstandard
from django.db import models
from django.utils import timezone

from apps.core.limits import DIGEST_LENGTH, MAX_KIND, MAX_NAME, MAX_URL
from apps.core.secrets import SealedField

__all__ = ["IdempotencyRecord", "InstallationSecret", "PackedJSONField", "pack_json", "unpack_json"]


def pack_json(value: Any) -> bytes:
    """The value as compressed JSON. ValueError for NaN and infinity, which JSON does not have."""
    return zstandard.compress(json.dumps(value, separators=(",", ":"), allow_nan=False).encode())


def unpack_json(data: bytes | memoryview) -> Any:
    """Document packed by `pack_json`; PostgreSQL hands out a memoryview."""
    return json.loads(zstandard.decompress(bytes(data)))


class PackedJSONField(models.BinaryField):
    """A JSON value kept compressed with zstd: for answers of the engine, which are read whole and never searched."""

    _pyi_private_get_type: Any  # of django-stubs: what an attribute of the model holds
    _pyi_private_set_type: Any

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        return None if value is None else unpack_json(value)

    def get_prep_value(self, value: Any) -> Any:
        return None if value is None else pack_json(value)

    def to_python(self, value: Any) -> Any:
        return value

    def value_to_string(self, obj: models.Model) -> Any:
        return self.value_from_object(obj)  # a JSON value among those of Django's serializers


class IdempotencyRecord(models.Model):
    """The answer given to a POST with an `Idempotency-Key`, replayed when the same request comes again."""

    owner = models.CharField(max_length=MAX_NAME, help_text="Who sent it: user:ID.")
    key = models.CharField(max_length=255)
    path = models.CharField(max_length=MAX_URL)
    fingerprint = models.CharField(max_length=DIGEST_LENGTH, help_text="SHA-256 of method, path and body.")
    status = models.PositiveSmallIntegerField(null=True)
    body = models.JSONField(null=True)
    headers = models.JSONField(default=dict)
    created_at = models.DateTimeField(default=timezone.now, db_index=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["owner", "key"], name="one_answer_per_key")]


class InstallationSecret(models.Model):
    """A secret of the installation that outlives its signing keys, such as the root of the webhooks' secrets."""

    name = models.CharField(max_length=MAX_KIND, primary_key=True)
    sealed = SealedField(purpose="installation")
