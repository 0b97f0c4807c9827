"""Signing in, one's settings, one's tokens in the browser, and who may see what."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.http import HttpResponse
from django.test import Client, RequestFactory
from django.utils import timezone
from django.views import View

from apps.accounts.attempts import ALLOWED
from apps.accounts.middleware import TimeZoneMiddleware
from apps.accounts.models import User
from apps.accounts.permissions import ScopeRequiredMixin
from apps.accounts.services import user_create
from apps.core.errors import Conflict, Forbidden, Malformed
from tests.apps.conftest import PASSWORD

pytestmark = pytest.mark.django_db


def sign_in(client: Client, username: str = "a-operator", password: str = PASSWORD, **extra: Any) -> Any:
    return client.post("/login/", {"username": username, "password": password, "next": "/settings/"}, **extra)


@pytest.fixture
def signed_in(client: Client, user_of: Callable[..., User]) -> Client:
    client.force_login(user_of("operator"))
    return client


def test_person_signs_in_and_out(client: Client, user_of: Callable[..., User]) -> None:
    user_of("operator")
    assert client.get("/settings/")["Location"] == "/login/?next=/settings/"
    assert client.get("/login/").status_code == 200
    assert sign_in(client)["Location"] == "/settings/"
    assert client.get("/settings/").status_code == 200
    assert client.get("/logout/").status_code == 405
    client.post("/logout/")
    assert client.get("/settings/").status_code == 302


def test_failed_sign_ins_are_slowed_down(client: Client, user_of: Callable[..., User]) -> None:
    user_of("operator")
    assert [sign_in(client, password="wrong").status_code for _ in range(ALLOWED)] == [422] * ALLOWED
    refused = sign_in(client)
    assert refused.status_code == 429
    assert int(refused["Retry-After"]) > 0
    assert "Too many failed sign-ins" in refused.content.decode()
    assert sign_in(client, REMOTE_ADDR="10.0.0.9").status_code == 302


def test_variants_of_a_name_share_their_attempts(client: Client) -> None:
    names = ["a-operator", " a-operator", "a-operator  ", "A-Operator", "\uff41-operator"]
    assert len(names) == ALLOWED
    assert [sign_in(client, username=name, password="wrong").status_code for name in names] == [422] * ALLOWED
    assert sign_in(client).status_code == 429


def test_attempts_of_one_address_over_many_names_are_limited(client: Client) -> None:
    answers = [sign_in(client, username=f"user{number}").status_code for number in range(51)]
    assert answers == [422] * 50 + [429]


def test_successful_sign_in_resets_the_attempts(client: Client, user_of: Callable[..., User]) -> None:
    user_of("operator")
    for _ in range(2):
        for _ in range(ALLOWED - 1):
            sign_in(client, password="wrong")
        assert sign_in(client).status_code == 302
        client.post("/logout/")


def test_profile_is_checked_and_saved(signed_in: Client) -> None:
    assert signed_in.post("/settings/", {"time_zone": "Europe/Berlin"}).status_code == 302
    user = User.objects.get()
    assert (user.time_zone, user.single_keys) == ("Europe/Berlin", False)
    refused = signed_in.post("/settings/", {"time_zone": "Mars/Olympus"})
    assert refused.status_code == 422
    assert "Mars/Olympus" in refused.content.decode()
    assert User.objects.get().time_zone == "Europe/Berlin"


def test_token_is_created_shown_once_and_revoked(signed_in: Client) -> None:
    form = {"name": "ci", "scopes": ["read", "operate"], "days": "30", "networks": "10.0.0.0/8, fd00::/8"}
    response = signed_in.post("/settings/tokens/", form)
    assert response.status_code == 201
    assert "no-store" in response["Cache-Control"]
    secret = re.search(r"slu_[\w-]{40,}", response.content.decode())
    assert secret
    page = signed_in.get("/settings/tokens/").content.decode()
    assert "ci" in page
    assert secret[0] not in page
    token = User.objects.get().tokens.get()
    assert (token.scopes, token.networks) == (["read", "operate"], ["10.0.0.0/8", "fd00::/8"])
    assert signed_in.post(f"/settings/tokens/{token.pk}/revoke/").status_code == 302
    token.refresh_from_db()
    assert token.revoked_at


@pytest.mark.parametrize(
    ("field", "value"), [("networks", "10.0.0.0/99"), ("scopes", "admin"), ("days", "0"), ("name", "")]
)
def test_a_faulty_token_form_names_the_field(signed_in: Client, field: str, value: str) -> None:
    form = {"name": "ci", "scopes": ["read"], "days": "30", "networks": "", field: value}
    answer = signed_in.post("/settings/tokens/", form)
    assert answer.status_code == 422
    assert answer.context["token_form"].errors[field]
    assert not User.objects.get().tokens.exists()


def test_the_tokens_of_others_are_not_found(signed_in: Client, user_of: Callable[..., User]) -> None:
    other = user_of("admin").tokens.create(name="x", prefix="slu_", digest="0")
    assert signed_in.post(f"/settings/tokens/{other.pk}/revoke/").status_code == 404


class _Page(ScopeRequiredMixin, View):
    write_scope = "admit"

    def get(self, request: Any) -> HttpResponse:
        return HttpResponse(str(timezone.localtime(datetime(2026, 7, 1, tzinfo=UTC)).hour))

    post = get


def _ask(user: Any, method: str = "get", path: str = "/c/x/", **headers: str) -> Any:
    request = getattr(RequestFactory(), method)(path, headers=headers)
    request.user = user
    return request


def test_forbidden_page_names_the_required_role(user_of: Callable[..., User]) -> None:
    view = _Page.as_view()
    assert view(_ask(user_of("viewer"))).status_code == 200
    with pytest.raises(Forbidden, match=r"Your role \(Operator\).*Admitter or Administrator"):
        view(_ask(user_of("operator"), "post"))
    assert view(_ask(user_of("admitter"), "post")).status_code == 200


@pytest.mark.parametrize(("zone", "hour"), [("UTC", "0"), ("Europe/Berlin", "2"), ("Gone/Zone", "0")])
def test_times_are_in_the_users_zone_but_the_api_speaks_utc(user_of: Callable[..., User], zone: str, hour: str) -> None:
    user = user_of("viewer")
    user.time_zone = zone
    answer = TimeZoneMiddleware(_Page.as_view())
    assert answer(_ask(user)).content.decode() == hour
    assert answer(_ask(user, path="/api/v1/x")).content.decode() == "0"


def test_htmx_request_of_a_stranger_redirects_to_the_sign_in(client: Client) -> None:
    headers = {"HX-Request": "true", "HX-Current-URL": "http://testserver/c/x/"}
    answer = client.get("/settings/", headers=headers)
    assert (answer.status_code, answer["HX-Redirect"]) == (401, "/login/?next=/c/x/")


def test_faults_of_a_person_are_reported(user_of: Callable[..., User]) -> None:
    with pytest.raises(Malformed) as caught:
        user_create(username="a b!", password="short", role="king")
    assert {fault.path for fault in caught.value.faults} == {"username", "password", "role"}
    user_create(username="ada", password=PASSWORD, role="viewer")
    with pytest.raises(Conflict):
        user_create(username="ada", password=PASSWORD)


def test_create_admin_creates_the_first_administrator(monkeypatch: pytest.MonkeyPatch) -> None:
    out = StringIO()
    call_command("create_admin", stdout=out)
    password = out.getvalue().strip().rpartition(" ")[2]
    user = User.objects.get(username="admin")
    assert user.check_password(password)
    assert user.role == "admin"
    with pytest.raises(CommandError, match="already"):
        call_command("create_admin")
    call_command("create_admin", "--if-missing", stdout=out)
    monkeypatch.setenv("ADA", "short")
    with pytest.raises(CommandError, match="password"):
        call_command("create_admin", "--username", "ada", "--password-from-env", "ADA")
    monkeypatch.setenv("ADA", PASSWORD)
    call_command("create_admin", "--username", "ada", "--password-from-env", "ADA", stdout=out)
    assert User.objects.get(username="ada").check_password(PASSWORD)
    assert PASSWORD not in out.getvalue()


def test_person_changes_the_own_password(client: Client, user_of: Callable[..., User]) -> None:
    user_of("operator")
    elsewhere = Client()
    for browser in (client, elsewhere):
        sign_in(browser)
    asked = {"current": PASSWORD, "password": "another long one", "again": "another long one"}
    assert client.post("/settings/password/", asked).status_code == 302
    assert client.get("/settings/").status_code == 200
    assert elsewhere.get("/settings/").status_code == 302
    assert sign_in(Client()).status_code == 422
    assert sign_in(Client(), password="another long one").status_code == 302


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"current": "wrong"}, "this is not your present password"),
        ({"password": "short", "again": "short"}, "at least 10 characters"),
        ({"again": "another"}, "The two are not the same"),
    ],
)
def test_refused_password_changes_nothing(signed_in: Client, change: dict[str, str], text: str) -> None:
    asked = {"current": PASSWORD, "password": "another long one", "again": "another long one", **change}
    answer = signed_in.post("/settings/password/", asked)
    assert answer.status_code == 422
    assert text in answer.content.decode()
    assert "another long one" not in answer.content.decode()
    assert User.objects.get().check_password(PASSWORD)


def test_open_session_is_no_way_to_guess_the_password(signed_in: Client) -> None:
    asked = {"current": "wrong", "password": "another long one", "again": "another long one"}
    tried = [signed_in.post("/settings/password/", asked).status_code for _ in range(ALLOWED + 1)]
    assert tried == [422] * ALLOWED + [429]


def test_command_sets_a_password_and_prints_it_once(user_of: Callable[..., User]) -> None:
    out, user = StringIO(), user_of("operator")
    call_command("set_password", "--username", user.username, stdout=out)
    password = out.getvalue().split()[-1]
    assert User.objects.get().check_password(password)
    with pytest.raises(CommandError, match="there are: a-operator"):
        call_command("set_password", "--username", "nobody")


def test_command_refuses_a_weak_password(user_of: Callable[..., User], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEAK", "password")
    with pytest.raises(CommandError, match="too short"):
        call_command("set_password", "--username", user_of("operator").username, "--password-from-env", "WEAK")
