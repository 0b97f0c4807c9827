"""Accounts of programs, and invitations, over REST and in the browser."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from django.test import Client
from django.utils import timezone
from rest_framework.test import APIClient

from apps.accounts.models import User
from apps.accounts.teams import team_create
from apps.operation.conditions import operation_conditions
from apps.signin.models import Invitation, ServiceAccount
from apps.signin.service_accounts import service_account_create, service_account_update
from tests.apps.conftest import PASSWORD
from tests.apps.pages.html import body

pytestmark = pytest.mark.django_db


@pytest.fixture
def admin(client: Client, user_of: Callable[..., User]) -> Client:
    client.force_login(user_of("admin"))
    return client


def test_program_has_tokens_and_no_password(admin: Client) -> None:
    form = {"name": "ci", "team": team_create(name="Release").pk, "role": "operator", "description": "Builds"}
    page = admin.post("/settings/service-accounts/", form)
    account = ServiceAccount.objects.get()
    assert page["Location"] == f"/settings/service-accounts/{account.pk}/"
    made = admin.post(page["Location"], {"name": "build", "scopes": ["read", "operate"], "days": "7", "networks": ""})
    assert made.status_code == 201
    found = re.search(r"slu_[\w-]{40,}", made.content.decode())
    assert found
    program = APIClient(headers={"Authorization": f"Bearer {found[0]}"})
    assert program.get("/api/v1/clusters").status_code == 200
    shown = body(admin.get("/settings/service-accounts/"))
    assert "ci" in shown and "Release" in shown
    ending = next(row for row in operation_conditions().conditions if row.name.startswith("build"))
    assert ending.standing == "watch" and "Release answers for it" in ending.advice
    account.user.set_password(PASSWORD)
    account.user.save()
    assert Client().post("/login/", {"username": "ci", "password": PASSWORD}).status_code == 422
    admin.post(f"/settings/service-accounts/{account.pk}/change/", {"is_active": "false"})
    assert program.get("/api/v1/clusters").status_code == 401
    admin.post(f"/settings/service-accounts/{account.pk}/change/", {"is_active": "true"})
    assert program.get("/api/v1/clusters").status_code == 401


def test_team_that_goes_leaves_the_account_and_says_so(admin: Client, user_of: Callable[..., User]) -> None:
    team = team_create(name="Release")
    account = service_account_create(name="ci", team=team, by=user_of("admin"))
    team.delete()
    assert "nobody answers for it" in body(admin.get("/settings/service-accounts/"))
    service_account_update(account=ServiceAccount.objects.get(), team=team_create(name="Other"))
    account.refresh_from_db()
    assert account.team and account.team.name == "Other"


def test_faults_of_an_account_are_told_all_at_once(admin: Client) -> None:
    team_create(name="Release")
    refused = admin.post(
        "/api/v1/service-accounts", {"name": "a b", "team": "None", "role": "king"}, "application/json"
    )
    assert refused.status_code == 400
    assert {fault["path"] for fault in refused.json()["faults"]} >= {"team", "role"}
    taken = {"name": "a-admin", "team": "Release"}
    assert admin.post("/api/v1/service-accounts", taken, "application/json").status_code == 409
    assert not ServiceAccount.objects.exists()


def test_account_is_made_and_switched_off_over_rest(admin: Client, user_of: Callable[..., User]) -> None:
    team_create(name="Release")
    made = admin.post("/api/v1/service-accounts", {"name": "ci", "team": "Release"}, "application/json")
    assert (made.status_code, made.json()["token_count"], made.json()["is_active"]) == (201, 0, True)
    path = made.headers["Location"]
    assert admin.patch(path, {"is_active": False}, "application/json").json()["is_active"] is False
    assert admin.get("/api/v1/service-accounts?team=Release").json()["results"][0]["name"] == "ci"
    assert User.objects.get(username="ci").scopes == frozenset()


def test_somebody_is_invited_over_rest(admin: Client) -> None:
    made = admin.post("/api/v1/invitations", {"note": "Ada", "role": "viewer"}, "application/json")
    assert made.status_code == 201
    secret = made.json()["secret"]
    assert Client().get(f"/invitation/{secret}/").status_code == 200
    listed = admin.get("/api/v1/invitations?state=open").json()["results"]
    assert [row["note"] for row in listed] == ["Ada"]
    assert "secret" not in listed[0]
    assert admin.post(f"/api/v1/invitations/{made.json()['id']}/revoke").json()["state"] == "revoked"
    assert Client().get(f"/invitation/{secret}/").status_code == 404
    assert Invitation.objects.get().revoked_at < timezone.now()
