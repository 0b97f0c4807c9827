"""Rules that hold for every REST view, whoever wrote it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver
from drf_spectacular.generators import SchemaGenerator

from apps.core.health import healthz
from apps.core.rest.api import ApiMixin
from tests.apps.domain import make_cluster


def _views() -> Iterator[tuple[str, Any]]:
    def walk(patterns: list[Any], prefix: str) -> Iterator[tuple[str, Any]]:
        for entry in patterns:
            path = f"{prefix}{entry.pattern}"
            if isinstance(entry, URLResolver):
                yield from walk(entry.url_patterns, path)
            elif isinstance(entry, URLPattern):
                yield path, entry.callback

    yield from walk(get_resolver().url_patterns, "")


def test_every_post_of_the_api_is_idempotent() -> None:
    without = [
        path
        for path, view in _views()
        if path.startswith("api/v1/")
        and "post" in (getattr(view, "actions", None) or {name: name for name in dir(getattr(view, "cls", object))})
        and not issubclass(view.cls, ApiMixin)
    ]
    assert not without, f"derive these views from apps.core.rest.api.ApiMixin: {without}"


def test_addresses_of_the_api_do_not_end_in_a_slash() -> None:
    ending = [path for path, _ in _views() if path.startswith("api/v1/") and path.rstrip("$\\Z").endswith("/")]
    assert ending == ["api/v1/"]


#: Addresses that ask for no session: a link of an invitation is all that its reader has.
_NO_PAGES = ("api/", "embed/", "healthz", "invitation/", "login/", "logout/", "metrics", "webhooks/")


def _page_addresses() -> list[str]:
    """Every page with something in the place of each name: who may not see it must not learn whether it exists."""
    filled = {"uuid": "00000000-0000-0000-0000-000000000000", "int": "1", "path": "x.md"}
    found = []
    for path, view in _views():
        if not path.startswith(_NO_PAGES) and hasattr(view, "view_class"):
            found.append("/" + re.sub(r"<(?:(\w+):)?\w+>", lambda kind: filled.get(kind[1] or "", "x"), path))
    assert len(found) > 20
    return found


def test_pages_need_a_login(db: None, client: Any) -> None:
    for path in _page_addresses():
        for answer in (client.get(path), client.post(path)):
            assert (answer.status_code, answer.headers.get("Location", "")[:13]) == (302, "/login/?next="), path


def test_webhooks_need_a_token_and_no_session_will_do(db: None, client: Any, user_of: Any) -> None:
    client.force_login(user_of("admin"))
    paths = ["/" + re.sub(r"<[^>]+>", "x", path) for path, _ in _views() if path.startswith("webhooks/")]
    assert len(paths) > 1
    assert {(path, client.post(path, {}, "application/json").status_code) for path in paths} == {
        (path, 401) for path in paths
    }


def test_a_viewer_changes_nothing_but_her_own_settings_and_views(db: None, client: Any, user_of: Any) -> None:
    client.force_login(user_of("viewer"))
    make_cluster("x")
    for path in _page_addresses():
        if not path.startswith(("/settings/", "/views/")) or "people" in path:
            assert client.post(path).status_code in {403, 405}, path


def test_a_form_from_another_site_is_refused(db: None, user_of: Any) -> None:
    """Django's middleware refuses it wherever a view is not exempt, as those are that take tokens."""
    exempt = [path for path, view in _views() if getattr(view, "csrf_exempt", False)]
    assert [
        path for path in exempt if not path.startswith(("api/", "metrics", "webhooks/", "login/provider/logout/"))
    ] == []
    client = Client(enforce_csrf_checks=True)
    client.force_login(user_of("admin"))
    for path in ("/clusters/new/", "/settings/password/", "/login/", "/logout/", "/api/v1/clusters", "/api/v1/tokens"):
        assert client.post(path).status_code == 403, path


def test_the_description_is_complete(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    call_command("spectacular", validate=True, fail_on_warn=True, file=str(tmp_path / "schema.yml"))
    text = (tmp_path / "schema.yml").read_text()
    assert "#/components/schemas/ProblemDetails" in text
    assert "Idempotency-Key" in text


def test_no_post_whose_answer_holds_a_secret_takes_an_idempotency_key() -> None:
    """A remembered answer would store it: such actions stand in their view's `secret_actions`."""
    schema = SchemaGenerator().get_schema(request=None, public=True)
    secretive, keyed = set(), set()
    for path, operations in schema["paths"].items():
        answers = json.dumps(operations.get("post", {}).get("responses", {}))
        named = set(re.findall(r"#/components/schemas/(\w+)", answers))
        fields = {name for part in named for name in schema["components"]["schemas"][part].get("properties", {})}
        if fields & {"secret", "password", "token", "api_key"}:
            secretive.add(path)
        if any(entry["name"] == "Idempotency-Key" for entry in operations.get("post", {}).get("parameters", ())):
            keyed.add(path)
    assert {"/api/v1/webhooks", "/api/v1/webhooks/{id}/renew-secret", "/api/v1/tokens"} <= secretive
    named_only = {path for path in secretive if path.startswith("/api/v1/changes/")}  # which token made a change
    assert not (secretive - named_only) & keyed
    assert len(keyed) > 50


def test_the_documentation_works_offline(db: None, client: Any) -> None:
    page = client.get("/api/docs/")
    assert page.status_code == 200
    text = page.content.decode()
    assert "/static/drf_spectacular_sidecar/" in text
    assert "https://" not in text
    assert client.get("/api/schema/").status_code == 200


def test_health_needs_no_login() -> None:
    assert ("healthz", healthz) in list(_views())
