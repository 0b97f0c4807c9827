"""REST of scenarios, what-ifs and the bench's quick answer."""

from __future__ import annotations

from typing import Any

import pytest
from rest_framework.test import APIClient

from apps.fleet.models import Cluster
from apps.fleet.services import node_create
from apps.planning.what_ifs import sweeps
from tests.apps import small_cluster

pytestmark = pytest.mark.django_db


@pytest.fixture
def cluster() -> Cluster:
    cluster = small_cluster.small_cluster()
    small_cluster.start_query(cluster, "one", 0.6, "a")
    small_cluster.start_query(cluster, "two", 0.6, "b")
    return cluster


def post(api: APIClient, path: str, body: Any) -> Any:
    return api.post(f"/api/v1/{path}", body, format="json")


def test_a_scenario_is_created_changed_and_deleted_over_rest(api: APIClient, cluster: Cluster) -> None:
    body = {"cluster": "little", "name": "Friday", "changes": [{"scale_source": "*", "by": 1.5}]}
    created = post(api, "scenarios", body)
    assert (created.status_code, created.json()["place"], created.json()["created_by"]) == (201, "fill", "a-operator")
    path = created["Location"]
    assert post(api, "scenarios", body).status_code == 409
    etag = api.get(path)["ETag"]
    changed = api.patch(path, {"name": "Saturday"}, format="json", headers={"If-Match": etag})
    assert changed.json()["name"] == "Saturday"
    refused = api.patch(path, {"changes": [{"lose_node": "z"}]}, format="json")
    assert (refused.status_code, refused.json()["faults"][0]["path"]) == (400, "changes[0].lose_node")
    assert [
        row["name"] for row in api.get("/api/v1/scenarios?cluster=little&name__contains=sat").json()["results"]
    ] == ["Saturday"]
    assert api.delete(path).status_code == 204


def test_a_what_if_is_requested_followed_and_read_over_rest(api: APIClient, cluster: Cluster) -> None:
    body = {"cluster": "little", "changes": [{"lose_node": "b"}], "options": {"intervals": False}}
    asked = post(api, "what-ifs", body)
    assert (asked.status_code, asked["Location"]) == (202, f"/api/v1/jobs/{asked.json()['id']}")
    small_cluster.run_jobs()
    answer = api.get(asked.json()["result_api_url"]).json()
    assert (answer["state"], answer["stale"]) == ("answered", False)
    part = answer["result"]["scenarios"][0]
    assert part["node_count"] == 1
    assert part["broken"] == ["one", "two"]  # 1.2 of a node's capacity
    again = post(api, "what-ifs", body)
    assert (again.status_code, again.json()["id"]) == (200, answer["id"])
    node_create(pool=cluster.pools.get(), name="c")
    stale = api.get(asked.json()["result_api_url"]).json()
    assert stale["stale"]
    assert stale["changes"]
    listed = api.get("/api/v1/what-ifs?cluster=little&find=compare&state=answered").json()["results"]
    assert [row["id"] for row in listed] == [answer["id"]]
    assert "result" not in listed[0]


def test_sweep_answers_at_once_or_refuses_a_large_cluster(
    api: APIClient, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = {"cluster": "little", "options": {"factor": 1.5, "sizes": [1, 2, 3]}}
    answer = post(api, "what-ifs/sweep", body)
    assert answer.status_code == 200
    assert (answer.json()["now"], answer.json()["smallest"]) == (2, 3)
    assert [size["state"] for size in answer.json()["sizes"]] == ["breached", "at_risk", "holds"]
    assert answer.json()["sizes"][0]["cost_per_hour"] is None
    refused = post(api, "what-ifs/sweep", {"cluster": "little", "options": {"sources": {"nope": 2}, "pool": "x"}})
    assert {fault["path"] for fault in refused.json()["faults"]} == {"options.sources.nope", "options.pool"}
    monkeypatch.setattr(sweeps, "is_quick", lambda deployment: False)
    large = post(api, "what-ifs/sweep", body)
    assert (large.status_code, large.json()["code"]) == (422, "too_large")
    asked = post(api, "what-ifs", {**body, "find": "sweep"})
    small_cluster.run_jobs()
    assert [size["nodes"] for size in api.get(asked.json()["result_api_url"]).json()["result"]["sizes"]] == [1, 2, 3]


def test_unreadable_what_ifs_are_refused_with_the_path(api: APIClient, cluster: Cluster) -> None:
    both = post(api, "what-ifs", {"cluster": "little", "changes": [], "scenarios": []})
    assert both.json()["faults"][0]["path"] == "changes"
    assert post(api, "what-ifs", {"cluster": "little", "find": "gold"}).status_code == 400
    assert post(api, "what-ifs", {"cluster": "nowhere"}).status_code == 400
    options = post(api, "what-ifs", {"cluster": "little", "find": "growth", "options": {"most": 0.5}})
    assert options.json()["faults"][0]["path"] == "options.most"
    huge = post(api, "what-ifs", {"cluster": "little", "scenarios": [2**64]})
    assert huge.json()["faults"][0]["path"] == "scenarios[0]"
