"""Mail: whom it may go to, and what a server's answer means for another try."""

from __future__ import annotations

import smtplib
from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.mail import EmailMultiAlternatives, get_connection
from django.core.validators import validate_email

from apps.core.errors import Fault
from apps.core.sending import Gone, Undelivered

__all__ = ["email_faults", "mail"]

_NO_SERVER = "No mail server is configured: set SLUICE_EMAIL_URL (Operations)."
_TIMEOUT_S = 20
_MOST_EMAILS = 50


def email_faults(emails: Any) -> list[Fault]:
    """Every entry has to be an address; line breaks in one would write other people's headers."""
    if not isinstance(emails, list) or len(emails) > _MOST_EMAILS:
        return [Fault("emails", f"allowed is a list of at most {_MOST_EMAILS} mail addresses")]
    faults = []
    for index, one in enumerate(emails):
        try:
            validate_email(one)
        except (ValidationError, TypeError):
            faults.append(Fault(f"emails[{index}]", f"{one!r} is not a mail address"))
    if len({str(one).lower() for one in emails}) < len(emails):
        faults.append(Fault("emails", "an address is there twice"))
    return faults


def mail(made: Callable[[Any], EmailMultiAlternatives]) -> None:
    """Send the message that `made` makes for a connection.

    Raises
    ------
    Undelivered
        The server is away or puts it off.
    Gone
        There is no server, or it refuses the address or the message for good.
    """
    if not settings.EMAIL_CONFIGURED:
        raise Gone(_NO_SERVER)
    try:
        with get_connection(timeout=_TIMEOUT_S) as connection:
            made(connection).send()
    except smtplib.SMTPRecipientsRefused as error:
        code, text = next(iter(error.recipients.values()))
        raise (Gone if code >= 550 else Undelivered)(
            f"The mail server refuses the address: {code} {_said(text)}"
        ) from None
    except smtplib.SMTPDataError as error:
        kind = Gone if error.smtp_code >= 550 else Undelivered
        raise kind(f"The mail server refuses the message: {error.smtp_code} {_said(error.smtp_error)}") from None
    except (smtplib.SMTPException, OSError) as error:
        where = f"{settings.EMAIL_HOST}:{settings.EMAIL_PORT}"
        raise Undelivered(f"The mail server {where} does not take it: {error or type(error).__name__}") from None


def _said(text: bytes | str) -> str:
    return text.decode("utf-8", "replace") if isinstance(text, bytes) else text
