"""Sessions in browsers, accounts at the provider, second factors and invitations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.contrib.sessions.base_session import AbstractBaseSession
from django.db import models
from django.utils import timezone

from apps.accounts.choices import Role
from apps.accounts.models import Group, Team
from apps.core.limits import DIGEST_LENGTH, MAX_NOTE, MAX_URL
from apps.core.secrets import SealedField
from apps.ledger.recorder import Tracked, add_related

__all__ = [
    "FACTOR_PURPOSE",
    "PROVIDER_PURPOSE",
    "Invitation",
    "ProviderAccount",
    "ProviderSession",
    "RecoveryCode",
    "SecondFactor",
    "ServiceAccount",
    "Session",
]

FACTOR_PURPOSE, PROVIDER_PURPOSE = "second-factor", "provider-session"


class ProviderAccount(Tracked):
    """An account at the provider that signs in as a person. Its subject never changes and is never given again."""

    ledger_kind, ledger_name, ledger_cluster, ledger_kept = "account at the provider", "user__username", None, False
    ledger_ignored = frozenset({"last_used_at"})

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="provider_accounts")
    issuer = models.CharField(max_length=MAX_URL)
    subject = models.CharField(max_length=255)  # OpenID Connect Core, section 2: at most 255 ASCII characters
    groups = models.JSONField(default=list, help_text="Names of groups that the provider told last.")
    linked_at = models.DateTimeField(default=timezone.now)
    last_used_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["issuer", "subject"], name="provider_account_of_one_person")]


class ProviderSession(models.Model):
    """Tokens that the provider gave for a session which began with it. Both are sealed and shown to nobody."""

    account = models.ForeignKey(ProviderAccount, on_delete=models.CASCADE, related_name="provider_sessions")
    id_token = SealedField(
        purpose=PROVIDER_PURPOSE, help_text="Sealed; names the session to the provider when it is ended there."
    )
    refresh_token = SealedField(
        purpose=PROVIDER_PURPOSE, blank=True, help_text="Sealed; empty where the provider gives none."
    )
    sid = models.CharField(max_length=255, blank=True, help_text="The provider's own name of its session.")
    renewed_at = models.DateTimeField(default=timezone.now, help_text="When the provider last vouched for it.")
    renew_at = models.DateTimeField(db_index=True)


class Session(AbstractBaseSession):
    """A session of a browser, with whose it is: the columns beside Django's are copies of what its data has."""

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.CASCADE, related_name="browser_sessions"
    )
    provider_session = models.ForeignKey(
        ProviderSession, null=True, on_delete=models.CASCADE, related_name="browser_sessions"
    )
    seen_at = models.DateTimeField(default=timezone.now)

    @classmethod
    def get_session_store_class(cls) -> type:
        from apps.signin.session_store import SessionStore  # which imports this module

        return SessionStore


class SecondFactor(Tracked):
    """A person's authenticator app (TOTP, RFC 6238). Until it is confirmed by a first code it is not asked for."""

    ledger_kind, ledger_name, ledger_cluster, ledger_kept = "second factor", "user__username", None, False
    ledger_ignored = frozenset({"last_step"})
    ledger_secret = frozenset({"secret"})

    user = models.OneToOneField(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="second_factor")
    secret = SealedField(purpose=FACTOR_PURPOSE, help_text="Sealed.")
    confirmed_at = models.DateTimeField(null=True, blank=True)
    last_step = models.PositiveBigIntegerField(default=0, help_text="Time step of the last code: none is taken twice.")


class RecoveryCode(models.Model):
    """A code that stands in for the authenticator app, once. Only its SHA-256 is stored."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="recovery_codes")
    digest = models.CharField(max_length=DIGEST_LENGTH)
    used_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "digest"], name="recovery_code_once")]


class ServiceAccount(Tracked):
    """An account of a program, such as CI: it has tokens and grants, no password, and a team that answers for it."""

    ledger_kind, ledger_name, ledger_cluster, ledger_kept = "service account", "user__username", None, False

    user = models.OneToOneField(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="service_account")
    team = models.ForeignKey(Team, null=True, on_delete=models.SET_NULL, related_name="service_accounts")
    description = models.CharField(max_length=MAX_NOTE, blank=True)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["user__username"]


class Invitation(Tracked):
    """A link by which somebody makes an account, once, with what was set beforehand. Only its SHA-256 is stored."""

    ledger_kind, ledger_name, ledger_cluster, ledger_kept = "invitation", "note", None, False
    ledger_ignored = frozenset({"digest"})
    ledger_guarded = frozenset({"email"})

    digest = models.CharField(max_length=DIGEST_LENGTH, unique=True)
    note = models.CharField(max_length=MAX_NOTE, help_text="Whom it is for.")
    email = models.EmailField(blank=True, help_text="The link is sent here, and the account gets this address.")
    role = models.CharField(max_length=16, choices=Role.choices, default=Role.VIEWER, help_text="On everything.")
    groups = models.ManyToManyField(Group, blank=True, related_name="+")
    invited_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="invitations"
    )
    created_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField()
    revoked_at = models.DateTimeField(null=True, blank=True)
    used_at = models.DateTimeField(null=True, blank=True)
    used_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")

    class Meta:
        ordering = ["-created_at", "-pk"]

    @classmethod
    def ledger_more(cls, images: Mapping[Any, dict[str, Any]]) -> None:
        """Add the keys of its groups."""
        add_related(images, cls.groups.through, "invitation", "group")
