"""A cluster whose two queries share a node while another stands empty: a search has something to find."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from apps.fleet.models import Cluster
from apps.planning.models import PlacementRun
from apps.planning.placement_search import PLACEMENT
from apps.queries.models import Query
from tests.apps import small_cluster
from tests.apps.recordings import recorded


@pytest.fixture
def cluster(db: None) -> Cluster:
    """Nodes a, b and c; `first` and `second` are both on a, which they overload; `third` is on b."""
    return recorded(_crowded_cluster)


def _crowded_cluster() -> Cluster:
    cluster = small_cluster.small_cluster(nodes=("a", "b", "c"))
    small_cluster.start_query(cluster, "first", 0.7, "a")
    small_cluster.start_query(cluster, "second", 0.6, "a")
    small_cluster.start_query(cluster, "third", 0.2, "b")
    return cluster


@pytest.fixture
def proposed(cluster: Cluster) -> Callable[..., PlacementRun]:
    """`proposed(budget_s=0.2)`: a run whose search is done."""

    def make(**asked: Any) -> PlacementRun:
        run, _ = PLACEMENT.request(cluster=cluster, user=None, **{"budget_s": 0.3, **asked})
        small_cluster.run_jobs()
        run.refresh_from_db()
        return run

    return make


def places(cluster: Cluster) -> dict[str, list[tuple[str, int, float]]]:
    """Where every running query's only operator is."""
    nodes = {}
    for query in Query.objects.filter(cluster=cluster, state="running"):
        rows = query.running_version.operators.get().placements.select_related("node").order_by("node__name")
        nodes[query.name] = [(row.node.name, row.core, row.fraction) for row in rows]
    return nodes
