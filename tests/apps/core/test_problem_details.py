"""Errors are problem details wherever they come from, and the documentation has a section for each of their types."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.test import Client
from rest_framework.test import APIClient

from apps.admission.choices import Verdict
from apps.core import errors
from apps.core.errors import Fault, Malformed, SluiceError
from apps.core.problem_details import PROBLEM_JSON, PROBLEM_TITLES, problem_details, problem_of_job
from tests.apps.people import person

ROOT = Path(settings.BASE_DIR)
PAGE = ROOT / "docs" / "errors.md"
#: Codes that are put together, or that REST framework names.
COMPOSED = {f"verdict_{Verdict.REJECT}", f"verdict_{Verdict.REVIEW}", "not_acceptable", "unsupported_media_type"}
COMPOSED |= {"method_not_allowed", "change_frozen", "queue_overdue"}  # codes of reasons are problems of an apply
MEMBERS = {"type", "title", "status", "detail", "instance", "code", "faults", "request_id"}


def _constants(tree: ast.AST) -> Iterator[str]:
    """Codes that a module names: of a refusal it raises or stores, or of a class of errors."""
    for node in ast.walk(tree):
        values: list[ast.expr] = []
        if isinstance(node, ast.Call):
            values = [key.value for key in node.keywords if key.arg == "code"]
        elif isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            values = [value for key, value in pairs if isinstance(key, ast.Constant) and key.value == "code"]
        elif isinstance(node, ast.ClassDef) and any(_is_error(base) for base in node.bases):
            values = [part.value for part in node.body if isinstance(part, ast.Assign) and _is_code(part.targets[0])]
            values = [value.elts[0] if isinstance(value, ast.Tuple) else value for value in values]
        yield from (value.value for value in values if isinstance(value, ast.Constant) and isinstance(value.value, str))


def _is_error(base: ast.expr) -> bool:
    return isinstance(base, ast.Name) and (base.id in errors.__all__ or base.id.endswith(("Error", "Exception")))


def _is_code(target: ast.expr) -> bool:
    """Of `code = …` and of `code, status = …`."""
    first = target.elts[0] if isinstance(target, ast.Tuple) else target
    return isinstance(first, ast.Name) and first.id == "code"


def _codes() -> set[str]:
    found: set[str] = set()
    for file in [*(ROOT / "apps").rglob("*.py"), *(ROOT / "engine").rglob("*.py")]:
        if not {"pages", "ui"} & set(file.parts):
            found |= set(_constants(ast.parse(file.read_text())))
    return found - {SluiceError.code}


def test_every_code_of_the_source_has_a_title_and_every_title_a_code() -> None:
    assert _codes() | COMPOSED == set(PROBLEM_TITLES)


def test_every_type_is_a_section_of_the_documentation() -> None:
    sections = dict(re.findall(r"^### (\S+)\n\n\*(.+?)\* \(", PAGE.read_text(), re.MULTILINE))
    assert sections == PROBLEM_TITLES


@pytest.mark.django_db
def test_a_type_leads_to_its_section(client: Client, django_user_model: Any) -> None:
    client.force_login(person("reader"))
    kind = problem_details(Malformed("No."), instance="/api/v1/nodes", request_id="r")["type"]
    page, _, anchor = kind.partition("#")
    assert f'id="{anchor}"' in client.get(page).content.decode()


def test_details_have_their_members_and_the_facts_of_the_error() -> None:
    error = SluiceError("It has moved.", [Fault("a.b", "gone")], code="stale", data={"changed": ["n1"]})
    assert problem_details(error, instance="/api/v1/x", request_id="r-1", status=409) == {
        "type": "/help/docs/errors#stale",
        "title": "The cluster has moved",
        "status": 409,
        "detail": "It has moved.",
        "code": "stale",
        "faults": [{"path": "a.b", "message": "gone"}],
        "instance": "/api/v1/x",
        "request_id": "r-1",
        "changed": ["n1"],
    }


def test_a_failed_job_says_why_in_the_same_details() -> None:
    told = problem_of_job({"code": "infeasible", "message": "No room.", "faults": []})
    assert set(told) == MEMBERS - {"instance", "request_id"}
    assert (told["status"], told["detail"]) == (422, "No room.")
    assert problem_of_job({"code": "internal", "message": "Broken."})["status"] == 500


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("method", "path", "headers", "status", "code"),
    [
        ("GET", "/api/v1/nothing", {}, 404, "missing"),
        ("GET", "/api/nothing", {}, 404, "missing"),
        ("GET", "/api/v1/queries/9", {}, 404, "missing"),
        ("PUT", "/api/v1/queries", {}, 405, "method_not_allowed"),
        ("GET", "/api/v1/queries", {"Accept": "text/csv"}, 406, "not_acceptable"),
        ("POST", "/api/v1/queries", {"Content-Type": "text/yaml"}, 415, "unsupported_media_type"),
        ("POST", "/api/v1/queries", {"Content-Length": "999999999"}, 413, "too_large"),
        ("GET", "/api/v1/queries", {"Authorization": "Bearer slu_no"}, 401, "not_authenticated"),
        ("POST", "/api/v1/queries", {"Content-Type": "application/json"}, 400, "malformed"),
    ],
)
def test_every_refusal_below_api_is_problem_details(
    api: APIClient, method: str, path: str, headers: dict[str, str], status: int, code: str
) -> None:
    kind = headers.pop("Content-Type", "application/octet-stream")
    if "Authorization" in headers:
        api.credentials()
    meta = {"CONTENT_LENGTH": headers.pop("Content-Length")} if "Content-Length" in headers else {}
    answer = api.generic(method, path, b"a: 1", content_type=kind, headers=headers or None, **meta)
    body = answer.json()
    assert (answer.status_code, body["status"], body["code"]) == (status, status, code)
    assert answer["Content-Type"] == PROBLEM_JSON
    assert set(body) >= MEMBERS
    assert (body["type"], body["instance"]) == (f"/help/docs/errors#{code}", path)
    assert body["request_id"] == answer["X-Request-ID"]


@pytest.mark.django_db
def test_a_replayed_refusal_is_problem_details_too(api: APIClient) -> None:
    send = lambda: api.post("/api/v1/clusters", {"slug": 7}, format="json", headers={"Idempotency-Key": "k"})  # noqa: E731
    first, second = send(), send()
    assert second["Idempotency-Replayed"] == "true"
    assert (first["Content-Type"], second["Content-Type"]) == (PROBLEM_JSON, PROBLEM_JSON)
    assert first.json() == second.json()
