"""The world of the contracts, built once for all their tests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from apps.accounts.models import User
from tests.apps.contracts.pages import PAGES, page_address
from tests.apps.contracts.world import build_world


@pytest.fixture(scope="package")
def world(django_db_setup: None, django_db_blocker: Any, _redis_server: str) -> Iterator[dict[str, Any]]:
    """Parts of addresses by name. The rows are committed, and flushed after the last test."""
    with django_db_blocker.unblock():
        built = build_world()
    yield built
    with django_db_blocker.unblock():
        call_command("flush", interactive=False, verbosity=0)


@dataclass(frozen=True)
class ReadPage:
    """A page as the administrator reads it: its text, empty where it is none, and what it asked the database."""

    html: str
    queries: int


_READ: dict[str, ReadPage] = {}  # kept from the first test that asks: a read of all takes seconds


@pytest.fixture
def read_pages(world: dict[str, Any], db: None) -> dict[str, ReadPage]:
    """Every page, read a second time: the first asks for what is kept."""
    client = Client()
    client.force_login(User.objects.get(username="a-admin"))
    for name, page in () if _READ else PAGES.items():
        if page.get is not None:
            path = page_address(name, world)
            client.get(path)
            with CaptureQueriesContext(connection) as queries:
                answer = client.get(path)
            is_page = answer.headers.get("Content-Type", "").startswith("text/html")
            _READ[name] = ReadPage(answer.content.decode() if is_page else "", len(queries))
    return _READ
