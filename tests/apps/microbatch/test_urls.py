"""URLs of Spark queries are asked every half minute; what is wrong with one is told by its query."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from apps.fleet.models import Cluster
from apps.microbatch import services
from apps.microbatch.models import SparkQuery, SparkQueryState
from apps.microbatch.selectors import spark_query_state
from apps.microbatch.services import spark_queries_poll, spark_query_create, spark_query_poll
from tests.apps.microbatch.spark_progress import progress_of_run
from tests.apps.receivers import Hook


@pytest.fixture
def query(cluster: Cluster, hook: Hook) -> SparkQuery:
    return spark_query_create(cluster=cluster, name="orders", origin="url", url=hook.url)


def fault_of(query: SparkQuery) -> str:
    query.refresh_from_db()
    return query.fault


def test_url_is_asked_once_in_half_a_minute(query: SparkQuery, hook: Hook) -> None:
    hook.document = json.dumps(progress_of_run(range(6))).encode()
    assert spark_queries_poll() == 1 and query.batches.count() == 6
    assert spark_queries_poll() == 0
    assert spark_queries_poll(timezone.now() + timedelta(seconds=31)) == 1 and query.batches.count() == 6
    assert fault_of(query) == ""


@pytest.mark.parametrize(
    ("status", "document", "fault"),
    [
        (200, b"<html>", "line 1 is not JSON"),
        (200, b"[]", "no progress"),
        (200, b'{"batchId": 7}', "runId is missing"),
        (200, b"x" * 2000, "more than"),
        (302, b"", "redirects are not followed"),
        (410, b"", "answered 410"),
        (500, b"", "answered 500"),
    ],
)
def test_useless_answer_is_a_fault_of_the_query(
    query: SparkQuery, hook: Hook, status: int, document: bytes, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "_MAX_ANSWER_BYTES", 1000)
    hook.status, hook.document = status, document
    assert spark_queries_poll() == 0
    assert fault in fault_of(query)
    assert spark_query_state(query) == SparkQueryState.UNREACHABLE


def test_fault_is_forgotten_with_the_next_good_answer(query: SparkQuery, hook: Hook) -> None:
    hook.document = b"nothing"
    spark_query_poll(query=query)
    assert fault_of(query)
    hook.document = json.dumps(progress_of_run(range(2))).encode()
    spark_query_poll(query=query)
    assert fault_of(query) == "" and spark_query_state(query) == SparkQueryState.REPORTING


def test_query_that_is_deleted_while_its_url_answers_is_forgotten(query: SparkQuery, hook: Hook) -> None:
    hook.document = json.dumps(progress_of_run(range(2))).encode()
    SparkQuery.objects.all().delete()
    assert not spark_query_poll(query=query)
    assert not SparkQuery.objects.exists()


def test_query_that_was_never_asked_comes_first(
    cluster: Cluster, query: SparkQuery, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    def poll(query: SparkQuery) -> bool:
        asked.append(query.pk)
        return True

    SparkQuery.objects.update(asked_at=timezone.now() - timedelta(hours=1))
    newer = spark_query_create(cluster=cluster, name="later", origin="url", url=hook.url)
    asked: list[int] = []
    monkeypatch.setattr(services, "spark_query_poll", poll)
    spark_queries_poll()
    assert asked == [newer.pk, query.pk]


def test_server_that_is_away_is_a_fault(query: SparkQuery, closed_port: int) -> None:
    SparkQuery.objects.update(url=f"http://127.0.0.1:{closed_port}/")
    assert spark_queries_poll() == 0 and "did not answer" in fault_of(query)


def test_private_address_is_asked_only_where_that_is_allowed(query: SparkQuery, settings: Any) -> None:
    settings.WEBHOOK_PRIVATE = False
    assert spark_queries_poll() == 0 and "SLUICE_WEBHOOK_PRIVATE" in fault_of(query)
