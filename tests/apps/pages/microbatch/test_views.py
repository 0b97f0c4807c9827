"""Spark queries in the browser: the list, one query, ways to connect one, refit, settings, drift."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from apps.fleet.models import Cluster
from apps.fleet.services import cluster_create
from apps.microbatch.models import MicroBatch, SparkQuery
from apps.microbatch.progress import own_progress_ingest, progress_ingest
from apps.microbatch.services import spark_query_create
from tests.apps.microbatch.spark_progress import progress_of_run
from tests.apps.pages.html import body
from tests.apps.receivers import Hook, hook

__all__ = ["hook"]

ROOT = "/c/little/provisioning/spark/"


@pytest.fixture
def query(cluster: Cluster) -> SparkQuery:
    """One with 40 micro-batches that hold their predictions."""
    row = spark_query_create(
        cluster=cluster, name="orders", origin="listener", executors=3, constraint_s=8.0, statistic="q0.95"
    )
    state = [{"operatorName": "stateStoreSave", "numRowsTotal": 5000, "memoryUsedBytes": 2e6, "commitTimeMs": 118}]
    progress_ingest(query=row, documents=progress_of_run(range(40), stateOperators=state))
    return row


def file_of(documents: Any) -> SimpleUploadedFile:
    return SimpleUploadedFile("progress.json", "\n".join(map(json.dumps, documents)).encode())


def test_empty_list_says_how_to_connect_one(browser: Client, cluster: Cluster) -> None:
    html = body(browser.get(ROOT))
    assert "No Spark query yet" in html and "listener" in html and f'href="{ROOT}new/"' in html


def test_list_shows_state_fit_and_distance(browser: Client, query: SparkQuery) -> None:
    html = body(browser.get(ROOT))
    assert f'href="{ROOT}{query.pk}/">orders</a>' in html and "Reporting" in html
    csv = browser.get(f"{ROOT}?export=csv").getvalue().decode()
    assert csv.splitlines()[1].startswith("orders,Listener,reporting,2026-11-01")


def test_page_shows_batches_fit_settings_and_state(browser: Client, query: SparkQuery) -> None:
    html = body(browser.get(f"{ROOT}{query.pk}/"))
    for chart in ("batch-durations", "batch-latency", "batch-rows", "batch-utilisation"):
        assert f'data-chart="{chart}"' in html
    assert "Fitted to its first micro-batches: 37 micro-batches of" in html
    assert "within <b>" in html and "constraint 8\u00a0s" in html
    assert "s predicted, 90% interval " in html
    assert "<dt>Executors</dt><dd>3" in html and "<dt>Trigger interval</dt><dd>5\u00a0s" in html
    assert "stateStoreSave" in html and "118" in html and "walCommit" in html
    csv = browser.get(f"{ROOT}{query.pk}/?export=csv&last=480").getvalue().decode()
    assert len(csv.splitlines()) == 41


def test_size_it_leads_to_a_plan_with_the_measured_costs(browser: Client, query: SparkQuery) -> None:
    address = browser.get(f"{ROOT}{query.pk}/").context["size_url"]
    html = body(browser.get(address))
    assert f'value="spark:{query.pk}"' in html and "Measured" in html


def test_query_without_batches_shows_its_listener(browser: Client, cluster: Cluster) -> None:
    row = spark_query_create(cluster=cluster, name="new", origin="listener")
    html = body(browser.get(f"{ROOT}{row.pk}/"))
    assert "No micro-batch has come yet." in html
    assert f"http://testserver/api/v1/spark-queries/{row.pk}/progress" in html


def test_listener_posts_each_micro_batch(browser: Client, query: SparkQuery, hook: Hook, settings: Any) -> None:
    """The code of the page, as an application would run it, with the event of a batch."""
    streaming = pytest.importorskip("pyspark.sql.streaming")
    settings.PUBLIC_URL = hook.url.partition("/told")[0]
    code = browser.get(f"{ROOT}{query.pk}/").context["listener"]
    assert len(code.splitlines()) < 30
    listeners: list[Any] = []

    session = SimpleNamespace(streams=SimpleNamespace(addListener=listeners.append))
    names = {"spark": session}
    exec(compile(code, "listener.py", "exec"), names)
    document = progress_of_run(range(40, 41))[0]

    event = SimpleNamespace(progress=SimpleNamespace(json=json.dumps(document), batchId=40))
    assert isinstance(listeners[0], streaming.StreamingQueryListener)
    listeners[0].onQueryProgress(event)
    headers, posted = hook.requests[0]
    assert json.loads(posted) == document and headers["Authorization"] == "Bearer slu_..."
    hook.status = 500
    listeners[0].onQueryProgress(event)  # the query goes on


def test_settings_that_are_not_typed_are_left_to_spark(browser: Client, cluster: Cluster) -> None:
    html = body(browser.get(f"{ROOT}new/"))
    assert 'placeholder="200 unless Spark reports it"' in html and 'value="200"' not in html
    assert browser.post(f"{ROOT}new/", {"name": "a", "statistic": "mean"}).status_code == 302
    row = SparkQuery.objects.get()
    assert (row.setting_origins, row.shuffle_partitions, row.trigger_s) == ({}, 200, 0.0)


def test_file_is_watched_with_what_it_holds(browser: Client, cluster: Cluster) -> None:
    fields = {"name": "recorded", "statistic": "mean", "executors": 4, "cores_per_executor": 1, "shuffle_partitions": 8}
    response = browser.post(f"{ROOT}new/?origin=file", fields | {"file": file_of(progress_of_run(range(12)))})
    assert response.status_code == 302, body(response)
    row = SparkQuery.objects.get()
    assert (row.origin, row.executors, row.shuffle_partitions, row.batches.count()) == ("file", 4, 8, 12)
    assumed = {"executors", "cores_per_executor", "shuffle_partitions"}
    assert {name for name, origin in row.setting_origins.items() if origin == "assumed"} == assumed
    assert row.setting_origin("max_rows_per_trigger") == "default"
    assert "from files" in body(browser.get(response["Location"]))


@pytest.mark.parametrize(
    ("documents", "text"),
    [
        ([{"batchId": 1}], "runId is missing"),
        ([*progress_of_run(range(1)), *progress_of_run(range(1), name="clicks")], "choose one by spark_name"),
        ([{"Event": "SparkListenerLogStart"}], "there is no progress in it"),
    ],
)
def test_file_that_is_of_no_use_stores_nothing(
    browser: Client, cluster: Cluster, documents: list[dict[str, Any]], text: str
) -> None:
    response = browser.post(f"{ROOT}new/?origin=file", {"name": "a", "statistic": "mean", "file": file_of(documents)})
    assert response.status_code == 422 and text in body(response)
    assert not SparkQuery.objects.exists()


def test_url_is_checked_before_it_is_watched(browser: Client, cluster: Cluster, settings: Any) -> None:
    settings.WEBHOOK_PRIVATE = False
    fields = {"name": "a", "statistic": "mean", "url": "http://10.0.0.1/progress"}
    response = browser.post(f"{ROOT}new/?origin=url", fields)
    assert response.status_code == 422 and "SLUICE_WEBHOOK_PRIVATE=1 would allow it" in body(response)
    settings.WEBHOOK_PRIVATE = True
    assert browser.post(f"{ROOT}new/?origin=url", fields).status_code == 302


def test_more_progress_is_uploaded_and_a_bad_file_is_told(browser: Client, query: SparkQuery) -> None:
    address = f"{ROOT}{query.pk}/progress/"
    assert browser.post(address, {"file": file_of(progress_of_run(range(38, 44)))}).status_code == 302
    assert MicroBatch.objects.count() == 44
    response = browser.post(address, {"file": SimpleUploadedFile("x.json", b"{")})
    assert response.status_code == 422 and "line 1 is not JSON" in body(response)


def test_drift_is_told_on_page_list_and_overview_until_a_refit(browser: Client, query: SparkQuery) -> None:
    progress_ingest(query=query, documents=progress_of_run(range(40, 62), per_row_ms=0.004))
    html = body(browser.get(f"{ROOT}{query.pk}/"))
    assert "longer than predicted, in the median of the newest, at most" in html and "Drifts" in html
    assert "Drifts" in body(browser.get(ROOT))
    overview = body(browser.get("/c/little/"))
    assert "orders drifts from its prediction" in overview
    assert "The newest micro-batches of orders took" in overview
    assert browser.post(f"{ROOT}{query.pk}/refit/").status_code == 302
    html = body(browser.get(f"{ROOT}{query.pk}/"))
    assert "Fitted on request: 20 micro-batches of" in html and "Drifts" not in html
    assert "drifts from" not in body(browser.get("/c/little/"))


def test_refit_that_cannot_be_is_explained(browser: Client, cluster: Cluster) -> None:
    row = spark_query_create(cluster=cluster, name="new", origin="listener")
    response = browser.post(f"{ROOT}{row.pk}/refit/")
    assert response.status_code == 422 and "A fit needs three, of two sizes." in body(response)


def test_parts_of_warm_up_batches_are_not_shown_as_an_empty_list(browser: Client, cluster: Cluster) -> None:
    row = spark_query_create(cluster=cluster, name="new", origin="listener")
    progress_ingest(query=row, documents=progress_of_run(range(2)))
    assert "Parts of a micro-batch" not in body(browser.get(f"{ROOT}{row.pk}/"))
    progress_ingest(query=row, documents=progress_of_run(range(2, 5)))
    assert "Parts of a micro-batch" in body(browser.get(f"{ROOT}{row.pk}/"))


def test_applied_settings_show_what_to_copy_and_who_applied_them(browser: Client, query: SparkQuery) -> None:
    address = f"{ROOT}{query.pk}/apply/"
    html = body(browser.get(f"{address}?trigger_s=2.5&executors=6"))
    assert "--conf spark.executor.instances=6" in html and "2500 milliseconds" in html
    fields = {"trigger_s": 2.5, "executors": 6, "cores_per_executor": 1, "shuffle_partitions": 200}
    assert browser.post(address, fields).status_code == 302
    query.refresh_from_db()
    assert (query.trigger_s, query.executors) == (2.5, 6) and query.settings_since is not None
    assert "by a-operator." in body(browser.get(f"{ROOT}{query.pk}/"))
    assert "It is -1.0" in body(browser.post(address, fields | {"trigger_s": -1}))


def test_stream_processor_takes_another_trigger(browser: Client, cluster: Cluster) -> None:
    own_progress_ingest(documents=progress_of_run(range(8)), settings={"trigger_s": 2.0})
    own = SparkQuery.objects.get()
    assert "Stream processor" in body(browser.get(ROOT))
    html = body(browser.get(f"{ROOT}{own.pk}/apply/"))
    assert "--conf" not in html and "executors" not in html
    assert browser.post(f"{ROOT}{own.pk}/apply/", {"trigger_s": "1"}).status_code == 302
    assert "asked for a trigger of 1\u00a0s" in body(browser.get(f"{ROOT}{own.pk}/"))
    refused = browser.post(f"{ROOT}{own.pk}/apply/", {"trigger_s": "0.01"})
    assert refused.status_code == 422


def test_query_is_changed_and_no_longer_watched(browser: Client, query: SparkQuery) -> None:
    fields = {"name": "orders", "statistic": "mean", "auto_refit": "on", "executors": 5, "trigger_s": 5}
    assert browser.post(f"{ROOT}{query.pk}/edit/", fields).status_code == 302
    query.refresh_from_db()
    assert (query.auto_refit, query.executors, query.statistic, query.constraint_s) == (True, 5, "mean", None)
    assert query.setting_origins["trigger_s"] == "measured"
    assert browser.post(f"{ROOT}{query.pk}/delete/").status_code == 302
    assert not MicroBatch.objects.exists()


def test_query_of_another_cluster_is_not_shown(browser: Client, query: SparkQuery) -> None:
    cluster_create(slug="other", name="Other")
    assert browser.get(f"/c/other/provisioning/spark/{query.pk}/").status_code == 404
