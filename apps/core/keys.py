"""Rotation of the installation's signing key: what is derived from another root, and what is encrypted anew."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.apps import apps
from django.conf import settings
from django.db import models
from django.utils.crypto import salted_hmac

from apps.core.errors import Conflict
from apps.core.models import InstallationSecret
from apps.core.secrets import SealedField, SecretLost, is_sealed_anew, seal_secret, unseal_secret

__all__ = ["ResealedColumn", "derived_secret", "derived_secrets_forget", "secrets_reseal"]

_ROOT = "webhooks"


def derived_secret(purpose: str, value: str) -> str:
    """A secret that others hold as well, such as a webhook's, in hexadecimal digits.

    It is derived from a root in the database, so that receivers notice nothing of another signing key. The root is the
    signing key that was in force when it was made, as messages were signed with what was derived from that before.

    Raises
    ------
    Conflict
        The root is encrypted under a key that this installation does not know. None is made in its place: one process
        that was started with a wrong key would have every receiver refuse what the others send.
    """
    purpose_of_root = _purpose(InstallationSecret._meta.get_field("sealed"))
    row, _ = InstallationSecret.objects.get_or_create(
        name=_ROOT, defaults={"sealed": seal_secret(settings.SECRET_KEY, purpose_of_root)}
    )
    try:
        root = unseal_secret(row.sealed, purpose_of_root)
    except SecretLost:
        raise Conflict(
            "The secrets of webhooks are encrypted under a secret key that this process does not know. Give that in "
            "SLUICE_SECRET_KEY_FALLBACKS; where it is lost, `./sluice manage reseal --forget-webhooks` gives every "
            "webhook another secret."
        ) from None
    return salted_hmac(purpose, value, secret=root, algorithm="sha256").hexdigest()


def derived_secrets_forget() -> None:
    """Derive from another root from now on: every receiver has to be given its secret again."""
    sealed = seal_secret(secrets.token_hex(32), _purpose(InstallationSecret._meta.get_field("sealed")))
    InstallationSecret.objects.update_or_create(name=_ROOT, defaults={"sealed": sealed})


@dataclass(frozen=True)
class ResealedColumn:
    """A column of sealed secrets after a rotation: how many there are, were sealed anew, and cannot be read."""

    label: str
    total: int
    resealed: int
    lost: int


def secrets_reseal() -> Iterator[ResealedColumn]:
    """Encrypt every sealed secret under the key in force; those of before are not needed for them afterwards.

    A secret that is replaced meanwhile stays as it was written, which is under the key in force.
    """
    for model in apps.get_models():
        for column in model._meta.concrete_fields:
            if isinstance(column, SealedField):
                yield _reseal_column(model, column)


def _reseal_column(model: type[models.Model], column: SealedField) -> ResealedColumn:
    rows: models.QuerySet[Any] = models.QuerySet(model).exclude(
        **{column.name: ""}
    )  # past the ledger: the secrets stay the same
    total = resealed = lost = 0
    for key, sealed in rows.values_list("pk", column.name).order_by("pk"):
        total += 1
        if is_sealed_anew(sealed, column.purpose):
            continue
        try:
            anew = seal_secret(unseal_secret(sealed, column.purpose), column.purpose)
        except SecretLost:
            lost += 1
            continue
        resealed += rows.filter(pk=key, **{column.name: sealed}).update(**{column.name: anew})
    return ResealedColumn(f"{model._meta.verbose_name} ({column.name})", total, resealed, lost)


def _purpose(column: object) -> str:
    assert isinstance(column, SealedField)
    return column.purpose
