"""Signing in at a real provider, and at one that lies, changes its keys, is slow or away."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from joserfc.jwk import RSAKey

from apps.accounts.grants import grant_give, group_create
from apps.accounts.models import Group, User
from apps.accounts.services import user_create
from apps.signin import provider as provider_module
from apps.signin.models import ProviderAccount, ProviderSession, Session
from apps.signin.provider_accounts import UNRENEWED, provider_sessions_renew
from tests.apps.conftest import PASSWORD
from tests.apps.pages.html import body
from tests.apps.signin.providers import LyingProvider, RealProvider, lying_provider, real_provider, settings_of

pytestmark = [pytest.mark.django_db, pytest.mark.process]


@pytest.fixture(scope="module")
def _provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealProvider]:
    with real_provider(tmp_path_factory.mktemp("provider")) as provider:
        yield provider


@pytest.fixture
def provider(_provider: RealProvider, settings: Any) -> RealProvider:
    settings.PROVIDER = settings_of(_provider.url)
    return _provider


@pytest.fixture
def liar(settings: Any) -> Iterator[LyingProvider]:
    with lying_provider() as provider:
        settings.PROVIDER = settings_of(provider.url)
        yield provider


def user_of_client(client: Client) -> str:
    key = client.session.get("_auth_user_id")
    return User.objects.get(pk=key).username if key else ""


def test_person_signs_in_at_a_real_provider_and_out_again(client: Client, provider: RealProvider) -> None:
    provider.set_person("grace-1", preferred_username="grace", email="grace@example.org", email_verified=True)
    assert "Sign in with Keys" in body(client.get("/login/"))
    answer = provider.sign_in(client, "grace-1")
    assert (answer.status_code, answer["Location"]) == (302, "/settings/")
    user = User.objects.get(username="grace")
    assert (user.email, user.has_usable_password(), user_of_client(client)) == ("grace@example.org", False, "grace")
    assert "by provider" in body(client.get("/settings/sign-in/"))
    left = client.post("/logout/")
    assert left.headers["Refresh"].startswith(f"1; url={provider.url}/oauth2/end_session?id_token_hint=")
    assert not ProviderSession.objects.exists()
    assert provider.sign_in(client, "grace-1").status_code == 302
    assert User.objects.filter(username__startswith="grace").count() == 1


def test_session_is_renewed_and_ends_when_the_provider_says_so(client: Client, provider: RealProvider) -> None:
    group_create(name="platform")
    group_create(name="on-call")
    provider.set_person("mary-1", preferred_username="mary", groups=["/platform", "unknown"])
    provider.sign_in(client, "mary-1")
    before = ProviderSession.objects.get()
    mary = User.objects.get()
    Group.objects.get(name="on-call").members.add(mary)
    assert {group.name for group in mary.memberships.all()} == {"platform", "on-call"}
    provider.set_person("mary-1", preferred_username="mary", groups=[])
    assert provider_sessions_renew() == 0
    ProviderSession.objects.update(renew_at=timezone.now())
    assert provider_sessions_renew() == 1
    after = ProviderSession.objects.get()
    assert after.renewed_at > before.renewed_at
    assert {group.name for group in mary.memberships.all()} == {"on-call"}
    assert client.get("/settings/").status_code == 200
    provider.revoke("mary-1")
    ProviderSession.objects.update(renew_at=timezone.now())
    assert provider_sessions_renew() == 1
    assert client.get("/settings/").status_code == 302
    assert not Session.objects.filter(user__username="mary").exists()


def test_group_that_vanishes_does_not_take_the_last_administrator(client: Client, liar: LyingProvider) -> None:
    grant_give(group=group_create(name="admins"), role="admin")
    liar.change_userinfo = lambda told: told.update(groups=["admins"])
    liar.sign_in(client)
    user = User.objects.get()
    assert "admin" in user.scopes
    liar.change_userinfo = lambda told: told.update(groups="not a group")
    assert liar.sign_in(Client()).status_code == 302
    assert "admin" in User.objects.get().scopes
    other = user_create(username="root", password=PASSWORD, role="admin")
    assert liar.sign_in(Client()).status_code == 302
    assert "admin" not in User.objects.get(pk=user.pk).scopes
    assert "admin" in other.scopes


def test_provider_that_is_away_ends_no_session_until_it_has_been_so_for_long(
    client: Client, liar: LyingProvider, settings: Any
) -> None:
    liar.sign_in(client)
    settings.PROVIDER = settings_of("http://127.0.0.1:1")
    ProviderSession.objects.update(renew_at=timezone.now(), refresh_token=ProviderSession.objects.get().id_token)
    assert provider_sessions_renew() == 1
    assert client.get("/settings/").status_code == 200
    ProviderSession.objects.update(renew_at=timezone.now(), renewed_at=timezone.now() - UNRENEWED)
    provider_sessions_renew()
    assert client.get("/settings/").status_code == 302


def test_account_with_the_address_is_linked_after_its_password_alone(
    client: Client, provider: RealProvider, user_of: Callable[..., User]
) -> None:
    admin = user_of("admin")
    User.objects.filter(pk=admin.pk).update(email="Root@example.org")
    provider.set_person("eve-1", preferred_username="eve", email="root@example.org", email_verified=True)
    answer = provider.sign_in(client, "eve-1")
    assert answer["Location"] == "/login/link/"
    assert user_of_client(client) == ""
    assert not ProviderAccount.objects.exists()
    assert "root@example.org" in body(client.get("/login/link/"))
    assert client.post("/login/link/", {"username": admin.username, "password": "wrong"}).status_code == 422
    assert not ProviderAccount.objects.exists()
    assert client.post("/login/link/", {"username": admin.username, "password": PASSWORD}).status_code == 302
    assert ProviderAccount.objects.get().user == admin
    assert provider.sign_in(Client(), "eve-1")["Location"] == "/settings/"


def test_account_is_linked_in_a_session_of_its_own_and_unlinked(
    client: Client, provider: RealProvider, user_of: Callable[..., User]
) -> None:
    provider.set_person("joan-1", preferred_username="a-viewer")
    client.force_login(user_of("viewer"))
    page = client.post("/login/provider/")
    url = page.context["url"]
    assert provider.come_back(client, url, "joan-1")["Location"] == "/settings/sign-in/"
    assert ProviderAccount.objects.get().user == user_of("viewer")
    assert client.post("/settings/sign-in/unlink/").status_code == 302
    assert not ProviderAccount.objects.exists()


def test_answer_to_a_link_that_somebody_else_began_links_nothing(
    client: Client, provider: RealProvider, user_of: Callable[..., User]
) -> None:
    client.force_login(user_of("viewer"))
    url = client.post("/login/provider/").context["url"]
    session = client.session
    asked = session["sign_in_asked"]
    client.force_login(user_of("admin"))
    session = client.session
    session["sign_in_asked"] = asked
    session.save()
    assert provider.come_back(client, url, "joan-2").status_code == 403
    assert not ProviderAccount.objects.exists()


def test_taken_name_leads_into_nobodys_account(
    client: Client, provider: RealProvider, user_of: Callable[..., User]
) -> None:
    provider.set_person("mallory-1", preferred_username=user_of("admin").username)
    provider.sign_in(client, "mallory-1")
    assert user_of_client(client) == "a-admin-2"
    assert "admin" not in User.objects.get(username="a-admin-2").scopes


def test_unverified_address_is_nobodys(client: Client, liar: LyingProvider, user_of: Callable[..., User]) -> None:
    User.objects.filter(pk=user_of("admin").pk).update(email="ada@example.org")
    liar.change_userinfo = lambda told: told.update(email_verified=False)
    assert liar.sign_in(client).status_code == 302
    assert (user_of_client(client), User.objects.get(username="ada").email) == ("ada", "")


def test_switched_off_account_does_not_come_in(client: Client, liar: LyingProvider) -> None:
    liar.sign_in(client)
    User.objects.update(is_active=False)
    answer = liar.sign_in(Client())
    assert answer.status_code == 403
    assert "switched off" in body(answer)


LIES: dict[str, Callable[[LyingProvider], object]] = {
    "another nonce": lambda liar: setattr(liar, "change_claims", lambda claims: claims.update(nonce="other")),
    "no nonce": lambda liar: setattr(liar, "change_claims", lambda claims: claims.update(nonce=None)),
    "for another client": lambda liar: setattr(liar, "change_claims", lambda claims: claims.update(aud="other")),
    "for another client as well": lambda liar: setattr(
        liar, "change_claims", lambda claims: claims.update(aud=["sluice", "other"], azp="other")
    ),
    "of another issuer": lambda liar: setattr(liar, "change_claims", lambda claims: claims.update(iss="http://x.org")),
    "expired": lambda liar: setattr(liar, "change_claims", lambda claims: claims.update(exp=claims["iat"] - 61)),
    "from the future": lambda liar: setattr(
        liar, "change_claims", lambda claims: claims.update(iat=claims["iat"] + 120, exp=claims["exp"] + 120)
    ),
    "without a subject": lambda liar: setattr(liar, "change_claims", lambda claims: claims.update(sub=None)),
    "a subject that is a list": lambda liar: setattr(liar, "change_claims", lambda claims: claims.update(sub=["a"])),
    "unsigned": lambda liar: setattr(liar, "header", {"alg": "none"}),
    "signed with the client's secret": lambda liar: setattr(liar, "header", {"alg": "HS256"}),
    "signed with another key": lambda liar: setattr(liar, "signed_with", RSAKey.generate_key(2048, {"kid": "1"})),
    "telling of somebody else": lambda liar: setattr(liar, "change_userinfo", lambda told: told.update(sub="bob-1")),
    "calling itself another": lambda liar: setattr(
        liar, "change_metadata", lambda metadata: metadata.update(issuer="http://evil.example")
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_token_that_is_not_for_this_sign_in_lets_nobody_in(client: Client, liar: LyingProvider, lie: str) -> None:
    honest_metadata = lie != "calling itself another"
    if honest_metadata:
        LIES[lie](liar)
        answer = liar.sign_in(client)
    else:
        LIES[lie](liar)
        answer = client.get("/login/provider/")
    assert answer.status_code == 403
    assert "cannot be trusted" in body(answer)
    assert (user_of_client(client), User.objects.count()) == ("", 0)


def test_clock_may_differ_a_little(client: Client, liar: LyingProvider) -> None:
    liar.change_claims = lambda claims: claims.update(iat=claims["iat"] + 40, exp=claims["iat"] - 20)
    assert liar.sign_in(client).status_code == 302


def test_another_key_counts_at_once(client: Client, liar: LyingProvider) -> None:
    assert liar.sign_in(client).status_code == 302
    liar.key = RSAKey.generate_key(2048, {"kid": "2"})
    liar.header = {"alg": "RS256", "kid": "2"}
    assert liar.sign_in(Client()).status_code == 302
    liar.signed_with = RSAKey.generate_key(2048, {"kid": "2"})
    assert liar.sign_in(Client()).status_code == 403


def test_state_counts_once_and_in_its_own_browser(client: Client, liar: LyingProvider) -> None:
    assert client.get("/login/provider/answer/", {"state": "made-up", "code": "c"}).status_code == 403
    assert client.get("/login/provider/answer/").status_code == 403
    liar.sign_in(client)
    elsewhere = Client()
    url = client.get("/login/provider/")["Location"]
    state = url.partition("state=")[2].partition("&")[0]
    assert elsewhere.get("/login/provider/answer/", {"state": state, "code": "c"}).status_code == 403
    refused = client.get("/login/provider/answer/", {"state": state, "error": "access_denied"})
    assert refused.status_code == 403
    assert "did not sign you in" in body(refused)
    assert client.get("/login/provider/answer/", {"state": state, "code": "c"}).status_code == 403


@pytest.mark.parametrize("kind", ["away", "slow", "dribbling"])
def test_local_sign_in_goes_on_while_the_provider_does_not_answer(
    client: Client, liar: LyingProvider, user_of: Callable[..., User], monkeypatch: Any, settings: Any, kind: str
) -> None:
    monkeypatch.setattr(provider_module, "TIMEOUT_S", 0.2)
    monkeypatch.setattr(provider_module, "MAX_DURATION_S", 0.3)
    if kind == "away":
        settings.PROVIDER = settings_of("http://127.0.0.1:1")
    liar.delay_s = 0.6 if kind == "slow" else 0.0
    liar.dribble = kind == "dribbling"
    answer = client.get("/login/provider/")
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")
    assert "answer" in body(answer)
    assert 'name="password"' in body(answer)
    user = user_of("viewer")
    assert client.post("/login/", {"username": user.username, "password": PASSWORD}).status_code == 302


def test_passwords_are_for_named_accounts_alone(
    client: Client, liar: LyingProvider, user_of: Callable[..., User], settings: Any
) -> None:
    settings.LOCAL_ACCOUNTS = frozenset({"a-admin"})
    refused = client.post("/login/", {"username": user_of("viewer").username, "password": PASSWORD})
    assert refused.status_code == 422
    assert "accounts for emergencies" in body(refused)
    assert client.post("/login/", {"username": user_of("admin").username, "password": PASSWORD}).status_code == 302


def test_provider_ends_sessions_by_a_signed_message(client: Client, liar: LyingProvider) -> None:
    liar.change_claims = lambda claims: claims.update(sid="s-1")
    liar.sign_in(client)
    now = int(time.time())
    claims = {"iss": liar.url, "aud": "sluice", "iat": now, "exp": now + 60, "jti": "1", "sid": "s-1"}
    event = {"events": {"http://schemas.openid.net/event/backchannel-logout": {}}}
    stranger = Client()
    for wrong in ({**claims}, {**claims, **event, "nonce": "n"}, {**claims, **event, "aud": "x"}):
        assert stranger.post("/login/provider/logout/", {"logout_token": liar.sign(wrong)}).status_code == 403
    assert client.get("/settings/").status_code == 200
    assert stranger.post("/login/provider/logout/", {"logout_token": liar.sign({**claims, **event})}).status_code == 200
    assert client.get("/settings/").status_code == 302


def test_sign_in_leads_to_no_other_site(client: Client, provider: RealProvider) -> None:
    provider.set_person("lin-1", preferred_username="lin")
    assert provider.sign_in(client, "lin-1", "/login/provider/?next=https://evil.example/")["Location"] == "/"


def test_expired_session_leaves_nothing_at_the_provider_to_renew(client: Client, liar: LyingProvider) -> None:
    liar.sign_in(client)
    Session.objects.update(expire_date=timezone.now() - timedelta(seconds=1))
    Session.objects.all().delete()
    ProviderSession.objects.update(renew_at=timezone.now())
    assert provider_sessions_renew() == 0
