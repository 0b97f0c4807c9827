"""Page of the replay of a month's decisions."""

from __future__ import annotations

import pytest
from django.db.models import F
from django.test import Client

from apps.admission.previews import ADMISSION
from apps.admission.questions import AdmissionQuestion
from apps.queries.models import OperatorInput
from engine.admission.replay import TAKEN
from tests.apps.pages.html import body
from tests.apps.small_cluster import make_query, run_jobs, small_cluster, user

pytestmark = pytest.mark.django_db


def test_page_asks_shows_filters_and_exports(browser: Client) -> None:
    cluster, path = small_cluster(nodes=("a",)), "/c/little/admission/replays/"
    make_query(cluster, "own", 0.6)
    ADMISSION.request(cluster=cluster, user=user(), question=AdmissionQuestion(query="own"))
    run_jobs()
    refused = browser.post(path, {"month": "recent", "taken": ["model", "policy"]})
    assert refused.status_code == 422 and "policy alone, or model and cluster with" in body(refused)
    assert browser.post(path, {"month": "1999-01", "taken": TAKEN}).status_code == 422
    OperatorInput.objects.update(cycles_per_event=2 * F("cycles_per_event"))
    assert browser.post(path, {"month": "recent", "taken": TAKEN}).status_code == 302
    assert "Waits for a worker" in body(browser.get(path))
    run_jobs()
    page = body(browser.get(path))
    assert "1 of 1 decision of the last 30 days would be otherwise." in page and "Admit to reject" in page
    assert "cost of an event +100%" in body(browser.get(f"{path}?verdicts=admit%3Ereject&cause=cost"))
    assert "cost of an event +100%" in body(browser.get(f"{path}?export=csv"))
    assert "cost of an event" not in body(browser.get(f"{path}?cause=load&verdicts=admit%3Ereject&q=other"))
