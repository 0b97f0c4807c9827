"""Second factor of local accounts: codes of an authenticator app (TOTP, RFC 6238), and recovery codes.

An account at the provider has the factors that the provider asks for.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass

import pyotp
import segno
from django.conf import settings
from django.db import transaction
from django.utils import timezone

from apps.accounts.choices import ROLE_SCOPES
from apps.accounts.models import User
from apps.core.errors import Conflict, Forbidden, Malformed
from apps.core.secrets import SecretLost, seal_secret, unseal_secret
from apps.ledger.recorder import recorded
from apps.signin.models import FACTOR_PURPOSE, RecoveryCode, SecondFactor
from engine.redaction import note_secret

__all__ = [
    "FactorEnrolment",
    "code_taken",
    "enrolment_of",
    "has_second_factor",
    "needs_second_factor",
    "recovery_codes_left",
    "recovery_codes_renew",
    "second_factor_confirm",
    "second_factor_remove",
]

_STEP_S = 30
_WINDOW = (0, -1, 1)  # steps: a clock of a phone may be off by half a minute
_CODES = 10
_ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"  # what is not mistaken for another when it is read


@dataclass(frozen=True)
class FactorEnrolment:
    """Key of an authenticator app, shown until a first code confirms it."""

    secret: str
    picture: str  #: an SVG


def has_second_factor(user: User) -> bool:
    """Whether a code is asked for after the password."""
    return SecondFactor.objects.filter(user=user, confirmed_at__isnull=False).exists()


def needs_second_factor(user: User) -> bool:
    """Whether a role that the person has somewhere asks for one (`SLUICE_SECOND_FACTOR_ROLES`)."""
    return any(ROLE_SCOPES[role] <= user.scopes for role in settings.SECOND_FACTOR_ROLES)


def enrolment_of(user: User) -> FactorEnrolment:
    """The present enrolment, or a new one.

    Raises
    ------
    Conflict
        There is a second factor already.
    """
    factor = SecondFactor.objects.filter(user=user).first()
    if factor is not None and factor.confirmed_at is not None:
        raise Conflict("You have a second factor already. Remove it before you set up another one.")
    secret = ""
    if factor is not None:
        try:
            secret = unseal_secret(factor.secret, FACTOR_PURPOSE)
        except SecretLost:
            factor.delete()
    if not secret:
        secret = pyotp.random_base32()
        SecondFactor.objects.update_or_create(user=user, defaults={"secret": seal_secret(secret, FACTOR_PURPOSE)})
    uri = pyotp.TOTP(secret).provisioning_uri(name=user.username, issuer_name="Sluice")
    return FactorEnrolment(secret, segno.make(uri, error="m").svg_inline(scale=4, border=3, light="white"))


@recorded()
def second_factor_confirm(*, user: User, code: str) -> list[str]:
    """Take the first code of the app; from now on one is asked for. Returns the recovery codes, which are shown once.

    Raises
    ------
    Malformed
        The code is not the app's.
    """
    factor = SecondFactor.objects.filter(user=user, confirmed_at__isnull=True).first()
    if factor is None or not _app_code_taken(factor, code):
        raise Malformed("The second factor is not set up.", [("code", _WRONG)])
    factor.confirmed_at = timezone.now()
    factor.save(update_fields=["confirmed_at"])
    return recovery_codes_renew(user=user)


@recorded()
def second_factor_remove(*, user: User, by: User | None = None) -> None:
    """Ask for no code any more. `by` an administrator, or nobody on the command line, for somebody who lost the app.

    Raises
    ------
    Forbidden
        One's own, where the role asks for one.
    """
    if by is not None and by.pk == user.pk and needs_second_factor(user):
        raise Forbidden("Your role needs a second factor. An administrator can remove it, so that you set up another.")
    SecondFactor.objects.filter(user=user).delete()
    RecoveryCode.objects.filter(user=user).delete()


@transaction.atomic
def recovery_codes_renew(*, user: User) -> list[str]:
    """New recovery codes, in the place of those before."""
    codes = ["-".join(_random_group() for _ in range(4)) for _ in range(_CODES)]
    RecoveryCode.objects.filter(user=user).delete()
    RecoveryCode.objects.bulk_create(RecoveryCode(user=user, digest=_digest(code)) for code in codes)
    for code in codes:
        note_secret(code)
    return codes


def recovery_codes_left(user: User) -> int:
    """Recovery codes that have not been used."""
    return RecoveryCode.objects.filter(user=user, used_at__isnull=True).count()


def code_taken(user: User, code: str) -> bool:
    """Whether a code is the app's, or a recovery code; each counts once. Who asks has counted the attempt."""
    unused = RecoveryCode.objects.filter(user=user, digest=_digest(code), used_at__isnull=True)
    if unused.update(used_at=timezone.now()):
        return True
    factor = SecondFactor.objects.filter(user=user, confirmed_at__isnull=False).first()
    return factor is not None and _app_code_taken(factor, code)


_WRONG = "this is not the code that the app shows now; check the clock of the phone"


def _app_code_taken(factor: SecondFactor, code: str) -> bool:
    """RFC 6238, section 5.2: a code is taken once. Of two requests with the same one, one update succeeds."""
    try:
        totp = pyotp.TOTP(unseal_secret(factor.secret, FACTOR_PURPOSE))
    except SecretLost:
        words = "The second factor can no longer be read. Use a recovery code, or ask an administrator."
        raise Forbidden(words) from None
    typed = "".join(code.split()).encode()
    now = int(timezone.now().timestamp()) // _STEP_S
    steps = [now + offset for offset in _WINDOW if hmac.compare_digest(totp.generate_otp(now + offset).encode(), typed)]
    unused = SecondFactor.objects.filter(pk=factor.pk, last_step__lt=steps[0]) if steps else None
    return bool(unused is not None and unused.update(last_step=steps[0]))


def _random_group() -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(4))


def _digest(code: str) -> str:
    """A plain hash is enough: a code has 79 random bits."""
    letters = "".join(letter for letter in code.lower() if letter in _ALPHABET)
    return hashlib.sha256(letters.encode()).hexdigest()
