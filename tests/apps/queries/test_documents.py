"""Deployment documents: into a cluster and out of it, at once and as jobs."""

from __future__ import annotations

import io
import json
from copy import deepcopy
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from apps.accounts.choices import Role
from apps.core.errors import Malformed
from apps.fleet.models import Cluster
from apps.fleet.services import node_drain
from apps.jobs.models import Job, JobState
from apps.jobs.runner import run_job
from apps.jobs.services import JobCancelled
from apps.queries import imports, prepared_imports
from apps.queries.documents import document_export, document_import, document_prepare, document_store
from apps.queries.imports import IMPORT
from apps.queries.models import ImportRun, Placement, Query
from apps.queries.services import query_delete
from apps.queries.snapshots.cluster import cluster_snapshot
from engine.document.deployment import Deployment
from engine.document.kinds import MAX_OPERATORS
from engine.estimation.mace import mace
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


def browser_of(user: Any) -> Client:
    client = Client()
    client.force_login(user)
    return client


def done(run: ImportRun) -> ImportRun:
    run_job(run.job_id, IMPORT.work)
    return ImportRun.objects.select_related("job").get(pk=run.pk)


def test_a_check_stores_nothing_and_an_import_all() -> None:
    cluster = make_cluster(nodes=0)
    checked = done(IMPORT.request(cluster=cluster, document=DOCUMENT)[0])
    assert checked.job.state == JobState.SUCCEEDED and not Query.objects.exists()
    stored = done(IMPORT.request(cluster=cluster, document=DOCUMENT, dry_run=False, start=True)[0])
    assert stored.result["created"] == checked.result["created"]
    snapshot = cluster_snapshot(cluster).deployment
    assert [(op.id, op.replicas[0].node, op.replicas[0].core) for op in snapshot.operators] == [
        ("q/a", "m1", 0),
        ("q/b", "m2", 3),
    ]


def test_a_worker_that_was_lost_imports_once() -> None:
    cluster = make_cluster(nodes=0)
    run = IMPORT.request(cluster=cluster, document=DOCUMENT, dry_run=False)[0]
    done(run)
    run.job.refresh_from_db()
    run.job.state, run.job.heartbeat_at = JobState.RUNNING, None
    run.job.save()
    again = done(run)
    assert again.job.state == JobState.SUCCEEDED
    assert again.result["created"][-1] == "query q" and Query.objects.get().versions.count() == 1


def test_faults_of_the_document_come_before_the_job() -> None:
    with pytest.raises(Malformed) as refused:
        IMPORT.request(cluster=make_cluster(nodes=0), document=document_with(nodes=[{"id": "m1"}], surprise=1))
    assert {fault.path for fault in refused.value.faults} >= {"document.surprise", "document.nodes[0].capacity_cps"}
    assert not ImportRun.objects.exists()


def test_job_finds_the_faults_of_a_document_that_no_request_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imports, "MAX_REQUEST_OPERATORS", 1)
    run = IMPORT.request(cluster=make_cluster(nodes=0), document=document_with(surprise=1), dry_run=False)[0]
    assert run.counts == {"nodes": 2, "queries": 1, "operators": 2}
    run = done(run)
    assert run.job.state == JobState.FAILED
    assert [fault["path"] for fault in run.job.error["faults"]] == ["surprise"]


def test_more_operators_than_a_document_may_have_are_refused_before_any_job() -> None:
    document = document_with(operators=DOCUMENT["operators"][:1] * (MAX_OPERATORS + 1))
    with pytest.raises(Malformed, match=r"document.operators: .* 100,001 items; allowed: at most 100,000"):
        IMPORT.request(cluster=make_cluster(nodes=0), document=document)
    assert not ImportRun.objects.exists() and not Job.objects.exists()


def test_import_reports_a_growing_share_and_stops_where_it_is_told_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepared_imports, "_REPORTED", 1)
    cluster, said = make_cluster(nodes=0), []

    def report(share: float, step: str) -> None:
        said.append((share, step))
        if step == "Storing queries":
            raise JobCancelled("enough")

    prepared = document_prepare(cluster=cluster, document=DOCUMENT, report=report)
    with pytest.raises(JobCancelled):
        document_store(prepared, report=report)
    shares = [share for share, _ in said]
    assert shares == sorted(shares) and shares[0] == 0 and shares[-1] > 0.5
    assert len(dict(said).values()) > 3
    assert not cluster.nodes.exists() and not cluster.arrivals.exists() and not Query.objects.exists()


def test_sources_that_would_be_stored_under_one_name_are_refused() -> None:
    cluster = make_cluster(nodes=0)
    twice = [{"id": name, "arrivals": [4, 8, 0, 4]} for name in ("clicks", "clicks-q", "clicks@q")]
    with pytest.raises(Malformed) as refused:
        document_import(cluster=cluster, document=document_with(sources=twice))
    assert fault_paths(refused) == {"sources[2].id"}


def test_query_that_went_while_its_document_was_read_is_named() -> None:
    cluster = make_cluster(nodes=0)
    document_import(cluster=cluster, document=DOCUMENT)
    prepared = document_prepare(cluster=cluster, document=DOCUMENT)
    query_delete(query=cluster.queries.get())
    with pytest.raises(Malformed, match="'q' was deleted or renamed while"):
        document_store(prepared)
    assert not cluster.queries.exists()


def test_name_that_was_taken_while_its_document_was_read_is_named() -> None:
    cluster = make_cluster(nodes=0)
    prepared = document_prepare(cluster=cluster, document=DOCUMENT)
    document_import(cluster=cluster, document=DOCUMENT)
    with pytest.raises(Malformed, match="'q' is taken by another query"):
        document_store(prepared)
    assert cluster.queries.get().versions.count() == 1


def test_import_again_keeps_fields_of_events_and_replaces_counts() -> None:
    cluster = make_cluster(nodes=0)
    fields = {"ints": 1, "strings": 2, "doubles": 0}
    source = {"id": "clicks", "arrivals": [4, 8, 0, 4]}
    document_import(cluster=cluster, document=document_with(sources=[source | {"event_fields": fields}]))
    created = cluster.arrivals.get().created_at
    again = document_import(cluster=cluster, document=document_with(sources=[source | {"arrivals": [1, 1, 1, 1]}]))
    row = cluster.arrivals.get()
    assert (row.event_fields, row.events, row.created_at) == (fields, 4.0, created)
    assert "source clicks" in again.updated


def test_fault_of_a_node_names_it_where_another_name_begins_alike() -> None:
    fine = {"id": "n1", "capacity_cps": 100.0, "cores": 4}
    wrong = {"id": "n1.b c", "capacity_cps": 100.0}
    document = document_with(nodes=[fine, wrong], links=[])
    document["operators"] = [operator | {"node": "n1"} for operator in document["operators"]]
    run = done(IMPORT.request(cluster=make_cluster(nodes=0), document=document, dry_run=False)[0])
    assert [fault["path"] for fault in run.job.error["faults"]] == ["nodes[1].name"]


def test_import_job_fails_with_every_fault_when_the_cluster_does_not_fit() -> None:
    document = document_with(subintervals=2, sources=[{"id": "clicks", "arrivals": [4, 8]}])
    run = done(IMPORT.request(cluster=make_cluster(nodes=0), document=document, dry_run=False)[0])
    assert run.job.state == JobState.FAILED and run.result is None
    assert run.job.error["faults"][0]["path"].startswith("sources[0]")
    assert not Query.objects.exists()


def test_pages_check_then_import(user_of: Any) -> None:
    cluster = make_cluster(nodes=0)
    client = browser_of(user_of(Role.ADMIN))
    file = io.BytesIO(json.dumps(DOCUMENT).encode())
    file.name = "fleet.json"
    answer = client.post(f"/c/{cluster.slug}/import/", {"file": file, "fill": "", "start": "on"})
    run = ImportRun.objects.get()
    assert answer.status_code == 302 and run.options == {"dry_run": True, "fill": "", "query": "", "start": True}
    assert "Progress" in client.get(answer.url).content.decode()
    done(run)
    assert "Import 2 nodes and 1 queries" in client.get(answer.url).content.decode()
    stored = client.post(answer.url)
    done(ImportRun.objects.exclude(pk=run.pk).get())
    assert "Imported: 2 nodes" in client.get(stored.url).content.decode()
    assert Query.objects.get().state == "running"


def test_pages_show_what_is_wrong_with_a_file(user_of: Any) -> None:
    cluster = make_cluster(nodes=0)
    client = browser_of(user_of(Role.ADMIN))
    for text, told in (("{", "not JSON"), ('{"subinterval_s": -1}', "subinterval_s")):
        file = io.BytesIO(text.encode())
        file.name = "fleet.json"
        answer = client.post(f"/c/{cluster.slug}/import/", {"file": file})
        assert answer.status_code == 422 and told in answer.content.decode()


def test_only_administrators_pass_admission_by(user_of: Any) -> None:
    cluster = make_cluster(nodes=0)
    client = browser_of(user_of(Role.OPERATOR))
    assert "Run its queries" not in client.get(f"/c/{cluster.slug}/import/").content.decode()
    body = json.dumps({"document": DOCUMENT, "start": True})
    answer = client.post(f"/api/v1/clusters/{cluster.slug}/document", body, content_type="application/json")
    assert answer.status_code == 403 and answer.json()["faults"][0]["path"] == "start"


def test_old_imports_are_forgotten() -> None:
    run = done(IMPORT.request(cluster=make_cluster(nodes=0), document=DOCUMENT)[0])
    assert IMPORT.purge() == 0
    run.created_at = run.created_at.replace(year=2020)
    run.save()
    assert IMPORT.purge() == 1


def test_a_made_up_fleet_is_loaded_as_asked_and_imports_as_it_is() -> None:
    out = io.StringIO()
    call_command("make_fleet", "--nodes", "5", "--operators", "37", "--seconds", "40", "--load", "0.4", stdout=out)
    document = json.loads(out.getvalue())
    deployment = Deployment.parse(document)
    assert (len(deployment.nodes), len(deployment.operators), len(deployment.queries)) == (5, 37, 4)
    capacity = sum(node.capacity_cps * node.cores for node in deployment.nodes)
    assert mace(deployment).load.sum() / 40 / capacity == pytest.approx(0.4)
    cluster = make_cluster(nodes=0, subinterval_s=1.0, horizon_s=40.0)
    done(IMPORT.request(cluster=cluster, document=document, dry_run=False, start=True)[0])
    assert cluster_snapshot(cluster).deployment.operators[7].replicas == deployment.operators[7].replicas


def test_sizes_no_fleet_can_have_are_refused() -> None:
    with pytest.raises(CommandError, match="--nodes is 0; allowed: at least 1; --load is 3"):
        call_command("make_fleet", "--nodes", "0", "--load", "3")


def document_of(queries: int, nodes: int = 3) -> dict[str, Any]:
    """Queries of two operators each, placed on nodes in turn."""
    operators = [
        {"id": f"q{i}/{name}", "query": f"q{i}", "node": f"n{i % nodes}", "inputs": [
            {"from": source.format(i), "selectivity": 1.0, "cycles_per_event": 10.0}
        ]}
        for i in range(queries) for name, source in (("a", "clicks"), ("b", "q{}/a"))
    ]  # fmt: skip
    placed = [{"id": f"n{i}", "capacity_cps": 1e6} for i in range(nodes)]
    sources = [{"id": name, "arrivals": [4, 8, 0, 4]} for name in ("clicks", *(f"s{i}" for i in range(queries)))]
    return document_with(nodes=placed, links=[], sources=sources, operators=operators, objectives=[], priorities={})


def test_import_needs_no_more_statements_for_more_queries_sources_and_nodes() -> None:
    """As long as they fit into one batch, which on SQLite is bounded by the number of values."""
    counted = []
    for queries, nodes in ((3, 2), (25, 9)):
        cluster = make_cluster(slug=f"c{queries}", nodes=0)
        with CaptureQueriesContext(connection) as statements:
            document_import(cluster=cluster, document=document_of(queries, nodes), fill="zero", start=True)
        counted.append(len(statements))
        assert cluster.queries.filter(state="running", running_version__number=1).count() == queries
        assert Placement.objects.filter(node__cluster=cluster).count() == 2 * queries
    assert counted[0] == counted[1]


def test_faults_of_all_queries_and_nodes_are_told_at_once_and_nothing_is_stored() -> None:
    cluster = make_cluster(nodes=0)
    document = document_of(3)
    document["operators"][0]["evidence"] = {"kind": "measured", "events": 1e16}
    document["operators"][4]["evidence"] = {"kind": "measured", "events": 1e16}
    with pytest.raises(Malformed) as refusal:
        document_import(cluster=cluster, document=document, fill="zero")
    paths = fault_paths(refusal)
    assert paths == {"queries.q0.operators[0].evidence.events", "queries.q2.operators[0].evidence.events"}
    assert not cluster.queries.exists() and not cluster.nodes.exists()


def test_queries_are_not_started_on_nodes_that_drain() -> None:
    cluster = make_cluster(nodes=0)
    document_import(cluster=cluster, document=document_of(1), fill="zero")
    for node in cluster.nodes.all():
        node_drain(node=node)
    cluster.queries.all().delete()
    with pytest.raises(Malformed) as refusal:
        document_import(cluster=cluster, document=document_of(2), fill="zero", start=True)
    assert {"queries.q0.placement.a", "queries.q1.placement.b"} <= fault_paths(refusal)
    assert not cluster.queries.exists()
