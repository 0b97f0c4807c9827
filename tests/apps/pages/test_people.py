"""People, groups and teams in the browser, and who may do what where, for administrators."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.test import Client

from apps.accounts.models import Grant, Group, Team, User
from tests.apps.pages.html import body
from tests.apps.small_cluster import small_cluster

pytestmark = pytest.mark.django_db


def test_people_are_managed_by_administrators_only(browser: Client, browser_of: Callable[..., Client]) -> None:
    assert browser.get("/settings/people/").status_code == 403
    admin = browser_of("admin")
    short = admin.post("/settings/people/", {"username": "bob", "password": "short", "role": "viewer"})
    assert short.status_code == 422
    assert 'id="id_password_error"' in body(short)
    admin.post("/settings/people/", {"username": "bob", "password": "a-long-password-1", "role": "viewer"})
    bob = User.objects.get(username="bob")
    assert "bob" in body(admin.get("/settings/people/"))
    admin.post(f"/settings/people/{bob.pk}/", {"role": "admitter"})
    admin.post(f"/settings/people/{bob.pk}/", {"is_active": "false"})
    bob.refresh_from_db()
    assert (bob.role, bob.is_active) == ("admitter", False)
    oneself = User.objects.get(username="a-admin")
    assert admin.post(f"/settings/people/{oneself.pk}/", {"role": "viewer"}).status_code == 403


def test_roles_are_given_and_taken_away_and_the_page_says_why(browser_of: Callable[..., Client]) -> None:
    admin, cluster = browser_of("admin"), small_cluster("west")
    admin.post("/settings/people/", {"username": "bob", "password": "a-long-password-1", "role": "viewer"})
    bob = User.objects.get(username="bob")
    unknown = admin.post("/settings/groups/", {"name": "platform", "members": "bob, eve"})
    assert unknown.status_code == 422
    assert "There is no person" in body(unknown)
    admin.post("/settings/groups/", {"name": "platform", "members": "bob"})
    group = Group.objects.get()
    admin.post("/settings/teams/", {"name": "ads", "description": "Bids"})
    asked = {"group": group.pk, "role": "admitter", "place": f"cluster:{cluster.pk}"}
    assert admin.post("/settings/grants/", asked)["Location"] == f"/settings/groups/{group.pk}/"
    admin.post("/settings/grants/", {"user": bob.pk, "role": "author", "place": f"team:{Team.objects.get().pk}"})
    page = body(admin.get(f"/settings/people/{bob.pk}/"))
    for words in ("Admitter", "cluster west", "group platform", "Author", "team ads", "given to bob"):
        assert words in page
    given = Grant.objects.get(group=group)
    admin.post(f"/settings/grants/{given.pk}/remove/")
    assert not group.grants.exists()
    assert "No role yet" in body(admin.get(f"/settings/groups/{group.pk}/"))
    assert "bob" in body(admin.get(f"/settings/teams/{Team.objects.get().pk}/"))


def test_a_role_is_given_on_labels_and_told_in_words(browser_of: Callable[..., Client]) -> None:
    admin, cluster = browser_of("admin"), small_cluster("west")
    bob = User.objects.create_user("bob")
    asked = {"user": bob.pk, "role": "author", "place": f"cluster:{cluster.pk}", "selector": "!canary, tier in (b,a)"}
    admin.post("/settings/grants/", asked)
    shown = body(admin.get(f"/settings/people/{bob.pk}/"))
    assert "what has labels in cluster west: canary is not set, and tier is a or b" in shown
    refused = admin.post("/settings/grants/", {**asked, "selector": "tier>1,a b"})
    assert refused.status_code == 400 and body(refused).count("is no requirement") >= 2
    assert admin.post("/settings/grants/", {**asked, "place": ""}).status_code == 400
    assert admin.post("/settings/grants/", {**asked, "selector": " "}).status_code == 400
    assert bob.grants.count() == 1


def test_an_unknown_place_is_refused(browser_of: Callable[..., Client]) -> None:
    admin = browser_of("admin")
    refused = admin.post("/settings/grants/", {"user": "1", "role": "king", "place": "cluster:99"})
    assert refused.status_code == 400
    assert not Grant.objects.filter(role="king").exists()
