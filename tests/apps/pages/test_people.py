"""People in the browser: who may sign in, for administrators."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.test import Client

from apps.accounts.models import User
from tests.apps.pages.html import body

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
