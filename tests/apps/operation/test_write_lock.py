"""Read-only mode over pages and REST."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client
from django.urls import reverse
from rest_framework.test import APIClient

from apps.accounts.models import User
from apps.fleet.models import Cluster
from tests.apps import small_cluster as small
from tests.apps.conftest import PASSWORD

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _quiet(tmp_path: Path, settings: Any) -> None:
    settings.VAR_DIR = tmp_path
    call_command("write_lock", "on", "--reason", "Moving <b>house</b>.")


def test_changes_over_rest_are_refused_and_may_be_sent_again(api: APIClient) -> None:
    answer = api.post("/api/v1/clusters", {"name": "New", "slug": "new"}, format="json")
    assert (answer.status_code, answer["Retry-After"], answer.json()["code"]) == (503, "60", "read_only")
    assert "Moving <b>house</b>." in answer.json()["detail"]
    assert not Cluster.objects.exists()
    assert api.get("/api/v1/clusters").status_code == 200
    call_command("write_lock", "off")
    assert api.post("/api/v1/clusters", {"name": "New", "slug": "new"}, format="json").status_code == 201


def test_agents_are_told_to_send_frames_again() -> None:
    assert (
        APIClient().post("/api/v1/telemetry/batches", b"", content_type="application/octet-stream").status_code == 503
    )


def test_people_sign_in_and_read_under_a_banner(user_of: Callable[..., User], client: Client) -> None:
    cluster, user = small.small_cluster(), user_of("operator")
    signed = client.post(reverse("signin:login"), {"username": user.username, "password": PASSWORD})
    assert signed.status_code == 302
    page = client.get(reverse("pages:queries", args=[cluster.slug]))
    assert page.status_code == 200 and b"Moving &lt;b&gt;house&lt;/b&gt;." in page.content
    refused = client.post(reverse("pages:cluster-delete", args=[cluster.slug]))
    assert refused.status_code == 503 and Cluster.objects.count() == 1
    assert client.post(reverse("signin:logout")).status_code == 302


def test_file_that_cannot_be_read_refuses_changes(api: APIClient, tmp_path: Path) -> None:
    (tmp_path / "read-only.json").write_text("")
    assert api.post("/api/v1/clusters", {}, format="json").json()["code"] == "read_only"
