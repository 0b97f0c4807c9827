"""The embedded panel shows objectives to whoever has its link, in the frames that are allowed, until it expires."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
import time_machine
from django.test import Client
from django.utils import timezone

from apps.accounts.models import User
from apps.estimates.services import ESTIMATE
from tests.apps.small_cluster import run_jobs, small_cluster, start_query

pytestmark = pytest.mark.django_db


@pytest.fixture
def link(client: Client, user_of: Any) -> str:
    """Path of a link for a day, made by an operator."""
    cluster = small_cluster()
    start_query(cluster, "steady", 0.1, "a", bound_s=15.0)
    ESTIMATE.request(cluster=cluster)
    run_jobs()
    client.force_login(user_of("operator"))
    html = client.post("/c/little/embed/", {"days": "1"}).content.decode()
    found = re.search(r'id="embed-link">http://testserver(/embed/[^<]+)<', html)
    assert found is not None and "SLUICE_EMBED_ORIGINS" in html
    return found[1]


def test_panel_shows_objectives_without_login_links_or_forms(link: str, settings: Any) -> None:
    settings.EMBED_ORIGINS = ["https://grafana.example.org"]
    answer = Client().get(link)
    html = answer.content.decode()
    assert answer.status_code == 200 and "steady" in html and "1 of 1 objective" in html
    assert "<a " not in html and "<form" not in html and "<script" not in html
    assert "frame-ancestors https://grafana.example.org" in answer["Content-Security-Policy"]
    assert "X-Frame-Options" not in answer and answer["Cache-Control"] == "no-store"
    assert not answer.cookies


def test_no_frame_shows_it_unless_an_origin_is_listed(link: str) -> None:
    assert "frame-ancestors 'none'" in Client().get(link)["Content-Security-Policy"]


def test_link_ends_when_it_expires_is_altered_or_its_maker_is_gone(link: str) -> None:
    assert Client().get(link[:-2] + "x/").status_code == 403
    with time_machine.travel(timezone.now() + timedelta(days=1, minutes=1)):
        expired = Client().get(link)
    assert expired.status_code == 403 and b"expired" in expired.content and b"steady" not in expired.content
    User.objects.update(is_active=False)
    assert Client().get(link).status_code == 403


def test_link_allows_nothing_but_reading(link: str) -> None:
    assert Client().post(link).status_code == 405
    assert Client().get("/c/little/").status_code == 302
