"""Every endpoint bounds what it reads, and reads nothing before it knows who sends."""

from __future__ import annotations

from io import BytesIO
from types import SimpleNamespace
from typing import Any

import pytest
from django.http import HttpRequest
from django.test import Client
from django.urls import reverse
from rest_framework.test import APIClient

from apps.core.body_sizes import DOCUMENT, size_of_path
from apps.core.limits import MAX_JSON_DEPTH, MAX_UNKNOWN_BYTES
from apps.core.rest import parsers
from tests.apps.contracts.endpoints import ENDPOINTS
from tests.apps.contracts.test_endpoints import REFUSALS, address, client_of
from tests.thoroughness import share_of

pytestmark = pytest.mark.django_db

WRITES = [
    pytest.param(name, method, id=f"{name}-{method}")
    for name, row in ENDPOINTS.items()
    for method in row.methods
    if method != "GET"
]
every_write = pytest.mark.parametrize(("name", "method"), share_of(WRITES, every=6))
JSON = "application/json"


@pytest.fixture
def unparsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """JSON is parsed by nobody; who tries breaks the test."""
    monkeypatch.setattr(parsers, "json", SimpleNamespace())


@every_write
def test_body_of_a_stranger_is_not_parsed(name: str, method: str, world: dict[str, Any], unparsed: None) -> None:
    if name == "agent-enrol":
        pytest.skip("its body brings the token; it is short, which the next test holds")
    answer = APIClient().generic(method, address(name, world), b'{"a": 1}', content_type=JSON)
    assert (answer.status_code, answer.json()["code"]) == (401, "not_authenticated")


@every_write
def test_declared_length_over_the_size_of_the_endpoint_is_refused(
    name: str, method: str, world: dict[str, Any], unparsed: None
) -> None:
    path = address(name, world)
    size = size_of_path(path.partition("?")[0], method)
    assert MAX_UNKNOWN_BYTES <= size.wire_bytes <= DOCUMENT.wire_bytes
    length = {"CONTENT_LENGTH": str(size.wire_bytes + 1)}
    answer = client_of("admin", name=name).generic(method, path, b"{}", content_type=JSON, **length)
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
    assert "at most" in answer.json()["detail"]


@every_write
@pytest.mark.parametrize("body", ["many", "deep"])
def test_json_of_many_values_or_levels_is_not_parsed(
    name: str, method: str, body: str, world: dict[str, Any], unparsed: None
) -> None:
    """Endpoints that read no body may go on without it."""
    path = address(name, world)
    many = size_of_path(path.partition("?")[0], method).max_values
    texts = {"many": b"[" + b"1," * many + b"1]", "deep": b"[" * (MAX_JSON_DEPTH + 1)}
    answer = client_of("admin", name=name).generic(method, path, texts[body], content_type=JSON)
    assert answer.status_code in {200, 201, 202, 204, 401, *REFUSALS}, answer.content
    if answer.status_code == 413:
        assert body == "many" and "values of JSON" in answer.json()["detail"]


def test_form_of_a_stranger_is_not_parsed(world: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Anybody can make up the cookie that the protection of forms asks for."""
    monkeypatch.setattr(HttpRequest, "parse_file_upload", lambda *_: pytest.fail("it was parsed"))
    client = Client(enforce_csrf_checks=True)
    client.cookies["csrftoken"] = "x" * 32
    path = reverse("pages:arrivals-new", args=[world["cluster"]])
    answer = client.post(path, {"csrfmiddlewaretoken": "x" * 32, "file": BytesIO(b"x")})
    assert answer.status_code == 302 and answer["Location"].startswith("/login/")
