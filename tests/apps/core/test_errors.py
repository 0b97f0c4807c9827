"""Errors have one form in REST, their own page elsewhere, and never show a stack trace."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.test import Client
from rest_framework import serializers
from rest_framework.test import APIClient

from apps.core.errors import Fault, TooLarge, Unavailable, field_faults, from_engine, join_path
from apps.core.rest.parsers import strict_json
from apps.core.rest.serializers import StrictSerializer

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.apps.core.views")]


@pytest.mark.parametrize(
    ("how", "status", "code"),
    [
        ("malformed", 400, "malformed"),
        ("stale", 409, "stale"),
        ("impossible", 422, "impossible"),
        ("missing", 404, "missing"),
        ("denied", 403, "forbidden"),
        ("integrity", 409, "conflict"),
        ("locked", 503, "unavailable"),
        ("full", 503, "unavailable"),
        ("full-postgres", 503, "unavailable"),
        ("full-files", 503, "unavailable"),
        ("readonly", 503, "unavailable"),
        ("redis-full", 503, "unavailable"),
        ("redis-disk", 503, "unavailable"),
        ("data", 400, "malformed"),
        ("fields", 400, "malformed"),
        ("redis", 503, "unavailable"),
        ("infeasible", 422, "infeasible"),
        ("bug", 500, "internal"),
    ],
)
def test_every_rest_error_has_the_same_form(api: APIClient, how: str, status: int, code: str) -> None:
    answer = api.get(f"/api/v1/fail/{how}", headers={"X-Request-ID": "abc-1"})
    body = answer.json()
    assert answer.status_code == status
    assert body["code"] == code
    assert {"type", "title", "status", "detail", "instance", "code", "faults", "request_id"} <= set(body)
    assert body["request_id"] == answer["X-Request-ID"] == "abc-1"
    assert "secret detail" not in answer.content.decode()
    assert ("Retry-After" in answer) == (status == 503)


@pytest.mark.parametrize("how", ["full", "full-postgres", "full-files"])
def test_full_disk_is_told_as_such(api: APIClient, how: str) -> None:
    detail = api.get(f"/api/v1/fail/{how}").json()["detail"]
    assert "The disk is full" in detail and "does not answer" not in detail


def test_faults_and_facts_are_passed_on(api: APIClient) -> None:
    body = api.get("/api/v1/fail/malformed").json()
    assert body["faults"] == [{"path": "a.b[0]", "message": "too small"}, {"path": "c", "message": "missing"}]
    assert api.get("/api/v1/fail/stale").json()["moved"] == ["node n1"]


def test_all_faults_of_a_body_are_named_at_once_with_their_paths(api: APIClient) -> None:
    body = {
        "name": "much too long",
        "inputs": [{"source": "a", "rate_eps": 1}, {"rate_ep": -1, "rate_eps": -1}],
        "x": 1,
    }
    answer = api.post("/api/v1/check", body, format="json")
    faults = {fault["path"]: fault["message"] for fault in answer.json()["faults"]}
    assert answer.status_code == 400
    assert set(faults) == {"name", "inputs[1].source", "inputs[1].rate_ep", "inputs[1].rate_eps", "x"}
    assert "did you mean rate_eps" in faults["inputs[1].rate_ep"]
    assert "allowed are name, inputs" in faults["x"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"a": NaN}', ["NaN", "line 1, column 7"]),
        (b'{"a": 1,\n "b": -Infinity}', ["Infinity", "line 2"]),
        (b'{"a": 1e999}', ["1e999", "too large"]),
        (b'{"a": 123456789012345678901234567890}', ["too large a number"]),
        (b'{"a": 1,\n "a": 2}', ['"a"', "twice", "line 2, column 2"]),
        (b'{"a": 1,\n  b: 2}', ["line 2, column 3"]),
        (b'{"a": "\xff"}', ["UTF-8", "byte 7"]),
        (b"[" * 200 + b"]" * 200, ["nests deeper than 40"]),
    ],
)
def test_bad_json_is_refused_with_its_place(api: APIClient, body: bytes, words: list[str]) -> None:
    answer = api.post("/api/v1/echo", body, content_type="application/json")
    assert answer.status_code == 400
    for word in words:
        assert word in answer.json()["detail"]


def test_brackets_in_strings_do_not_count_as_nesting(api: APIClient) -> None:
    assert api.post("/api/v1/echo", {"a": '[{"' * 100}, format="json").status_code == 201


def test_values_are_counted_outside_of_texts_alone() -> None:
    assert strict_json(b'{"a": ",,[[{{,,", "b": "\\"[,"}', 3) == {"a": ",,[[{{,,", "b": '"[,'}
    with pytest.raises(TooLarge, match="4 values of JSON; at most 3"):
        strict_json(b"[1, 2, 3]", 3)


def test_body_over_the_limit_returns_413(api: APIClient, settings: Any) -> None:
    settings.UPLOAD_MAX_BYTES = 1000
    assert api.post("/api/v1/echo", {"a": "x" * 2000}, format="json").status_code == 413
    answer = api.post("/api/v1/echo", {"a": "x" * 2_000_000}, format="json")
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")


def test_unknown_addresses() -> None:
    answer = APIClient().get("/api/v1/nothing/")
    assert (answer.status_code, answer.json()["code"]) == (404, "missing")
    assert "do not end in a slash" in answer.json()["detail"]
    page = Client().get("/nothing")
    assert page.status_code == 404
    assert "/nothing" in page.content.decode()


def test_throttling_says_when_to_come_back(api: APIClient, monkeypatch: pytest.MonkeyPatch) -> None:
    from apps.core.counters import TokenRateThrottle

    monkeypatch.setattr(TokenRateThrottle, "THROTTLE_RATES", {"token": "2/min"})
    assert [api.post("/api/v1/echo", {}, format="json").status_code for _ in range(3)] == [201, 201, 429]
    answer = api.post("/api/v1/echo", {}, format="json")
    assert answer.json()["code"] == "too_many"
    assert 1 <= int(answer["Retry-After"]) <= 60


@pytest.mark.parametrize(("how", "status"), [("malformed", 400), ("stale", 409), ("locked", 503), ("redis", 503)])
@pytest.mark.parametrize("htmx", [False, True])
def test_a_page_that_refuses_becomes_an_error_page(how: str, status: int, htmx: bool) -> None:
    headers = {"HX-Request": "true"} if htmx else {}
    page = Client().get(f"/page/{how}", headers={**headers, "X-Request-ID": "page-7"})
    text = page.content.decode()
    assert page.status_code == status
    assert "page-7" in text
    assert ("<html" in text) is not htmx
    if how == "malformed":
        assert "a.b[0]" in text
        assert "too small" in text


def test_unexpected_error_in_a_page_shows_no_detail() -> None:
    page = Client(raise_request_exception=False).get("/page/bug")
    assert page.status_code == 500
    assert "secret detail" not in page.content.decode()


def test_request_ids_of_others_are_taken_only_if_harmless() -> None:
    client = Client()
    assert client.get("/nothing", headers={"X-Request-ID": "trace:1"})["X-Request-ID"] == "trace:1"
    assert client.get("/nothing", headers={"X-Request-ID": "a b<script>"})["X-Request-ID"] != "a b<script>"


def test_nested_messages_become_paths() -> None:
    assert field_faults({"a": [{}, {"b": ["x", "y"]}], "non_field_errors": ["z"]}) == (
        Fault("a[1].b", "x"),
        Fault("a[1].b", "y"),
        Fault("", "z"),
    )
    assert field_faults(ValidationError({"a": ["x"]}), "top") == (Fault("top.a", "x"),)
    assert field_faults({"scopes": {0: ["x"]}}) == (Fault("scopes[0]", "x"),)
    assert join_path("document", "[0].id") == "document[0].id"


def test_the_engines_refusals_keep_their_faults() -> None:
    from engine.document.deployment import Deployment
    from engine.errors import DocumentError

    with pytest.raises(DocumentError) as caught:
        Deployment.parse({"format": "sluice/deployment", "version": 1})
    ours = from_engine(caught.value, "document")
    assert ours.status == 400
    assert ours.faults
    assert all(fault.path.startswith("document") for fault in ours.faults)


def test_unavailable_says_when_to_retry() -> None:
    assert Unavailable("x").headers == {"Retry-After": "5"}


def test_a_wrong_choice_names_the_allowed_ones() -> None:
    class Asked(StrictSerializer):
        goal = serializers.ChoiceField(["worst", "objectives"])
        forms = serializers.ListField(child=serializers.ChoiceField(["pdf", "{csv}"]))

    asked = Asked(data={"goal": "x", "forms": ["doc"]})
    assert not asked.is_valid()
    assert asked.errors["goal"] == ["it is x; allowed: worst, objectives"]
    assert asked.errors["forms"][0] == ["it is doc; allowed: pdf, {csv}"]
