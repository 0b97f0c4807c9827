"""A small cluster with a query, for tests of the apps that know the domain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from apps.fleet.models import Cluster, Node
from apps.fleet.services import cluster_create, node_create, pool_create
from apps.queries.arrivals.services import arrivals_create_from_counts
from apps.queries.models import Query
from apps.queries.services import query_create, query_start

BODY: dict[str, Any] = {
    "operators": [
        {
            "id": "parse",
            "kind": "map",
            "stateless": True,
            "bytes_per_event": 80,
            "inputs": [{"from": "clicks", "selectivity": 0.8, "cycles_per_event": 20_000}],
        },
        {
            "id": "count",
            "kind": "aggregate",
            "stateless": False,
            "bytes_per_event": 0.0,
            "window": {"policy": "time", "type": "tumbling", "size": 5},
            "inputs": [{"from": "parse", "selectivity": 0.1, "cycles_per_event": 9_000}],
        },
    ]
}


def make_cluster(slug: str = "eu-1", nodes: int = 2, **fields: Any) -> Cluster:
    """A cluster of 16 slices (4 subintervals of 1 s) with a pool and nodes n1, n2, …"""
    cluster = cluster_create(slug=slug, name=slug.upper(), **{"subinterval_s": 1.0, "horizon_s": 4.0, **fields})
    pool = pool_create(cluster=cluster, name="std", capacity_cps=1e8, cores=2)
    for i in range(nodes):
        node_create(pool=pool, name=f"n{i + 1}")
    return cluster


def make_arrivals(cluster: Cluster, source_id: str = "clicks", per_slice: float = 100.0) -> None:
    """The same number of events in every slice."""
    counts = [per_slice] * cluster.slices
    arrivals_create_from_counts(cluster=cluster, source_id=source_id, counts=counts)


def make_query(cluster: Cluster, name: str = "checkout", *, body: Mapping[str, Any] = BODY, **fields: Any) -> Query:
    """A draft that reads the source clicks; its arrivals are made if there are none."""
    if not cluster.arrivals.filter(source_id="clicks").exists():
        make_arrivals(cluster)
    return query_create(
        cluster=cluster, name=name, body=body, **{"objective": {"statistic": "worst", "bound_s": 2.0}, **fields}
    )


def start(query: Query, placement: Mapping[str, Any] | None = None, **fields: Any) -> Query:
    """Let its first version run, on node n1 unless told otherwise."""
    version = query.versions.get(number=1)
    where = placement or {operator.name: "n1" for operator in version.operators.all()}
    return query_start(version=version, placement=where, **fields)


def node_named(cluster: Cluster, name: str) -> Node:
    return cluster.nodes.get(name=name)


def fault_paths(error: Any) -> set[str]:
    """Paths of the faults that a refusal names, `error` being what `pytest.raises` gave."""
    return {fault.path for fault in error.value.faults}
