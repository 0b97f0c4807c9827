"""Nodes, pools, links and clusters in the browser."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from apps.fleet.choices import NodeState
from apps.fleet.models import KUBERNETES_RULES, Cluster, Link, Node, NodePool
from apps.fleet.services import node_create
from tests.apps.pages.html import body

pytestmark = pytest.mark.django_db


def test_nodes_show_load_and_excess_of_the_newest_estimate(browser: Client, cluster: Cluster) -> None:
    html = body(browser.get("/c/little/fleet/"))
    assert "2 nodes with 2 cores at work." in html
    assert 'href="/c/little/fleet/nodes/b/"' in html
    assert "b: highest excess" in html
    node = body(browser.get("/c/little/fleet/nodes/b/"))
    assert "1 query uses it" in node
    assert 'data-chart="node-excess"' in node
    assert "js/charts.js" in node
    assert browser.get("/c/little/fleet/nodes/zz/").status_code == 404


def test_a_node_is_created_changed_drained_and_deleted(browser: Client, cluster: Cluster) -> None:
    pool = NodePool.objects.get()
    assert browser.get("/c/little/fleet/new/node/").status_code == 200
    form = {"pool": pool.pk, "name": "c", "capacity_cps": "", "cores": "3", "labels": "rack=r7"}
    assert browser.post("/c/little/fleet/new/node/", form)["Location"] == "/c/little/fleet/"
    node = Node.objects.get(name="c")
    assert (node.capacity_cps, node.cores, node.labels) == (pool.capacity_cps, 3, {"rack": "r7"})
    assert "rack=r7" in body(browser.get("/c/little/fleet/nodes/c/edit/"))
    browser.post("/c/little/fleet/nodes/c/edit/", {**form, "capacity_cps": "5e9"})
    browser.post("/c/little/fleet/nodes/c/state/", {"change": "drain"})
    node.refresh_from_db()
    assert (node.capacity_cps, node.state) == (5e9, NodeState.DRAINING)
    browser.post("/c/little/fleet/nodes/c/delete/")
    assert not Node.objects.filter(name="c").exists()


def test_faults_are_shown_at_their_fields_and_above_the_form(browser: Client, cluster: Cluster) -> None:
    pool = NodePool.objects.get()
    response = browser.post(
        "/c/little/fleet/new/node/", {"pool": pool.pk, "name": "A B", "capacity_cps": "-1", "cores": "1", "labels": ""}
    )
    assert response.status_code == 422
    html = body(response)
    assert "2 faults to correct" in html
    assert 'id="id_name_error"' in html
    assert 'id="id_capacity_cps_error"' in html
    assert 'value="A B"' in html
    taken = browser.post("/c/little/fleet/new/node/", {"pool": pool.pk, "name": "a", "labels": "rack"})
    assert "labels such as rack=r7 zone=b" in body(taken)


def test_node_in_use_is_not_deleted(browser: Client, cluster: Cluster) -> None:
    response = browser.post("/c/little/fleet/nodes/a/delete/")
    assert response.status_code == 409
    assert "calm/work" in body(response)


CHANGE = "/c/little/fleet/change/"


def test_several_nodes_are_drained_after_a_question_that_names_them(browser: Client, cluster: Cluster) -> None:
    asked = browser.post(CHANGE, {"change": "drain", "row": ["a", "b"]})
    assert "Drain: 2 nodes" in body(asked)
    assert "<li>a</li><li>b</li>" in body(asked)
    assert set(Node.objects.values_list("state", flat=True)) == {NodeState.ACTIVE}
    browser.post(CHANGE, {"change": "drain", "row": ["a", "b"], "confirmed": "1"})
    assert set(Node.objects.values_list("state", flat=True)) == {NodeState.DRAINING}
    assert browser.post(CHANGE, {"change": "burn", "row": ["a"]}).status_code == 400
    assert browser.post(CHANGE, {"change": "drain"}).status_code == 400


def test_chosen_nodes_are_those_of_the_evacuation_that_is_asked_for(browser: Client, cluster: Cluster) -> None:
    chosen = {"change": "evacuate", "row": ["a", "b"]}
    asked = browser.post(CHANGE, chosen)
    assert asked["Location"] == browser.post(CHANGE, chosen, headers={"HX-Request": "true"})["HX-Redirect"]
    assert 'name="nodes" value="a b"' in body(browser.get(asked["Location"]))
    assert set(Node.objects.values_list("state", flat=True)) == {NodeState.ACTIVE}


def test_refused_nodes_are_named_with_their_reason_and_the_others_changed(browser: Client, cluster: Cluster) -> None:
    node_create(pool=NodePool.objects.get(), name="spare")
    answer = browser.post(CHANGE, {"change": "delete", "row": ["a", "spare", "ghost"], "confirmed": "1"})
    html = body(answer)
    assert answer.status_code == 409
    assert "Delete: 1 of 3 nodes" in html
    assert "calm/work" in html
    assert "There is no &#x27;ghost&#x27;, or no longer." in html
    assert set(Node.objects.values_list("name", flat=True)) == {"a", "b"}


def test_all_nodes_that_pass_the_filters_are_named_before_they_are_changed(browser: Client, cluster: Cluster) -> None:
    Node.objects.filter(name="b").update(state=NodeState.DRAINING)
    every = {"change": "activate", "all_found": "1", "parameters": "state=draining"}
    html = body(browser.post(CHANGE, every))
    assert "Activate: 1 node" in html
    assert '<input type="hidden" name="row" value="b">' in html
    assert 'name="row" value="a"' not in html


def test_question_for_htmx_is_an_open_dialog(browser: Client, cluster: Cluster) -> None:
    asked = browser.post(CHANGE, {"change": "drain", "row": "a"}, headers={"HX-Request": "true"})
    assert body(asked).startswith('<dialog class="dialog" open')


def test_pools_and_links_are_created_changed_and_deleted(browser: Client, cluster: Cluster) -> None:
    browser.post("/c/little/fleet/new/pool/", {"name": "large", "capacity_cps": "4e9", "cores": "8", "labels": ""})
    pool = NodePool.objects.get(name="large")
    assert "large" in body(browser.get("/c/little/fleet/pools/"))
    browser.post(
        f"/c/little/fleet/pools/{pool.pk}/", {"name": "big", "capacity_cps": "4e9", "cores": "8", "labels": ""}
    )
    pool.refresh_from_db()
    assert pool.name == "big"
    browser.post(f"/c/little/fleet/pools/{pool.pk}/delete/")
    assert NodePool.objects.count() == 1
    a, b = Node.objects.order_by("name")
    assert browser.get("/c/little/fleet/new/link/").status_code == 200
    same = browser.post("/c/little/fleet/new/link/", {"source": a.name, "target": a.name, "delay_s": "0"})
    assert same.status_code == 422
    assert 'id="id_target_error"' in body(same)
    nobody = browser.post("/c/little/fleet/new/link/", {"source": "nobody", "target": b.name, "delay_s": "0"})
    assert nobody.status_code == 422 and "There is no node of that name." in body(nobody)
    browser.post(
        "/c/little/fleet/new/link/", {"source": a.name, "target": b.name, "bandwidth_bytes_s": "", "delay_s": "0.002"}
    )
    link = Link.objects.get()
    assert "no limit" in body(browser.get("/c/little/fleet/links/"))
    browser.post(f"/c/little/fleet/links/{link.pk}/", {"bandwidth_bytes_s": "1e6", "delay_s": "0.01"})
    link.refresh_from_db()
    assert (link.bandwidth_bytes_s, link.delay_s) == (1e6, 0.01)
    browser.post(f"/c/little/fleet/links/{link.pk}/delete/")
    assert not Link.objects.exists()


def test_import_is_checked_before_anything_is_stored(browser: Client, cluster: Cluster) -> None:
    path = "/c/little/fleet/import/"
    assert browser.get(f"{path}?kind=links").status_code == 200
    faulty = browser.post(path, {"kind": "nodes", "text": "name,pool,cores\nx1,nope,1\nx2,pool,0\n"})
    assert faulty.status_code == 400
    html = body(faulty)
    assert "nope" in html
    assert "cores" in html
    good = "name,pool,cores\nx1,pool,2\nx2,pool,4\n"
    checked = body(browser.post(path, {"kind": "nodes", "text": good}))
    assert "2 would be created" in checked
    assert not Node.objects.filter(name="x1").exists()
    stored = browser.post(path, {"kind": "nodes", "text": good, "store": "1"})
    assert stored["Location"] == "/c/little/fleet/"
    assert Node.objects.get(name="x2").cores == 4
    file = SimpleUploadedFile("links.csv", b"from,to,delay_s\nx1,x2,0.5\n")
    assert "1 would be created" in body(browser.post(path, {"kind": "links", "file": file}))
    assert "one of the two" in body(browser.post(path, {"kind": "nodes", "text": " "}))


def test_cluster_is_created_changed_and_deleted(browser: Client) -> None:
    form = {"name": "EU 1", "slug": "eu-1", "time_zone": "Europe/Berlin", "subinterval_s": "1", "horizon_s": "3600"}
    form |= {"preview_valid_s": "900", "environment": "prod", "currency": "EUR"}
    form |= {"parts_budget_s": "60"} | dict.fromkeys(KUBERNETES_RULES, "allow")
    assert browser.post("/clusters/new/", form)["Location"] == "/c/eu-1/fleet/"
    assert "another cluster" in body(browser.post("/clusters/new/", form))
    cluster = Cluster.objects.get()
    assert cluster.parts_budget_s == 60
    wrong = {"time_zone": "Mars/Phobos", "horizon_s": "3600.5", "parts_budget_s": "601"}
    bad = browser.post("/c/eu-1/settings/", {**form, **wrong})
    assert bad.status_code == 422
    assert "3 faults to correct" in body(bad)
    browser.post("/c/eu-1/settings/", {**form, "name": "Europe"})
    cluster.refresh_from_db()
    assert (cluster.name, cluster.slug) == ("Europe", "eu-1")
    assert browser.post("/c/eu-1/settings/delete/", {"confirm": "EU"}).status_code == 409
    assert browser.post("/c/eu-1/settings/delete/", {"confirm": "eu-1"})["Location"] == "/"
    assert not Cluster.objects.exists()


def test_viewer_is_offered_no_changes(browser_of: Callable[..., Client], cluster: Cluster) -> None:
    viewer = browser_of("viewer")
    for path in ("/c/little/", "/c/little/fleet/", "/c/little/fleet/nodes/a/"):
        html = body(viewer.get(path))
        forms = [part.split(">")[0] for part in html.split("<form")[1:] if "post" in part.split(">")[0]]
        assert [form for form in forms if "logout" not in form] == []
        assert "/new/" not in html


def test_nodes_are_planned_from_their_pool(browser: Client, cluster: Cluster) -> None:
    pool = cluster.pools.get()
    page = f"/c/little/fleet/pools/{pool.pk}/plan/"
    assert 'value="3"' in body(browser.get(f"{page}?count=3"))
    assert browser.post(page, {"count": "0"}).status_code == 422
    assert "Planned" in body(browser.post(page, {"count": "3"}, follow=True))
    assert cluster.nodes.filter(state="planned").count() == 3
    assert "3 planned" in body(browser.get("/c/little/fleet/"))
