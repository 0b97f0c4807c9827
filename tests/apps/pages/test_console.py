"""Jobs, people, help, errors, the frame, and what pages cost the database."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from apps.accounts.models import User
from apps.fleet.models import Cluster
from apps.fleet.services import node_create
from apps.jobs.models import Job, JobKind, JobState
from tests.apps import small_cluster
from tests.apps.pages.html import body

pytestmark = pytest.mark.django_db

QUERY_COUNTS = Path(__file__).with_name("query_counts.json")


def job(**fields: object) -> Job:
    return Job.objects.create(**{"kind": JobKind.ESTIMATE, "title": "Estimate little", **fields})


def test_jobs_are_listed_searched_and_filtered(browser: Client) -> None:
    assert "No jobs yet" in body(browser.get("/jobs/"))
    job(state=JobState.RUNNING, progress=0.68, step="Flow")
    job(title="Other", state=JobState.FAILED, error={"code": "x", "message": "It broke.", "faults": []})
    html = body(browser.get("/jobs/"))
    assert "1 running, 1 failed." in html
    assert "It broke." in html
    assert "Other" not in body(browser.get("/jobs/?q=little")).split("<tbody>")[1]
    assert "Estimate little" not in body(browser.get("/jobs/?state=failed")).split("<tbody>")[1].split("</tbody>")[0]


def test_a_job_is_followed_and_cancelled(browser: Client, browser_of: Callable[..., Client]) -> None:
    waiting = job()
    html = body(browser.get(f"/jobs/{waiting.pk}/"))
    assert f"changed:job:{waiting.pk} from:body" in html
    assert "every 3s" in html
    assert browser_of("viewer").post(f"/jobs/{waiting.pk}/cancel/").status_code == 403
    response = browser.post(f"/jobs/{waiting.pk}/cancel/", headers={"HX-Request": "true"})
    assert "Cancelled" in body(response)
    assert f"changed:job:{waiting.pk}" in json.loads(response["HX-Trigger"])
    assert "hx-get" not in body(browser.get(f"/jobs/{waiting.pk}/progress/"))
    assert browser.get(f"/jobs/{uuid4()}/").status_code == 404


def test_a_failed_job_shows_every_fault(browser: Client) -> None:
    faults = [{"path": "nodes[0].id", "message": "is empty"}, {"path": "operators", "message": "are missing"}]
    failed = job(state=JobState.FAILED, error={"code": "malformed", "message": "2 faults", "faults": faults})
    failed.finished_at = timezone.now()
    failed.save()
    html = body(browser.get(f"/jobs/{failed.pk}/"))
    assert "nodes[0].id" in html
    assert "are missing" in html


def test_people_are_managed_by_administrators_only(browser: Client, browser_of: Callable[..., Client]) -> None:
    assert browser.get("/settings/people/").status_code == 403
    admin = browser_of("admin")
    short = admin.post("/settings/people/", {"username": "bob", "password": "short", "role": "viewer"})
    assert short.status_code == 422
    assert 'id="id_password_error"' in body(short)
    admin.post("/settings/people/", {"username": "bob", "password": "a-long-password-1", "role": "viewer"})
    bob = User.objects.get(username="bob")
    assert "bob" in body(admin.get("/settings/people/"))
    admin.post(f"/settings/people/{bob.pk}/", {"role": "admitter"})
    admin.post(f"/settings/people/{bob.pk}/", {"is_active": "false"})
    bob.refresh_from_db()
    assert (bob.role, bob.is_active) == ("admitter", False)
    oneself = User.objects.get(username="a-admin")
    assert admin.post(f"/settings/people/{oneself.pk}/", {"role": "viewer"}).status_code == 403


def test_the_demo_says_how_to_sign_in(client: Client, settings: Any) -> None:
    from apps.demo.build import PASSWORD as DEMO_PASSWORD

    assert DEMO_PASSWORD not in body(client.get("/login/"))
    settings.DEMO = True
    assert DEMO_PASSWORD in body(client.get("/login/"))


def test_help_and_api_pages(browser: Client) -> None:
    html = body(browser.get("/help/"))
    for word in ("Admit with changes", "At risk", "Predicted", "Headroom", "Mace"):
        assert word in html
    assert "/api/schema/" in body(browser.get("/help/api/"))


def test_errors_are_pages_or_fragments(browser: Client) -> None:
    whole = body(browser.get("/nothing/"))
    assert "Error 404" in whole
    assert 'class="nav"' in whole
    part = body(browser.get("/nothing/", headers={"HX-Request": "true"}))
    assert "<html" not in part
    assert "There is nothing at /nothing/." in part


def test_the_frame_lists_clusters_and_marks_the_place(browser: Client, cluster: Cluster) -> None:
    html = body(browser.get("/c/little/fleet/"))
    link = html.split('title="Fleet"')[1].split(">")[0]
    assert 'aria-current="page"' in link
    assert "1 objective breached" in html
    assert 'data-single-keys="true"' in html
    User.objects.update(single_keys=False, time_zone="Asia/Kolkata")
    html = body(browser.get("/help/"))
    assert 'data-single-keys="false"' in html
    assert "UTC+5:30" in html


def test_pages_cost_what_is_recorded(browser: Client, cluster: Cluster) -> None:
    """The number of queries does not grow with rows; it changes on purpose: RECORD_QUERY_COUNTS=1 writes it anew."""
    for i in range(5):
        small_cluster.start_query(cluster, f"more-{i}", 0.01, "a")
        node_create(pool=cluster.pools.get(), name=f"m{i}")
        job(cluster=cluster, requested_by=User.objects.first())
    recorded = json.loads(QUERY_COUNTS.read_text())
    counted = {}
    for path in recorded:
        browser.get(path)
        with CaptureQueriesContext(
            connection,
        ) as queries:
            assert browser.get(path).status_code == 200
        counted[path] = len(queries)
    if os.environ.get("RECORD_QUERY_COUNTS") == "1":
        QUERY_COUNTS.write_text(json.dumps(counted, indent=2) + "\n")
        recorded = counted
    assert counted == recorded


def test_a_part_that_refreshes_does_not_swallow_a_toast(browser: Client, cluster: Cluster) -> None:
    browser.post("/c/little/fleet/nodes/a/state/", {"change": "drain"})
    part = {"HX-Request": "true"}
    assert "a is draining." not in body(browser.get("/c/little/", headers=part)).split('class="toasts"')[1]
    assert "a is draining." in body(browser.get("/c/little/fleet/nodes/a/")).split('class="toasts"')[1]
