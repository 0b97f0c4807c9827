"""Incidents are reported to a real mail server and a real web server, each change once, and tried again."""

from __future__ import annotations

import hashlib
import hmac
import json
from datetime import timedelta
from email import message_from_string
from typing import Any

import pytest
from django.utils import timezone

from apps.core.deliveries import PAUSES_MIN, DeliveryState
from apps.core.errors import Malformed
from apps.fleet.models import Cluster
from apps.fleet.services import cluster_create
from apps.incidents.models import IncidentDelivery
from apps.incidents.notices import incident_deliveries_send_due
from apps.incidents.refresh import CLEAR_S
from apps.incidents.services import incident_acknowledge, incident_routing_update
from apps.jobs.models import JobKind
from apps.reports.deliveries import webhook_secret
from apps.reports.models import Webhook
from tests.apps.incidents.states import STREAM, after, late, well
from tests.apps.small_cluster import run_jobs, start_query

pytestmark = [pytest.mark.django_db, pytest.mark.moment]

OPS = "ops@example.org"


def webhook_of(cluster: Cluster, url: str, name: str = "pager") -> Webhook:
    return Webhook.objects.create(cluster=cluster, name=name, url=url, salt="s")


def text_of(mail: str) -> tuple[str, str]:
    parsed = message_from_string(mail)
    return str(parsed["Subject"]), parsed.get_payload(decode=True).decode("latin-1").replace("\xa0", " ")


def test_mail_is_sent_when_it_opens_and_when_it_is_resolved(cluster: Cluster, mailbox: Any) -> None:
    incident_routing_update(cluster=cluster, emails=[OPS])
    late(cluster, "one", STREAM)
    late(cluster, "two", STREAM)
    for seconds in (0, 15, 30):
        after(cluster, seconds)
    assert incident_deliveries_send_due() == 1, "one message, however often it was looked at"
    subject, text = text_of(mailbox.mails[0])
    assert subject == f"Critical: The stream processor is behind ({cluster.slug})"
    assert "The stream processor is 71 s behind: 4,812 frames wait for it." in text
    assert "- one: measured 78.7 s over the last 10 min against 15 s" in text and "- two:" in text
    well(cluster, "one")
    well(cluster, "two")
    after(cluster, 30 + CLEAR_S)
    assert incident_deliveries_send_due() == 1
    subject, text = text_of(mailbox.mails[1])
    assert subject.startswith("Resolved: ") and "It is resolved" in text
    assert mailbox.recipients == [OPS, OPS]
    assert len({message_from_string(mail)["Message-ID"] for mail in mailbox.mails}) == 2


def test_mail_of_what_is_late_by_its_estimate_waits_for_what_helps(cluster: Cluster, mailbox: Any) -> None:
    incident_routing_update(cluster=cluster, emails=[OPS])
    start_query(cluster, "four", 0.9, "a")
    late(cluster, "four", {"kind": "node_busy", "subject": "a"}, decided_by="estimate", measured_s=None, bound_s=2.0)
    after(cluster, 0)
    assert [job.error for job in run_jobs() if job.kind == JobKind.REMEDIES] == [None]
    assert incident_deliveries_send_due() == 1
    text = text_of(mailbox.mails[0])[1]
    assert "keeps the objective of four" in text and "1. Move four/work to b" in text
    well(cluster, "four", decided_by="estimate")
    after(cluster, CLEAR_S)
    assert incident_deliveries_send_due() == 1 and "Move" not in text_of(mailbox.mails[1])[1]


def test_webhook_message_is_signed_json(cluster: Cluster, hook: Any) -> None:
    webhook = webhook_of(cluster, hook.url)
    incident_routing_update(cluster=cluster, webhooks=[webhook])
    late(cluster, "one", STREAM)
    (incident,) = after(cluster, 0)
    assert incident_deliveries_send_due() == 1
    (headers, body), delivery = hook.requests[0], IncidentDelivery.objects.get()
    says = json.loads(body)
    assert (says["event"], says["cluster"], says["incident"]["id"]) == ("incident.opened", cluster.slug, incident.pk)
    assert says["incident"]["cause"]["kind"] == "stream_behind" and says["incident"]["severity"] == "critical"
    (query,) = says["incident"]["queries"]
    assert (query["query"], query["worst_s"], query["is_late"]) == ("one", 78.7, True)
    assert says["links"]["page"].endswith(f"/c/{cluster.slug}/incidents/{incident.pk}/")
    assert headers["Sluice-Delivery"] == f"incident-{delivery.pk}"
    moment, _, digest = headers["Sluice-Signature"].removeprefix("t=").partition(",v1=")
    wanted = hmac.new(webhook_secret(webhook).encode(), f"{moment}.".encode() + body, hashlib.sha256).hexdigest()
    assert hmac.compare_digest(digest, wanted)


def test_only_critical_incidents_are_reported_unless_warnings_are_wanted(cluster: Cluster, hook: Any) -> None:
    webhook = webhook_of(cluster, hook.url)
    incident_routing_update(cluster=cluster, webhooks=[webhook])
    late(cluster, "one", STREAM, "at_risk")
    after(cluster, 0)
    assert incident_deliveries_send_due() == 0
    incident_routing_update(cluster=cluster, webhooks=[webhook], severity="warning")
    after(cluster, 15)
    late(cluster, "one", STREAM)
    after(cluster, 30)
    assert incident_deliveries_send_due() == 2
    events = [json.loads(body)["event"] for _, body in hook.requests]
    assert events == ["incident.opened", "incident.escalated"]


def test_nobody_is_told_of_the_end_who_was_not_told_of_the_beginning(cluster: Cluster, hook: Any) -> None:
    late(cluster, "one", STREAM)
    after(cluster, 0)
    well(cluster, "one")
    after(cluster, CLEAR_S)
    incident_routing_update(cluster=cluster, webhooks=[webhook_of(cluster, hook.url)])
    after(cluster, CLEAR_S + 15)
    assert incident_deliveries_send_due() == 0 and not IncidentDelivery.objects.exists()


def test_delivery_that_fails_is_tried_again_by_the_usual_pauses(cluster: Cluster, hook: Any) -> None:
    incident_routing_update(cluster=cluster, webhooks=[webhook_of(cluster, hook.url)])
    hook.status = 503
    late(cluster, "one", STREAM)
    after(cluster, 0)
    assert incident_deliveries_send_due() == 0
    delivery = IncidentDelivery.objects.get()
    assert delivery.state == DeliveryState.WAITING and "503" in delivery.last_error
    pause_s = (delivery.next_try_at - timezone.now()).total_seconds()
    assert 60 * PAUSES_MIN[0] - 10 < pause_s <= 60 * PAUSES_MIN[0]
    hook.status = 200
    IncidentDelivery.objects.update(next_try_at=timezone.now() - timedelta(seconds=1))
    assert incident_deliveries_send_due() == 1 and len(hook.requests) == 2
    assert hook.requests[0][1] == hook.requests[1][1], "a repeat says the same, whatever has become of the incident"


def test_address_in_a_private_network_is_refused(cluster: Cluster, hook: Any, settings: Any) -> None:
    incident_routing_update(cluster=cluster, webhooks=[webhook_of(cluster, hook.url)])
    settings.WEBHOOK_PRIVATE = False
    late(cluster, "one", STREAM)
    after(cluster, 0)
    assert incident_deliveries_send_due() == 0 and hook.requests == []
    delivery = IncidentDelivery.objects.get()
    assert delivery.state == DeliveryState.FAILED and "private network" in delivery.last_error


def test_deleted_webhook_ends_its_deliveries(cluster: Cluster, hook: Any) -> None:
    webhook = webhook_of(cluster, hook.url)
    incident_routing_update(cluster=cluster, webhooks=[webhook])
    late(cluster, "one", STREAM)
    after(cluster, 0)
    webhook.delete()
    assert incident_deliveries_send_due() == 0
    assert IncidentDelivery.objects.get().last_error == "The webhook was deleted."


def test_routing_names_every_fault(cluster: Cluster) -> None:
    other = cluster_create(slug="other", name="Other")
    with pytest.raises(Malformed) as caught:
        incident_routing_update(
            cluster=cluster, emails=["nobody"], webhooks=[webhook_of(other, "https://a.example/")], severity="loud",
            keep_days=0,
        )  # fmt: skip
    assert [fault.path for fault in caught.value.faults] == ["emails[0]", "webhooks[0]", "severity", "keep_days"]


def test_first_acknowledgement_stays(cluster: Cluster, user_of: Any) -> None:
    late(cluster, "one", STREAM)
    (incident,) = after(cluster, 0)
    first, second = user_of("operator"), user_of("admin")
    incident_acknowledge(incident=incident, user=first, note="looking at it")
    row = incident_acknowledge(incident=incident, user=second, note="me too")
    assert (row.acknowledged_by, row.note) == (first, "looking at it")
    assert row.events.filter(kind="acknowledged").count() == 1 and row.is_open
    with pytest.raises(Malformed):
        incident_acknowledge(incident=incident, note="x" * 201)


def test_many_incidents_at_once_look_for_the_remedies_of_a_few(cluster: Cluster) -> None:
    incident_routing_update(cluster=cluster, emails=[OPS])
    for number in range(8):
        start_query(cluster, f"q{number}", 0.01, "a", bound_s=15.0)
        late(cluster, f"q{number}", decided_by="estimate")
    assert len(after(cluster, 0)) == 8
    assert IncidentDelivery.objects.count() == 8
    assert cluster.jobs.filter(kind=JobKind.REMEDIES).count() == 6
