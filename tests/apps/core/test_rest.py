"""Conventions of every REST resource: idempotency, ETags, paging, rate limits."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.test import RequestFactory
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.test import APIClient

from apps.accounts.models import User
from apps.core.counters import TokenRateThrottle
from apps.core.models import IdempotencyRecord
from apps.core.rest.idempotency import KEPT, idempotency_purge
from tests.apps.core.views import CALLS


def test_forwarded_header_does_not_change_the_caller() -> None:
    """uvicorn sets REMOTE_ADDR from proxies it trusts; what else a header says is the caller's own invention."""
    requests = [
        Request(RequestFactory().get("/api/v1/", REMOTE_ADDR="10.0.0.9", HTTP_X_FORWARDED_FOR=told))
        for told in ("1.2.3.4", "5.6.7.8, 1.2.3.4")
    ]
    assert len({TokenRateThrottle().get_cache_key(request, None) for request in requests}) == 1


pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.apps.core.views")]


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    CALLS.clear()


def post(client: APIClient, body: Any, key: str | None = "k-1", path: str = "/api/v1/echo") -> Any:
    return client.post(path, body, format="json", headers={"Idempotency-Key": key} if key is not None else {})


def test_the_same_post_again_replays_the_first_answer(api: APIClient) -> None:
    first, second = post(api, {"a": 1}), post(api, {"a": 1})
    assert (first.status_code, first.json()) == (second.status_code, second.json()) == (201, {"calls": 1})
    assert second["Location"] == first["Location"]
    assert second["Idempotency-Replayed"] == "true"
    assert "Idempotency-Replayed" not in first
    assert len(CALLS) == 1


def test_a_key_is_for_one_request_only(api: APIClient) -> None:
    post(api, {"a": 1})
    for answer in (post(api, {"a": 2}), post(api, {"a": 1}, path="/api/v1/echo?x=1")):
        assert (answer.status_code, answer.json()["code"]) == (422, "key_reused")
    assert len(CALLS) == 1


def test_keys_belong_to_their_senders(api_of: Callable[..., APIClient]) -> None:
    post(api_of("operator"), {"a": 1})
    assert post(api_of("admitter"), {"a": 2}).status_code == 201


def test_a_key_that_an_earlier_version_left_without_an_answer_is_not_done_again(api: APIClient) -> None:
    post(api, {"a": 1})
    IdempotencyRecord.objects.update(status=None, body=None)
    answer = post(api, {"a": 1})
    assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
    assert "not known" in answer.json()["detail"]
    assert len(CALLS) == 1


@pytest.mark.django_db(transaction=True)
def test_concurrent_repeats_of_a_post_run_once(api: APIClient) -> None:
    def send(_: int) -> int:
        try:
            return post(api, {"a": 1}, path="/api/v1/slow").status_code
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as pool:
        statuses = sorted(pool.map(send, range(4)))
    assert statuses == [201] * 4  # who comes meanwhile waits, and is told the same
    assert len(CALLS) == 1


def test_refusals_are_remembered_but_faults_of_the_server_are_not(api: APIClient) -> None:
    assert post(api, {"fail": "impossible"}).status_code == 422
    assert post(api, {"fail": "impossible"})["Idempotency-Replayed"] == "true"
    assert post(api, {"fail": "locked"}, "k-2").status_code == 503
    assert post(api, {"fail": "bug"}, "k-3").status_code == 500
    assert set(IdempotencyRecord.objects.values_list("key", flat=True)) == {"k-1"}


@pytest.mark.parametrize("fail", ["impossible", "locked", "bug"])
def test_a_refused_post_leaves_nothing_behind(api: APIClient, fail: str) -> None:
    post(api, {"write": "ada", "fail": fail})
    assert not User.objects.filter(username="ada").exists()


def test_a_wait_begins_after_the_effect_is_stored_and_its_end_is_remembered(api: APIClient) -> None:
    """Inside of the transaction nothing that waits for the effect could ever see it."""
    first = post(api, {"promise": True})
    assert (first.status_code, first.json()) == (200, {"state": "done"})
    again = post(api, {"promise": True})
    assert (again.status_code, again.json(), again["Idempotency-Replayed"]) == (200, {"state": "done"}, "true")


def test_the_query_string_of_a_post_is_not_kept(api: APIClient) -> None:
    post(api, {"a": 1}, path="/api/v1/echo?token=very-secret")
    assert IdempotencyRecord.objects.get().path == "/api/v1/echo"


def test_answers_are_forgotten_after_a_day(api: APIClient) -> None:
    post(api, {"a": 1})
    IdempotencyRecord.objects.update(created_at=timezone.now() - KEPT - timedelta(seconds=1))
    assert post(api, {"a": 2}).status_code == 201
    IdempotencyRecord.objects.update(created_at=timezone.now() - KEPT - timedelta(seconds=1))
    assert idempotency_purge() == 1


@pytest.mark.parametrize("key", ["", "x" * 256])
def test_unusable_keys_are_refused(api: APIClient, key: str) -> None:
    assert post(api, {"a": 1}, key).status_code == 400
    assert not CALLS


def test_uploads_are_compared_by_their_parts(api: APIClient) -> None:
    def upload(content: bytes) -> Any:
        body = {"kind": "counts", "file": SimpleUploadedFile("a.csv", content)}
        return api.post("/api/v1/echo", body, format="multipart", headers={"Idempotency-Key": "u"})

    assert upload(b"1,2").status_code == 201
    assert upload(b"1,2")["Idempotency-Replayed"] == "true"
    assert upload(b"1,3").status_code == 422


def test_a_conditional_read_is_304(api: APIClient, user_of: Callable[..., User]) -> None:
    path = f"/api/v1/people/{user_of('viewer').pk}"
    etag = api.get(path)["ETag"]
    again = api.get(path, headers={"If-None-Match": etag})
    assert (again.status_code, again.content, again["ETag"]) == (304, b"", etag)
    assert api.get(path, headers={"If-None-Match": '"other"'}).status_code == 200


def test_an_update_of_a_state_not_seen_is_412(api: APIClient, user_of: Callable[..., User]) -> None:
    person = user_of("viewer")
    path = f"/api/v1/people/{person.pk}"
    old = api.get(path)["ETag"]
    changed = api.patch(path, {"first_name": "Ada"}, format="json", headers={"If-Match": old})
    assert changed.status_code == 200
    assert changed["ETag"] == api.get(path)["ETag"] != old
    for send in (api.patch, api.delete):
        refused = send(path, {"first_name": "Eve"}, format="json", headers={"If-Match": old})
        assert (refused.status_code, refused.json()["code"]) == (412, "precondition_failed")
    person.refresh_from_db()
    assert person.first_name == "Ada"
    assert api.patch(path, {"first_name": "Bo"}, format="json").status_code == 200
    assert api.delete(path, headers={"If-Match": "*"}).status_code == 204


def test_resource_can_be_sent_back_as_it_was_read(api: APIClient, user_of: Callable[..., User]) -> None:
    path = f"/api/v1/people/{user_of('viewer').pk}"
    seen = api.get(path).json()
    assert api.put(path, {**seen, "first_name": "Ada"}, format="json").status_code == 200
    refused = api.put(path, {**seen, "id": 99}, format="json")
    assert refused.json()["faults"] == [{"path": "id", "message": "this field cannot be set"}]


def test_pages_are_stable_and_complete(api: APIClient) -> None:
    User.objects.bulk_create(User(username=f"u{number:03d}") for number in range(25))
    seen, path = [], "/api/v1/people?page_size=7"
    while path:
        page = api.get(path).json()
        seen += [row["username"] for row in page["results"]]
        User.objects.create(username=f"a{len(seen):03d}")  # before the cursor: shifts no later page
        path = page["next"]
    assert seen == ["a-operator", *(f"u{number:03d}" for number in range(25))]


@pytest.mark.parametrize("query", ["page_size=0", "page_size=201", "page_size=x", "cursor=%21%21", "cursor=bz1h"])
def test_unusable_paging_is_named(api: APIClient, query: str) -> None:
    answer = api.get(f"/api/v1/people?{query}")
    assert answer.status_code == 400
    assert answer.json()["faults"][0]["path"] == query.partition("=")[0]
