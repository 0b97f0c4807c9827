"""People of every role and clients of the REST API."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from rest_framework.test import APIClient

from apps.accounts.choices import Role
from apps.accounts.models import User
from apps.accounts.services import token_create
from tests.apps.people import person

PASSWORD = "correct horse battery"


@pytest.fixture
def user_of(db: None) -> Callable[..., User]:
    """`user_of("viewer")`: a person with that role; the same one each time."""

    def make(role: str = Role.OPERATOR, username: str = "") -> User:
        name = username or f"a-{role}"
        found = User.objects.filter(username=name).first()
        return found or person(name, role, PASSWORD)

    return make


@pytest.fixture
def api_of(user_of: Callable[..., User]) -> Callable[..., APIClient]:
    """`api_of("operator", scopes=["read"])`: a client with a bearer token of such a person."""

    def make(role: str = Role.OPERATOR, **arguments: Any) -> APIClient:
        user = user_of(role)
        _, secret = token_create(user=user, name="test", **{"scopes": sorted(user.scopes), **arguments})
        client = APIClient(raise_request_exception=False)
        client.credentials(HTTP_AUTHORIZATION=f"Bearer {secret}")
        return client

    return make


@pytest.fixture
def api(api_of: Callable[..., APIClient]) -> APIClient:
    """A client with an operator's token."""
    return api_of()


@pytest.fixture(scope="session", autouse=True)
def _work_outside_of_transactions() -> None:
    """Nobody waits at a lock for a solver, or for another machine."""
    from apps.core.transactions import WorkInTransaction, watch_transactions

    def refuse(work: str) -> None:
        raise WorkInTransaction(f"{work} began while a transaction was open")

    watch_transactions(refuse)


@pytest.fixture(scope="session", autouse=True)
def _static_files_on_demand() -> None:
    """Each test client makes a new handler, which would look through the folders of all static files."""
    from django.conf import settings

    settings.WHITENOISE_AUTOREFRESH = True


@pytest.fixture(autouse=True)
def _quick_passwords(settings: Any) -> None:
    """The real hash takes a tenth of a second by intention."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


@pytest.fixture(autouse=True)
def _empty_cache() -> None:
    """Rates and failed sign-ins are counted in the process; each test starts from nothing."""
    from django.core.cache import cache

    from apps.core import counters
    from apps.queries.snapshots import outlines, states

    cache.clear()
    states._shared.clear()
    outlines._shared.clear()
    counters._not_before = 0.0  # on Redis that a test before had taken away
