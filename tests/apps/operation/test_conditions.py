"""Sluice itself over page and REST."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from rest_framework.test import APIClient

from agent import VERSION
from apps.accounts.models import Token, User
from apps.jobs.models import Job, JobKind

pytestmark = pytest.mark.django_db


def _by_name(api: APIClient) -> dict[str, Any]:
    answer = api.get("/api/v1/operation")
    assert answer.status_code == 200 and answer.json()["version"] == VERSION
    return {f"{row['group']}: {row['name']}": row for row in answer.json()["conditions"]}


def test_what_is_out_of_order_says_what_to_do(api_of: Callable[..., APIClient]) -> None:
    api = api_of("admin")
    Token.objects.update(expires_at=timezone.now() + timedelta(days=3))
    job = Job.objects.create(kind=JobKind.values[0])
    Job.objects.filter(pk=job.pk).update(created_at=timezone.now() - timedelta(hours=2))
    rows = _by_name(api)
    assert rows["Processes: database"]["standing"] == "ok"
    assert rows["Processes: worker"]["standing"] == "bad" and rows["Processes: worker"]["advice"]
    assert rows["Queues: jobs"]["standing"] == "bad" and rows["Queues: jobs"]["value"] >= 7200
    assert [row["standing"] for name, row in rows.items() if "token of" in row["detail"]] == ["watch"]
    assert rows["Credentials: certificate"]["standing"] == "unknown"
    assert all(row["advice"] for row in rows.values() if row["standing"] != "ok")


def test_page_opens_without_redis(user_of: Callable[..., User], client: Client, settings: Any) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    client.force_login(user_of("admin"))
    page = client.get(reverse("pages:operation"))
    assert page.status_code == 200
    assert b"Redis does not answer" in page.content and b"Not known" in page.content


def test_others_than_administrators_are_refused(api: APIClient) -> None:
    assert api.get("/api/v1/operation").status_code == 403
