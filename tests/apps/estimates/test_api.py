"""REST: estimates of clusters, of documents, of queries."""

from __future__ import annotations

from typing import Any

import pytest

from apps.estimates.services import ESTIMATE
from tests.apps.small_cluster import run_jobs, small_cluster, start_query

pytestmark = pytest.mark.django_db

DOCUMENT = {
    "subinterval_s": 1.0,
    "sources": [{"id": "s", "arrivals": [100, 100]}],
    "nodes": [{"id": "n", "capacity_cps": 1000}],
    "operators": [{"id": "f", "node": "n", "inputs": [{"from": "s", "selectivity": 1, "cycles_per_event": 15}]}],
}


@pytest.fixture
def cluster() -> Any:
    cluster = small_cluster()
    start_query(cluster, "over", 1.25, "a", bound_s=10.0)
    return cluster


def test_estimate_of_a_cluster_is_a_job(api: Any, cluster: Any) -> None:
    answer = api.post("/api/v1/estimates", {"cluster": "little"}, format="json")
    assert answer.status_code == 202
    run_jobs()
    job = api.get(answer["Location"]).json()
    assert job["state"] == "succeeded"
    run = api.get(job["result_api_url"]).json()
    assert run["queries"][0]["query"] == "over"
    assert run["queries"][0]["state"] == "breached"
    assert run["servers"][0]["peak_load"] == pytest.approx(1.25)
    listed = api.get("/api/v1/estimates?cluster=little&query=over").json()["results"]
    assert [row["id"] for row in listed] == [run["id"]]
    assert api.get("/api/v1/estimates?cluster=other").json()["results"] == []


def test_newest_estimate_of_a_query_is_shown(api: Any, cluster: Any) -> None:
    query = cluster.queries.get()
    missing = api.get(f"/api/v1/queries/{query.pk}/estimate")
    assert missing.status_code == 404
    assert missing.json()["code"] == "missing"
    ESTIMATE.request(cluster=cluster)
    run_jobs()
    plain = api.get(f"/api/v1/queries/{query.pk}/estimate").json()
    assert (plain["query"], plain["state"], plain["stale"], plain["series"]) == ("over", "breached", False, None)
    with_series = api.get(f"/api/v1/queries/{query.pk}/estimate?series=1").json()
    assert len(with_series["series"]["time_s"]) == len(with_series["series"]["flow_s"]) == 60


def test_too_large_document_is_refused(api: Any, db: None) -> None:
    nodes = [{"id": f"n{index}", "capacity_cps": 1000, "cores": 1024} for index in range(50)]
    operators = [{**DOCUMENT["operators"][0], "node": "n0"}]
    document = {**DOCUMENT, "nodes": nodes, "operators": operators}
    document["sources"] = [{"id": "s", "arrivals": [1] * 1000}]
    answer = api.post("/api/v1/estimates", {"document": document}, format="json")
    assert answer.status_code == 422
    assert answer.json()["faults"][0]["path"] == "document.subintervals"
    assert "at most 5e+07" in answer.json()["faults"][0]["message"]


def test_document_estimate_equals_that_of_the_command_line(api: Any, db: None) -> None:
    answer = api.post("/api/v1/estimates", {"document": DOCUMENT, "flow_slices": 4}, format="json")
    assert answer.status_code == 202
    run_jobs()
    job = api.get(answer["Location"]).json()
    result = api.get(job["result_api_url"]).json()["result"]
    assert result["mace_wc"] == pytest.approx(1.0)
    assert result["servers"]["n"]["mace"] == pytest.approx([0.5, 1.0])


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({}, ""),
        ({"cluster": "little", "document": DOCUMENT}, ""),
        ({"cluster": "little", "flow_slices": 2}, "flow_slices"),
        ({"cluster": "little", "sloces": 2}, "sloces"),
        ({"document": {**DOCUMENT, "nodes": [{"id": "n", "capacity_cps": -1}]}}, "document.nodes[0].capacity_cps"),
        ({"document": {**DOCUMENT, "subinterval_s": 0}}, "document.subinterval_s"),
        ({"document": DOCUMENT, "flow_slices": 0}, "flow_slices"),
    ],
)
def test_faults_name_their_field(api: Any, cluster: Any, body: dict[str, Any], path: str) -> None:
    answer = api.post("/api/v1/estimates", body, format="json")
    assert answer.status_code == 400
    assert path in [fault["path"] for fault in answer.json()["faults"]]
    assert run_jobs() == []


def test_unknown_cluster_returns_404(api: Any, db: None) -> None:
    answer = api.post("/api/v1/estimates", {"cluster": "nowhere"}, format="json")
    assert (answer.status_code, answer.json()["faults"][0]["path"]) == (404, "cluster")


def test_nothing_is_stored_without_redis(api: Any, cluster: Any, settings: Any) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    answer = api.post("/api/v1/estimates", {"document": DOCUMENT}, format="json")
    assert answer.status_code == 503
    assert answer["Retry-After"]
    assert run_jobs() == []
    assert api.get("/api/v1/estimates").status_code == 200
