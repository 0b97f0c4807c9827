"""REST: connections are made, checked, imported and uploaded to; the token is never shown."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from rest_framework.test import APIClient

from apps.accounts.choices import Role
from apps.connections.models import Connection
from apps.fleet.models import Cluster
from tests.apps import small_cluster
from tests.apps.connections.engine_server import EngineServer
from tests.apps.connections.fake_flink import FakeFlink

pytestmark = pytest.mark.django_db

URL = "/api/v1/connections"


@pytest.fixture
def cluster() -> Cluster:
    return small_cluster.small_cluster()


def made(api: APIClient, **more: Any) -> dict[str, Any]:
    body = {"cluster": "little", "name": "shop", "engine": "flink", **more}
    answer = api.post(URL, body, format="json")
    assert answer.status_code == 201, answer.json()
    return dict(answer.json())


def test_token_is_written_only(api: APIClient, cluster: Cluster) -> None:
    shown = made(api, url="https://flink.example", token="t0ken")
    assert shown["has_token"] is True and "t0ken" not in json.dumps(shown)
    row = api.get(f"{URL}/{shown['id']}")
    assert row.json()["has_token"] is True and "t0ken" not in row.content.decode()
    changed = api.patch(f"{URL}/{shown['id']}", {"poll_interval_s": 60}, format="json")
    assert changed.json()["poll_interval_s"] == 60 and Connection.objects.get().sealed_token


def test_reader_sees_the_host_alone(api: APIClient, api_of: Callable[..., APIClient], cluster: Cluster) -> None:
    made(api, url="https://flink.example/secret-path")
    shown = api_of(Role.VIEWER).get(URL).json()["results"][0]
    assert shown["url"] == "flink.example"


def test_every_fault_has_its_path(api: APIClient, cluster: Cluster, settings: Any) -> None:
    settings.CONNECT_HOSTS = []
    body = {"cluster": "little", "name": "Shop!", "engine": "flink", "url": "http://10.0.0.1", "ca_pem": "x"}
    answer = api.post(URL, body, format="json")
    assert answer.status_code == 400
    assert {fault["path"] for fault in answer.json()["faults"]} == {"name", "url", "ca_pem"}
    unknown = api.post(URL, {**body, "tokn": "x"}, format="json")
    assert "tokn" in {fault["path"] for fault in unknown.json()["faults"]}


def test_post_with_the_same_key_makes_one_connection(api: APIClient, cluster: Cluster) -> None:
    body = {"cluster": "little", "name": "shop", "engine": "flink"}
    answers = [api.post(URL, body, format="json", headers={"Idempotency-Key": "k1"}) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [201, 201]
    assert answers[0].json()["id"] == answers[1].json()["id"] and Connection.objects.count() == 1


def test_import_needs_the_scope_admit_and_lists_its_jobs(
    api: APIClient,
    api_of: Callable[..., APIClient],
    cluster: Cluster,
    engine: EngineServer,
) -> None:
    FakeFlink().serve(engine)
    shown = made(api, url=engine.url)
    path = f"{URL}/{shown['id']}"
    assert api.post(f"{path}/check").status_code == 202
    admitter = api_of(Role.ADMITTER)
    asked = {"objectives": {"*": {"statistic": "worst", "bound_s": 5}}}
    assert admitter.post(f"{path}/import", asked, format="json").status_code == 202
    small_cluster.run_jobs()
    row = admitter.get(path).json()
    assert row["state"] == "connected" and row["job_count"] == row["running_count"] == 1
    assert row["cost"]["requests"] > 0 and {finding["level"] for finding in row["findings"]} >= {"assumed"}
    job = admitter.get("/api/v1/imported-jobs?connection=shop").json()["results"][0]
    assert job["query"] == "shop" and job["version"] == 1 and job["events"][0]["kind"] == "appeared"
    paused = api.post(f"{path}/pause").json()
    assert paused["state"] == "paused" and api.post(f"{path}/refresh").status_code == 409
    assert api.post(f"{path}/resume").json()["state"] == "new"
    assert api.delete(path).status_code == 204 and cluster.queries.filter(name="shop").exists()


def test_upload_is_taken_where_there_is_no_url(api: APIClient, cluster: Cluster) -> None:
    shown = made(api)
    file = SimpleUploadedFile("answers.json", json.dumps({"/overview": {}, "/jobs/overview": {"jobs": []}}).encode())
    answer = api.post(f"{URL}/{shown['id']}/upload", {"file": file}, format="multipart")
    assert answer.status_code == 200 and answer.json()["answers"] == 2
    assert api.post(f"{URL}/{shown['id']}/upload", {}, format="multipart").status_code == 400
    other = made(api, name="asked", url="https://flink.example")
    file = SimpleUploadedFile("answers.json", b'{"/overview": {}}')
    assert api.post(f"{URL}/{other['id']}/upload", {"file": file}, format="multipart").status_code == 409
