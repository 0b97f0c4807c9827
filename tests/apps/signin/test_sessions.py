"""Sessions: whose they are, where they began, and their end."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
import time_machine
from django.http import HttpRequest
from django.test import Client
from django.utils import timezone
from rest_framework.test import APIClient

from apps.accounts.models import User
from apps.accounts.services import password_set, user_update
from apps.core.clock import shared_now
from apps.ledger.entries import sign_in_recorded
from apps.ledger.models import ObjectChange
from apps.signin.models import SecondFactor, Session
from apps.signin.sessions import browser_label, sessions_of, sessions_purge
from tests.apps.conftest import PASSWORD
from tests.apps.pages.html import body

pytestmark = pytest.mark.django_db
FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"


@pytest.fixture
def two(client: Client, user_of: Callable[..., User]) -> tuple[Client, Client]:
    """Two browsers in which `a-operator` has signed in."""
    user, other = user_of("operator"), Client(REMOTE_ADDR="192.0.2.7", headers={"User-Agent": FIREFOX})
    for browser in (other, client):
        assert browser.post("/login/", {"username": user.username, "password": PASSWORD}).status_code == 302
    return client, other


def test_expired_sessions_are_removed() -> None:
    for key, hours in (("over", -1), ("open", 1)):
        Session.objects.create(session_key=key, session_data="", expire_date=shared_now() + timedelta(hours=hours))
    assert sessions_purge() == 1
    assert [session.session_key for session in Session.objects.all()] == ["open"]


def test_sessions_are_listed_with_where_they_began(two: tuple[Client, Client]) -> None:
    page = body(two[0].get("/settings/sign-in/"))
    assert "2 open sessions" in page
    assert "Firefox on Linux" in page and "192.0.2.7" in page and "this one" in page
    assert two[1].session.session_key not in page


def test_one_session_is_ended(two: tuple[Client, Client], user_of: Callable[..., User]) -> None:
    user = user_of("operator")
    other = next(session for session in sessions_of(user) if session.browser.startswith("Firefox"))
    assert two[0].post(f"/settings/sign-in/sessions/{other.id}/end/").status_code == 302
    assert two[1].get("/settings/").status_code == 302
    assert two[0].get("/settings/").status_code == 200
    assert two[0].post(f"/settings/sign-in/sessions/{other.id}/end/").status_code == 404


def test_sessions_are_listed_and_ended_over_rest(
    two: tuple[Client, Client], api_of: Callable[..., APIClient], user_of: Callable[..., User]
) -> None:
    """One's own in a session alone; those of somebody by an administrator."""
    path, user = "/api/v1/sessions", user_of("operator")
    own, other = two[0].get(path).json()
    assert own["is_current"] and not other["is_current"] and other["browser"] == "Firefox on Linux"
    token = api_of("operator")
    assert not any(row["is_current"] for row in token.get(path).json())
    assert token.delete(f"{path}/{other['id']}").json()["code"] == "session_only"
    assert two[0].delete(f"{path}/{other['id']}").status_code == 204
    assert two[0].delete(f"{path}/{other['id']}").status_code == 404
    assert two[1].get(path).status_code == 401
    assert two[0].delete(path).status_code == 204 and two[0].get(path).status_code == 200
    path = f"/api/v1/people/{user.pk}/sessions"
    assert token.get(path).status_code == 403
    admin = api_of("admin")
    assert [row["id"] for row in admin.get(path).json()] == [own["id"]]
    assert admin.delete(path).status_code == 204 and two[0].get("/settings/").status_code == 302


def test_a_session_does_not_outlive_that_its_person_was_switched_off(
    two: tuple[Client, Client], user_of: Callable[..., User]
) -> None:
    user, admin = user_of("operator"), user_of("admin")
    for is_active in (False, True):
        user_update(user=user, by=admin, is_active=is_active)
    assert [browser.get("/settings/").status_code for browser in two] == [302, 302]
    assert not Session.objects.filter(user=user).exists()


def test_sign_ins_and_refused_ones_are_in_the_ledger(two: tuple[Client, Client]) -> None:
    stranger = Client(REMOTE_ADDR="203.0.113.9")
    for name in ("a-operator", "correct horse battery"):
        assert stranger.post("/login/", {"username": name, "password": "no"}).status_code == 422
    entries = [
        (row.name, row.action, row.address) for row in ObjectChange.objects.filter(kind="session").order_by("pk")
    ]
    assert entries == [
        ("a-operator", "created", "192.0.2.7"),
        ("a-operator", "created", "127.0.0.1"),
        ("a-operator", "refused", "203.0.113.9"),
        ("nobody's name", "refused", "203.0.113.9"),
    ]
    for _ in range(20):
        sign_in_recorded(HttpRequest(), name="", key=None, refusal="wrong")
    assert ObjectChange.objects.filter(kind="session", action="refused").count() == 21


def test_an_administrator_ends_sessions_and_removes_a_second_factor(
    two: tuple[Client, Client], user_of: Callable[..., User]
) -> None:
    user, page = user_of("operator"), Client()
    page.force_login(user_of("admin"))
    SecondFactor.objects.create(user=user, secret="", confirmed_at=timezone.now())
    address = f"/settings/people/{user.pk}/"
    shown = body(page.get(address))
    assert "Firefox on Linux" in shown and "A second factor is set up." in shown
    assert page.post(address, {"sessions": "end"}).status_code == 302
    assert page.post(address, {"second_factor": "remove"}).status_code == 302
    assert [browser.get("/settings/").status_code for browser in two] == [302, 302]
    assert not SecondFactor.objects.exists()


def test_all_other_sessions_are_ended(two: tuple[Client, Client]) -> None:
    two[0].post("/settings/sign-in/sessions/end/")
    assert (two[0].get("/settings/").status_code, two[1].get("/settings/").status_code) == (200, 302)
    assert Session.objects.count() == 1


def test_sessions_of_others_are_not_found(two: tuple[Client, Client], user_of: Callable[..., User]) -> None:
    stranger = Client()
    stranger.force_login(user_of("admin"))
    for session in sessions_of(user_of("operator")):
        assert stranger.post(f"/settings/sign-in/sessions/{session.id}/end/").status_code == 404
    assert two[0].get("/settings/").status_code == 200


def test_session_of_another_password_is_not_listed(two: tuple[Client, Client], user_of: Callable[..., User]) -> None:
    password_set(user=user_of("operator"), password="another long one", by=None)
    assert sessions_of(User.objects.get(username="a-operator")) == []


def test_session_is_seen_every_five_minutes(two: tuple[Client, Client], user_of: Callable[..., User]) -> None:
    user = user_of("operator")
    before = {session.seen_at for session in sessions_of(user)}
    two[0].get("/settings/")
    assert {session.seen_at for session in sessions_of(user)} == before
    with time_machine.travel(timezone.now() + timedelta(minutes=6), tick=True):
        two[0].get("/settings/")
        assert len({session.seen_at for session in sessions_of(user)} - before) == 1


def test_browsers_are_told_apart() -> None:
    agents = {
        "Mozilla/5.0 (Windows NT 10.0) AppleWebKit/537.36 Chrome/140.0 Safari/537.36 Edg/140.0": "Edge on Windows",
        "Mozilla/5.0 (Macintosh; Intel Mac OS X 15_0) AppleWebKit/605 Version/19 Safari/605": "Safari on macOS",
        "Mozilla/5.0 (Linux; Android 16) AppleWebKit/537 Chrome/140.0 Mobile Safari/537": "Chrome on Android",
        "curl/8.0": "curl/8.0",
        "": "unknown browser",
    }
    assert {agent: browser_label(agent) for agent in agents} == agents
