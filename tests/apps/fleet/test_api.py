"""The fleet over REST."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test.utils import CaptureQueriesContext
from rest_framework.test import APIClient

from apps.fleet.models import Cluster, Link, Node
from apps.fleet.services import link_create, node_create
from tests.apps.domain import make_cluster, make_query, node_named, start

pytestmark = pytest.mark.django_db


def paths(answer: Any) -> set[str]:
    body = answer.json()
    assert set(body) >= {"type", "title", "status", "detail", "instance", "code", "faults", "request_id"}
    return {fault["path"] for fault in body["faults"]}


def test_cluster_is_created_changed_and_deleted_over_rest(api: APIClient) -> None:
    response = api.post("/api/v1/clusters", {"slug": "eu-1", "name": "EU 1", "horizon_s": 600}, format="json")
    assert response.status_code == 201 and response["Location"] == "/api/v1/clusters/eu-1"
    assert response.json()["slices"] == 2400 and response.json()["node_count"] == 0
    read = api.get("/api/v1/clusters/eu-1")
    changed = api.patch(
        "/api/v1/clusters/eu-1",
        {"time_zone": "Europe/Berlin", "parts_budget_s": 60},
        format="json",
        headers={"If-Match": read["ETag"]},
    )
    assert changed.status_code == 200 and changed.json()["time_zone"] == "Europe/Berlin"
    assert (read.json()["parts_budget_s"], changed.json()["parts_budget_s"]) == (120, 60)
    assert changed["ETag"] == api.get("/api/v1/clusters/eu-1")["ETag"] != read["ETag"]
    late = api.patch("/api/v1/clusters/eu-1", {"name": "X"}, format="json", headers={"If-Match": read["ETag"]})
    assert late.status_code == 412
    assert api.delete("/api/v1/clusters/eu-1").status_code == 204
    assert api.get("/api/v1/clusters/eu-1").status_code == 404


def test_all_faults_of_a_cluster_are_reported_together(api: APIClient) -> None:
    answer = api.post(
        "/api/v1/clusters",
        {"slug": "Bad Slug", "name": "x", "time_zone": "Nowhere", "horizon_s": "NaN", "colour": 1},
        format="json",
    )
    assert answer.status_code == 400 and paths(answer) == {"colour", "horizon_s"}
    answer = api.post(
        "/api/v1/clusters", {"slug": "Bad Slug", "name": "x", "time_zone": "Nowhere", "horizon_s": 2.5}, format="json"
    )
    assert answer.status_code == 400 and paths(answer) == {"slug", "time_zone", "horizon_s"}
    typed = api.post(
        "/api/v1/clusters", {"slug": "a", "name": "x", "horizon_s": True, "subinterval_s": []}, format="json"
    )
    assert paths(typed) == {"horizon_s", "subinterval_s"}
    make_cluster("a")
    assert api.post("/api/v1/clusters", {"slug": "a", "name": "x"}, format="json").status_code == 409


def test_repeated_idempotent_post_creates_one_node(api: APIClient) -> None:
    make_cluster()
    node = {"cluster": "eu-1", "pool": "std", "name": "n3"}
    answers = [api.post("/api/v1/nodes", node, format="json", headers={"Idempotency-Key": "k1"}) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [201, 201] and answers[0].json() == answers[1].json()
    assert Node.objects.filter(name="n3").count() == 1
    assert api.post("/api/v1/nodes", node, format="json").status_code == 409


def test_node_is_created_changed_and_deleted_over_rest(api: APIClient) -> None:
    cluster = make_cluster()
    start(make_query(cluster))
    url = f"/api/v1/nodes/{node_named(cluster, 'n1').pk}"
    assert api.get(url).json()["operator_count"] == 2
    assert api.post(f"{url}/drain").json()["state"] == "draining"
    assert api.post(f"{url}/activate").json()["state"] == "active"
    for refused in (api.delete(url), api.post(f"{url}/offline")):
        assert refused.status_code == 409 and "checkout/parse" in refused.json()["detail"]
    assert api.patch(url, {"cluster": "other"}, format="json").status_code == 400
    assert api.patch(url, {"cluster": "eu-1", "labels": {"rack": "r1"}}, format="json").json()["labels"] == {
        "rack": "r1"
    }
    assert paths(api.patch(url, {"pool": "nope"}, format="json")) == {"pool"}
    assert paths(api.patch(url, {"state": "offline"}, format="json")) == {"state"}
    assert api.put(url, {}, format="json").status_code == 405
    assert api.delete(f"/api/v1/nodes/{node_named(cluster, 'n2').pk}").status_code == 204


def test_nodes_are_planned_over_rest(api: APIClient) -> None:
    pool = make_cluster().pools.get()
    planned = api.post(f"/api/v1/node-pools/{pool.pk}/plan", {"count": 2}, format="json")
    assert planned.status_code == 201
    assert [(node["name"], node["state"]) for node in planned.json()] == [("n3", "planned"), ("n4", "planned")]
    assert paths(api.post(f"/api/v1/node-pools/{pool.pk}/plan", {"count": 0}, format="json")) == {"count"}


def test_pools_and_links_over_rest(api: APIClient) -> None:
    cluster = make_cluster()
    pool = api.post(
        "/api/v1/node-pools",
        {"cluster": "eu-1", "name": "big", "capacity_cps": 3e9, "cores": 32, "price_per_hour": 1.5},
        format="json",
    )
    assert pool.status_code == 201 and pool.json()["price_per_hour"] == 1.5
    assert api.delete(f"/api/v1/node-pools/{cluster.pools.get(name='std').pk}").status_code == 409
    link = api.post("/api/v1/links", {"cluster": "eu-1", "from": "n1", "to": "n2", "delay_s": 0.001}, format="json")
    assert link.status_code == 201 and (link.json()["from"], link.json()["bandwidth_bytes_s"]) == ("n1", None)
    url = f"/api/v1/links/{link.json()['id']}"
    assert api.patch(url, {"bandwidth_bytes_s": 1e9, "from": "n1"}, format="json").json()["bandwidth_bytes_s"] == 1e9
    assert api.patch(url, {"from": "n2"}, format="json").status_code == 400
    assert paths(api.post("/api/v1/links", {"cluster": "eu-1", "from": "n8", "to": "n9"}, format="json")) == {
        "from",
        "to",
    }
    assert api.get("/api/v1/links?node=n2").json()["results"][0]["to"] == "n2"


def test_lists_are_filtered(api: APIClient) -> None:
    make_cluster("a")
    other = make_cluster("b", nodes=3)
    node_create(pool=other.pools.get(), name="special", state="draining")
    assert [row["name"] for row in api.get("/api/v1/nodes?cluster=a").json()["results"]] == ["n1", "n2"]
    assert [row["name"] for row in api.get("/api/v1/nodes?cluster=b&state=draining").json()["results"]] == ["special"]
    assert [row["name"] for row in api.get("/api/v1/nodes?name__contains=PECI").json()["results"]] == ["special"]
    assert paths(api.get("/api/v1/nodes?state=asleep")) == {"state"}
    page = api.get("/api/v1/nodes?page_size=4").json()
    assert len(page["results"]) == 4 and len(api.get(page["next"]).json()["results"]) == 2


def test_nodes_are_imported_from_json_and_from_a_file(api: APIClient) -> None:
    make_cluster()
    rows = [{"name": "n1", "pool": "std", "capacity_cps": 5e8}, {"name": "n7", "pool": "std"}]
    body = {"cluster": "eu-1", "rows": rows, "dry_run": True}
    assert api.post("/api/v1/nodes/import", body, format="json").json() == {
        "dry_run": True,
        "created": ["n7"],
        "updated": ["n1"],
        "unchanged": [],
    }
    assert not Node.objects.filter(name="n7").exists()
    file = SimpleUploadedFile("nodes.csv", b"name,pool\nn1,std\nn7,std\n")
    done = api.post("/api/v1/nodes/import", {"cluster": "eu-1", "file": file}, format="multipart")
    assert done.json()["created"] == ["n7"] and done.json()["unchanged"] == ["n1"]
    bad = api.post("/api/v1/nodes/import", {"cluster": "eu-1", "rows": [{"name": "x", "pool": "no"}]}, format="json")
    assert bad.status_code == 400 and paths(bad) == {"rows[0].pool"}
    assert api.post("/api/v1/nodes/import", {"cluster": "eu-1"}, format="json").status_code == 400
    assert api.post("/api/v1/nodes/import", {"cluster": "no", "rows": []}, format="json").status_code == 400


def test_tables_are_exported_as_csv(api: APIClient) -> None:
    cluster = make_cluster()
    link_create(source=node_named(cluster, "n1"), target=node_named(cluster, "n2"))
    answer = api.get("/api/v1/nodes/export?cluster=eu-1")
    assert answer.status_code == 200 and answer["Content-Type"].startswith("text/csv")
    assert answer.content.decode().splitlines()[1] == "n1,std,100000000.0,2,,active,,nominal,"
    assert api.get("/api/v1/links/export?cluster=eu-1").content.decode().splitlines()[1] == "n1,n2,,0.0"
    missing = api.get("/api/v1/nodes/export?cluster=no")
    assert missing.status_code == 404 and "eu-1" in missing.json()["detail"]


def test_nul_characters_are_refused(api: APIClient) -> None:
    make_cluster()
    node = {"cluster": "eu-1", "pool": "std", "name": "n3", "labels": {"rack": "a\0b"}}
    assert "zero character" in api.post("/api/v1/nodes", node, format="json").json()["detail"]
    form = {"cluster": "eu\0", "file": SimpleUploadedFile("nodes.csv", b"name,pool\nn1,std\n")}
    assert paths(api.post("/api/v1/nodes/import", form, format="multipart")) == {"cluster"}
    assert api.get("/api/v1/clusters/eu%00/document").status_code == 404


def test_lone_surrogates_are_refused(api: APIClient) -> None:
    def post(escaped: str) -> Any:
        return api.generic("POST", "/api/v1/clusters", f'{{"slug": "{escaped}"}}', content_type="application/json")

    for half in (r"\ud800", r"a\udfffb", r"\ude00\ud83d"):
        assert "half of a character" in post(half).json()["detail"]
    whole = post(r"\ud83d\ude00").json()["detail"]
    assert "half" not in whole


@pytest.mark.parametrize("resource", ["clusters", "node-pools", "nodes", "links"])
def test_lists_need_the_same_number_of_statements_for_more_rows(api: APIClient, resource: str) -> None:
    from django.db import connection

    def statements() -> int:
        with CaptureQueriesContext(
            connection,
        ) as captured:
            answer = api.get(f"/api/v1/{resource}")
        assert answer.status_code == 200 and answer.json()["results"]
        return len(captured)

    first = make_cluster("first")
    link_create(source=node_named(first, "n1"), target=node_named(first, "n2"))
    statements()  # the token's last use is written once
    few = statements()
    for i in range(4):
        cluster = make_cluster(f"c{i}", nodes=4)
        for target in ("n2", "n3", "n4"):
            link_create(source=node_named(cluster, "n1"), target=node_named(cluster, target))
    assert statements() == few
    assert Cluster.objects.count() == 5 and Link.objects.count() == 13


def test_bulk_changes_what_can_be_changed_and_says_why_the_rest_was_not(api: APIClient) -> None:
    cluster = make_cluster()
    start(make_query(cluster, "q"))
    used, spare = node_named(cluster, "n1"), node_create(pool=cluster.pools.first(), name="spare")
    answer = api.post("/api/v1/nodes/bulk", {"action": "delete", "ids": [spare.pk, used.pk, 987654]}, format="json")
    assert answer.status_code == 200, answer.content
    told = answer.json()
    assert (told["changed"], told["refused"]) == (1, 2)
    assert [row["id"] for row in told["results"]] == [spare.pk, used.pk, 987654]
    errors = [row["error"] and row["error"]["code"] for row in told["results"]]
    assert errors == [None, "conflict", "missing"]
    assert not Node.objects.filter(pk=spare.pk).exists()
    assert Node.objects.filter(pk=used.pk).exists()


def test_bulk_of_no_node_or_an_unknown_action_is_malformed(api: APIClient) -> None:
    answer = api.post("/api/v1/nodes/bulk", {"action": "burn", "ids": []}, format="json")
    assert answer.status_code == 400 and paths(answer) == {"action", "ids"}
