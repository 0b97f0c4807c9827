"""Reports on their way: a real mail server, a real web server, and both of them away."""

from __future__ import annotations

import hashlib
import hmac
import json
import socket
from collections.abc import Callable
from datetime import timedelta
from email import message_from_string
from typing import Any

import pytest
from django.utils import timezone

from apps.core import messages
from apps.core.deliveries import PAUSES_MIN, DeliveryState
from apps.core.errors import Malformed
from apps.core.messages import Gone, Undelivered, address_faults, post_webhook
from apps.reports.deliveries import deliveries_send_due, delivery_send_again, webhook_secret
from apps.reports.lifecycle import REPORT
from apps.reports.models import Delivery, Report, ReportDefinition
from apps.reports.services import definition_update, webhook_create, webhook_delete
from tests.servers import PATIENCE_S

pytestmark = pytest.mark.django_db

Write = Callable[[Report], Report]


def later(minutes: float) -> None:
    """As if so many minutes had passed."""
    for row in Delivery.objects.exclude(next_try_at=None):
        Delivery.objects.filter(pk=row.pk).update(next_try_at=row.next_try_at - timedelta(minutes=minutes))


def test_mail_has_text_html_and_attachments(definition: ReportDefinition, write: Write, mailbox: Any) -> None:
    definition_update(definition=definition, emails=["ops@example.org"], formats=["pdf", "csv"])
    report = write(REPORT.request(definition=definition)[0])
    assert deliveries_send_due() == 1
    assert deliveries_send_due() == 0, "sent once"
    assert mailbox.recipients == ["ops@example.org"]
    mail = message_from_string(mailbox.mails[0])
    kinds = [part.get_content_type() for part in mail.walk() if not part.is_multipart()]
    assert kinds == ["text/plain", "text/html", "application/pdf", "application/zip"]
    assert mail["Message-ID"] == f"<{report.pk}.{report.deliveries.get().pk}@sluice>"
    text = next(part for part in mail.walk() if part.get_content_type() == "text/plain")
    assert "1 of 2 objectives hold; late is expected to be over." in text.get_payload(decode=True).decode()
    assert report.deliveries.get().state == DeliveryState.SENT


def test_unreachable_mail_server_is_retried_for_a_day(
    definition: ReportDefinition, write: Write, mailbox: Any, settings: Any, closed_port: int
) -> None:
    definition_update(definition=definition, emails=["ops@example.org"])
    settings.EMAIL_PORT = closed_port
    report = write(REPORT.request(definition=definition)[0])
    for attempt, pause in enumerate(PAUSES_MIN, start=1):
        assert deliveries_send_due() == 0
        row = report.deliveries.get()
        assert (row.state, row.attempts) == (DeliveryState.WAITING, attempt)
        assert f"127.0.0.1:{closed_port}" in row.last_error
        assert row.next_try_at is not None
        assert abs(row.next_try_at - timezone.now() - timedelta(minutes=pause)) < timedelta(seconds=20)
        later(pause)
    deliveries_send_due()
    row = report.deliveries.get()
    assert row.state == DeliveryState.FAILED
    assert "Given up after 8 tries" in row.last_error
    settings.EMAIL_PORT = mailbox.port
    delivery_send_again(delivery=row)
    assert deliveries_send_due() == 1
    assert len(mailbox.mails) == 1


def test_a_refused_address_and_a_missing_server_are_final(
    definition: ReportDefinition, write: Write, mailbox: Any, settings: Any
) -> None:
    definition_update(definition=definition, emails=["nobody@example.org"])
    mailbox.refuse = "550 no such person"
    report = write(REPORT.request(definition=definition)[0])
    deliveries_send_due()
    row = report.deliveries.get()
    assert (row.state, "550 no such person" in row.last_error) == (DeliveryState.FAILED, True)
    settings.EMAIL_CONFIGURED = False
    deliveries_send_due()
    delivery_send_again(delivery=row)
    deliveries_send_due()
    row.refresh_from_db()
    assert "No mail server is configured" in row.last_error


def test_a_webhook_gets_a_signed_message(definition: ReportDefinition, write: Write, hook: Any) -> None:
    made = webhook_create(cluster=definition.cluster, name="chat", url=hook.url)
    definition_update(definition=definition, webhooks=[made])
    report = write(REPORT.request(definition=definition)[0])
    assert deliveries_send_due() == 1
    headers, body = hook.requests[0]
    moment, digest = (part.partition("=")[2] for part in headers["Sluice-Signature"].split(","))
    expected = hmac.new(webhook_secret(made).encode(), f"{moment}.".encode() + body, hashlib.sha256).hexdigest()
    assert digest == expected
    told = json.loads(body)
    assert told["event"] == "report.ready"
    assert told["report"]["finding"] == report.finding
    assert told["links"]["pdf"].endswith(f"/api/v1/reports/{report.pk}/pdf")


@pytest.mark.parametrize(
    ("status", "state", "said"),
    [
        (500, "waiting", "answered 500"),
        (302, "waiting", "redirects are not followed"),
        (410, "failed", "gone for good"),
    ],
)
def test_response_of_a_webhook_decides_between_retry_and_failure(
    definition: ReportDefinition, write: Write, hook: Any, status: int, state: str, said: str
) -> None:
    definition_update(
        definition=definition, webhooks=[webhook_create(cluster=definition.cluster, name="chat", url=hook.url)]
    )
    hook.status = status
    report = write(REPORT.request(definition=definition)[0])
    deliveries_send_due()
    row = report.deliveries.get()
    assert (row.state, len(hook.requests)) == (state, 1)
    assert said in row.last_error


def test_private_addresses_are_refused_unless_allowed(settings: Any, definition: ReportDefinition) -> None:
    settings.WEBHOOK_PRIVATE = False
    inside = [
        "http://127.0.0.1/x",
        "http://10.1.2.3/",
        "http://[::1]/",
        "http://169.254.169.254/",
        "http://[::ffff:10.0.0.1]/",
        "http://[2002:0a00:0001::1]/",
        "http://[64:ff9b::a00:1]/",
    ]
    for url in inside:
        assert "private network" in address_faults(url)[0].message, url
    with pytest.raises(Gone, match="private network"):
        post_webhook("http://localhost:9/", b"{}", {})
    for url in ("ftp://example.org/", "http://", "https://me:pw@example.org/", "http://a b/", "http://x:99999/", 3):
        assert address_faults(url), url
    with pytest.raises(Malformed):
        webhook_create(cluster=definition.cluster, name="in", url="http://192.168.0.1/")


def test_webhook_that_stalls_the_handshake_is_cut_off(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.WEBHOOK_PRIVATE = True
    monkeypatch.setattr(messages, "MAX_DURATION_S", 0.3)
    monkeypatch.setattr(messages, "TIMEOUT_S", PATIENCE_S)
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(Undelivered, match="did not answer") as cut:
        post_webhook(f"https://127.0.0.1:{silent.getsockname()[1]}/", b"{}", {})
    assert "timed out" not in str(cut.value)


def test_a_deleted_webhook_ends_its_deliveries(definition: ReportDefinition, write: Write, hook: Any) -> None:
    made = webhook_create(cluster=definition.cluster, name="chat", url=hook.url)
    definition_update(definition=definition, webhooks=[made])
    report = write(REPORT.request(definition=definition)[0])
    webhook_delete(webhook=made)
    deliveries_send_due()
    assert report.deliveries.get().state == DeliveryState.FAILED
    assert not hook.requests


def test_delivery_is_made_once_when_a_worker_is_killed(
    definition: ReportDefinition, write: Write, mailbox: Any
) -> None:
    """The lease of a worker that died while sending ends; what it had taken is sent by the next one, once."""
    definition_update(definition=definition, emails=["ops@example.org"])
    report = write(REPORT.request(definition=definition)[0])
    row = report.deliveries.get()
    Delivery.objects.filter(pk=row.pk).update(
        state=DeliveryState.SENDING, attempts=1, next_try_at=timezone.now() + timedelta(minutes=2)
    )
    assert deliveries_send_due() == 0, "its worker may still be alive"
    later(3)
    assert deliveries_send_due() == 1
    assert len(mailbox.mails) == 1
    assert report.job is not None
    REPORT.keep(report, None, report.job)  # as a job that is done again would
    assert report.deliveries.count() == 1
    assert deliveries_send_due() == 0


def test_delivery_that_kills_every_worker_is_abandoned(
    definition: ReportDefinition, write: Write, mailbox: Any
) -> None:
    definition_update(definition=definition, emails=["ops@example.org"])
    report = write(REPORT.request(definition=definition)[0])
    ended = {"state": DeliveryState.SENDING, "attempts": len(PAUSES_MIN) + 1, "next_try_at": timezone.now()}
    Delivery.objects.filter(report=report).update(**ended)
    assert deliveries_send_due() == 0
    row = report.deliveries.get()
    assert (row.state, row.last_error) == (DeliveryState.FAILED, "Given up after 8 tries: its worker ended.")
    assert not mailbox.mails
