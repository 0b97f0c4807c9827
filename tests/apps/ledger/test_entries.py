"""Refused attempts and decisions are entries; one page shows all, with names, and exports them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from rest_framework.test import APIClient

from apps.fleet.models import Cluster
from apps.fleet.services import node_drain, node_update, pool_create, pool_delete
from apps.ledger import entries
from apps.ledger.models import ObjectChange
from apps.ledger.words import ObjectNames, differing_entries, field_label
from apps.queries.services import placement_move
from tests.apps import small_cluster
from tests.apps.pages.html import body

pytestmark = pytest.mark.django_db


@pytest.fixture
def cluster(db: None) -> Cluster:
    return small_cluster.small_cluster()


def refused() -> Any:
    return ObjectChange.objects.filter(action="refused").order_by("pk")


def test_refused_attempt_is_an_entry_with_who_what_and_why(
    cluster: Cluster, api: APIClient, api_of: Callable[..., APIClient]
) -> None:
    node = cluster.nodes.get(name="a")
    address = f"/api/v1/nodes/{node.pk}"
    headers = {"X-Request-ID": "r-7"}
    assert api_of("viewer").patch(address, {"cores": 2}, format="json", headers=headers).status_code == 403
    entry = refused().get()
    assert (entry.kind, entry.name, entry.user, entry.request_id) == ("request", f"PATCH {address}", "a-viewer", "r-7")
    assert entry.after["status"] == 403 and entry.after["message"]
    node_drain(node=node)
    undone = ObjectChange.objects.filter(kind="node").latest("pk")
    for status in (200, 409):
        assert api.post(f"/api/v1/changes/{undone.pk}/undo", {}, format="json").status_code == status
    assert (refused().last().after["code"], refused().last().user) == ("already_undone", "a-operator")


def test_entries_of_one_caller_are_bounded_and_say_how_many_are_left_out(
    cluster: Cluster, api_of: Callable[..., APIClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entries, "_EACH", 2)
    viewer, address = api_of("viewer"), f"/api/v1/nodes/{cluster.nodes.get(name='a').pk}"
    for _ in range(9):
        viewer.patch(address, {"cores": 2}, format="json")
    assert [entry.after.get("left_out", 0) for entry in refused()] == [0, 0, 1, 3]  # of the 1st, 2nd, 4th and 8th


def test_page_shows_names_of_what_is_there_and_of_what_is_gone(cluster: Cluster, browser: Client) -> None:
    pool = pool_create(cluster=cluster, name="spare", capacity_cps=1.0, cores=1)
    node = cluster.nodes.get(name="a")
    node_update(node=node, pool=pool)
    here = browser.get(f"/c/{cluster.slug}/changes/?kind=node").content.decode()
    assert f"{cluster.pools.get(name='pool').name} → spare" in here
    node_update(node=node, pool=cluster.pools.get(name="pool"))
    pool_delete(pool=pool)
    everywhere = browser.get("/c/little/changes/?kind=node&user=&action=changed").content.decode()
    assert "spare (deleted)" in everywhere


def test_ledger_is_exported_as_json_and_csv(cluster: Cluster, browser: Client) -> None:
    node_drain(node=cluster.nodes.get(name="a"))
    rows = json.loads(browser.get("/c/little/changes/?kind=node&action=changed&export=json").content)
    assert [(row["name"], row["after"]) for row in rows] == [("a", {"state": "draining"})]
    head, row = browser.get("/c/little/changes/?kind=node&action=changed&export=csv").content.decode().splitlines()
    assert ",State: Active → Draining,state," in row and ",Change,Fields," in head
    assert json.loads(browser.get("/c/little/changes/?q=nobody-has-this-name&export=json").content) == []


def test_changed_fields_are_told_in_words_beside_their_names(cluster: Cluster, api: Any) -> None:
    node_drain(node=cluster.nodes.get(name="a"))
    (row,) = api.get("/api/v1/changes?kind=node&action=changed").json()["results"]
    assert row["after"] == {"state": "draining"}
    assert row["words"] == [{"field": "state", "label": "State", "before": "Active", "after": "Draining"}]


def test_move_is_told_by_the_operators_that_moved_and_a_decision_by_its_labels(
    cluster: Cluster, browser: Client
) -> None:
    assert field_label("evacuation", "state") == "State"
    assert ObjectNames().text("evacuation", "state", "stopping") == "Stopping"
    assert ObjectNames().text("decision", "verdict", "admit_with_changes") == "Admit with changes"
    before, after = {"a": [1], "b": [2]}, {"a": [1], "b": [3], "c": [4]}
    assert differing_entries(before, after) == ({"b": [2]}, {"b": [3], "c": [4]})
    query = small_cluster.start_query(cluster, "sums", 0.1, "a")
    placement_move(query=query, placement={"work": [{"node": "b"}]})
    here = body(browser.get("/c/little/changes/?kind=query&action=changed"))
    assert "work on a#0 → work on b#0" in here
