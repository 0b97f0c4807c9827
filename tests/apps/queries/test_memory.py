"""Memory of a cluster's nodes against the state of what runs on them."""

from __future__ import annotations

import pytest

from apps.fleet.models import Cluster
from apps.fleet.services import node_update, pool_update
from apps.queries.selectors import cluster_memory
from apps.queries.snapshots.cluster import cluster_snapshot
from tests.apps.domain import make_cluster, make_query, start

pytestmark = pytest.mark.django_db

GB = 10**9


@pytest.fixture
def cluster() -> Cluster:
    """A query whose aggregate holds 9 GB on the node n1 of a pool with 8 GB a node."""
    cluster = make_cluster(nodes=2)
    pool_update(pool=cluster.pools.get(), memory_bytes=8 * GB)
    query = make_query(cluster)
    operator = query.versions.get().operators.order_by("position").last()
    assert operator is not None
    operator.extra = {**operator.extra, "state_bytes": float(9 * GB)}
    operator.stateless = False
    operator.save()
    start(query)
    return cluster


def holder(cluster: Cluster) -> str:
    return next(name for name, entry in cluster_memory(cluster).items() if entry.held_bytes)


def test_memory_of_a_node_is_its_own_or_that_of_its_pool(cluster: Cluster) -> None:
    name = holder(cluster)
    entry = cluster_memory(cluster)[name]
    assert (entry.held_bytes, entry.memory_bytes, entry.over_bytes) == (9 * GB, 8 * GB, GB)
    node_update(node=cluster.nodes.select_related("pool").get(name=name), memory_bytes=16 * GB)
    assert cluster_memory(cluster)[name].state in ("fits", "unknown")
    nodes = {node.id: node.memory_bytes for node in cluster_snapshot(cluster).deployment.nodes}
    assert nodes[name] == 16 * GB
    assert sorted(nodes.values())[0] == 8 * GB


def test_another_memory_makes_a_preview_stale(cluster: Cluster) -> None:
    before = cluster_snapshot(cluster).digest
    pool_update(pool=cluster.pools.get(), memory_bytes=32 * GB)
    assert cluster_snapshot(cluster).digest != before
