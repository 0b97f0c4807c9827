"""Applied decisions reach webhooks, signed, once."""

from __future__ import annotations

import json
from typing import Any

import pytest

from apps.admission.decisions import admission_apply
from apps.admission.models import AdmissionRequest
from apps.core.messages import signature
from apps.exports.models import DecisionDelivery
from apps.exports.notices import decision_deliveries_send_due
from apps.fleet.models import Cluster
from apps.reports.deliveries import webhook_secret
from apps.reports.services import webhook_create
from tests.apps.exports.conftest import decided

pytestmark = pytest.mark.django_db


def test_an_applied_decision_is_posted_with_its_export(cluster: Cluster, decision: AdmissionRequest, hook: Any) -> None:
    webhook = webhook_create(cluster=cluster, name="ops", url=hook.url, sends_decisions=True)
    admission_apply(request=decision, user=None)
    assert decision_deliveries_send_due() == 1
    (headers, body), delivery = hook.requests[0], DecisionDelivery.objects.get()
    assert headers["Sluice-Delivery"] == f"decision-{delivery.pk}"
    moment = headers["Sluice-Signature"].removeprefix("t=").partition(",")[0]
    assert headers["Sluice-Signature"] == signature(webhook_secret(webhook), int(moment), body)
    message = json.loads(body)
    assert (message["event"], message["admission"]["query"]) == ("decision.applied", "orders")
    assert message["export"]["apply"]["settings"]
    assert decision_deliveries_send_due() == 0, "once"


def test_a_webhook_that_does_not_ask_for_decisions_is_not_told(
    cluster: Cluster, decision: AdmissionRequest, hook: Any
) -> None:
    webhook_create(cluster=cluster, name="ops", url=hook.url)
    admission_apply(request=decision, user=None)
    assert not DecisionDelivery.objects.exists()


def test_a_query_that_was_not_imported_is_applied_without_a_message(cluster: Cluster, hook: Any) -> None:
    webhook_create(cluster=cluster, name="ops", url=hook.url, sends_decisions=True)
    request = decided(cluster, "plain")
    admission_apply(request=request, user=None)
    request.refresh_from_db()
    assert request.state == "applied" and not DecisionDelivery.objects.exists()
