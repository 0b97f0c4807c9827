"""Second factor of local accounts: setting it up, signing in with it, recovery, and roles that need one."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pyotp
import pytest
import time_machine
from django.test import Client
from django.utils import timezone

from apps.accounts.attempts import ALLOWED
from apps.accounts.models import User
from apps.core.errors import Forbidden
from apps.signin.models import SecondFactor
from apps.signin.second_factor import enrolment_of, second_factor_confirm, second_factor_remove
from tests.apps.conftest import PASSWORD
from tests.apps.pages.html import body

pytestmark = pytest.mark.django_db


def code_of(secret: str, steps: int = 0) -> str:
    return pyotp.TOTP(secret).at(timezone.now().timestamp() + 30 * steps)


@pytest.fixture
def secret(user_of: Callable[..., User]) -> str:
    """The key of the authenticator app of `a-operator`, who has used its code of the moment."""
    secret = enrolment_of(user_of("operator")).secret
    second_factor_confirm(user=user_of("operator"), code=code_of(secret, -1))
    return secret


def sign_in(client: Client, name: str = "a-operator") -> Any:
    return client.post("/login/", {"username": name, "password": PASSWORD, "next": "/settings/"})


def is_in(client: Client) -> bool:
    return client.get("/settings/").status_code == 200


def test_second_factor_is_set_up_with_a_first_code(client: Client, user_of: Callable[..., User]) -> None:
    client.force_login(user_of("operator"))
    page = body(client.get("/settings/second-factor/"))
    secret = re.search(r"[A-Z2-7]{32}", page)
    assert secret and "<svg" in page
    assert client.post("/settings/second-factor/", {"code": "000000"}).status_code == 422
    assert not SecondFactor.objects.filter(confirmed_at__isnull=False).exists()
    answer = client.post("/settings/second-factor/", {"code": code_of(secret[0])})
    assert answer.status_code == 201
    assert len(re.findall(r"\b(?:[a-z2-9]{4}-){3}[a-z2-9]{4}\b", answer.content.decode())) == 10
    assert secret[0] not in str(SecondFactor.objects.values())
    assert client.get("/settings/second-factor/").status_code == 302
    assert "10 recovery codes left" in body(client.get("/settings/sign-in/"))


def test_code_is_asked_for_after_the_password(client: Client, secret: str) -> None:
    assert sign_in(client)["Location"] == "/login/code/"
    assert not is_in(client)
    assert client.post("/login/code/", {"code": "123"}).status_code == 422
    assert client.post("/login/code/", {"code": code_of(secret)})["Location"] == "/settings/"
    assert is_in(client)


def test_code_counts_once(client: Client, secret: str) -> None:
    code = code_of(secret)
    sign_in(client)
    client.post("/login/code/", {"code": code})
    again = Client()
    sign_in(again)
    assert again.post("/login/code/", {"code": code}).status_code == 422
    assert not is_in(again)


def test_codes_are_not_guessed_by_repeating_the_password(client: Client, secret: str) -> None:
    answers = []
    for _ in range(ALLOWED):
        answers.append(sign_in(client).status_code)
        answers.append(client.post("/login/code/", {"code": "000000"}).status_code)
    assert 429 in answers
    assert sign_in(client).status_code == 429


def test_password_alone_waits_for_ten_minutes(client: Client, secret: str) -> None:
    sign_in(client)
    with time_machine.travel(timezone.now().timestamp() + 601, tick=True):
        assert client.post("/login/code/", {"code": code_of(secret)})["Location"] == "/login/"
        assert not is_in(client)


def test_recovery_code_stands_in_once(client: Client, user_of: Callable[..., User]) -> None:
    user = user_of("operator")
    codes = second_factor_confirm(user=user, code=code_of(enrolment_of(user).secret))
    for answer in (302, 422):
        browser = Client()
        sign_in(browser)
        assert browser.post("/login/code/", {"code": codes[0].upper().replace("-", " ")}).status_code == answer


def test_second_factor_is_switched_off_with_a_code_alone(client: Client, secret: str) -> None:
    sign_in(client)
    client.post("/login/code/", {"code": code_of(secret)})
    client.post("/settings/second-factor/remove/", {"code": "000000"})
    assert SecondFactor.objects.exists()
    client.post("/settings/second-factor/remove/", {"code": code_of(secret, 1)})
    assert not SecondFactor.objects.exists()


def test_role_that_needs_a_second_factor_does_nothing_before(
    client: Client, user_of: Callable[..., User], settings: Any
) -> None:
    settings.SECOND_FACTOR_ROLES = frozenset({"admitter"})
    admin = user_of("admin")
    sign_in(client, admin.username)
    assert client.get("/settings/people/")["Location"] == "/settings/second-factor/"
    refused = client.get("/api/v1/tokens")
    assert (refused.status_code, refused.json()["code"]) == (403, "second_factor_missing")
    part = {"HX-Request": "true"}
    assert client.get("/settings/", headers=part)["HX-Redirect"] == "/settings/second-factor/"
    part["HX-Current-URL"] = "http://testserver/settings/second-factor/"
    assert client.get("/settings/", headers=part).status_code == 204
    code = code_of(enrolment_of(admin).secret)
    assert client.post("/settings/second-factor/", {"code": code}).status_code == 201
    assert client.get("/settings/people/").status_code == 200
    with pytest.raises(Forbidden, match="needs a second factor"):
        second_factor_remove(user=admin, by=admin)
    other = Client()
    other.force_login(user_of("operator"))
    assert is_in(other)
