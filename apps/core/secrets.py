"""Secrets that have to be sent again, such as an engine's token: encrypted in the database, never shown."""

from __future__ import annotations

import base64

from cryptography.fernet import Fernet, InvalidToken
from django.utils.crypto import salted_hmac

from engine.redaction import note_secret

__all__ = ["SecretLost", "seal_secret", "unseal_secret"]


class SecretLost(Exception):
    """A secret was sealed under another key of the installation; it has to be given again."""


def seal_secret(secret: str, purpose: str) -> str:
    """Encrypt under a key derived from the installation's; empty stays empty."""
    note_secret(secret)
    return _cipher(purpose).encrypt(secret.encode()).decode("ascii") if secret else ""


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
        secret = _cipher(purpose).decrypt(sealed.encode("ascii")).decode()
    except (InvalidToken, UnicodeError):
        raise SecretLost("it was encrypted under another secret key of this installation") from None
    note_secret(secret)
    return secret


def _cipher(purpose: str) -> Fernet:
    key = salted_hmac(f"sluice.secrets.{purpose}", "fernet", algorithm="sha256").digest()
    return Fernet(base64.urlsafe_b64encode(key))
