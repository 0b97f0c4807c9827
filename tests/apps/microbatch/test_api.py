"""Spark queries over REST: watched, fed by listeners, refitted, and given other settings."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from rest_framework.test import APIClient

from apps.fleet.models import Cluster
from apps.microbatch.models import MicroBatch, SparkQuery
from tests.apps.microbatch.spark_progress import progress_of_run

LIST = "/api/v1/spark-queries"


def watched(api: APIClient, of: Cluster, **more: Any) -> Any:
    body = {"cluster": of.slug, "name": "orders", "origin": "listener"} | more
    return api.post(LIST, body, format="json")


def test_query_is_watched_with_settings_and_their_origins(api: APIClient, cluster: Cluster) -> None:
    settings = {"trigger_s": 5, "executors": 3, "max_rows_per_trigger": 1000}
    answer = watched(api, cluster, settings=settings, constraint_s=8.0, statistic="q0.95")
    assert answer.status_code == 201, answer.json()
    shown = api.get(answer.headers["Location"]).json()
    assert shown["settings"] == {
        "executors": 3,
        "cores_per_executor": 1,
        "input_partitions": 1,
        "shuffle_partitions": 200,
        "trigger_s": 5.0,
        "stateful": False,
        "max_rows_per_trigger": 1000,
    }
    assert {name for name, origin in shown["setting_origins"].items() if origin == "assumed"} == set(settings)
    assert (shown["state"], shown["fit"], shown["batch_count"]) == ("awaited", None, 0)


@pytest.mark.parametrize(
    ("more", "paths"),
    [
        ({"settings": {"trigger_s": "5", "executors": 1.5, "stateful": 1}}, {"trigger_s", "executors", "stateful"}),
        ({"settings": {"executor": 2}}, {"executor"}),
        ({"statistic": "q1", "constraint_s": -1}, {"statistic", "constraint_s"}),
        ({"origin": "url", "url": "ftp://here"}, {"url"}),
        ({"origin": "url"}, {"url"}),
        ({"url": "https://example.org"}, {"url"}),
        ({"origin": "own"}, {"origin"}),
        ({"cluster": None}, {"cluster"}),
    ],
)
def test_wrong_fields_are_all_named(api: APIClient, cluster: Cluster, more: dict[str, Any], paths: set[str]) -> None:
    answer = watched(api, cluster, **more)
    assert answer.status_code == 400
    assert {fault["path"].rpartition(".")[2] for fault in answer.json()["faults"]} == paths
    assert not SparkQuery.objects.exists()


@pytest.mark.parametrize("number", [999, 10**30])
def test_batches_of_no_query_are_missing(api: APIClient, db: None, number: int) -> None:
    assert api.get(f"{LIST}/{number}/batches").status_code == 404


def test_taken_name_is_a_conflict(api: APIClient, cluster: Cluster) -> None:
    watched(api, cluster)
    assert watched(api, cluster).status_code == 409


def test_progress_is_taken_as_object_list_or_lines(api_of: Callable[..., APIClient], cluster: Cluster) -> None:
    address = watched(api_of(), cluster).headers["Location"] + "/progress"
    machine = api_of(scopes=["ingest"])
    documents = progress_of_run(range(12))
    lines = "\n".join(json.dumps(document) for document in documents[4:])
    answers = [
        machine.post(address, documents[0], format="json"),
        machine.post(address, documents[:4], format="json"),
        machine.post(address, lines, content_type="application/x-ndjson"),
        machine.post(address, lines, content_type="text/plain"),
    ]
    assert [answer.json()["accepted"] for answer in answers] == [1, 3, 8, 0]
    assert answers[3].json() == {"accepted": 0, "repeated": 8, "idle": 0, "left_out": 0, "settings": None, "unread": []}
    assert machine.get(LIST).status_code == 403


def test_faulty_progress_is_refused_whole(api: APIClient, cluster: Cluster) -> None:
    address = watched(api, cluster).headers["Location"] + "/progress"
    answer = api.post(address, [*progress_of_run(range(2)), {"batchId": 3}], format="json")
    assert answer.status_code == 400 and answer.json()["faults"][0]["path"] == "[2].runId"
    assert api.post(address, "", content_type="application/json").status_code == 400
    assert not MicroBatch.objects.exists()


def test_fit_batches_and_drift_are_shown(api: APIClient, cluster: Cluster) -> None:
    address = watched(api, cluster).headers["Location"]
    api.post(address + "/progress", progress_of_run(range(40)), format="json")
    shown = api.get(address).json()
    assert shown["fit"]["batches"] == 37 and shown["fit"]["is_told_apart"] and shown["drift_share"] < 0.1
    page = api.get(address + "/batches?page_size=5&warm_up=false").json()
    assert [row["batch"] for row in page["results"]] == [39, 38, 37, 36, 35] and page["next"]
    assert page["results"][0]["predicted_s"] == pytest.approx(page["results"][0]["duration_s"], rel=0.1)
    refitted = api.post(address + "/refit")
    assert refitted.status_code == 200 and refitted.json()["reason"] == "request" and refitted.json()["batches"] == 20
    assert [row["name"] for row in api.get(LIST + "?drifting=true").json()["results"]] == []


def test_refit_without_batches_says_what_is_missing(api: APIClient, cluster: Cluster) -> None:
    answer = api.post(watched(api, cluster).headers["Location"] + "/refit")
    assert answer.status_code == 422 and answer.json()["code"] == "too_few_batches"


def test_applied_settings_are_in_force_and_say_who_and_when(api: APIClient, cluster: Cluster) -> None:
    address = watched(api, cluster).headers["Location"]
    shown = api.post(address + "/apply", {"settings": {"trigger_s": 2.5, "executors": 2}}, format="json").json()
    assert (shown["settings"]["trigger_s"], shown["settings"]["executors"]) == (2.5, 2)
    assert shown["applied_by"] == "a-operator" and shown["settings_since"] and shown["applied_at"]
    assert api.post(address + "/apply", {"settings": {}}, format="json").status_code == 400


def test_stream_processor_registers_and_is_told_its_trigger(api: APIClient, cluster: Cluster) -> None:
    query = {"name": "stream processor", "trigger_s": 2.0, "cores_per_executor": None}
    body = {"progress": progress_of_run(range(3)), "query": query}
    path = "/api/v1/stream-processor/progress"
    assert api.post(path, body, format="json").json()["settings"] is None
    row = api.get(LIST).json()["results"][0]
    assert (row["origin"], row["cluster"], row["settings"]["trigger_s"]) == ("own", None, 2.0)
    address = f"{LIST}/{row['id']}"
    refused = api.post(address + "/apply", {"settings": {"trigger_s": 1, "executors": 2}}, format="json")
    assert refused.status_code == 422 and refused.json()["faults"][0]["path"] == "executors"
    short = api.post(address + "/apply", {"settings": {"trigger_s": 0.01}}, format="json")
    message = "trigger_s is 0.01; allowed: a finite number from 0.1 to 600"
    assert short.status_code == 400 and short.json()["faults"] == [{"path": "trigger_s", "message": message}]
    assert api.post(address + "/apply", {"settings": {"trigger_s": 1}}, format="json").status_code == 200
    assert api.post(path, body, format="json").json()["settings"] == {"trigger_s": 1.0}
    assert api.patch(address, {"settings": {"trigger_s": 3}}, format="json").status_code == 400


def test_url_is_shown_to_operators_alone(api: APIClient, api_of: Callable[..., APIClient], cluster: Cluster) -> None:
    address = watched(api, cluster, origin="url", url="https://example.org/secret").headers["Location"]
    assert api.get(address).json()["url"] == "https://example.org/secret"
    assert api_of("viewer").get(address).json()["url"] == "example.org"


def test_query_is_changed_and_deleted(api: APIClient, cluster: Cluster) -> None:
    address = watched(api, cluster, settings={"max_rows_per_trigger": 5}).headers["Location"]
    changed = api.patch(address, {"auto_refit": True, "settings": {"max_rows_per_trigger": None}}, format="json").json()
    assert changed["auto_refit"] is True and changed["settings"]["max_rows_per_trigger"] is None
    assert api.patch(address, {"origin": "file"}, format="json").status_code == 400
    assert api.delete(address).status_code == 204 and not SparkQuery.objects.exists()
