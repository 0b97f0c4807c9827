"""Deliveries of reports: links, mails with files, and signed messages to webhooks."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.mail import EmailMultiAlternatives
from django.template.loader import render_to_string

from apps.core.deliveries import Channel, Courier
from apps.core.events import announce
from apps.core.keys import derived_secret
from apps.core.limits import MAX_ATTACHMENT_BYTES
from apps.core.messages import Gone, post_signed, send_mail
from apps.reports.choices import FORMATS
from apps.reports.lifecycle import REPORT, report_facts, report_file, report_file_name
from apps.reports.models import Delivery, Report, Webhook

__all__ = ["api_links", "deliveries_send_due", "delivery_send_again", "webhook_secret"]


def api_links(report: Report) -> dict[str, str]:
    """Its page, its REST resource, and its files."""
    base = settings.PUBLIC_URL + REPORT.address(report)
    return {
        "page": settings.PUBLIC_URL + REPORT.page(report),
        "self": base,
        **{name: f"{base}/{name}" for name in FORMATS},
    }


_KEY = "sluice.reports.webhook"


def webhook_secret(webhook: Webhook) -> str:
    """Key that signs messages to a webhook, by its salt. Raises Conflict as `derived_secret` does."""
    return derived_secret(_KEY, f"{webhook.pk}:{webhook.salt}")


def send_email(delivery: Delivery) -> None:
    """Mail the report. A repeated delivery has the same Message-ID. Raises as `send_mail`."""
    send_mail(lambda connection: _mail(delivery, connection))


def _mail(delivery: Delivery, connection: Any) -> EmailMultiAlternatives:
    report = delivery.report
    facts = report_facts(report)
    assert facts is not None  # finished reports alone are sent
    attached = [kind for kind in FORMATS if kind in report.definition.formats]
    context = {
        "facts": facts,
        "link": settings.PUBLIC_URL + REPORT.page(report) if settings.PUBLIC_URL else "",
        "attached": ", ".join(kind.upper() for kind in attached),
    }
    subject = " ".join(f"{facts.name}, {facts.cluster.name}: {facts.finding}".split())  # one line
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
        data = report_file(report, kind)
        if data is not None and len(data) <= MAX_ATTACHMENT_BYTES:
            message.attach(report_file_name(report, kind), data, FORMATS[kind][0].partition(";")[0])
    return message


def send_webhook(delivery: Delivery) -> None:
    """Tell a webhook of the report: what it found and where it is. Raises as `post` does."""
    if delivery.webhook is None:
        raise Gone("The webhook was deleted.")
    secret = webhook_secret(delivery.webhook)
    post_signed(delivery.target, _message(delivery), number=str(delivery.pk), secret=secret)


def _message(delivery: Delivery) -> dict[str, object]:
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


def _announce(delivery: Delivery) -> None:
    announce(f"report:{delivery.report_id}")
    announce("reports")


_courier = Courier(
    rows=lambda: Delivery.objects.select_related("report__definition__cluster", "webhook"),
    send={Channel.EMAIL: send_email, Channel.WEBHOOK: send_webhook},
    announce=_announce,
)


def deliveries_send_due() -> int:
    """Send every delivery whose time has come; returns how many arrived."""
    return _courier.send_due()


def delivery_send_again(*, delivery: Delivery) -> Delivery:
    """Try a delivery anew, from the first try on; one that arrived is sent a second time.

    Raises
    ------
    Conflict
        A worker is sending it at this moment.
    """
    _courier.send_again(delivery)
    return delivery
