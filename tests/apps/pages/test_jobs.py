"""Background jobs in the browser: the list, one job, cancellation."""

from __future__ import annotations

import json
from uuid import uuid4

import pytest
from django.test import Client
from django.utils import timezone

from apps.jobs.models import Job, JobKind, JobState
from tests.apps.pages.html import body

pytestmark = pytest.mark.django_db


def create_job(**fields: object) -> Job:
    return Job.objects.create(**{"kind": JobKind.ESTIMATE, "title": "Estimate little", **fields})


def test_jobs_are_listed_searched_and_filtered(browser: Client) -> None:
    assert "No jobs yet" in body(browser.get("/jobs/"))
    create_job(state=JobState.RUNNING, progress=0.68, step="Flow")
    create_job(title="Other", state=JobState.FAILED, error={"code": "x", "message": "It broke.", "faults": []})
    html = body(browser.get("/jobs/"))
    assert "1 running, 1 failed." in html
    assert "It broke." in html
    assert "Other" not in body(browser.get("/jobs/?q=little")).split("<tbody>")[1]
    assert "Estimate little" not in body(browser.get("/jobs/?state=failed")).split("<tbody>")[1].split("</tbody>")[0]


def test_job_page_refreshes_and_cancels_the_job(browser: Client) -> None:
    waiting = create_job()
    html = body(browser.get(f"/jobs/{waiting.pk}/"))
    assert f"changed:job:{waiting.pk} from:body" in html
    assert "every 3s" in html
    response = browser.post(f"/jobs/{waiting.pk}/cancel/", headers={"HX-Request": "true"})
    assert "Cancelled" in body(response)
    assert f"changed:job:{waiting.pk}" in json.loads(response["HX-Trigger"])
    assert "hx-get" not in body(browser.get(f"/jobs/{waiting.pk}/progress/"))
    assert browser.get(f"/jobs/{uuid4()}/").status_code == 404


def test_failed_job_shows_every_fault(browser: Client) -> None:
    faults = [{"path": "nodes[0].id", "message": "is empty"}, {"path": "operators", "message": "are missing"}]
    failed = create_job(state=JobState.FAILED, error={"code": "malformed", "message": "2 faults", "faults": faults})
    failed.finished_at = timezone.now()
    failed.save()
    html = body(browser.get(f"/jobs/{failed.pk}/"))
    assert "nodes[0].id" in html
    assert "are missing" in html
