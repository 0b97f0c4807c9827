"""Pages and lists at any size: neither the statements nor the rows that they read grow with a cluster's queries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection
from django.db.backends.sqlite3.base import SQLiteCursorWrapper
from django.test import Client
from django.test.utils import CaptureQueriesContext

from apps.estimates.models import EstimateRun, ObjectiveStatus
from apps.estimates.refresh import estimate_refresh, refresh_paused
from apps.estimates.selectors import run_staleness
from apps.estimates.services import ESTIMATE
from apps.fleet.models import Cluster
from apps.fleet.services import node_of_pool, nodes_create
from apps.incidents.models import Incident, IncidentQuery
from apps.incidents.refresh import incidents_refresh
from apps.planning import benches, sweeps, what_ifs
from apps.planning.models import WhatIf
from apps.queries.bodies import Surroundings
from apps.queries.models import ClusterParts
from apps.queries.services import NewQuery, queries_store, query_read, query_stop
from apps.queries.snapshots import parts
from apps.queries.snapshots.cluster import cluster_snapshot
from apps.queries.snapshots.sketch import cluster_sketch
from tests.apps import small_cluster

pytestmark = pytest.mark.django_db

PAGES = (
    "/c/little/",
    "/c/little/queries/",
    "/c/little/queries/?q=more&sort=-estimate",
    "/c/little/fleet/",
    "/c/little/search/?q=more",
    "/c/little/search/suggestions/?q=more",
    "/c/little/queries/calm/",
    "/c/little/fleet/nodes/a/",
    "/c/little/incidents/",
    "/c/little/incidents/?state=open&q=more",
    "/c/little/incidents/{incident}/",
    "/c/little/arrivals/",
    "/c/little/queries/-/new/",
    "/c/little/admission/new/?query=late",
    "/c/little/reports/new/",
    "/c/little/search/names/?of=places&q=more",
    "/api/v1/queries?cluster=little&sort=headroom_share",
    "/api/v1/objectives?cluster=little",
    "/api/v1/nodes?cluster=little",
)


def grow(cluster: Cluster, count: int) -> None:
    """Queries up to `count`, each on a node of its own, every second over its objective, and an estimate of them."""
    names = [f"more-{i:03}" for i in range(cluster.queries.count(), count)]
    queries = [
        NewQuery(name, placed(0.001, name), {"statistic": "worst", "bound_s": 1e-6 if i % 2 else 20.0})
        for i, name in enumerate(names)
    ]
    with refresh_paused():
        nodes_create(cluster=cluster, nodes=[node_of_pool(cluster.pools.get(), name=name) for name in names])
        known = Surroundings(cluster)
        readings = [query_read(cluster, query, known) for query in queries]
        queries_store(cluster=cluster, readings=readings, start=True)
    ESTIMATE.request(cluster=cluster)
    small_cluster.run_jobs()


def placed(load: float, node: str) -> dict[str, Any]:
    body = small_cluster.body(load)
    body["operators"][0]["node"] = node
    return body


@contextmanager
def rows_read(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Number of rows that the database handed out, as the only item of a list."""
    read = [0]
    fetch = SQLiteCursorWrapper.fetchmany

    def fetchmany(cursor: Any, *args: Any, **options: Any) -> Any:
        rows = fetch(cursor, *args, **options)
        read[0] += len(rows)
        return rows

    with monkeypatch.context() as patched:
        patched.setattr(SQLiteCursorWrapper, "fetchmany", fetchmany)
        yield read


def cost(client: Client, path: str, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """Statements and rows of a GET."""
    client.get(path)
    with CaptureQueriesContext(connection) as queries, rows_read(monkeypatch) as read:
        assert client.get(path).status_code == 200
    return len(queries), read[0]


def costs(client: Client, monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[int, int]]:
    """Statements and rows of all pages, after a round of incidents of what is late."""
    incidents_refresh(Cluster.objects.get())
    incident = Incident.objects.order_by("pk").values_list("pk", flat=True)[0]
    return {path: cost(client, path.format(incident=incident), monkeypatch) for path in PAGES}


def test_pages_cost_the_same_however_many_queries_run(
    browser: Client, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "LARGE", 2)
    grow(cluster, 60)
    few = costs(browser, monkeypatch)
    grow(cluster, 160)
    EstimateRun.objects.exclude(pk=EstimateRun.objects.first().pk).delete()  # type: ignore[union-attr]
    many = costs(browser, monkeypatch)
    assert {path: statements for path, (statements, _) in many.items()} == {
        path: statements for path, (statements, _) in few.items()
    }
    assert {path: rows - few[path][1] for path, (_, rows) in many.items() if rows > few[path][1]} == {}


def test_page_of_a_large_cluster_compares_with_what_a_worker_read(
    browser: Client, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "LARGE", 1)
    run = EstimateRun.objects.filter(cluster=cluster).latest("created_at")
    estimate_refresh(cluster)
    assert ClusterParts.objects.get(cluster=cluster).digest == run.snapshot
    assert not run_staleness(run).is_stale
    query_stop(query=cluster.queries.get(name="calm"))
    assert estimate_refresh(cluster) is not None
    staleness = run_staleness(run)
    assert staleness.is_stale and "query calm" in staleness.changes[0]
    monkeypatch.setattr(parts, "cluster_parts", lambda cluster: pytest.fail("rows were read for a page"))
    assert browser.get("/c/little/queries/late/").status_code == 200


def test_parts_of_a_small_cluster_are_read_as_they_are(cluster: Cluster) -> None:
    run = EstimateRun.objects.filter(cluster=cluster).latest("created_at")
    query_stop(query=cluster.queries.get(name="calm"))
    assert run_staleness(run).is_stale
    assert not ClusterParts.objects.filter(cluster=cluster).exists()


def test_sketch_says_what_a_snapshot_says_but_for_operators(cluster: Cluster) -> None:
    calm = cluster.queries.get(name="calm")
    calm.rate_share = 0.5
    calm.save()
    sketch, whole = cluster_sketch(cluster), cluster_snapshot(cluster)
    assert sketch.digest == whole.digest and sketch.parts == whole.parts and sketch.closed_nodes == whole.closed_nodes
    of_sketch, of_whole = sketch.deployment.nodes, whole.deployment.nodes
    assert [node.to_dict() for node in of_sketch] == [node.to_dict() for node in of_whole]
    assert sorted(sketch.deployment.queries) == sorted(whole.deployment.queries)
    assert set(sketch.deployment.objectives) == set(whole.deployment.objectives)
    assert sketch.deployment.priorities == whole.deployment.priorities
    events = {source.id: float(source.arrivals.sum()) for source in whole.deployment.sources}
    assert {source.id: float(source.arrivals.sum()) for source in sketch.deployment.sources} == pytest.approx(events)
    assert "clicks@calm" in events


def test_bench_of_a_large_cluster_asks_a_job_without_a_snapshot(
    browser_of: Callable[..., Client], cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "LARGE", 1)
    monkeypatch.setattr(benches, "MAX_CORES", 1)
    browser, build = browser_of(), sweeps.cluster_snapshot
    for module in (sweeps, what_ifs):
        monkeypatch.setattr(module, "cluster_snapshot", lambda cluster: pytest.fail("a request built the snapshot"))
    assert "clicks times" in browser.get("/c/little/provisioning/").content.decode()
    assert browser.post("/c/little/provisioning/refine/").status_code == 200
    monkeypatch.setattr(sweeps, "cluster_snapshot", build)
    small_cluster.run_jobs()
    assert WhatIf.objects.get().state == "answered"
    assert 'class="fig wide"' in browser.get("/c/little/provisioning/").content.decode()


def test_a_round_of_incidents_takes_the_same_statements_for_more_late_queries(cluster: Cluster) -> None:
    """As long as they fit into one batch, which on SQLite is bounded by the number of values."""
    counts = []
    for count in (16, 80):
        grow(cluster, count)
        Incident.objects.all().delete()
        with CaptureQueriesContext(connection) as opened:
            incidents_refresh(cluster)
        with CaptureQueriesContext(connection) as kept:
            incidents_refresh(cluster)
        late = ObjectiveStatus.objects.filter(query__cluster=cluster, state__in=["breached", "at_risk"]).count()
        assert IncidentQuery.objects.filter(ended_at=None).count() == late > count / 3
        counts.append((len(opened), len(kept)))
    assert counts[0] == counts[1]
