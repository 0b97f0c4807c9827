"""Alerts are told to whom their rule names: to a real mail server and a real web server, each transition once."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable
from datetime import timedelta
from email import message_from_string
from typing import Any

import pytest
from django.utils import timezone
from rest_framework.test import APIClient

from apps.core.deliveries import PAUSES_MIN, DeliveryState
from apps.core.errors import Malformed
from apps.results.models import Alert, AlertDelivery, AlertNotice, AlertRule
from apps.results.notices import alert_deliveries_send_due, rule_secret
from apps.results.services import ALERTS_KEPT, alert_rule_update, results_purge
from apps.telemetry.frames import frames_receive
from apps.telemetry.live_services import live_stop
from apps.telemetry.models import LiveQuery
from tests.apps.results.rows import arrive, result, rule_of

pytestmark = pytest.mark.django_db

AB, CD = ("a", "b"), ("c", "d")
OPS = "ops@example.org"


def text_of(mail: str) -> tuple[str, str]:
    parsed = message_from_string(mail)
    return str(parsed["Subject"]), parsed.get_payload(decode=True).decode()


def test_mail_is_sent_when_alerts_open_and_when_they_resolve(live: LiveQuery, mailbox: Any) -> None:
    rule_of(live, emails=[OPS], severity="critical")
    arrive(live, 0, {AB: 30.0, CD: 41.5})
    assert alert_deliveries_send_due() == 1, "one message for both groups"
    subject, text = text_of(mailbox.mails[0])
    assert subject == "Critical: slow fires for 2 groups (little/probes)"
    assert "rtt above 20" in text
    assert "- src = c, dst = d: 41.5 at 20" in text
    arrive(live, 1, {AB: 35.0, CD: 4.0})
    assert alert_deliveries_send_due() == 1
    subject, text = text_of(mailbox.mails[1])
    assert subject == "Critical: slow is over for src = c, dst = d (little/probes)"
    assert "the value is back, 4.0; worst 41.5" in text
    assert alert_deliveries_send_due() == 0
    assert mailbox.recipients == [OPS, OPS]
    assert len({message_from_string(mail)["Message-ID"] for mail in mailbox.mails}) == 2


def test_repeated_frames_notify_once_per_transition(live: LiveQuery, hook: Any) -> None:
    rule_of(live, webhooks=[hook.url])
    frames = [result(live.query, {AB: 30.0}, 0), result(live.query, {AB: 30.0}, 1), result(live.query, {AB: 3.0}, 2)]
    frames_receive(frames)
    frames_receive(frames)
    assert alert_deliveries_send_due() == 2
    frames_receive(frames)
    assert alert_deliveries_send_due() == 0
    assert [json.loads(body)["event"] for _, body in hook.requests] == ["alert.firing", "alert.resolved"]


def test_webhook_message_is_signed(live: LiveQuery, hook: Any) -> None:
    rule = rule_of(live, webhooks=[hook.url])
    arrive(live, 0, {AB: 30.0})
    alert_deliveries_send_due()
    (headers, body), delivery = hook.requests[0], AlertDelivery.objects.get()
    says = json.loads(body)
    assert (says["cluster"], says["query"], says["rule"]["name"]) == ("little", "probes", "slow")
    (alert,) = says["alerts"]
    assert (alert["group"], alert["opened_value"], alert["resolved_at"]) == ({"src": "a", "dst": "b"}, 30.0, None)
    assert says["links"]["page"].endswith("/c/little/queries/probes/live/")
    assert headers["Sluice-Delivery"] == f"alert-{delivery.pk}"
    moment, _, digest = headers["Sluice-Signature"].removeprefix("t=").partition(",v1=")
    wanted = hmac.new(rule_secret(rule).encode(), f"{moment}.".encode() + body, hashlib.sha256).hexdigest()
    assert digest == wanted


def test_end_of_a_query_or_rule_is_notified(live: LiveQuery, hook: Any) -> None:
    rules = [rule_of(live, name=name, webhooks=[hook.url]) for name in ("changed", "stopped")]
    arrive(live, 0, {AB: 30.0})
    alert_rule_update(rule=rules[0], threshold=99.0)
    live_stop(live=live)
    alert_deliveries_send_due()
    told = [json.loads(body) for _, body in hook.requests]
    ended = {
        notice["rule"]["name"]: notice["alerts"][0]["resolved_by"]
        for notice in told
        if notice["event"] == "alert.resolved"
    }
    assert ended == {"changed": "changed", "stopped": "stopped"}
    assert len(told) == 4


def test_unreachable_server_is_retried_and_the_outcome_shown(
    live: LiveQuery, api: APIClient, hook: Any, mailbox: Any, settings: Any, closed_port: int
) -> None:
    hook.status, mailbox.refuse = 503, "550 no such person"
    rule_of(live, webhooks=[hook.url], emails=[OPS])
    arrive(live, 0, {AB: 30.0})
    assert alert_deliveries_send_due() == 0
    (shown,) = api.get("/api/v1/alerts").json()["results"]
    states = {
        delivery["channel"]: (delivery["event"], delivery["target"], delivery["state"])
        for delivery in shown["deliveries"]
    }
    assert states == {"email": ("firing", OPS, "failed"), "webhook": ("firing", "127.0.0.1", "waiting")}
    assert "answered 503" in next(
        delivery["last_error"] for delivery in shown["deliveries"] if delivery["channel"] == "webhook"
    )
    hook.status = 200
    assert alert_deliveries_send_due() == 0, "its time has not come"
    row = AlertDelivery.objects.get(channel="webhook")
    assert row.next_try_at is not None
    AlertDelivery.objects.update(next_try_at=row.next_try_at - timedelta(minutes=PAUSES_MIN[0]))
    AlertDelivery.objects.filter(state=DeliveryState.FAILED).update(next_try_at=None)
    assert alert_deliveries_send_due() == 1
    assert len(hook.requests) == 2
    row.refresh_from_db()
    assert (row.state, row.attempts) == (DeliveryState.SENT, 2)


def test_webhook_to_a_private_network_is_not_sent(live: LiveQuery, settings: Any) -> None:
    settings.WEBHOOK_PRIVATE = True
    rule_of(live, webhooks=["http://localhost:1/x"])
    settings.WEBHOOK_PRIVATE = False
    arrive(live, 0, {AB: 30.0})
    alert_deliveries_send_due()
    row = AlertDelivery.objects.get()
    assert (row.state, "private network" in row.last_error) == (DeliveryState.FAILED, True)


def test_every_fault_of_recipients_is_listed_at_once(live: LiveQuery) -> None:
    wrong = {"emails": [OPS, "nobody"], "webhooks": ["ftp://x.org", "http://10.0.0.1/", "https://x.org/" + "y" * 500]}
    with pytest.raises(Malformed) as refused:
        rule_of(live, name="", **wrong)
    paths = [fault.path for fault in refused.value.faults]
    assert paths == ["name", "emails[1]", "webhooks[0]", "webhooks[1]", "webhooks[2]"]
    with pytest.raises(Malformed, match="there twice"):
        rule_of(live, webhooks=["https://x.org/"] * 2)
    assert not AlertRule.objects.exists()


def test_recipients_over_rest(api: APIClient, api_of: Callable[..., APIClient], live: LiveQuery) -> None:
    url = "https://hooks.example.org/T0/secret"
    body = {"query": live.query_id, "name": "slow", "column": "rtt", "threshold": 20, "emails": [OPS]}
    path = api.post("/api/v1/alert-rules", {**body, "webhooks": [url]}, format="json")["Location"]
    assert (api.get(path).json()["emails"], api.get(path).json()["webhooks"]) == ([OPS], [url])
    viewer = api_of("viewer")
    assert viewer.get(path).json()["webhooks"] == ["hooks.example.org"]
    assert viewer.get(f"{path}/webhook-secret").status_code == 403
    assert api.get(f"{path}/webhook-secret").json() == {"secret": rule_secret(AlertRule.objects.get())}
    wrong = api.patch(path, {"emails": ["nobody"], "webhooks": ["x"]}, format="json")
    assert [fault["path"] for fault in wrong.json()["faults"]] == ["emails[0]", "webhooks[0]"]
    assert api.patch(path, {"emails": []}, format="json").json()["webhooks"] == [url]


def test_notices_are_purged_with_alerts(live: LiveQuery) -> None:
    rule_of(live, emails=[OPS])
    arrive(live, 0, {AB: 30.0})
    arrive(live, 1, {AB: 3.0})
    assert AlertNotice.objects.count() == 2
    results_purge()
    assert AlertNotice.objects.count() == 2
    old = timezone.now() - ALERTS_KEPT - timedelta(days=1)
    Alert.objects.update(resolved_at=old)
    AlertNotice.objects.update(created_at=old)
    results_purge()
    assert not AlertNotice.objects.exists() and not AlertDelivery.objects.exists() and not Alert.objects.exists()
