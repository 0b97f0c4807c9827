"""What readers get: the mail with its files, and the signed message to a webhook."""

from __future__ import annotations

import hashlib
import hmac
import json
import smtplib
import time
from typing import Any

from django.conf import settings
from django.core.mail import EmailMultiAlternatives, get_connection
from django.template.loader import render_to_string

from apps.reports.choices import FORMATS
from apps.reports.files import file_name, file_of
from apps.reports.links import api_links, page_url
from apps.reports.models import Delivery
from apps.reports.outline.build import title_lines
from apps.reports.sending import Gone, Undelivered, post
from apps.reports.signing import webhook_secret
from apps.reports.writing import report_facts

__all__ = ["NO_SERVER", "send_email", "send_webhook", "signature"]

NO_SERVER = "No mail server is configured: set SLUICE_EMAIL_URL, then send it again."
_TIMEOUT_S = 20
_LARGEST_FILE = 15_000_000  # many servers refuse more; the link still leads to it


def send_email(delivery: Delivery) -> None:
    """Mail the report. The same delivery always has the same Message-ID: a repeat is known as one.

    Raises
    ------
    Undelivered
        The server is away or puts it off.
    Gone
        There is no server, or it refuses the address or the message for good.
    """
    if not settings.EMAIL_CONFIGURED:
        raise Gone(NO_SERVER)
    try:
        with get_connection(timeout=_TIMEOUT_S) as connection:
            _mail(delivery, connection).send()
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


def _mail(delivery: Delivery, connection: Any) -> EmailMultiAlternatives:
    report = delivery.report
    facts = report_facts(report) or {}
    attached = [kind for kind in FORMATS if kind in report.definition.formats]
    context = {
        "facts": facts,
        "title": title_lines(facts),
        "link": page_url(report) if settings.PUBLIC_URL else "",
        "attached": ", ".join(kind.upper() for kind in attached),
    }
    subject = " ".join(f"{facts['name']}, {facts['cluster']['name']}: {facts['finding']}".split())  # one line
    mail = EmailMultiAlternatives(
        subject=subject[:180],
        body=render_to_string("reports/mail.txt", context),
        from_email=settings.DEFAULT_FROM_EMAIL,
        to=[delivery.target],
        connection=connection,
        headers={"Message-ID": f"<{report.pk}.{delivery.pk}@sluice>", "Auto-Submitted": "auto-generated"},
    )
    mail.attach_alternative(render_to_string("reports/mail.html", context), "text/html")
    for kind in attached:
        data = file_of(report, kind)
        if data is not None and len(data) <= _LARGEST_FILE:
            mail.attach(file_name(report, kind), data, FORMATS[kind][0].partition(";")[0])
    return mail


def send_webhook(delivery: Delivery) -> None:
    """Tell a webhook of the report: what it found and where it is. Raises as `post` does."""
    if delivery.webhook is None:
        raise Gone("The webhook was deleted.")
    body = json.dumps(_message(delivery), separators=(",", ":")).encode()
    moment = int(time.time())
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "Sluice",
        "Sluice-Delivery": str(delivery.pk),
        "Sluice-Signature": signature(webhook_secret(delivery.webhook), moment, body),
    }
    post(delivery.target, body, headers)


def signature(secret: str, moment: int, body: bytes) -> str:
    """`t=1790000000,v1=…`: HMAC-SHA256 of the time, a dot, and the body. The time keeps old messages from counting."""
    digest = hmac.new(secret.encode(), f"{moment}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={moment},v1={digest}"


def _message(delivery: Delivery) -> dict[str, Any]:
    report = delivery.report
    definition = report.definition
    return {
        "event": "report.ready",
        "delivery": delivery.pk,
        "report": {
            "id": str(report.pk),
            "name": definition.name,
            "kind": definition.kind,
            "cluster": definition.cluster.slug,
            "finding": report.finding,
            "trigger": report.trigger,
            "due_at": report.due_at.isoformat() if report.due_at else None,
            "covers_until": report.covers_until.isoformat(),
        },
        "links": api_links(report),
    }


def _said(text: bytes | str) -> str:
    return text.decode("utf-8", "replace") if isinstance(text, bytes) else text
