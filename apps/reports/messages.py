"""What readers get: the mail with its files, and the signed message to a webhook."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.mail import EmailMultiAlternatives
from django.template.loader import render_to_string

from apps.core.mailing import mail
from apps.core.sending import Gone, post_signed
from apps.reports.choices import FORMATS
from apps.reports.files import file_name, file_of
from apps.reports.links import api_links, page_url
from apps.reports.models import Delivery
from apps.reports.outline.build import title_lines
from apps.reports.signing import webhook_secret
from apps.reports.writing import report_facts

__all__ = ["send_email", "send_webhook"]

_LARGEST_FILE = 15_000_000  # many servers refuse more; the link still leads to it


def send_email(delivery: Delivery) -> None:
    """Mail the report. The same delivery always has the same Message-ID: a repeat is known as one. Raises as `mail`."""
    mail(lambda connection: _mail(delivery, connection))


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
    message = EmailMultiAlternatives(
        subject=subject[:180],
        body=render_to_string("reports/mail.txt", context),
        from_email=settings.DEFAULT_FROM_EMAIL,
        to=[delivery.target],
        connection=connection,
        headers={"Message-ID": f"<{report.pk}.{delivery.pk}@sluice>", "Auto-Submitted": "auto-generated"},
    )
    message.attach_alternative(render_to_string("reports/mail.html", context), "text/html")
    for kind in attached:
        data = file_of(report, kind)
        if data is not None and len(data) <= _LARGEST_FILE:
            message.attach(file_name(report, kind), data, FORMATS[kind][0].partition(";")[0])
    return message


def send_webhook(delivery: Delivery) -> None:
    """Tell a webhook of the report: what it found and where it is. Raises as `post` does."""
    if delivery.webhook is None:
        raise Gone("The webhook was deleted.")
    secret = webhook_secret(delivery.webhook)
    post_signed(delivery.target, _message(delivery), number=str(delivery.pk), secret=secret)


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
