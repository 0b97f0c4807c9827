"""The console: errors, the frame around pages, and the number of statements that pages need."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from apps.accounts.models import User
from apps.demo.build import PASSWORD as DEMO_PASSWORD
from apps.fleet.models import Cluster
from apps.fleet.services import cluster_create, node_create
from apps.pages.context import MENU_CLUSTERS_LIMIT
from tests.apps import small_cluster
from tests.apps.pages.html import body
from tests.apps.pages.test_jobs import create_job

pytestmark = pytest.mark.django_db

QUERY_COUNTS = Path(__file__).with_name("query_counts.json")


def test_sign_in_page_of_the_demo_shows_its_password(client: Client, settings: Any) -> None:
    assert DEMO_PASSWORD not in body(client.get("/login/"))
    settings.DEMO = True
    assert DEMO_PASSWORD in body(client.get("/login/"))


def test_errors_are_whole_pages_or_htmx_fragments(browser: Client) -> None:
    whole = body(browser.get("/nothing/"))
    assert "Error 404" in whole
    assert 'class="nav"' in whole
    part = body(browser.get("/nothing/", headers={"HX-Request": "true"}))
    assert "<html" not in part
    assert "There is nothing at /nothing/." in part


def test_frame_marks_the_current_place_and_counts_breaches(browser: Client, cluster: Cluster) -> None:
    html = body(browser.get("/c/little/fleet/"))
    link = html.split('title="Fleet"')[1].split(">")[0]
    assert 'aria-current="page"' in link
    assert "1 objective breached" in html
    assert 'data-single-keys="true"' in html
    User.objects.update(single_keys=False, time_zone="Asia/Kolkata")
    html = body(browser.get("/help/"))
    assert 'data-single-keys="false"' in html
    assert "UTC+5:30" in html


def test_pages_need_the_recorded_number_of_statements(browser: Client, cluster: Cluster) -> None:
    """The number of queries does not grow with rows; it changes on purpose: RECORD_QUERY_COUNTS=1 writes it anew."""
    for i in range(5):
        small_cluster.start_query(cluster, f"more-{i}", 0.01, "a")
        node_create(pool=cluster.pools.get(), name=f"m{i}")
        create_job(cluster=cluster, requested_by=User.objects.first())
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


def test_refresh_of_a_part_keeps_the_toast_for_the_next_page(browser: Client, cluster: Cluster) -> None:
    browser.post("/c/little/fleet/nodes/a/state/", {"change": "drain"})
    part = {"HX-Request": "true"}
    assert "a is draining." not in body(browser.get("/c/little/", headers=part)).split('class="toasts"')[1]
    assert "a is draining." in body(browser.get("/c/little/fleet/nodes/a/")).split('class="toasts"')[1]


def test_menu_of_many_clusters_is_searched(browser: Client, cluster: Cluster) -> None:
    assert "Search clusters" not in body(browser.get("/c/little/"))
    for i in range(MENU_CLUSTERS_LIMIT + 3):
        cluster_create(slug=f"a{i:02}", name=f"Rack {i:02}", environment="prod" if i % 2 else "staging")
    html = body(browser.get("/c/little/"))
    assert "Search clusters" in html and "More are not shown" in html
    assert "Rack 09" in html and "Rack 12" not in html
    assert 'href="/c/little/fleet/"' in html  # the page's own cluster is the frame's, listed or not
    found = body(browser.get("/clusters/menu/?q=rack 1"))
    assert [name for name in ("Rack 09", "Rack 10", "Rack 12") if name in found] == ["Rack 10", "Rack 12"]
    assert "More are not shown" not in found
    assert "No cluster has this" in body(browser.get("/clusters/menu/?q=nothing"))
