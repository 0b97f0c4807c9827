"""Services of the fleet: what they store and refuse."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from apps.core.errors import Conflict, Malformed
from apps.fleet import bulk, services
from apps.fleet.models import Cluster, Link, Node
from apps.fleet.selectors import clusters_with_counts
from apps.fleet.services import nodes_plan
from apps.queries.snapshots.cluster import cluster_snapshot
from tests.apps.domain import make_arrivals, make_cluster, make_query, node_named, start

pytestmark = pytest.mark.django_db


def paths(error: Any) -> list[str]:
    return [fault.path for fault in error.value.faults]


def test_all_faults_of_a_cluster_are_raised_together() -> None:
    with pytest.raises(Malformed) as error:
        services.cluster_create(
            slug="Not A Slug", name="", time_zone="Mars/Olympus", subinterval_s=float("nan"), horizon_s=-1
        )
    assert {"slug", "name", "time_zone", "subinterval_s", "horizon_s"} == set(paths(error))
    assert not Cluster.objects.exists()


@pytest.mark.parametrize(
    ("subinterval_s", "horizon_s", "word"),
    [(1.0, 10.5, "whole number"), (7.0, 100.0, "whole number"), (0.01, 3600.0, "200,000")],
)
def test_the_grid_is_whole_and_bounded(subinterval_s: float, horizon_s: float, word: str) -> None:
    with pytest.raises(Malformed) as error:
        services.cluster_create(slug="c", name="C", subinterval_s=subinterval_s, horizon_s=horizon_s)
    assert paths(error) == ["horizon_s"] and word in error.value.message


def test_fractional_subinterval_is_accepted() -> None:
    cluster = services.cluster_create(slug="c", name="C", subinterval_s=0.1, horizon_s=0.3 * 10)
    assert cluster.slices == 120


def test_the_grid_is_fixed_while_there_are_arrivals() -> None:
    cluster = make_cluster()
    make_arrivals(cluster)
    with pytest.raises(Conflict, match="delete them") as error:
        services.cluster_update(cluster=cluster, subinterval_s=2.0)
    assert paths(error) == ["subinterval_s"]
    cluster.refresh_from_db()
    services.cluster_update(cluster=cluster, name="Other", subinterval_s=1.0)
    cluster.arrivals.all().delete()
    assert services.cluster_update(cluster=cluster, subinterval_s=2.0).slices == 8


@pytest.mark.parametrize("labels", [r'{""a"": ""\u0000""}', "[" * 50_000, '{""a"": NaN}'])
def test_invalid_labels_are_a_fault_of_their_cell(labels: str) -> None:
    cluster = make_cluster()
    with pytest.raises(Malformed) as error:
        bulk.nodes_import(cluster=cluster, table=f'name,pool,labels\nn9,std,"{labels}"\n')
    assert paths(error) == ["rows[0].labels"] and cluster.nodes.count() == 2


def test_a_node_has_a_bounded_number_of_cores() -> None:
    cluster = make_cluster()
    with pytest.raises(Malformed, match="1024"):
        services.node_update(node=node_named(cluster, "n1"), cores=1025)


def test_update_keeps_concurrent_changes_of_other_fields() -> None:
    cluster = make_cluster()
    node, link = (
        node_named(cluster, "n1"),
        services.link_create(source=node_named(cluster, "n1"), target=node_named(cluster, "n2"), delay_s=0.5),
    )
    seen = Link.objects.get(pk=link.pk)
    services.node_drain(node=node_named(cluster, "n1"))
    services.link_update(link=link, delay_s=0.7)
    services.pool_update(pool=cluster.pools.get(), cores=4)
    services.node_update(node=node, labels={"rack": "r7"})
    services.link_update(link=seen, bandwidth_bytes_s=1e6)
    services.pool_update(pool=node.pool, labels={"kind": "small"})
    node, link, pool = node_named(cluster, "n1"), Link.objects.get(pk=link.pk), cluster.pools.get()
    assert (node.state, node.labels) == ("draining", {"rack": "r7"})
    assert (link.delay_s, link.bandwidth_bytes_s) == (0.7, 1e6)
    assert (pool.cores, pool.labels) == (4, {"kind": "small"})


def test_cluster_is_checked_against_its_current_row() -> None:
    cluster = make_cluster()
    seen = Cluster.objects.get(pk=cluster.pk)
    services.cluster_update(cluster=cluster, subinterval_s=4.0, horizon_s=8.0, environment="prod")
    with pytest.raises(Malformed, match="whole number of subintervals"):
        services.cluster_update(cluster=seen, horizon_s=6.0)
    services.cluster_update(cluster=Cluster.objects.get(), name="Other")
    assert Cluster.objects.get().environment == "prod"


def test_slug_is_unique() -> None:
    make_cluster("a")
    with pytest.raises(Conflict, match="'a' is taken"):
        services.cluster_create(slug="a", name="Again")


def test_cluster_with_running_queries_is_not_deleted() -> None:
    cluster = make_cluster()
    query = start(make_query(cluster))
    with pytest.raises(Conflict, match="checkout"):
        services.cluster_delete(cluster=cluster)
    from apps.queries.services import query_stop

    query_stop(query=query)
    services.cluster_delete(cluster=cluster)
    assert not Cluster.objects.exists() and not Node.objects.exists()


def test_a_node_has_its_pools_capacity_unless_given() -> None:
    cluster = make_cluster(nodes=1)
    assert node_named(cluster, "n1").capacity_cps == 1e8
    own = services.node_create(pool=cluster.pools.get(), name="big", capacity_cps=5e8, cores=16)
    assert (own.capacity_cps, own.cores) == (5e8, 16)


def test_bad_numbers_of_nodes_and_links_are_named() -> None:
    cluster = make_cluster()
    with pytest.raises(Malformed) as error:
        services.node_create(
            pool=cluster.pools.get(), name="x/y", capacity_cps=float("inf"), cores=0, labels={"rack": 7}
        )
    assert set(paths(error)) == {"name", "capacity_cps", "cores", "labels.rack"}
    n1, n2 = node_named(cluster, "n1"), node_named(cluster, "n2")
    with pytest.raises(Malformed) as error:
        services.link_create(source=n1, target=n1, bandwidth_bytes_s=0.0, delay_s=-1.0)
    assert set(paths(error)) == {"to", "bandwidth_bytes_s", "delay_s"}
    services.link_create(source=n1, target=n2, delay_s=0.001)
    with pytest.raises(Conflict, match="n1->n2"):
        services.link_create(source=n1, target=n2)
    services.link_create(source=n2, target=n1)


def test_nodes_of_two_clusters_are_not_linked() -> None:
    here, there = make_cluster("a"), make_cluster("b")
    with pytest.raises(Malformed, match="another cluster"):
        services.link_create(source=node_named(here, "n1"), target=node_named(there, "n2"))


def test_a_node_with_operators_is_neither_deleted_nor_taken_offline_nor_shrunk() -> None:
    cluster = make_cluster()
    start(make_query(cluster), {"parse": {"node": "n1", "core": 1}, "count": "n2"})
    node = node_named(cluster, "n1")
    for refused in (services.node_delete, services.node_take_offline):
        with pytest.raises(Conflict, match="checkout/parse") as error:
            refused(node=node)
        assert "checkout/parse is placed on it" in [fault.message for fault in error.value.faults]
    with pytest.raises(Conflict, match="2 cores"):
        services.node_update(node=node_named(cluster, "n1"), cores=1)
    assert services.node_drain(node=node_named(cluster, "n1")).state == "draining"
    assert services.node_activate(node=node_named(cluster, "n1")).state == "active"


def test_pool_with_nodes_is_not_deleted() -> None:
    cluster = make_cluster()
    with pytest.raises(Conflict, match="n1 and n2"):
        services.pool_delete(pool=cluster.pools.get())


def test_a_capacity_entered_by_hand_is_assumed_again() -> None:
    cluster = make_cluster()
    node = services.node_calibrate(
        node=node_named(cluster, "n1"), capacity_cps=2e9, cores=4, measured_at=datetime(2026, 3, 1, tzinfo=UTC)
    )
    assert (node.evidence, node.cores) == ("measured", 4)
    services.node_update(node=node, labels={"rack": "r1"})
    assert node.evidence == "measured"
    services.node_update(node=node, capacity_cps=3e9)
    assert (node.evidence, node.calibrated_at) == ("assumed", None)


def test_cluster_counts_nodes_cores_and_running_queries() -> None:
    cluster = make_cluster(nodes=3)
    start(make_query(cluster))
    start(make_query(cluster, "second"))
    services.node_take_offline(node=node_named(cluster, "n3"))
    make_cluster("empty", nodes=0)
    counts = clusters_with_counts().values_list("slug", "node_count", "core_count", "running_count")
    assert sorted(counts) == [("empty", 0, 0, 0), ("eu-1", 2, 4, 2)]


def test_planned_nodes_are_no_capacity_until_they_are_there() -> None:
    cluster = make_cluster(nodes=2)
    before = cluster_snapshot(cluster).digest
    pool = cluster.pools.get()
    assert [node.name for node in nodes_plan(pool=pool, count=2)] == ["n3", "n4"]
    assert [node.name for node in nodes_plan(pool=pool, count=1)] == ["n5"]
    assert cluster_snapshot(cluster).digest == before
    with pytest.raises(Conflict, match="is planned"):
        start(make_query(cluster), {"parse": "n3", "count": "n1"})
    services.node_activate(node=node_named(cluster, "n3"))
    assert [node.id for node in cluster_snapshot(cluster).deployment.nodes] == ["n1", "n2", "n3"]
    with pytest.raises(Malformed, match="count is 0; allowed: 1 to 1000"):
        nodes_plan(pool=pool, count=0)


def test_planned_names_continue_the_numbers_and_skip_taken_ones() -> None:
    cluster = make_cluster(nodes=0)
    pool, other = cluster.pools.get(), services.pool_create(cluster=cluster, name="big", capacity_cps=1e9)
    services.node_create(pool=other, name="std-02")
    services.node_create(pool=pool, name="std-01")
    assert [node.name for node in nodes_plan(pool=pool, count=2)] == ["std-03", "std-04"]
    assert [node.name for node in nodes_plan(pool=other, count=1)] == ["std-05"]
    empty = services.pool_create(cluster=cluster, name="new", capacity_cps=1e9)
    assert [node.name for node in nodes_plan(pool=empty, count=2)] == ["new-1", "new-2"]


# -- import and export


CSV = "name,pool,capacity_cps,cores\nn1,std,1e8,2\nn2,std,3e8,2\nn9,std,,\n"


def test_import_creates_updates_and_keeps_unchanged_rows() -> None:
    cluster = make_cluster()
    rehearsal = bulk.nodes_import(cluster=cluster, table=CSV, dry_run=True)
    assert node_named(cluster, "n2").capacity_cps == 1e8 and cluster.nodes.count() == 2
    done = bulk.nodes_import(cluster=cluster, table=CSV.encode())
    assert replace(done, dry_run=True) == rehearsal
    assert (done.created, done.updated, done.unchanged) == (["n9"], ["n2"], ["n1"])
    assert node_named(cluster, "n9").cores == 2


def test_faulty_import_lists_every_fault_by_line_and_column_and_stores_nothing() -> None:
    cluster = make_cluster()
    table = "name,pool,capacity_cps,cores\ngood,std,1,1\nn3,nope,fast,1.5\n,std,1e9,2\nn4,std,-5,2\ngood,std,1,1\n"
    with pytest.raises(Malformed) as error:
        bulk.nodes_import(cluster=cluster, table=table)
    faults = {fault.path: fault.message for fault in error.value.faults}
    assert set(faults) == {
        "rows[1].pool",
        "rows[1].capacity_cps",
        "rows[1].cores",
        "rows[2].name",
        "rows[3].capacity_cps",
        "rows[4]",
    }
    assert faults["rows[1].capacity_cps"] == "line 3: capacity_cps is 'fast'; allowed: a number"
    assert cluster.nodes.count() == 2


@pytest.mark.parametrize(
    ("table", "word"),
    [
        ("name,pool,speed\nn1,std,3\n", "unknown column"),
        ("name,pool\nn1\n", "1 columns"),
        ("", "no rows"),
        ("[{", "not JSON"),
        ("[1]", "an object"),
        (b"\xff\xfe\x00", "UTF-8"),
        ([{"name": ["n1"], "pool": "std"}], "non-empty text"),
        ([{"name": "n1", "pool": "std", "cores": True}], "cores is True"),
    ],
)
def test_unreadable_tables_are_refused(table: Any, word: str) -> None:
    with pytest.raises(Malformed) as error:
        bulk.nodes_import(cluster=make_cluster(), table=table)
    assert word in error.value.message + str(error.value.faults)


def test_what_is_exported_can_be_imported() -> None:
    cluster = make_cluster()
    services.node_update(node=node_named(cluster, "n2"), labels={"rack": "r1:2"}, state="draining")
    services.link_create(source=node_named(cluster, "n1"), target=node_named(cluster, "n2"), bandwidth_bytes_s=1.25e8)
    services.link_create(source=node_named(cluster, "n2"), target=node_named(cluster, "n1"), delay_s=0.1)
    nodes, links = bulk.nodes_export(cluster), bulk.links_export(cluster)
    assert bulk.nodes_import(cluster=cluster, table=nodes).unchanged == ["n1", "n2"]
    assert bulk.links_import(cluster=cluster, table=links).unchanged == ["n1->n2", "n2->n1"]
    other = make_cluster("copy", nodes=0)
    bulk.nodes_import(cluster=other, table=nodes)
    bulk.links_import(cluster=other, table=links)
    assert bulk.nodes_export(other) == nodes and bulk.links_export(other) == links


def test_links_to_unknown_nodes_are_refused() -> None:
    cluster = make_cluster()
    with pytest.raises(Malformed) as error:
        bulk.links_import(cluster=cluster, table=[{"from": "n1", "to": "n7"}, {"from": "n1", "to": "n1"}])
    assert paths(error) == ["rows[0].to", "rows[1].to"]
    assert not Link.objects.exists()
