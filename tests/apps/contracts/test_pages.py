"""Every page keeps its promises: methods, sign-in, roles, forms that are empty, and what it costs the database."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.http import HttpResponse
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from apps.accounts.choices import ROLE_SCOPES
from apps.accounts.models import User
from tests.apps.contracts.conftest import ReadPage
from tests.apps.contracts.pages import PAGES, page_address
from tests.apps.contracts.words import faults_of
from tests.apps.contracts.world import ROLES

pytestmark = pytest.mark.django_db

QUERY_COUNTS = Path(__file__).with_name("page_queries.json")
#: Addresses that have cases of their own: signing in and out, the schema and its documentation, what asks for no login.
OTHERS = {"api-schema", "api-docs", "healthz", "metrics", "pages:embedded-panel"}
OTHERS |= {f"signin:{name}" for name in ("login", "logout", "code", "link", "forgotten", "reset", "invitation")}
OTHERS |= {f"signin:provider{part}" for part in ("", "-answer", "-logout")}
OTHERS |= {f"kubernetes-admission{part}" for part in ("", "-cluster", "-token")}  # called by API servers
_USERS_WORDS = {"mean_rtt"}  # a column of a live query's results
every_page = pytest.mark.parametrize("name", PAGES)
writable = pytest.mark.parametrize("name", [name for name, page in PAGES.items() if page.post])


def client_of(role: str) -> Client:
    client = Client(raise_request_exception=True)
    client.force_login(User.objects.get(username=f"a-{role}"))
    return client


def _patterns(entries: list[Any], prefix: str = "", space: str = "") -> Iterator[tuple[str, str]]:
    for entry in entries:
        if isinstance(entry, URLResolver):
            inner = f"{entry.namespace}:" if entry.namespace else space
            yield from _patterns(entry.url_patterns, prefix + str(entry.pattern), inner)
        elif isinstance(entry, URLPattern):
            yield f"{space}{entry.name}", prefix + str(entry.pattern)


ADDRESSES = {name: path for name, path in _patterns(get_resolver().url_patterns) if not path.startswith("api/v1/")}


def _may(role: str, scope: str) -> bool:
    return scope in ROLE_SCOPES[role]


def test_every_page_has_a_case() -> None:
    assert set(ADDRESSES) - OTHERS == set(PAGES), "add the page to tests/apps/contracts/pages.py"


@every_page
def test_page_asks_strangers_to_sign_in(name: str, world: dict[str, Any], client: Client) -> None:
    for answer in (client.get(page_address(name, world)), client.post(page_address(name, world))):
        assert (answer.status_code, answer["Location"][:13]) == (302, "/login/?next=")


@every_page
def test_page_has_no_other_methods(name: str, world: dict[str, Any]) -> None:
    client, page = client_of("admin"), PAGES[name]
    for method in ("PUT", "PATCH", "DELETE"):
        assert client.generic(method, page_address(name, world)).status_code == 405, method
    if page.post is None:
        assert client.post(page_address(name, world)).status_code == 405
    if page.get is None:
        # read again after a form's faults, the address leads to the page of the form
        assert client.get(page_address(name, world)).status_code in {302, 405}


@every_page
def test_page_is_for_the_roles_that_it_names_and_kept_by_nobody(name: str, world: dict[str, Any]) -> None:
    """Reading is tried by the least role that may; the administrator's pages are read where queries are counted."""
    path, page = page_address(name, world), PAGES[name]
    least = next((role for role in ("viewer", "operator") if page.get and _may(role, page.get)), "")
    for role in ROLES:
        client = client_of(role)
        if page.get is not None and (role == least or not least or not _may(role, page.get)):
            answer = client.get(path)
            assert answer.status_code == (page.status if _may(role, page.get) else 403), role
            assert "no-store" in answer.headers.get("Cache-Control", ""), role
        if page.post is not None and not _may(role, page.post):
            assert client.post(path).status_code == 403, role


@writable
def test_empty_form_gets_an_answer(name: str, world: dict[str, Any]) -> None:
    """Faults in the form, a refusal with its reason, or what was asked for: never a broken page."""
    answer: HttpResponse = client_of("admin").post(page_address(name, world))
    assert answer.status_code in {200, 204, 302, 400, 404, 409, 422}, answer.content


def test_pages_cost_the_database_what_is_recorded(read_pages: dict[str, ReadPage]) -> None:
    """RECORD_QUERY_COUNTS=1 writes the record anew; it changes on purpose."""
    counted = {name: page.queries for name, page in read_pages.items()}
    if os.environ.get("RECORD_QUERY_COUNTS") == "1":
        QUERY_COUNTS.write_text(json.dumps(counted, indent=2) + "\n")
    assert counted == json.loads(QUERY_COUNTS.read_text())


def test_pages_speak_to_people(read_pages: dict[str, ReadPage]) -> None:
    """A quantity has one spelling, and nothing of the program stands in a sentence."""
    faults = {name: faults_of(page.html, _USERS_WORDS) for name, page in read_pages.items()}
    assert {name: found for name, found in faults.items() if found} == {}
