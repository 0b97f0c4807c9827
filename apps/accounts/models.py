"""People and tokens."""

from __future__ import annotations

from django.contrib.auth.models import AbstractUser, UserManager
from django.db import models
from django.utils import timezone

from apps.accounts.choices import ROLE_SCOPES, Role
from apps.core.limits import DIGEST_LENGTH, MAX_NAME, MAX_TIME_ZONE, PREFIX_LENGTH
from apps.ledger.recorder import Tracked, TrackedQuerySet

__all__ = ["Token", "User"]


class PersonManager(UserManager.from_queryset(TrackedQuerySet)):  # type: ignore[misc] # made at run time
    """People, whose changes in bulk are recorded as well."""

    use_in_migrations = False


class User(Tracked, AbstractUser):
    """A person who signs in; `role` decides the scopes."""

    ledger_kind, ledger_name, ledger_cluster, ledger_kept = "person", "username", None, False
    ledger_ignored = frozenset({"last_login", "date_joined", "single_keys"})
    ledger_guarded = frozenset({"email"})
    ledger_secret = frozenset({"password"})

    objects = PersonManager()

    role = models.CharField(max_length=16, choices=Role.choices, default=Role.VIEWER)
    time_zone = models.CharField(
        max_length=MAX_TIME_ZONE, default="UTC", help_text="IANA name; every time is shown in it."
    )
    single_keys = models.BooleanField(default=True, help_text="Single-key shortcuts such as / and [.")

    @property
    def scopes(self) -> frozenset[str]:
        return ROLE_SCOPES[Role.ADMIN if self.is_superuser else self.role]


class Token(Tracked):
    """A bearer token of a user. Only its SHA-256 is stored; scopes never exceed its owner's role."""

    ledger_kind, ledger_cluster, ledger_kept = "token", None, False
    ledger_ignored = frozenset({"digest", "prefix", "last_used_at"})

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="tokens")
    name = models.CharField(max_length=MAX_NAME)
    prefix = models.CharField(max_length=PREFIX_LENGTH, help_text="First characters, to recognise it.")
    digest = models.CharField(max_length=DIGEST_LENGTH, unique=True)
    scopes = models.JSONField(default=list)
    networks = models.JSONField(default=list, blank=True, help_text="CIDR networks it may be used from; empty = any.")
    created_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"
