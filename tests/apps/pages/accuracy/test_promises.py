"""Receipts in the browser: on the decision's page, with the reason that is asked for, and on the board of promises."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.test import Client

from apps.accounts.choices import Role
from apps.admission.decisions import admission_apply
from apps.admission.models import AdmissionRequest, Promise, Receipt
from apps.admission.previews import ADMISSION
from apps.admission.questions import AdmissionQuestion
from apps.fleet.models import Cluster
from engine.admission.promises import PromiseChange, PromiseError
from engine.records import Fact
from tests.apps import small_cluster
from tests.apps.pages.html import body

pytestmark = pytest.mark.django_db


@pytest.fixture
def applied(cluster: Cluster) -> AdmissionRequest:
    """Promised 0.32 s; after an hour 2.5 s were measured, and the others are to come."""
    small_cluster.make_query(cluster, "third", 0.1)
    asker = small_cluster.user(Role.ADMITTER)
    request, _ = ADMISSION.request(cluster=cluster, user=asker, question=AdmissionQuestion(query="third"))
    small_cluster.run_jobs()
    request.refresh_from_db()
    AdmissionRequest.objects.filter(pk=request.pk).update(verdict="admit")
    request.refresh_from_db()
    request = admission_apply(request=request, user=asker)
    assert request.decided_at is not None
    hours = timedelta(hours=2)
    Promise.objects.filter(request=request).update(
        promised_s=0.32, low_s=0.2, high_s=0.9, decided_at=request.decided_at - hours
    )
    error = PromiseError(
        load_s=1.5,
        costs_s=None,
        changes_s=0.18,
        rest_s=0.5,
        sources=1,
        sources_measured=1,
        operators=2,
        operators_measured=0,
    )
    change = PromiseChange("query_added", "fourth", Fact("receipts.query_added", query="fourth"))
    Receipt.objects.filter(promise__request=request, span="hour").update(
        outcome="missed",
        measured_s=2.5,
        results=120,
        interval_held=False,
        is_wrong=True,
        due_at=request.decided_at - hours / 2,
        since=request.decided_at - hours,
        changes=[change.to_dict()],
        error=error.to_dict(),
        decisions=1,
    )
    return request


def test_page_of_a_decision_tells_promised_measured_and_why(
    applied: AdmissionRequest, browser_of: Callable[..., Client]
) -> None:
    address = f"/c/little/admission/{applied.pk}/"
    html = body(browser_of("viewer").get(address))
    assert "Promised 0.32\u00a0s (0.2 to 0.9\u00a0s)" in html
    assert "2.5\u00a0s" in html and "of 120 results" in html and "Objective missed" in html
    assert "fourth runs beside it" in html and "1 other request applied to the cluster since" in html
    assert "by load (1 of 1 source measured)" in html and "+1.5\u00a0s" in html
    assert "by the model, and what was not measured" in html
    assert "nobody said why yet" in html
    assert browser_of("viewer").post(f"{address}receipt/", {"span": "hour", "reason": "load"}).status_code == 403
    admitter = browser_of("admitter")
    refused = admitter.post(f"{address}receipt/", {"span": "hour", "reason": "other"})
    assert refused.status_code == 400 and "text is missing" in body(refused)
    told = admitter.post(f"{address}receipt/", {"span": "hour", "reason": "failure", "text": "n2 died"})
    assert told.status_code == 302
    html = body(admitter.get(address))
    assert "Something failed: a node, a network, an engine: n2 died" in html and "is set aside" in html


def test_board_counts_promises_and_lists_receipts(applied: AdmissionRequest, browser: Client) -> None:
    html = body(browser.get("/c/little/accuracy/promises/"))
    assert "0 of 1 receipt kept the objective, 0 of 1 interval held." in html
    assert "too few to say" in html and "not said yet" in html and "2 receipts will come." in html
    assert f"/c/little/admission/{applied.pk}/#receipts" in html
    assert "No receipt" in body(browser.get("/c/little/accuracy/promises/?outcome=held"))
    csv = b"".join(browser.get("/c/little/accuracy/promises/?export=csv")).decode()
    assert "third v1" in csv and "missed" in csv


def test_board_without_receipts_says_what_will_come(cluster: Cluster, browser: Client) -> None:
    assert "No receipt in this time" in body(browser.get("/c/little/accuracy/promises/"))
