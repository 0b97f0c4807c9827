"""A whole deployment document in and out of a cluster."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import pytest

from apps.core.errors import Malformed
from apps.fleet.models import Cluster
from apps.queries.documents import document_export, document_import
from apps.queries.models import Query
from tests.apps.domain import fault_paths, make_cluster, make_query, start

pytestmark = pytest.mark.django_db

DOCUMENT: dict[str, Any] = {
    "format": "sluice/deployment",
    "version": 1,
    "subinterval_s": 1.0,
    "subintervals": 4,
    "sources": [{"id": "clicks", "arrivals": [4, 8, 0, 4]}],
    "nodes": [{"id": "m1", "capacity_cps": 1e6, "pool": "small"}, {"id": "m2", "capacity_cps": 2e6, "cores": 4}],
    "links": [{"from": "m1", "to": "m2", "bandwidth_bytes_s": None, "delay_s": 0.01}],
    "operators": [
        {
            "id": "a",
            "query": "q",
            "node": "m1",
            "inputs": [{"from": "clicks", "selectivity": 1.0, "cycles_per_event": 10.0}],
        },
        {
            "id": "b",
            "query": "q",
            "node": "m2",
            "core": 3,
            "inputs": [{"from": "a", "selectivity": 1.0, "cycles_per_event": 5.0}],
        },
    ],
    "objectives": [{"query": "q", "statistic": "q0.9", "bound_s": 3.0}],
    "priorities": {"q": 4},
}


def document_with(**changes: Any) -> dict[str, Any]:
    return {**deepcopy(DOCUMENT), **changes}


def test_a_document_becomes_nodes_sources_and_a_draft() -> None:
    cluster = make_cluster(nodes=0)
    rehearsal = document_import(cluster=cluster, document=DOCUMENT, dry_run=True)
    assert not cluster.nodes.exists() and not Query.objects.exists()
    done = document_import(cluster=cluster, document=DOCUMENT)
    assert (
        done.created
        == rehearsal.created
        == [
            "pool small",
            "node m1",
            "pool imported",
            "node m2",
            "link m1->m2",
            "source clicks",
            "query q",
        ]
    )
    query = cluster.queries.get()
    assert (query.state, query.priority, query.objective_bound_s) == ("draft", 4, 3.0)
    assert query.versions.get().operators.get(name="b").requested == [{"node": "m2", "core": 3, "fraction": 1.0}]
    again = document_import(cluster=cluster, document=DOCUMENT)
    assert again.created == [] and again.updated == ["query q"]
    assert again.unchanged == ["node m1", "node m2", "link m1->m2", "source clicks"]


def test_what_runs_can_be_moved_to_another_cluster() -> None:
    cluster = make_cluster()
    start(make_query(cluster), {"parse": "n1", "count": {"node": "n2", "core": 1}})
    start(make_query(cluster, "second"), rate_share=0.5)
    document = json.loads(json.dumps(document_export(cluster)))
    other = make_cluster("copy", nodes=0)
    done = document_import(cluster=other, document=document, start=True)
    assert any("clicks@second was stored as clicks-second" in note for note in done.notes)
    copied = document_export(other)
    renamed = json.loads(json.dumps(document).replace("clicks@second", "clicks-second"))
    assert copied == renamed


def test_short_arrivals_need_a_fill_option() -> None:
    cluster = make_cluster(horizon_s=8.0)
    with pytest.raises(Malformed, match="choose fill"):
        document_import(cluster=cluster, document=DOCUMENT, path="document")
    assert not cluster.queries.exists() and cluster.nodes.count() == 2
    document_import(cluster=cluster, document=DOCUMENT, fill="repeat")
    assert cluster.arrivals.get().events == 32


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        (
            {"nodes": [{"id": "m1", "capacity_series_cps": [1, 1, 1, 1]}, DOCUMENT["nodes"][1]]},
            "nodes[0].capacity_series_cps",
        ),
        ({"combine": {"kind": "max"}}, "combine.kind"),
        ({"constraints": {"pin": {"a": "m1"}}}, "constraints"),
        ({"scheduling": "klink"}, "scheduling"),
        ({"plans": {"q": []}}, "plans"),
        ({"surprise": 1}, "surprise"),
        ({"subinterval_s": float("nan")}, "subinterval_s"),
        ({"sources": [{"id": "clicks", "arrivals": [1, -1, 1, 1]}]}, "sources[0].arrivals[1]"),
    ],
)
def test_document_with_unsupported_parts_is_refused(changes: dict[str, Any], path: str) -> None:
    cluster = make_cluster(nodes=0)
    with pytest.raises(Malformed) as error:
        document_import(cluster=cluster, document=document_with(**changes), path="document")
    assert f"document.{path}" in fault_paths(error)
    assert not Cluster.objects.get().nodes.exists() and not Query.objects.exists()


def test_operators_without_a_query_need_one() -> None:
    cluster = make_cluster(nodes=0)
    document = document_with(objectives=[], priorities={})
    for operator in document["operators"]:
        del operator["query"]
    with pytest.raises(Malformed, match="query is missing"):
        document_import(cluster=cluster, document=document)
    document_import(cluster=cluster, document=document, query="adopted")
    assert cluster.queries.get().name == "adopted"


@pytest.mark.parametrize("document", [None, [], 3, "{}", {}])
def test_non_document_is_refused(document: Any) -> None:
    with pytest.raises(Malformed):
        document_import(cluster=make_cluster(), document=document)


def test_nodes_of_one_pool_keep_the_memory_that_each_states() -> None:
    """The memory of one node never stands in for another's."""
    cluster = make_cluster(nodes=0)
    sizes: dict[str, float | None] = {"m1": 8e9, "m2": 1e12, "m3": None}
    nodes = [{"id": name, "capacity_cps": 1e8, "memory_bytes": size} for name, size in sizes.items()]
    document = {"format": "sluice/deployment", "version": 1, "subinterval_s": 1.0, "subintervals": 4, "nodes": nodes}
    document_import(cluster=cluster, document=document | {"operators": [], "sources": []})
    assert {node.name: node.memory_for_state for node in cluster.nodes.select_related("pool")} == sizes
    exported = document_export(cluster=cluster)
    assert {node["id"]: node.get("memory_bytes") for node in exported["nodes"]} == sizes
    nodes[0]["memory_bytes"] = 16e9
    again = document_import(cluster=cluster, document=document | {"operators": [], "sources": []})
    assert again.updated == ["node m1"]
