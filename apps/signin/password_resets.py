"""Another password by a link that is mailed: for an hour, and once.

Nobody learns from it whether there is an account: what is asked for is looked up by a worker, after the same answer.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from celery import current_app
from django.conf import settings
from django.contrib.auth.tokens import PasswordResetTokenGenerator
from django.core.mail import EmailMultiAlternatives
from django.db.models import Q
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.http import urlsafe_base64_decode, urlsafe_base64_encode
from kombu.exceptions import OperationalError as BrokerError

from apps.accounts.models import User
from apps.accounts.services import password_set
from apps.core.errors import Missing, Unavailable
from apps.core.messages import Gone, Undelivered, send_mail
from apps.signin.local_accounts import is_local_account
from apps.signin.sessions import sessions_end
from engine.redaction import note_secret

__all__ = [
    "RESET_TASK",
    "can_mail_links",
    "password_reset",
    "password_reset_request",
    "password_reset_send",
    "person_of_reset",
]

RESET_TASK = "workers.send_password_reset"
_PREFIX = "slr_"
_MAX_MAILS = 5  # accounts with one address


class _ResetTokens(PasswordResetTokenGenerator):
    """Django's tokens, dated in UTC.

    Django dates them in the local time of the process. A link that was mailed in the hour before clocks go back would
    work for two hours, one of the hour before they go forward not at all, and two processes with different zones would
    disagree on every link.
    """

    def _now(self) -> datetime:
        return datetime.now(UTC).replace(tzinfo=None)


_RESETS = _ResetTokens()


def can_mail_links() -> bool:
    """Whether links are mailed: it needs a mail server, and the address of the console, which no request may name."""
    return bool(settings.EMAIL_CONFIGURED and settings.PUBLIC_URL)


def password_reset_request(name: str) -> None:
    """Have a worker look whether a user name or an address is somebody's, and mail them a link."""
    try:
        current_app.send_task(RESET_TASK, args=[name], retry=False, queue=settings.INTERACTIVE_QUEUE)
    except (BrokerError, OSError):
        raise Unavailable("No mail can be sent just now. Try again in a minute.") from None


def password_reset_send(name: str) -> int:
    """Mail a link to those that a user name or an address belongs to; returns how many mails have left."""
    same = Q(username__iexact=name) | Q(email__iexact=name)
    people = User.objects.filter(same, is_active=True).exclude(email="").order_by("pk")
    sent = 0
    for user in [user for user in people if user.has_usable_password() and is_local_account(user)][:_MAX_MAILS]:
        with suppress(Undelivered, Gone):
            send_mail(lambda connection, user=user: _mail(user, connection))  # type: ignore[misc]
            sent += 1
    return sent


def person_of_reset(token: str) -> User:
    """The person whose password a link sets.

    Raises
    ------
    Missing
        The link was used, has expired, or is none.
    """
    number, _, rest = token.removeprefix(_PREFIX).partition("-")
    with suppress(ValueError, UnicodeError, User.DoesNotExist):
        user = User.objects.get(pk=int(urlsafe_base64_decode(number).decode()), is_active=True)
        if token.startswith(_PREFIX) and is_local_account(user) and _RESETS.check_token(user, rest):
            return user
    raise Missing("This link was used, or has expired: it works for an hour and once. Ask for another one.")


def password_reset(*, token: str, password: str) -> User:
    """Set the password that a link is for. Every session of the person ends, and the link with them."""
    user = password_set(user=person_of_reset(token), password=password, by=None)
    sessions_end(user=user)
    return user


def _mail(user: User, connection: Any) -> EmailMultiAlternatives:
    number = urlsafe_base64_encode(str(user.pk).encode())
    token = f"{_PREFIX}{number}-{_RESETS.make_token(user)}"
    note_secret(token)
    link = settings.PUBLIC_URL + reverse("signin:reset", args=[token])
    return EmailMultiAlternatives(
        subject="Another password for Sluice",
        body=render_to_string("signin/reset_mail.txt", {"person": user, "link": link}),
        from_email=settings.DEFAULT_FROM_EMAIL,
        to=[user.email],
        connection=connection,
    )
