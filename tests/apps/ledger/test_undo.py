"""Every change of a tracked object is recorded, and taken back whole or refused with the reason."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import models, transaction
from django.test import Client
from django.utils import timezone
from rest_framework.test import APIClient

from apps.core.errors import Conflict
from apps.fleet.models import Cluster, Link, Node
from apps.fleet.services import (
    cluster_delete,
    cluster_update,
    link_create,
    node_delete,
    node_drain,
    node_update,
    pool_update,
)
from apps.ledger.chain import chain_faults, ledger_purge, ledger_seal
from apps.ledger.models import KeptRows, ObjectChange
from apps.ledger.recorder import canonical, row_image, tracked_models
from apps.ledger.undo import change_undo, group_undo, undo_obstacle
from apps.queries.arrivals.services import arrivals_create_from_counts, arrivals_delete, arrivals_owner_update
from apps.queries.models import ArrivalSeries, Operator, OperatorInput, Placement, Query, QueryVersion
from apps.queries.services import placement_move, query_delete, query_stop, query_update, query_version_create
from tests.apps import small_cluster
from tests.apps.pages.html import body

pytestmark = pytest.mark.django_db


@pytest.fixture
def cluster(db: None) -> Cluster:
    return small_cluster.small_cluster()


def last(kind: str) -> ObjectChange:
    return ObjectChange.objects.filter(kind=kind).latest("pk")


def rows_of(key: int) -> list[dict[str, Any]]:
    """All that describes a query, as the tables have it."""
    tables: list[models.QuerySet[Any]] = [
        Query.objects.filter(pk=key),
        QueryVersion.objects.filter(query=key),
        Operator.objects.filter(version__query=key),
        OperatorInput.objects.filter(operator__version__query=key),
    ]
    rows = [row for table in tables for row in table.order_by("pk").values()]
    for row in rows:
        row.pop("updated_at", None)
    return rows


def test_each_way_to_write_a_tracked_row_is_recorded(cluster: Cluster) -> None:
    pool = cluster.pools.get()
    fields = {"cluster": cluster, "pool": pool, "capacity_cps": 1.0}
    count = ObjectChange.objects.count()
    writes: list[Callable[[], object]] = [
        lambda: Node.objects.create(name="n1", **fields),
        lambda: Node(name="n2", **fields).save(),
        lambda: Node.objects.bulk_create([Node(name="n3", **fields)]),
        lambda: Node.objects.get_or_create(name="n4", defaults=fields),
        lambda: Node.objects.update_or_create(name="n1", defaults={"cores": 2}),
        lambda: cluster.nodes.filter(name="n1").update(cores=3),
        lambda: Node.objects.bulk_update([Node(pk=Node.objects.get(name="n1").pk, cores=4)], ["cores"]),
        lambda: Node.objects.filter(name="n4").delete(),
        lambda: Node.objects.get(name="n3").delete(),
    ]
    for write in writes:
        write()
        count += 1
        assert ObjectChange.objects.count() == count
    of_one = ObjectChange.objects.filter(name="n1").order_by("pk")
    assert list(of_one.values_list("after__cores", flat=True)) == [1, 2, 3, 4]


def test_change_that_is_rolled_back_or_changes_nothing_is_not_recorded(cluster: Cluster) -> None:
    count, node = ObjectChange.objects.count(), cluster.nodes.first()
    assert node is not None
    node_update(node=node, cores=node.cores)
    with transaction.atomic():
        node_drain(node=node)
        transaction.set_rollback(True)
    cluster.nodes.update(updated_at=timezone.now())
    assert ObjectChange.objects.count() == count


def test_change_says_who_made_it_and_what_differs(cluster: Cluster, api: APIClient) -> None:
    node = cluster.nodes.get(name="a")
    headers = {"X-Request-ID": "r-1", "X-Change-Reason": "new fan"}
    assert api.patch(f"/api/v1/nodes/{node.pk}", {"cores": 2}, format="json", headers=headers).status_code == 200
    change = last("node")
    assert (change.name, change.before, change.after) == ("a", {"cores": 1}, {"cores": 2})
    assert (change.user, change.request_id, change.why) == ("a-operator", "r-1", "new fan")
    assert change.token.startswith("test") and change.cluster_key == cluster.pk


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("cluster", lambda c: cluster_update(cluster=c, parts_budget_s=60, name="Other")),
        ("pool", lambda c: pool_update(pool=c.pools.get(), price_per_hour="0.1000", labels={"rack": "r7"})),
        ("node", lambda c: node_drain(node=c.nodes.get(name="b"))),
        ("node", lambda c: node_delete(node=c.nodes.get(name="b"))),
        ("query", lambda c: query_update(query=c.queries.get(name="q"), objective={"statistic": "mean", "bound_s": 9})),
        ("query", lambda c: query_update(query=c.queries.get(name="q"), objective=None, team="red", priority=3)),
        ("query", lambda c: query_update(query=c.queries.get(name="q"), labels={"domain": "payments"})),
        ("query", lambda c: placement_move(query=c.queries.get(name="q"), placement={"work": "b"})),
        ("query", lambda c: query_delete(query=c.queries.get(name="draft"))),
        (
            "arrivals",
            lambda c: arrivals_create_from_counts(cluster=c, source_id="clicks", counts=[1.0] * 240, replace=True),
        ),
        (
            "arrivals",
            lambda c: arrivals_owner_update(arrivals=c.arrivals.get(source_id="idle"), team="red", labels={"a": "b"}),
        ),
        ("arrivals", lambda c: arrivals_delete(arrivals=c.arrivals.get(source_id="idle"))),
    ],
)
def test_undo_restores_every_field_and_can_be_undone(
    cluster: Cluster, kind: str, change: Callable[[Cluster], object]
) -> None:
    small_cluster.start_query(cluster, "q", 0.5, "a")
    small_cluster.make_query(cluster, "draft", 0.1)
    arrivals_create_from_counts(cluster=cluster, source_id="idle", counts=[3.0] * cluster.slices)
    model = tracked_models()[kind]
    before = {row.pk: row_image(model, row.pk) for row in model._base_manager.all()}
    change(cluster)
    made = last(kind)
    after = {row.pk: row_image(model, row.pk) for row in model._base_manager.all()}
    assert after != before
    undoing = change_undo(pk=made.pk, why="a mistake")
    assert {row.pk: row_image(model, row.pk) for row in model._base_manager.all()} == before
    assert (undoing.undoes_id, undoing.why) == (made.pk, "a mistake")
    change_undo(pk=undoing.pk)
    assert {row.pk: row_image(model, row.pk) for row in model._base_manager.all()} == after


def test_deleted_query_comes_back_with_its_operators_and_does_not_run(cluster: Cluster) -> None:
    query = small_cluster.start_query(cluster, "q", 0.5, "a")
    query_version_create(query=query, body=small_cluster.body(0.7))
    query_stop(query=query)
    query.refresh_from_db()
    before, key = rows_of(query.pk), query.pk
    query_delete(query=query)
    assert not Query.objects.filter(name="q").exists()
    change_undo(pk=last("query").pk)
    assert rows_of(key) == before
    assert not Placement.objects.exists()


def test_deleted_query_whose_name_is_taken_stays_away_whole(cluster: Cluster) -> None:
    query_delete(query=small_cluster.make_query(cluster, "q", 0.5))
    deletion = last("query")
    other = small_cluster.make_query(cluster, "q", 0.1)
    with pytest.raises(Conflict, match="another query 'q'"):
        change_undo(pk=deletion.pk)
    assert [query.pk for query in cluster.queries.all()] == [other.pk]


def test_deleted_node_comes_back_with_its_links_or_not_at_all(cluster: Cluster) -> None:
    a, b = cluster.nodes.get(name="a"), cluster.nodes.get(name="b")
    link, key = link_create(source=a, target=b, delay_s=0.5), a.pk
    node_delete(node=a)
    deletion, of_link = last("node"), last("link")
    assert of_link.cause_id == deletion.pk
    with pytest.raises(Conflict, match="came of another change"):
        change_undo(pk=of_link.pk)
    change_undo(pk=deletion.pk)
    assert Link.objects.get(pk=link.pk).delay_s == 0.5
    node_delete(node=Node.objects.get(pk=key))
    deletion = last("node")
    node_delete(node=b)
    with pytest.raises(Conflict, match="refers to node"):
        change_undo(pk=deletion.pk)
    assert not cluster.nodes.exists() and not Link.objects.exists()


def test_undo_is_refused_with_both_values_when_the_object_was_changed_since(cluster: Cluster) -> None:
    node = cluster.nodes.get(name="a")
    node_update(node=node, cores=2)
    change = last("node")
    node_update(node=node, cores=3)
    with pytest.raises(Conflict) as refusal:
        change_undo(pk=change.pk)
    assert refusal.value.code == "changed_since"
    assert [str(fault) for fault in refusal.value.faults] == ["cores: cores is 3; this change left 2"]
    assert refusal.value.data == {"present": {"cores": 3}, "after": {"cores": 2}, "before": {"cores": 1}}
    assert Node.objects.get(pk=node.pk).cores == 3


def test_second_undo_is_told_of_the_first(cluster: Cluster) -> None:
    node_drain(node=cluster.nodes.get(name="a"))
    change = last("node")
    undoing = change_undo(pk=change.pk)
    with pytest.raises(Conflict) as refusal:
        change_undo(pk=change.pk)
    assert (refusal.value.code, refusal.value.data) == ("already_undone", {"undone_by": undoing.pk})


def test_stop_is_not_undone_past_admission_and_a_start_is(cluster: Cluster) -> None:
    query = small_cluster.start_query(cluster, "q", 0.5, "a")
    start = last("query")
    query_stop(query=query)
    with pytest.raises(Conflict, match="ask for its admission again"):
        change_undo(pk=last("query").pk)
    small_cluster.start_query(cluster, "p", 0.5, "a")
    change_undo(pk=last("query").pk)
    assert not Placement.objects.exists() and not cluster.queries.filter(state="running").exists()
    assert start.after and start.after["placement"] == {"work": [{"node": "a", "core": 0, "fraction": 1.0}]}


def test_cluster_that_holds_something_is_not_taken_back(cluster: Cluster) -> None:
    with pytest.raises(Conflict, match="holds something"):
        change_undo(pk=last("cluster").pk)
    cluster_delete(cluster=cluster)
    deletion = last("cluster")
    assert deletion.action == "deleted" and "does not come back" in undo_obstacle(deletion)
    assert ObjectChange.objects.filter(kind="node", action="deleted").count() == 2


def test_group_is_taken_back_whole_or_not_at_all(cluster: Cluster, browser: Client) -> None:
    data = {"change": "drain", "row": ["a", "b"], "confirmed": "1"}
    answer = browser.post(f"/c/{cluster.slug}/fleet/change/", data, follow=True)
    group = last("node").group
    assert f"/undo/{group}/".encode() in answer.content
    node_update(node=cluster.nodes.get(name="a"), state="active")
    with pytest.raises(Conflict, match="changed since: state"):
        group_undo(group=group)
    assert cluster.nodes.get(name="b").state == "draining"
    node_update(node=cluster.nodes.get(name="a"), state="draining")
    assert browser.post(f"/undo/{group}/").status_code == 302
    assert {node.state for node in cluster.nodes.all()} == {"active"}


def test_rest_lists_changes_and_undoes(cluster: Cluster, api: APIClient, api_of: Callable[..., APIClient]) -> None:
    node_drain(node=cluster.nodes.get(name="a"))
    listed = api.get(f"/api/v1/changes?cluster={cluster.slug}&kind=node&action=changed").json()["results"]
    assert [(row["before"], row["after"], row["undone_by"]) for row in listed] == [
        ({"state": "active"}, {"state": "draining"}, None)
    ]
    address = f"/api/v1/changes/{listed[0]['id']}/undo"
    assert api_of("viewer").post(address, {}, format="json").status_code == 403
    undoing = api.post(address, {"why": "too early"}, format="json").json()
    assert (undoing["undoes"], undoing["why"], undoing["after"]) == (listed[0]["id"], "too early", {"state": "active"})
    assert api.post(address, {}, format="json").json()["code"] == "already_undone"


def test_kept_rows_end_and_the_change_stays(cluster: Cluster, settings: Any) -> None:
    query_delete(query=small_cluster.make_query(cluster, "q", 0.5))
    KeptRows.objects.update(kept_at=timezone.now() - timedelta(days=settings.UNDO_DAYS, hours=1))
    assert ledger_purge() == 1
    with pytest.raises(Conflict, match="and gone"):
        change_undo(pk=last("query").pk)


def test_chain_finds_a_change_that_was_altered_or_cut_out(cluster: Cluster) -> None:
    count = ObjectChange.objects.count()
    assert ledger_seal() == count and ledger_seal() == 0 and not list(chain_faults())
    node_drain(node=cluster.nodes.get(name="a"))
    assert ledger_seal() == 1 and not list(chain_faults())
    call_command("ledger", "verify")
    ObjectChange.objects.filter(number=2).update(user="nobody")
    assert ["2 (" in fault for fault in chain_faults()] == [True]
    ObjectChange.objects.filter(number=3).delete()
    with pytest.raises(CommandError, match="between 2 and 4 changes are missing"):
        call_command("ledger", "verify")


def test_retention_leaves_a_chain_that_can_be_verified(cluster: Cluster, settings: Any) -> None:
    ledger_seal()
    long_ago = timezone.now() - timedelta(days=settings.LEDGER_DAYS, hours=1)
    ObjectChange.objects.filter(number__lte=3).update(at=long_ago)
    assert ledger_purge() == 3
    assert not list(chain_faults())
    ObjectChange.objects.filter(number=4).delete()
    assert list(chain_faults()) == ["between 3 and 5 changes are missing"]
    ObjectChange.objects.update(at=long_ago)
    ledger_purge()
    node_drain(node=cluster.nodes.get(name="a"))
    assert ledger_seal() == 1 and not list(chain_faults())  # the numbers go on


def test_replaced_arrivals_are_kept_once_by_digest(cluster: Cluster) -> None:
    row = cluster.arrivals.get(source_id="clicks")
    for count in (2.0, 3.0):
        arrivals_create_from_counts(cluster=cluster, source_id="clicks", counts=[count] * cluster.slices, replace=True)
    change = last("arrivals")
    assert len(canonical([change.before, change.after])) < 2000 and change.kept
    change_undo(pk=change.pk)
    assert ArrivalSeries.objects.get(pk=row.pk).events == 2.0 * cluster.slices


def _press_undo(browser: Client, address: str, action: str, name: str) -> str:
    """Press the button of the first entry of a history with that action and name; returns the page that follows."""
    buttons = re.findall(
        r'formaction="(/changes/\d+/undo/)">Undo<span class="vh"> (\w+) ([^<]+)', body(browser.get(address))
    )
    pressed = next(url for url, *what in buttons if what == [action, name])
    return body(browser.post(pressed, follow=True, headers={"referer": f"http://testserver{address}"}))


def test_change_is_undone_from_the_history_where_it_is_listed(cluster: Cluster, browser: Client) -> None:
    node_update(node=cluster.nodes.get(name="a"), state="draining")
    address = f"/c/{cluster.slug}/changes/?kind=node"
    assert "Node a is taken back." in _press_undo(browser, address, "changed", "a")
    assert cluster.nodes.get(name="a").state == "active"
    here = body(browser.get(address))
    assert "taken back <time" in here and "Draining → Active" in here


def test_deleted_query_comes_back_from_the_history(cluster: Cluster, browser: Client) -> None:
    small_cluster.make_query(cluster, "sums", 0.1)
    page = f"/c/{cluster.slug}/queries/sums/"
    before = cluster.queries.get().versions.get().operators.count()
    browser.post(f"{page}delete/", {"confirm": "sums"})
    assert browser.get(page).status_code == 404
    assert "Query sums is taken back." in _press_undo(browser, f"/c/{cluster.slug}/changes/", "deleted", "sums")
    assert browser.get(page).status_code == 200
    assert cluster.queries.get(name="sums").versions.get().operators.count() == before
