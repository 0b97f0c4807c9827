"""Secrets that have to be sent again, such as an engine's token: encrypted in the database, never shown.

They are encrypted under the installation's key in force, and read under that and its fallbacks.
"""

from __future__ import annotations

import base64
from typing import Any

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings
from django.db import models
from django.utils.crypto import salted_hmac

from engine.redaction import note_secret

__all__ = ["SealedField", "SecretLost", "is_sealed_anew", "seal_secret", "unseal_secret"]


class SecretLost(Exception):
    """A secret was sealed under another key of the installation; it has to be given again."""


def seal_secret(secret: str, purpose: str) -> str:
    """Encrypt under a key derived from the installation's; empty stays empty."""
    note_secret(secret)
    return _ciphers(purpose).encrypt(secret.encode()).decode("ascii") if secret else ""


def unseal_secret(sealed: str, purpose: str) -> str:
    """The secret that `seal_secret` encrypted.

    Raises
    ------
    SecretLost
        The installation's key is another one by now, or the text was altered.
    """
    if not sealed:
        return ""
    try:
        secret = _ciphers(purpose).decrypt(sealed.encode("ascii")).decode()
    except (InvalidToken, UnicodeError):
        raise SecretLost("it was encrypted under another secret key of this installation") from None
    note_secret(secret)
    return secret


def is_sealed_anew(sealed: str, purpose: str) -> bool:
    """Whether a secret is encrypted under the key in force, and would outlive those of before."""
    try:
        _cipher(purpose, settings.SECRET_KEY).decrypt(sealed.encode("ascii"))
    except (InvalidToken, UnicodeError):
        return not sealed
    return True


class SealedField(models.TextField):
    """A secret as `seal_secret` encrypts it for a purpose; a rotation of keys finds it by this class."""

    def __init__(self, *args: Any, purpose: str = "", **options: Any) -> None:
        super().__init__(*args, **options)
        self.purpose = purpose

    def deconstruct(self) -> Any:
        name, _, args, options = super().deconstruct()
        return name, "django.db.models.TextField", args, options  # of its column: a migration need not know more


def _ciphers(purpose: str) -> MultiFernet:
    return MultiFernet([_cipher(purpose, key) for key in (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)])


def _cipher(purpose: str, key: str) -> Fernet:
    derived = salted_hmac(f"sluice.secrets.{purpose}", "fernet", secret=key, algorithm="sha256").digest()
    return Fernet(base64.urlsafe_b64encode(derived))
