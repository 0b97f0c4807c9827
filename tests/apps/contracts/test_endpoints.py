"""Every endpoint keeps its promises: methods, tokens, scopes, bodies that are empty, and what it costs the database."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import URLPattern, URLResolver, get_resolver, reverse
from rest_framework.test import APIClient

from apps.accounts.choices import ROLE_SCOPES
from apps.accounts.models import User
from apps.accounts.services import token_create
from tests.apps.contracts.endpoints import ENDPOINTS
from tests.apps.contracts.world import ROLES

pytestmark = pytest.mark.django_db

QUERY_COUNTS = Path(__file__).with_name("endpoint_queries.json")
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
#: Refusals that a person's or program's mistake gets, each with a body that says which.
REFUSALS = {400, 404, 409, 412, 413, 415, 422, 428}

every_endpoint = pytest.mark.parametrize("name", ENDPOINTS)
with_tokens = pytest.mark.parametrize("name", [name for name, row in ENDPOINTS.items() if not row.other_sign_in])


def client_of(role: str, scopes: list[str] | None = None, *, name: str = "") -> APIClient:
    """A client with a token; signed in, where the endpoint of this name takes no token for a change."""
    user = User.objects.get(username=f"a-{role}")
    if name and ENDPOINTS[name].session_only:
        client = APIClient()
        client.force_login(user)
        return client
    _, secret = token_create(user=user, name="contract", scopes=sorted(user.scopes) if scopes is None else scopes)
    client = APIClient(raise_request_exception=True)
    client.credentials(HTTP_AUTHORIZATION=f"Bearer {secret}")
    return client


def address(name: str, world: dict[str, Any]) -> str:
    endpoint = ENDPOINTS[name]
    found = reverse(name, kwargs={key: world.get(value, value) for key, value in endpoint.at.items()})
    return f"{found}?{endpoint.query.format(**world)}" if endpoint.query else found


def _names(entries: list[Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for entry in entries:
        if isinstance(entry, URLResolver):
            yield from _names(entry.url_patterns, prefix + str(entry.pattern))
        elif isinstance(entry, URLPattern):
            yield str(entry.name), prefix + str(entry.pattern)


def test_every_endpoint_has_a_case() -> None:
    served = {name for name, path in _names(get_resolver().url_patterns) if path.startswith("api/v1/")}
    assert served == set(ENDPOINTS), "add the endpoint to tests/apps/contracts/endpoints.py"


@every_endpoint
def test_endpoint_has_these_methods_and_no_others(name: str, world: dict[str, Any]) -> None:
    client = client_of("admin", name=name)
    for method in METHODS:
        if method not in ENDPOINTS[name].methods:
            assert client.generic(method, address(name, world)).status_code in {401, 405}, method


@every_endpoint
def test_endpoint_asks_strangers_for_a_token(name: str, world: dict[str, Any]) -> None:
    for method in ENDPOINTS[name].methods:
        answer = APIClient().generic(method, address(name, world))
        assert (answer.status_code, answer.json()["code"]) in {(401, "not_authenticated"), (400, "malformed")}, method
        assert answer.status_code == 401 or ENDPOINTS[name].other_sign_in


@with_tokens
def test_endpoint_is_for_the_scopes_that_it_names(name: str, world: dict[str, Any]) -> None:
    path = address(name, world)
    for role in ROLES:
        client = client_of(role)
        for method, scope in ENDPOINTS[name].methods.items():
            if scope not in ROLE_SCOPES[role]:
                answer = client.generic(method, path)
                code = "session_only" if ENDPOINTS[name].session_only and method != "GET" else "scope_missing"
                assert (answer.status_code, answer.json()["code"]) == (403, code), (method, role)
            elif method == "GET" and role in {"viewer", "operator"}:
                assert client.get(path).status_code in {200, *REFUSALS}, role


@with_tokens
def test_endpoint_refuses_a_token_without_its_scope(name: str, world: dict[str, Any]) -> None:
    """The scopes of the token count, not only the role of its owner."""
    client = client_of("operator", scopes=["read"])
    for method, scope in ENDPOINTS[name].methods.items():
        if scope != "read":
            assert client.generic(method, address(name, world)).status_code == 403, method


@with_tokens
def test_empty_body_gets_an_answer(name: str, world: dict[str, Any]) -> None:
    """Either the thing asked for, or a refusal that says why: never a broken endpoint."""
    client = client_of("admin", name=name)
    for method in set(ENDPOINTS[name].methods) - {"GET"}:
        answer = client.generic(method, address(name, world), data="{}", content_type="application/json")
        assert answer.status_code in {200, 201, 202, 204, *REFUSALS}, (method, answer.content)
        if answer.status_code in REFUSALS:
            assert {"type", "title", "status", "detail", "code"} <= set(answer.json()), method


def test_endpoints_cost_the_database_what_is_recorded(world: dict[str, Any]) -> None:
    """RECORD_QUERY_COUNTS=1 writes the record anew; it changes on purpose."""
    client, counted = client_of("admin"), {}
    for name, endpoint in ENDPOINTS.items():
        if "GET" not in endpoint.methods or endpoint.other_sign_in:
            continue
        path = address(name, world)
        client.get(path)
        with CaptureQueriesContext(connection) as queries:
            client.get(path)
        counted[name] = len(queries)
    if os.environ.get("RECORD_QUERY_COUNTS") == "1":
        QUERY_COUNTS.write_text(json.dumps(counted, indent=2) + "\n")
    assert counted == json.loads(QUERY_COUNTS.read_text())
