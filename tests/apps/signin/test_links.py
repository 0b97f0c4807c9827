"""Links that are mailed or shown once: another password, and invitations."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
import time_machine
from django.core import mail
from django.test import Client
from django.utils import timezone

from apps.accounts.grants import group_create
from apps.accounts.models import User
from apps.accounts.services import token_create, token_digest
from apps.accounts.teams import team_create
from apps.signin import password_resets
from apps.signin.invitations import invitation_create
from apps.signin.models import Invitation
from apps.signin.password_resets import password_reset_send
from apps.signin.provider import Provider
from apps.signin.provider_settings import ProviderSettings
from apps.signin.second_factor import enrolment_of
from apps.signin.service_accounts import service_account_create
from engine.redaction import redact_text
from tests.apps.conftest import PASSWORD
from tests.apps.pages.html import body

pytestmark = pytest.mark.django_db
NEW = {"password": "another long one", "again": "another long one"}


@pytest.fixture
def person(user_of: Callable[..., User], settings: Any) -> User:
    """`a-operator` with an address, on a console that sends mail."""
    settings.EMAIL_CONFIGURED, settings.PUBLIC_URL = True, "https://sluice.example.org"
    settings.EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"
    user = user_of("operator")
    user.email = "op@example.org"
    user.save()
    return user


@pytest.fixture
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process whose local time is Berlin's."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Europe/Berlin")
        time.tzset()
        yield
    time.tzset()


def link_of_mail() -> str:
    found = re.search(r"https://sluice\.example\.org(/\S+)", str(mail.outbox[-1].body))
    assert found
    return found[1]


def test_password_is_set_by_a_link_once(client: Client, person: User) -> None:
    client.force_login(person)
    assert [password_reset_send(name) for name in ("OP@example.org", person.username, "nobody")] == [1, 1, 0]
    link, browser = link_of_mail(), Client()
    assert "slr_" in link and link.rpartition("slr_")[2][8:-1] not in redact_text(f"GET {link}")
    assert person.username in body(browser.get(link))
    assert browser.post(link, {**NEW, "again": "other"}).status_code == 422
    assert browser.post(link, {"password": "short", "again": "short"}).status_code == 422
    assert browser.post(link, NEW).status_code == 200
    assert client.get("/settings/").status_code == 302
    assert User.objects.get().check_password(NEW["password"])
    for answer in (browser.get(link), browser.post(link, NEW)):
        assert answer.status_code == 404
        assert "was used, or has expired" in body(answer)


def test_link_works_for_an_hour(client: Client, person: User) -> None:
    password_reset_send(person.username)
    link = link_of_mail()
    with time_machine.travel(timezone.now() + timedelta(seconds=3700), tick=True):
        assert client.get(link).status_code == 404
    assert client.get(link[:-3] + "aa/").status_code == 404
    assert client.get("/login/reset/slr_xx-yy/").status_code == 404


@pytest.mark.parametrize("change", ["2026-10-25T00:30:00Z", "2026-03-29T00:30:00Z"])
def test_clocks_that_change_leave_a_link_its_hour(client: Client, person: User, zone: None, change: str) -> None:
    with time_machine.travel(change, tick=True) as clock:
        password_reset_send(person.username)
        link = link_of_mail()
        clock.shift(timedelta(minutes=50))  # the clocks of Berlin change after half of it
        assert client.get(link).status_code == 200
        clock.shift(timedelta(minutes=15))
        assert client.get(link).status_code == 404


def test_nobody_learns_whether_there_is_an_account(client: Client, person: User, monkeypatch: Any) -> None:
    asked: list[str] = []
    monkeypatch.setattr(password_resets.current_app, "send_task", lambda name, args, **_: asked.append(args[0]))
    names = (person.username, "nobody")
    pages = [body(client.post("/login/forgotten/", {"name": name})) for name in names]
    assert pages[0] == pages[1]
    assert asked == list(names)
    answers = [client.post("/login/forgotten/", {"name": "nobody"}).status_code for _ in range(6)]
    assert answers[-1] == 429


def test_who_signs_in_elsewhere_is_sent_no_link(person: User, settings: Any) -> None:
    settings.LOCAL_ACCOUNTS = frozenset({"root"})
    assert password_reset_send(person.username) == 0
    settings.LOCAL_ACCOUNTS = frozenset()
    person.set_unusable_password()
    person.save()
    assert password_reset_send(person.username) == 0


def test_somebody_is_invited_and_makes_an_account_once(client: Client, user_of: Callable[..., User]) -> None:
    client.force_login(user_of("admin"))
    group = group_create(name="platform")
    form = {"note": "Ada of Payments", "role": "operator", "groups": [group.pk], "days": 3, "email": ""}
    shown = client.post("/settings/people/invitations/", form)
    assert shown.status_code == 201
    found = re.search(r"http://testserver(/invitation/(sli_[\w-]+)/)", shown.content.decode())
    assert found
    link, secret = found[1], found[2]
    assert Invitation.objects.get().digest == token_digest(secret)
    assert secret not in body(client.get("/settings/people/invitations/"))
    browser = Client()
    assert "Operator" in body(browser.get(link))
    assert browser.post(link, {"username": "a-admin", **NEW}).status_code == 422
    assert Invitation.objects.get().used_at is None
    assert browser.post(link, {"username": "ada", **NEW}).status_code == 302
    ada = User.objects.get(username="ada")
    assert (ada.role, [group.name for group in ada.memberships.all()]) == ("operator", ["platform"])
    assert browser.get("/settings/").status_code == 200
    assert Client().get(link).status_code == 404
    assert Client().post(link, {"username": "bob", **NEW}).status_code == 404
    assert not User.objects.filter(username="bob").exists()


def test_invitation_is_taken_back_and_expires(client: Client, user_of: Callable[..., User]) -> None:
    client.force_login(user_of("admin"))
    links = []
    for _ in range(2):
        shown = client.post("/settings/people/invitations/", {"note": "x", "role": "viewer", "days": 1})
        links += re.findall(r"/invitation/sli_[\w-]+/", shown.content.decode())[:1]
    last = Invitation.objects.first()
    assert last
    client.post(f"/settings/people/invitations/{last.pk}/revoke/")
    assert [Client().get(link).status_code for link in links] == [200, 404]
    with time_machine.travel(timezone.now() + timedelta(days=1, seconds=1), tick=True):
        assert Client().get(links[0]).status_code == 404


def test_invitations_are_for_administrators(client: Client, user_of: Callable[..., User]) -> None:
    client.force_login(user_of("admitter"))
    assert client.get("/settings/people/invitations/").status_code == 403
    assert client.post("/settings/people/invitations/", {"note": "x", "role": "admin", "days": 1}).status_code == 403


@pytest.mark.parametrize(
    ("field", "value"), [("days", 31), ("role", "king"), ("note", ""), ("email", "op@example.org")]
)
def test_faulty_invitation_names_the_field(client: Client, person: User, user_of: Any, field: str, value: Any) -> None:
    client.force_login(user_of("admin"))
    form = {"note": "x", "role": "viewer", "days": 1, "email": "", field: value}
    answer = client.post("/settings/people/invitations/", form)
    assert answer.status_code == 422
    assert answer.context["form"].errors[field]
    assert not Invitation.objects.exists()


def test_mailed_invitation_goes_to_its_address(client: Client, person: User, user_of: Callable[..., User]) -> None:
    client.force_login(user_of("admin"))
    form = {"note": "Ada", "role": "viewer", "days": 1, "email": "ada@example.org"}
    assert "on its way to ada@example.org" in body(client.post("/settings/people/invitations/", form))
    assert mail.outbox[-1].to == ["ada@example.org"]
    assert Client().post(link_of_mail(), {"username": "ada", **NEW}).status_code == 302
    assert User.objects.get(username="ada").email == "ada@example.org"
    assert PASSWORD not in str(mail.outbox[-1].body)


def test_secrets_of_the_sign_in_are_taken_out_of_logs(person: User, user_of: Callable[..., User]) -> None:
    """Also where they stand alone, as in the message of an error."""
    _, invitation = invitation_create(by=user_of("admin"), note="Ada", role="viewer")
    account = service_account_create(name="ci", team=team_create(name="Release"), by=user_of("admin"), role="viewer")
    _, token = token_create(user=account.user, name="ci", scopes=["read"])
    password_reset_send(person.username)
    link = link_of_mail()
    client_secret = "oidc-client-secret-of-the-test"
    Provider(ProviderSettings("Keys", "http://127.0.0.1:1", "sluice", client_secret))
    secrets = [invitation, token, link.split("/")[-2], enrolment_of(person).secret, client_secret]
    for secret in secrets:
        assert secret[8:] not in redact_text(f"refused: {secret} (try again)"), secret
        assert secret[8:] not in redact_text(f"GET /x/{secret}/ HTTP/1.1")
