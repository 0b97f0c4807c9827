"""A trial in the browser and over REST: offered, started, watched, stopped, and what became of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from rest_framework.test import APIClient

from apps.accounts.choices import Role
from apps.accounts.models import User
from apps.accounts.services import token_create
from apps.admission.models import AdmissionRequest, AdmissionTrial
from apps.admission.trials import trial_events, trials_advance
from apps.ui.numbers import count
from tests.apps.admission.trials import asked_request, report, run_out
from tests.apps.measurements.test_services import tell
from tests.apps.small_cluster import user

pytestmark = [pytest.mark.django_db, pytest.mark.moment]

Browsers = Callable[..., Client]


@pytest.fixture
def asked(db: None) -> AdmissionRequest:
    return asked_request()


def address(request: AdmissionRequest, action: str = "") -> str:
    return f"/c/this-host/admission/{request.pk}/{action}"


def text(response: Any) -> str:
    """Text of the page: without tags, spaces as one."""
    plain = re.sub(r"<[^>]+>", "", response.content.decode())
    return re.sub(r"\s+", " ", plain.replace("\u00a0", " ").replace("\u202f", " "))


def test_dialog_names_agents_and_what_they_have_left(browser_of: Browsers, asked: AdmissionRequest) -> None:
    page = text(browser_of("operator").get(address(asked)))
    assert re.search(r"Measure (window|good|count) by a trial", page)
    assert "agent-1: 0.15 of 0.20 cores left" in page
    assert "its results are not kept" in page


def test_viewer_is_offered_nothing(browser_of: Browsers, asked: AdmissionRequest) -> None:
    viewer = browser_of("viewer")
    assert "by a trial" not in text(viewer.get(address(asked)))


def test_page_says_why_no_trial_is_possible(browser_of: Browsers, asked: AdmissionRequest) -> None:
    for agent in asked.cluster.agents.all():
        report(agent, 0.19)
    operator = browser_of("operator")
    page = text(operator.get(address(asked)))
    assert "No trial can measure it now: agent-1 uses 0.19 of its 0.2 cores" in page
    assert "by a trial" not in page
    refused = operator.post(address(asked, "trial/"), {"agent": "agent-1", "minutes": "5"})
    assert refused.status_code == 422
    assert "agent-1 uses 0.19" in text(refused)


def test_minutes_that_are_no_number_are_refused(browser_of: Browsers, asked: AdmissionRequest) -> None:
    refused = browser_of("operator").post(address(asked, "trial/"), {"agent": "agent-1", "minutes": "-3"})
    assert refused.status_code == 400
    assert "allowed: 1 to 60" in text(refused)
    assert not AdmissionTrial.objects.exists()


def test_trial_is_watched_and_its_outcome_links_to_the_preview(browser_of: Browsers, asked: AdmissionRequest) -> None:
    operator = browser_of("operator")
    started = operator.post(address(asked, "trial/"), {"agent": "agent-2", "minutes": "10"}, follow=True)
    assert "at agent-2 until" in text(started)
    assert "0 events so far" in text(started)
    assert 'hx-select="#admission-trial"' in started.content.decode()
    trial = AdmissionTrial.objects.get()
    assert trial.live is not None
    run_out(trial)
    tell(trial.live)
    page = text(operator.get(address(asked)))
    assert trial_events(trial) > 10_000
    assert f"{count(trial_events(trial))} events so far".replace("\u00a0", " ") in page
    trials_advance()
    trial.refresh_from_db()
    over = operator.get(address(asked))
    assert f"/c/this-host/admission/{trial.follower_id}/" in over.content.decode()
    share = {"window": "0.2", "good": "0.5", "count": "0.8"}[trial.operator]
    assert re.search(rf"Its cost is {share}0? × of what was assumed", text(over))


def test_trial_is_stopped_from_the_page(browser_of: Browsers, asked: AdmissionRequest) -> None:
    operator = browser_of("operator")
    operator.post(address(asked, "trial/"), {"agent": "agent-1", "minutes": "10"})
    stopped = operator.post(address(asked, "trial/stop/"), follow=True)
    assert "was ended early; nothing of it was taken over" in text(stopped)
    assert operator.post(address(asked, "trial/stop/")).status_code == 409


def client_of(person: User) -> APIClient:
    client = APIClient()
    client.credentials(
        HTTP_AUTHORIZATION=f"Bearer {token_create(user=person, name='t', scopes=['read', 'operate'])[1]}"
    )
    return client


def test_rest_starts_shows_and_stops_a_trial(asked: AdmissionRequest) -> None:
    api, path = client_of(user(Role.OPERATOR)), f"/api/v1/admissions/{asked.pk}"
    assert api.get(path).json()["trial"] is None
    refused = api.post(f"{path}/trial", {"minutes": 90}, format="json")
    assert (refused.status_code, refused.json()["faults"][0]["path"]) == (400, "minutes")
    started = api.post(f"{path}/trial", {}, format="json").json()["trial"]
    assert (started["state"], started["agent"], started["events"]) == ("running", "agent-1", 0)
    assert started["assumed_cycles"] == 1000.0
    assert api.post(f"{path}/trial", {}, format="json").json()["code"] == "no_trial"
    stopped = api.delete(f"{path}/trial").json()["trial"]
    assert (stopped["state"], stopped["follower"]) == ("stopped", None)
    assert api.delete(f"{path}/trial").status_code == 409
