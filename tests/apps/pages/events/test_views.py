"""Events in the browser: the form with its faults, the answer, the check-list, and what came."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import Client

from apps.planning.models import EventRun, PlannedEvent
from tests.apps import small_cluster
from tests.apps.pages.html import body
from tests.apps.planning.test_events import NOW, cluster, history, planned

__all__ = ["cluster"]

pytestmark = [pytest.mark.django_db, pytest.mark.moment]

ROOT = "/c/little/events/"
SEASON = NOW.year + 1  # each year has a 26 November at eight
FORM = {
    "name": "Friday",
    "factors": "clicks 1.6x, rest 1.2x",
    "starts_at": f"{SEASON}-11-26T08:00",
    "ends_at": f"{SEASON}-11-26T12:00",
    "time_zone": "Europe/Berlin",
    "repeat": "once",
    "lead_time_days": "14",
    "cost_per_violation_hour": "100",
}


def test_an_event_is_planned_worked_out_and_ticked_off(browser: Client, cluster: object) -> None:
    assert "No event yet" in body(browser.get(ROOT))
    made = browser.post(f"{ROOT}new/", FORM)
    event = PlannedEvent.objects.get()
    assert (made.status_code, made["Location"]) == (302, f"{ROOT}{event.pk}/")
    assert "Not worked out yet" in body(browser.get(f"{ROOT}{event.pk}/"))
    browser.post(f"{ROOT}{event.pk}/ask/")
    small_cluster.run_jobs()
    html = body(browser.get(f"{ROOT}{event.pk}/"))
    assert "<b>first</b> breaks with the nodes and the placement of now" in html
    assert "stopping report lets the others hold" in html
    assert "Bench" in html and "Any one node may be lost: what the bench says" in html
    browser.post(f"{ROOT}{event.pk}/checklist/", {"text": "Hold the plan against what came", "done": "1"})
    browser.post(f"{ROOT}{event.pk}/checklist/", {"text": "Tell the shop"})
    event.refresh_from_db()
    done = {item["text"]: bool(item["done_at"]) for item in event.checklist}
    assert done["Hold the plan against what came"] and not done["Tell the shop"]
    listed = body(browser.get(ROOT)).replace("\u00a0", " ")
    assert "1 objective breaks; no node to order" in listed
    EventRun.objects.all().delete()
    assert "Not asked yet" in body(browser.get(ROOT))


def test_faults_of_the_form_stand_at_their_fields(browser: Client, cluster: object) -> None:
    wrong = {**FORM, "factors": "orders 3x", "starts_at": "2027-03-28T02:30", "ends_at": "2027-03-27T02:30"}
    answer = browser.post(f"{ROOT}new/", wrong)
    html = body(answer)
    assert answer.status_code == 422 and not PlannedEvent.objects.exists()
    assert "which is no source" in html and "leave out; allowed: 03:30 or later" in html


def test_the_form_of_an_event_shows_what_was_typed(browser: Client, cluster: object) -> None:
    browser.post(f"{ROOT}new/", FORM)
    html = body(browser.get(f"{ROOT}{PlannedEvent.objects.get().pk}/change/"))
    assert "clicks 1.6x, rest 1.2x" in html and FORM["starts_at"] in html


def test_what_came_stands_beside_the_plan(browser: Client, cluster: object) -> None:
    event = planned(cluster, starts_at=NOW - timedelta(hours=6), ends_at=NOW - timedelta(hours=2))  # type: ignore[arg-type]
    rates = [100.0] * (24 * 35)
    rates[-6:-2] = [200.0] * 4
    history(cluster, rates, NOW)  # type: ignore[arg-type]
    html = body(browser.get(f"{ROOT}{event.pk}/")).replace("\u00a0", " ")
    assert "25% more" in html and "It was not worked out before it ended." in html
    refused = browser.post(f"{ROOT}{event.pk}/ask/")
    assert refused.status_code == 422 and "nothing left to plan" in body(refused)
