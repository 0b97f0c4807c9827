"""Changes of objects, and the rows that are kept to take them back."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.utils import timezone

from apps.core.limits import DIGEST_LENGTH, MAX_KIND, MAX_NAME, MAX_OPERATOR_PATH, MAX_REASON, MAX_SLUG, MAX_URL
from apps.core.models import PackedJSONField
from apps.core.secrets import SealedField
from apps.ledger.choices import ChangeAction

__all__ = ["ADDRESS_PURPOSE", "SECRET_PURPOSE", "KeptRows", "LedgerMark", "LedgerWebhook", "ObjectChange"]

ADDRESS_PURPOSE, SECRET_PURPOSE = "ledger.webhook.address", "ledger.webhook.secret"


class ObjectChange(models.Model):
    """A change of one object, written in the transaction that made it and never again.

    It names what it speaks of by value instead of by key, since it outlives clusters, people and tokens. `number`,
    `prev_hash` and `hash` alone are set later, once, when the chain reaches it (`apps.ledger.chain`).
    """

    kind = models.CharField(max_length=MAX_KIND, help_text="Kind of the object, such as node.")
    object_id = models.CharField(max_length=36, help_text="Key of the object; one that comes back has the same.")
    name = models.CharField(max_length=MAX_OPERATOR_PATH, help_text="The object's name after the change.")
    cluster = models.CharField(max_length=MAX_SLUG, blank=True, help_text="Slug of its cluster then; empty: none.")
    cluster_key = models.BigIntegerField(null=True, help_text="Key of its cluster, whatever its slug is by now.")
    action = models.CharField(max_length=8, choices=ChangeAction.choices)
    at = models.DateTimeField(default=timezone.now, db_index=True)
    before = models.JSONField(null=True, help_text="Fields that changed, or all of a deleted object.")
    after = models.JSONField(null=True, help_text="Fields that changed, or all of a new object.")
    user_key = models.BigIntegerField(null=True)
    user = models.CharField(max_length=150, blank=True, help_text="Who made it, or asked for the job; empty: nobody.")
    token = models.CharField(max_length=MAX_NAME * 2, blank=True, help_text="The token that was used.")
    job = models.CharField(max_length=36, blank=True, help_text="The job that made it.")
    address = models.CharField(max_length=45, blank=True, help_text="Where the request came from.")
    request_id = models.CharField(max_length=64, blank=True)
    why = models.CharField(max_length=MAX_REASON, blank=True)
    group = models.CharField(max_length=36, db_index=True, help_text="Shared by the changes of one request or job.")
    cause = models.ForeignKey(
        "self",
        null=True,
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        related_name="consequences",
        help_text="The deletion, or its undoing, that took the object along.",
    )
    undoes = models.OneToOneField(
        "self", null=True, on_delete=models.DO_NOTHING, db_constraint=False, related_name="undone"
    )
    kept = models.CharField(
        max_length=DIGEST_LENGTH, blank=True, help_text="Digest of the rows before; empty: its fields say it all."
    )
    number = models.BigIntegerField(null=True, unique=True, help_text="Place in the chain.")
    prev_hash = models.CharField(max_length=DIGEST_LENGTH, blank=True)
    hash = models.CharField(max_length=DIGEST_LENGTH, blank=True)

    class Meta:
        ordering = ["-pk"]
        indexes = [
            models.Index(fields=["kind", "object_id", "-id"], name="changes_of_an_object"),
            models.Index(fields=["cluster_key", "-id"], name="changes_of_a_cluster"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.name} {self.action}"


class KeptRows(models.Model):
    """Rows as they were before a change that its fields do not tell: of a deleted object, or a replaced series."""

    digest = models.CharField(max_length=DIGEST_LENGTH, primary_key=True)
    rows: Any = PackedJSONField(help_text="As Django's serializers write them.")
    kept_at = models.DateTimeField(default=timezone.now, db_index=True)


class LedgerMark(models.Model):
    """A place in the chain: the last change that retention has removed, or that was sent elsewhere."""

    name = models.CharField(max_length=MAX_KIND, primary_key=True)
    number = models.BigIntegerField(help_text="Place of the change in the chain.")
    hash = models.CharField(max_length=DIGEST_LENGTH, help_text="Its hash, which the next one follows.")
    at = models.DateTimeField(default=timezone.now)


class LedgerWebhook(models.Model):
    """The webhook that the ledger is posted to, in the place of the one that the environment names. There is one row.

    Address and secret are encrypted and never shown. Its changes are entries of their own (`apps.ledger.services`).
    """

    sealed_address = SealedField(purpose=ADDRESS_PURPOSE)
    sealed_secret = SealedField(purpose=SECRET_PURPOSE)
    shown_address = models.CharField(max_length=MAX_URL, help_text="The part that holds no secret.")
    sent_at = models.DateTimeField(null=True, help_text="When something last arrived.")
    tried_at = models.DateTimeField(null=True, help_text="When something was last sent or failed.")
    failures = models.PositiveIntegerField(default=0, help_text="Tries since something last arrived.")
    error = models.CharField(max_length=MAX_REASON, blank=True, help_text="Why the last try failed.")

    class Meta:
        constraints = [models.CheckConstraint(condition=models.Q(pk=1), name="one_ledger_webhook")]

    def __str__(self) -> str:
        return self.shown_address
