"""A snapshot is the same as long as its content is, and says in words what moved."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from apps.connections.models import Connection, ImportedJob
from apps.fleet import services as fleet
from apps.fleet.models import Cluster
from apps.queries.arrivals.services import arrivals_create_from_counts
from apps.queries.models import OperatorInput
from apps.queries.services import placement_move, query_stop, query_update, query_version_create
from apps.queries.snapshots.cluster import candidate_document, cluster_snapshot, snapshot_changes
from apps.queries.statistics import statistics_update
from engine.document.candidate import parse_candidate
from engine.document.deployment import Deployment
from tests.apps.domain import BODY, make_arrivals, make_cluster, make_query, node_named, start
from tests.apps.policies.documents import set_policy
from tests.apps.recordings import recorded

pytestmark = pytest.mark.django_db


@pytest.fixture
def cluster() -> Cluster:
    """Two nodes with a link, a running query, a draft, and a source nobody reads."""
    return recorded(_linked_cluster)


def _linked_cluster() -> Cluster:
    cluster = make_cluster()
    fleet.link_create(source=node_named(cluster, "n1"), target=node_named(cluster, "n2"), bandwidth_bytes_s=1e6)
    start(make_query(cluster, priority=2), {"parse": "n1", "count": {"node": "n2", "core": 1}})
    make_query(cluster, "draft")
    make_arrivals(cluster, "unread")
    return cluster


def test_the_deployment_is_what_the_document_says(cluster: Cluster) -> None:
    running = cluster_snapshot(cluster).deployment
    assert (running.subinterval_s, running.subintervals) == (0.25, 16)
    document = running.to_document()
    assert Deployment.parse(document).digest == running.digest
    assert [op["id"] for op in document["operators"]] == ["checkout/parse", "checkout/count"]
    assert document["operators"][0]["inputs"][0]["from"] == "clicks"
    assert document["operators"][1]["inputs"][0]["from"] == "checkout/parse"
    assert [source["id"] for source in document["sources"]] == ["clicks"]
    assert document["objectives"] == [{"query": "checkout", "statistic": "worst", "bound_s": 2.0}]
    assert document["priorities"] == {"checkout": 2}
    assert document["links"] == [{"from": "n1", "to": "n2", "bandwidth_bytes_s": 1e6, "delay_s": 0.0}]


def test_queries_are_listed_as_they_were_admitted(cluster: Cluster) -> None:
    start(make_query(cluster, "basket"))
    listed = cluster_snapshot(cluster).deployment
    assert listed.queries == ("checkout", "basket")
    assert [objective.query for objective in listed.objectives] == ["checkout", "basket"]
    start(cluster.queries.get(name="checkout"))
    assert cluster_snapshot(cluster).deployment.queries == ("basket", "checkout")


def test_an_empty_cluster_has_a_snapshot() -> None:
    running = cluster_snapshot(make_cluster(nodes=0)).deployment
    assert (running.subintervals, running.nodes, running.queries) == (16, (), ())


def test_the_same_content_has_the_same_digest(cluster: Cluster) -> None:
    before = cluster_snapshot(cluster)
    again = cluster_snapshot(Cluster.objects.get(pk=cluster.pk))
    assert again.digest == before.digest and snapshot_changes(before.parts, again.parts) == []
    fleet.cluster_update(cluster=cluster, name="Other name", environment="prod")
    make_query(cluster, "another-draft")
    query_update(query=cluster.queries.get(name="checkout"), description="…")
    query_version_create(query=cluster.queries.get(name="checkout"), body=BODY)
    assert cluster_snapshot(cluster).digest == before.digest


def _replace_arrivals(cluster: Cluster) -> None:
    values = np.arange(16.0)
    arrivals_create_from_counts(cluster=cluster, source_id="clicks", counts=values, replace=True)


def _statistics(cluster: Cluster) -> None:
    version = cluster.queries.get(name="checkout").running_version
    statistics_update(version=version, statistics=[{"operator": "count", "selectivity": 0.2}])


def _change_link(cluster: Cluster) -> None:
    fleet.link_update(link=cluster.links.get(), delay_s=0.002)


CHANGES: dict[str, tuple[Callable[[Cluster], Any], str]] = {
    "capacity": (
        lambda c: fleet.node_update(node=node_named(c, "n2"), capacity_cps=3e9),
        "node n2: capacity changed from 100 Mcycles/s to 3 Gcycles/s",
    ),
    "drain": (lambda c: fleet.node_drain(node=node_named(c, "n1")), "node n1: state changed from active to draining"),
    "node": (lambda c: fleet.node_create(pool=c.pools.get(), name="n3"), "node n3 was added"),
    "link": (_change_link, "link n1->n2: delay changed from 0 s to 2 ms"),
    "unlink": (lambda c: fleet.link_delete(link=c.links.get()), "link n1->n2 was removed"),
    "arrivals": (_replace_arrivals, "source clicks: arrivals changed"),
    "statistics": (_statistics, "query checkout: statistics changed"),
    "start": (lambda c: start(c.queries.get(name="draft")), "query draft was added"),
    "move": (
        lambda c: placement_move(query=c.queries.get(name="checkout"), placement={"parse": "n2"}),
        "query checkout: placement changed",
    ),
    "objective": (
        lambda c: query_update(query=c.queries.get(name="checkout"), objective={"statistic": "mean", "bound_s": 1}),
        "query checkout: objective changed from worst ≤ 2 s to mean ≤ 1 s",
    ),
    "priority": (
        lambda c: query_update(query=c.queries.get(name="checkout"), priority=9),
        "query checkout: priority changed from 2 to 9",
    ),
    "policy": (
        lambda c: set_policy(c, evidence={"assumed": "review"}),
        "policy: version changed from 0 to 1",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_snapshot_changes_describe_every_relevant_change(cluster: Cluster, name: str) -> None:
    change, words = CHANGES[name]
    before = cluster_snapshot(cluster)
    change(cluster)
    after = cluster_snapshot(Cluster.objects.get(pk=cluster.pk))
    assert after.digest != before.digest
    assert snapshot_changes(before.parts, after.parts) == [words]


def test_a_stopped_query_and_its_sources_leave(cluster: Cluster) -> None:
    before = cluster_snapshot(cluster)
    query_stop(query=cluster.queries.get(name="checkout"))
    after = cluster_snapshot(cluster)
    assert snapshot_changes(before.parts, after.parts) == ["query checkout was removed", "source clicks was removed"]
    assert after.deployment.operators == ()


def test_cluster_whose_queries_come_from_flink_has_its_costs(cluster: Cluster) -> None:
    running = cluster.queries.get(name="checkout")
    connection = Connection.objects.create(cluster=cluster, name="flink", engine="flink", url="http://127.0.0.1:8081")
    facts = {"engine_id": "0" * 32, "state": "running", "shape": "0" * 64, "started_at": timezone.now()}
    ImportedJob.objects.create(connection=connection, query=running, name="checkout", seen_at=timezone.now(), **facts)
    query_update(query=running, priority=3)
    snapshot = cluster_snapshot(cluster)
    assert snapshot.deployment.stream_processor == snapshot.parts["processor"] == "flink"
    start(make_query(cluster, "basket"))  # which no engine told of
    assert cluster_snapshot(cluster).deployment.stream_processor == "nominal"


def test_offline_nodes_are_no_part_and_draining_ones_are_closed(cluster: Cluster) -> None:
    fleet.node_drain(node=node_named(cluster, "n1"))
    offline = fleet.node_create(pool=cluster.pools.get(), name="n3")
    fleet.node_take_offline(node=offline)
    found = cluster_snapshot(cluster)
    assert [node.id for node in found.deployment.nodes] == ["n1", "n2"] and found.closed_nodes == ("n1",)


def test_query_with_a_rate_share_reads_private_copies_of_its_sources(cluster: Cluster) -> None:
    start(cluster.queries.get(name="draft"), rate_share=0.25)
    sources = {source.id: source.arrivals for source in cluster_snapshot(cluster).deployment.sources}
    assert set(sources) == {"clicks", "clicks@draft"}
    assert sources["clicks"].tolist() == [100.0] * 16
    assert sources["clicks@draft"].tolist() == [25.0] * 16


def test_models_are_restated_for_slices() -> None:
    cluster = make_cluster()
    make_arrivals(cluster)
    body = deepcopy(BODY)
    body["operators"][0]["inputs"][0]["model"] = {"output": [4.0, 2.0, 8.0], "cycles": [1.0, 0.0, 0.25]}
    start(make_query(cluster, body=body))
    fine = cluster_snapshot(cluster).deployment
    assert fine.operators[0].inputs[0].model.output == (1.0, 2.0, 32.0)
    assert fine.coarsened(4).operators[0].inputs[0].model.output == (4.0, 2.0, 8.0)


def test_a_candidate_joins_what_runs(cluster: Cluster) -> None:
    draft = cluster.queries.get(name="draft")
    running = cluster_snapshot(cluster).deployment
    document = candidate_document(draft.versions.get(), placement={"parse": "n2"})
    assert "sources" not in document and document["objective"] == {"statistic": "worst", "bound_s": 2.0}
    candidate = parse_candidate(document, running)
    assert [op.id for op in candidate.operators] == ["draft/parse", "draft/count"]
    assert candidate.operators[0].replicas[0].node == "n2" and candidate.operators[1].replicas == ()


def test_a_candidate_brings_the_sources_that_nothing_running_reads(cluster: Cluster) -> None:
    query_stop(query=cluster.queries.get(name="checkout"))
    running = cluster_snapshot(cluster).deployment
    version = cluster.queries.get(name="draft").versions.get()
    document = candidate_document(version)
    assert [source["id"] for source in document["sources"]] == ["clicks"]
    parse_candidate(document, running)
    less = candidate_document(version, rate_share=0.5)
    assert less["sources"][0]["id"] == "clicks@draft" and less["sources"][0]["arrivals"].tolist() == [50.0] * 16
    assert less["operators"][0]["inputs"][0]["from"] == "clicks@draft"


def test_a_snapshot_costs_the_same_statements_however_much_runs(
    cluster: Cluster, django_assert_max_num_queries: Any
) -> None:
    cluster_snapshot(cluster)
    for i in range(5):
        start(make_query(cluster, f"q{i}"))
    with django_assert_max_num_queries(14):
        cluster_snapshot(cluster)
    with django_assert_max_num_queries(8) as captured:
        cluster_snapshot(cluster)
    assert isinstance(captured, CaptureQueriesContext)
    assert not any('"data"' in entry["sql"] for entry in captured.captured_queries)


def test_only_changed_versions_are_rebuilt(cluster: Cluster) -> None:
    start(make_query(cluster, "basket"))
    before = cluster_snapshot(cluster)
    placement_move(query=cluster.queries.get(name="basket"), placement={"parse": "n2"})
    after = cluster_snapshot(cluster)
    was, now = before.deployment, after.deployment
    assert [now.operators[i] is was.operators[i] for i in now.operators_of("checkout")] == [True, True]
    assert [now.operators[i] is was.operators[i] for i in now.operators_of("basket")] == [False, False]
    placement_move(query=cluster.queries.get(name="basket"), placement={"parse": "n1"})
    assert cluster_snapshot(cluster).digest == before.digest


def test_rows_written_behind_the_services_back_are_seen(cluster: Cluster) -> None:
    before = cluster_snapshot(cluster)
    OperatorInput.objects.filter(operator__name="count").update(batches=[{"events": 2, "outputs": 1, "cycles": 5}])
    after = cluster_snapshot(cluster)
    assert snapshot_changes(before.parts, after.parts) == ["query checkout: statistics changed"]
    batch = after.deployment.operators[1].inputs[0].batches[0]
    assert (batch.events, batch.outputs, batch.cycles) == (2, 1, 5)
