"""A running Flink becomes nodes, running queries, arrivals and measured statistics; and what becomes of it later."""

from __future__ import annotations

import io
import json
import time
import zipfile
from dataclasses import replace
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.core.files.base import ContentFile
from django.utils import timezone

from apps.connections import job_import, rounds, scores, work
from apps.connections.models import Connection, ImportedJob
from apps.connections.refinements import doubts_refine, statistics_refine
from apps.connections.selectors import connections_due
from apps.connections.services import connection_check, connection_create, connection_import, connection_pause
from apps.connections.uploads import upload_store
from apps.connections.work import connection_poll, connection_poll_due
from apps.core.errors import Malformed
from apps.estimates.models import AccuracyObservation, EstimateRun
from apps.estimates.services import ESTIMATE
from apps.fleet.models import Cluster
from apps.jobs.models import Job
from apps.queries.models import Operator, OperatorInput, Query
from apps.queries.selectors import cluster_memory
from apps.queries.snapshots.cluster import cluster_snapshot
from apps.queries.statistics import statistics_update
from engine.connectors.document import UNCOUNTED
from engine.measurement.changes import Pace
from tests.apps import small_cluster
from tests.apps.connections.engine_server import EngineServer, Reply
from tests.apps.connections.fake_flink import EPOCH_S, FakeFlink, FakeJob, FakeVertex, shop_job

pytestmark = pytest.mark.django_db


@pytest.fixture
def cluster() -> Cluster:
    return small_cluster.small_cluster()


@pytest.fixture
def flink(engine: EngineServer) -> FakeFlink:
    cluster = FakeFlink()
    cluster.serve(engine)
    return cluster


@pytest.fixture
def connection(cluster: Cluster, engine: EngineServer, flink: FakeFlink) -> Connection:
    return connection_create(cluster=cluster, name="shop", engine="flink", url=engine.url)


def done(job: Job) -> Job:
    small_cluster.run_jobs()
    job.refresh_from_db()
    return job


def imported(connection: Connection, **options: Any) -> Job:
    job = done(connection_import(connection=connection, **options))
    assert job.state == "succeeded", job.error
    connection.refresh_from_db()
    return job


def statistics_of(query: Query) -> dict[str, tuple[float, float | None, str]]:
    rows = OperatorInput.objects.filter(operator__version=query.running_version).select_related("operator")
    return {row.operator.name: (row.selectivity, row.cycles_per_event, row.evidence) for row in rows}


def test_cost_that_was_made_up_is_dropped_by_the_next_look(connection: Connection, cluster: Cluster) -> None:
    """A cost that an older version put in the place of an unknown one does not stay for good."""
    imported(connection)
    version = cluster.queries.get(name="shop").running_version
    stored = OperatorInput.objects.filter(operator__version=version, evidence="unknown")
    assert stored.update(cycles_per_event=167_000.0, evidence="predicted") == 1
    imported(connection)
    assert statistics_of(cluster.queries.get(name="shop"))["clicks-2"][1:] == (None, "unknown")


def _noted(cluster: Cluster, **fields: Any) -> None:
    """Statistics of the source that tells no busy time, as a person or another look left them."""
    version = cluster.queries.get(name="shop").running_version
    assert version is not None
    statistics_update(version=version, statistics=[{"operator": "clicks-2", **fields}])


def test_cost_that_a_person_assumed_survives_polls(connection: Connection, flink: FakeFlink, cluster: Cluster) -> None:
    imported(connection)
    _noted(cluster, cycles_per_event=5000.0, selectivity=3.0, evidence="assumed")
    for _ in range(2):
        connection_poll(connection)
    assert statistics_of(cluster.queries.get(name="shop"))["clicks-2"] == (pytest.approx(1.0), 5000.0, "assumed")


def test_cost_that_was_measured_stays_with_its_sample_beside_a_fresh_selectivity(
    connection: Connection, cluster: Cluster
) -> None:
    """A source that no longer tells its busy time goes on counting what it puts out."""
    imported(connection)
    batches = [{"events": 100.0, "outputs": 300.0, "cycles": 5e5 + i} for i in range(20)]
    moment = "2026-03-01T09:30:00+00:00"
    _noted(cluster, batches=batches, cost_dispersion=2.0, cost_dispersion_events=50.0, measured_at=moment)
    connection_poll(connection)
    shop = cluster.queries.get(name="shop")
    stored = OperatorInput.objects.get(operator__version=shop.running_version, operator__name="clicks-2")
    assert stored.evidence == "measured" and stored.selectivity == pytest.approx(1.0)
    assert stored.cycles_per_event == pytest.approx(5000.095) and len(stored.batches) == 20 and stored.events == 2000
    assert stored.cost_dispersion == 2.0 and stored.measured_at is not None
    assert stored.measured_at.isoformat() == moment


@pytest.mark.parametrize("cost_by", ["cpu_time", "load_step"])
def test_cost_that_was_only_inferred_replaces_none_that_a_person_assumed(
    connection: Connection, cluster: Cluster, cost_by: str
) -> None:
    imported(connection)
    batches = [{"events": 100.0, "outputs": 200.0, "cycles": 1e4}] * 20
    entry: Any = {"from": "shop.clicks", "selectivity": 2.0, "cycles_per_event": 100.0, "batches": batches}
    row: Any = {"id": "clicks-2", "inputs": [entry], "evidence": {"kind": "predicted", "events": 2000.0}}
    version = cluster.queries.get(name="shop").running_version
    assert version is not None

    def refined() -> tuple[float, float | None, str, str | None]:
        body: Any = {"operators": [{**row, "cost_by": cost_by}]}
        statistics_refine(version, body, [], Pace(None), timezone.now())
        doubts_refine(version, body)
        operator = version.operators.get(name="clicks-2")
        return *statistics_of(cluster.queries.get(name="shop"))["clicks-2"], operator.extra.get("cost_by")

    _noted(cluster, cycles_per_event=5000.0, evidence="assumed")
    assert refined() == (2.0, 5000.0, "assumed", None)
    _noted(cluster, evidence="unknown")
    assert refined() == (2.0, 100.0, "predicted", cost_by)


def codes_of(connection: Connection) -> set[str]:
    connection.refresh_from_db()
    return {finding["code"] for finding in connection.findings}


def test_check_says_what_was_found_and_costs_and_stores_nothing_of_it(connection: Connection, cluster: Cluster) -> None:
    job = done(connection_check(connection=connection))
    assert job.state == "succeeded", job.error
    connection.refresh_from_db()
    assert (connection.state, connection.engine_version) == ("connected", "2.3.0")
    assert connection.cost["requests"] > 1 and connection.cost["bytes"] > 1000
    assert {"cost_of_asking", "busy_time_missing"} <= codes_of(connection)
    assert [row["name"] for row in connection.look["jobs"]] == ["shop"]
    assert not cluster.queries.exists() and not cluster.pools.filter(name="flink-shop").exists()


@pytest.mark.parametrize("shown", [True, False])
def test_cost_of_an_old_source_is_measured_by_looks_at_its_threads_where_the_engine_shows_them(
    connection: Connection, flink: FakeFlink, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, shown: bool
) -> None:
    """At work in two of ten looks, under 100 events/s: 2 ms an event."""
    monkeypatch.setattr(rounds, "look_pause_s", lambda asking_s: 0.0)
    monkeypatch.setattr(work, "PAUSE_S", 0.05)
    flink.busy_of_ten = 2 if shown else None
    imported(connection)
    _, cycles, evidence = statistics_of(cluster.queries.get(name="shop"))["clicks-2"]
    if not shown:
        assert (cycles, evidence) == (None, "unknown") and "threads_untold" in codes_of(connection)
        return
    assert evidence == "measured" and cycles == pytest.approx(2e6, rel=0.2)
    assert "cost_by_threads" in codes_of(connection) and "busy_time_missing" not in codes_of(connection)
    polls = connection.jobs.get().polls
    assert any(row.data["threads"] for row in polls.all())


def test_running_job_becomes_a_running_query_with_measured_statistics(connection: Connection, cluster: Cluster) -> None:
    job = imported(connection, objectives={"shop": {"statistic": "worst", "bound_s": 5.0}})
    assert job.result is not None and job.result["queries"] == ["shop"]
    query = cluster.queries.get(name="shop")
    assert query.state == "running" and query.objective_bound_s == 5.0
    statistics = statistics_of(query)
    assert statistics["parse"] == (pytest.approx(0.8, rel=0.01), pytest.approx(5e5, rel=0.01), "measured")
    assert statistics["enrich"] == (pytest.approx(1.0, rel=0.01), pytest.approx(4e6, rel=0.01), "measured")
    assert statistics["clicks-2"][1:] == (None, "unknown")  # the cluster has a source clicks, and it tells no busy time
    pool = cluster.pools.get(name="flink-shop")
    assert pool.capacity_cps == 1e9 and pool.nodes.count() == 1
    row = ImportedJob.objects.get()
    assert row.vertices["parse"] == FakeVertex("parse", None).id and list(row.places.values()) == ["tm1"]
    placed = query.running_version.operators.get(name="enrich").placements.all()  # type: ignore[union-attr]
    assert sorted(placement.fraction for placement in placed) == [0.5, 0.5]
    series = cluster.arrivals.get(source_id="shop.clicks")
    assert series.mean_eps == pytest.approx(100.0, rel=0.05) and series.evidence == "measured"
    assert series.spec["extrapolated_s"] > 0
    assert (series.step_s or 0.0) >= 5.0  # polls are so far apart: nothing is claimed below that
    ESTIMATE.request(cluster=cluster)
    small_cluster.run_jobs()
    estimate = EstimateRun.objects.get(cluster=cluster).queries.get(query=query)
    assert estimate.estimate_s is not None and 0.0 < estimate.estimate_s < 5.0


def test_state_and_memory_of_an_engine_are_those_of_operators_and_nodes(
    connection: Connection, cluster: Cluster, flink: FakeFlink
) -> None:
    flink.backend = "HashMapStateBackend"
    flink.change("shop", lambda job: _with_state(job, 200 * 2**20))
    imported(connection)
    connection.refresh_from_db()
    found = {finding["code"]: finding["message"] for finding in connection.findings}
    assert "full sizes of checkpoint 3" in found["state_measured"]
    assert cluster.nodes.get(name="tm1").memory_bytes == 256 * 2**20  # the task heap, where this backend keeps state
    memory = cluster_memory(cluster)["tm1"]
    assert (memory.held_bytes, memory.state) == (200 * 2**20, "fits")
    operator = cluster_snapshot(cluster).deployment.operators
    assert {entry.id: entry.state_bytes for entry in operator}["shop/enrich"] == 200 * 2**20

    flink.change("shop", lambda job: _with_state(job, 300 * 2**20))
    assert "state shop" in (imported(connection).result or {})["updated"]
    assert cluster_memory(cluster)["tm1"].over_bytes == 44 * 2**20
    enrich = cluster.queries.get().running_version.operators.get(name="enrich")  # type: ignore[union-attr]
    assert enrich.extra["state_measured_at"]


def test_pauses_and_commits_at_checkpoints_are_waits_of_the_query(
    connection: Connection, cluster: Cluster, flink: FakeFlink
) -> None:
    flink.backend, flink.pause_ms = "HashMapStateBackend", 200.0
    sink = FakeVertex("results: Writer -> results: Committer", 0.001)
    flink.change("shop", lambda job: replace(job, vertices=(*job.vertices[:-1], sink)))
    imported(connection)
    operators = {op.id: op for op in cluster_snapshot(cluster).deployment.operators}
    enrich, results = operators["shop/enrich"].checkpoint, operators["shop/results"].checkpoint
    assert enrich is not None and results is not None
    assert (enrich.interval_s, enrich.pause_s, enrich.commits) == (10.0, (0.2, 0.2, 0.2), None)
    assert (results.commits, results.duration_s) == (True, (0.4, 0.4, 0.4))

    flink.pause_ms = 205.0  # by so little single checkpoints differ
    assert "checkpoints shop" not in (imported(connection).result or {})["updated"]
    flink.pause_ms = 900.0
    assert "checkpoints shop" in (imported(connection).result or {})["updated"]
    flink.pause_ms = 0.0
    assert "checkpoints shop" in (imported(connection).result or {})["updated"]
    assert [op.id for op in cluster_snapshot(cluster).deployment.operators if op.checkpoint] == ["shop/results"]


def test_state_on_disk_is_imported_and_takes_no_memory(
    connection: Connection, cluster: Cluster, flink: FakeFlink
) -> None:
    flink.backend = "EmbeddedRocksDBStateBackend"
    flink.change("shop", lambda job: _with_state(job, 200 * 2**30))
    imported(connection)
    assert cluster.nodes.get(name="tm1").memory_bytes == 64 * 2**20
    assert cluster_memory(cluster)["tm1"].held_bytes == 0.0
    enrich = cluster.queries.get().running_version.operators.get(name="enrich")  # type: ignore[union-attr]
    assert (enrich.extra["state_bytes"], enrich.extra["state_on_disk"]) == (200 * 2**30, True)


def _with_state(job: FakeJob, size: float) -> FakeJob:
    vertices = (replace(v, state_bytes=size if v.name == "enrich" else 0.0) for v in job.vertices)
    return replace(job, vertices=tuple(vertices))


def test_import_repeated_changes_nothing(connection: Connection, cluster: Cluster) -> None:
    imported(connection)
    nodes = list(cluster.nodes.values_list("pk", "updated_at"))
    job = imported(connection)
    assert job.result is not None and job.result["created"] == []
    assert cluster.queries.count() == 1 and cluster.queries.get().versions.count() == 1
    assert list(cluster.nodes.values_list("pk", "updated_at")) == nodes


def test_only_chosen_jobs_are_imported(connection: Connection, cluster: Cluster, flink: FakeFlink) -> None:
    flink.jobs.append(shop_job(name="Other Job"))
    imported(connection, jobs=["Other Job", "third"])
    assert [query.name for query in cluster.queries.all()] == ["other-job"]
    assert connection.job_names == ["Other Job", "third"] and "job_missing" in codes_of(connection)


def test_upload_of_the_same_answers_gives_the_same_statistics(
    connection: Connection, cluster: Cluster, engine: EngineServer
) -> None:
    imported(connection)
    rounds: list[dict[str, Any]] = [{}]
    for path, body in engine.served:
        if path.startswith("/jobs/") and path.count("/") == 2 and path != "/jobs/overview" and path in rounds[-1]:
            rounds.append({})
        rounds[-1][path] = body
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for i, part in enumerate(rounds):
            archive.writestr(f"round-{i:03}.json", json.dumps(part))
    other = small_cluster.small_cluster("other")
    uploaded = connection_create(cluster=other, name="shop", engine="flink")
    outcome = upload_store(connection=uploaded, file=ContentFile(packed.getvalue(), name="answers.zip"))
    assert outcome.rounds == len(rounds)
    imported(uploaded)
    assert statistics_of(other.queries.get()) == statistics_of(cluster.queries.get())
    bodies = [ImportedJob.objects.get(connection=row).shape for row in (connection, uploaded)]
    assert bodies[0] == bodies[1]
    assert [a.digest for a in other.arrivals.filter(source_id="shop.clicks")] == [
        a.digest for a in cluster.arrivals.filter(source_id="shop.clicks")
    ]


def test_refresh_refines_statistics_that_moved(connection: Connection, flink: FakeFlink, cluster: Cluster) -> None:
    imported(connection)
    flink.change(
        "shop",
        lambda job: replace(
            job, vertices=(*job.vertices[:2], FakeVertex("enrich", 0.02, parallelism=2), job.vertices[3])
        ),
    )
    flink.step_s = 60.0
    for _ in range(4):
        connection_poll(connection)
    assert statistics_of(cluster.queries.get())["enrich"][1] > 6e6  # type: ignore[operator]


def test_refresh_asks_less_than_a_look(connection: Connection, engine: EngineServer) -> None:
    imported(connection)
    connection_poll(connection)
    engine.asked.clear()
    connection_poll(connection)
    assert "/jobmanager/config" not in engine.asked and len(engine.asked) <= 9
    connection.refresh_from_db()
    assert connection.cost["requests"] == len(engine.asked)


def test_restart_is_the_same_version_and_a_new_attempt(
    connection: Connection, flink: FakeFlink, cluster: Cluster
) -> None:
    imported(connection)
    before = statistics_of(cluster.queries.get())
    flink.restart("shop")
    connection_poll(connection)
    row = ImportedJob.objects.get()
    assert (row.restarts_seen, row.versions_seen) == (1, 1) and row.engine_id == flink.jobs[0].id
    assert row.events[-1]["kind"] == "restarted"
    assert cluster.queries.get().versions.count() == 1 and statistics_of(cluster.queries.get()) == before


def test_rescale_is_a_new_version_whose_statistics_survive(
    connection: Connection, flink: FakeFlink, cluster: Cluster
) -> None:
    imported(connection)
    before = statistics_of(cluster.queries.get())
    wider = (*shop_job().vertices[:2], replace(shop_job().vertices[2], parallelism=3), shop_job().vertices[3])
    flink.restart("shop", vertices=wider)
    connection_poll(connection)
    query = cluster.queries.get()
    assert query.running_version is not None and query.running_version.number == 2
    assert statistics_of(query)["enrich"] == before["enrich"]
    assert query.running_version.operators.get(name="enrich").placements.count() == 3
    row = ImportedJob.objects.get()
    assert row.events[-1]["kind"] == "rescaled" and row.version == query.running_version


def test_redeploy_with_other_operators_keeps_those_of_the_same_name(
    connection: Connection, flink: FakeFlink, cluster: Cluster
) -> None:
    imported(connection)
    vertices = shop_job().vertices
    flink.restart("shop", vertices=(*vertices[:3], FakeVertex("score", 0.002), vertices[3]))
    connection_poll(connection)
    query = cluster.queries.get()
    statistics = statistics_of(query)
    assert statistics["parse"][2] == "measured" and statistics["score"][1] is None
    assert ImportedJob.objects.get().events[-1]["kind"] == "redeployed"
    for _ in range(3):
        connection_poll(connection)
    assert statistics_of(query)["score"] == (pytest.approx(1.0), pytest.approx(2e6, rel=0.02), "measured")


def test_engine_that_is_away_is_a_state_and_statistics_stand(
    connection: Connection, engine: EngineServer, cluster: Cluster
) -> None:
    imported(connection)
    before = statistics_of(cluster.queries.get())
    engine.find = lambda path: Reply({}, 503)
    assert not connection_poll_due(connection.pk)
    connection.refresh_from_db()
    assert connection.state == "away" and "503" in connection.state_words
    since = connection.state_since
    assert not connection_poll_due(connection.pk)
    connection.refresh_from_db()
    assert connection.state_since == since
    assert cluster.queries.get().state == "running" and statistics_of(cluster.queries.get()) == before


def test_answer_that_cannot_be_read_refuses_the_connection_and_changes_nothing(
    connection: Connection, engine: EngineServer, flink: FakeFlink, cluster: Cluster
) -> None:
    engine.replies["/jobs/overview"] = Reply({"jobs": [{"jid": 7}]})
    job = done(connection_import(connection=connection))
    assert job.state == "failed" and job.error is not None and job.error["faults"]
    connection.refresh_from_db()
    assert connection.state == "refused" and connection.imported_at is None
    assert not cluster.queries.exists() and not cluster.pools.filter(name="flink-shop").exists()


def test_job_that_fails_between_two_polls_stops_its_query(
    connection: Connection, flink: FakeFlink, cluster: Cluster
) -> None:
    imported(connection)
    flink.change("shop", lambda job: replace(job, state="FAILED"))
    connection_poll(connection)
    row = ImportedJob.objects.get()
    assert cluster.queries.get().state == "stopped" and row.state == "failed" and row.events[-1]["kind"] == "ended"
    flink.restart("shop", state="RUNNING")
    connection_poll(connection)
    row.refresh_from_db()
    assert cluster.queries.get().state == "running" and row.state == "running"
    assert "returned" in {event["kind"] for event in row.events}


@pytest.mark.parametrize(
    ("savepoint", "state"),
    [("", "finished"), ("SAVEPOINT", "finished"), ("SYNC_SAVEPOINT", "stopped with a savepoint")],
)
def test_job_that_was_stopped_with_a_savepoint_has_not_finished(
    connection: Connection, flink: FakeFlink, cluster: Cluster, savepoint: str, state: str
) -> None:
    imported(connection)
    flink.savepoint = savepoint
    flink.change("shop", lambda job: replace(job, state="FINISHED"))
    connection_poll(connection)
    row = ImportedJob.objects.get()
    assert cluster.queries.get().state == "stopped" and row.state == state
    assert row.events[-1]["words"] == f"Its state is {state}."


def test_job_that_is_not_listed_for_a_moment_still_runs(
    connection: Connection, flink: FakeFlink, cluster: Cluster
) -> None:
    imported(connection)
    flink.jobs = []
    connection_poll(connection)
    assert cluster.queries.get().state == "running" and "job_unlisted" in codes_of(connection)
    ImportedJob.objects.update(seen_at=timezone.now() - timedelta(minutes=2))
    connection_poll(connection)
    assert cluster.queries.get().state == "stopped" and ImportedJob.objects.get().state == "gone"


def test_job_that_vanishes_during_the_import_is_a_finding(
    connection: Connection, engine: EngineServer, flink: FakeFlink, cluster: Cluster
) -> None:
    flink.jobs.append(shop_job(name="short"))
    short = flink.jobs[1].id
    asked: list[str] = []

    def reply(path: str) -> Reply:
        asked.append(path)
        if path == f"/jobs/{short}" and asked.count(path) > 2:
            return Reply({"errors": [f"Job {short} not found"]}, 404)
        return flink.reply(path)

    engine.find = reply
    imported(connection)
    assert "poll_missing" in codes_of(connection) and cluster.queries.filter(name="shop").exists()


def test_lost_node_is_offline_once_its_operators_run_elsewhere_and_gone_a_day_later(
    connection: Connection, flink: FakeFlink, cluster: Cluster
) -> None:
    imported(connection)
    flink.places = ["tm2"]
    flink.restart("shop")
    connection_poll(connection)
    states = dict(cluster.nodes.filter(pool__name="flink-shop").values_list("labels__place", "state"))
    assert states == {"tm1": "offline", "tm2": "active"}
    lost = cluster.nodes.filter(labels__place="tm1")
    connection_poll(connection)
    assert lost.exists()
    lost.update(updated_at=timezone.now() - timedelta(hours=25))
    connection_poll(connection)
    assert not lost.exists() and cluster.nodes.filter(labels__place="tm2").exists()


def test_round_is_due_by_the_schedule_and_claimed_once(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[int, str]] = []
    monkeypatch.setattr(work.current_app, "send_task", lambda name, args, queue, **_: sent.append((args[0], queue)))
    assert work.connections_poll() == 0  # nothing was imported yet
    imported(connection)
    now = timezone.now() + timedelta(seconds=30)
    assert work.connections_poll(now) == 1 and work.connections_poll(now) == 0
    Connection.objects.update(state="away")
    assert work.connections_poll(now + timedelta(hours=1)) == 1
    assert sent == [(connection.pk, "interactive"), (connection.pk, "background")], "in vain, it holds up nobody"
    connection_pause(connection=connection)
    assert connections_due(now + timedelta(hours=1)) == [] and not connection_poll_due(connection.pk)


def test_engine_without_jobs_imports_nothing_and_says_so(
    connection: Connection, flink: FakeFlink, cluster: Cluster
) -> None:
    flink.jobs = []
    imported(connection)
    assert "jobs_missing" in codes_of(connection) and connection.imported_at is None


def test_polls_are_kept_for_a_while(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    imported(connection)
    row = ImportedJob.objects.get()
    assert row.polls.count() == work.IMPORT_POLLS
    monkeypatch.setattr(job_import, "MAX_POLLS", 5)
    assert job_import.polls_purge() == work.IMPORT_POLLS - 5
    assert job_import.polls_purge(timezone.now() + timedelta(hours=3)) == 5


@pytest.mark.parametrize(("statistic", "observed_s"), [("worst", 0.75), ("q0.99", 0.75), ("mean", 0.5)])
def test_measured_latency_is_scored_once_a_stretch(
    connection: Connection,
    flink: FakeFlink,
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    statistic: str,
    observed_s: float,
) -> None:
    monkeypatch.setattr(scores, "STRETCH_S", 1.0)
    connection.latency_metric = "resultLatencyWorst"
    connection.save()
    imported(connection, objectives={"*": {"statistic": statistic, "bound_s": 5.0}})
    assert "latency_missing" in codes_of(connection)
    ESTIMATE.request(cluster=cluster)
    small_cluster.run_jobs()
    for flink.latency_s in (0.25, 0.25, 0.75, 0.25):
        connection_poll(connection)
        time.sleep(0.5)
    assert "latency_measured" in codes_of(connection)
    row = AccuracyObservation.objects.get()
    assert (row.origin, row.statistic, row.observed_s) == ("flink", statistic, pytest.approx(observed_s))
    assert row.kinds, "work of the stretch, by kind of operator"
    assert all(measured >= 0.0 for _, measured in row.kinds.values())


def test_latency_markers_are_kept_as_a_bound_and_never_scored(
    connection: Connection, flink: FakeFlink, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scores, "STRETCH_S", 0.0)
    flink.marker_ms = 180.0
    connection.latency_metric = "latency_p99"  # the end of the markers' names as well
    connection.save()
    imported(connection, objectives={"*": {"statistic": "worst", "bound_s": 5.0}})
    connection_poll(connection)
    connection.refresh_from_db()
    (job,) = connection.look["jobs"]
    assert job["markers"] == {"mean_s": 0.09, "p99_s": 0.18}
    assert {row["slot_group"] for row in job["operators"]} == {"a" * 32}
    assert ImportedJob.objects.get().latencies == []


def test_pending_records_of_sources_are_the_backlog_of_the_query(
    connection: Connection, flink: FakeFlink, cluster: Cluster
) -> None:
    flink.pending = 90_000.0
    imported(connection)
    query = ImportedJob.objects.get().query
    (row,) = query.backlogs
    assert (row["from"], row["events"], row["origin"]) == ("shop.clicks", 90_000.0, "measured")
    flink.pending = 0.0
    connection_poll(connection)
    query.refresh_from_db()
    assert [row["events"] for row in query.backlogs] == [0.0]


def test_upload_that_holds_no_answers_is_refused(cluster: Cluster) -> None:
    uploaded = connection_create(cluster=cluster, name="shop", engine="flink")
    job = done(connection_check(connection=uploaded))
    assert job.state == "failed" and job.error is not None and "nothing was uploaded" in job.error["message"]
    for content in (b"", b"<html>", b"[]", b'{"jobs": ', b"\xff\xfe"):
        with pytest.raises(Malformed):
            upload_store(connection=uploaded, file=ContentFile(content, name="x.json"))


def test_arrivals_by_the_broker_count_before_those_of_the_source(
    connection: Connection, engine: EngineServer, flink: FakeFlink, cluster: Cluster
) -> None:
    asked: list[str] = []

    def reply(path: str) -> Reply:
        if not path.startswith("/api/v1/query_range"):
            return flink.reply(path)
        asked.append(path)
        start_s = EPOCH_S - 600.0
        values = [[start_s + 15.0 * i, str(15.0 * 250.0 * i)] for i in range(40)]
        rows = [{"metric": {"partition": "0"}, "values": values}]
        return Reply({"status": "success", "data": {"resultType": "matrix", "result": rows}})

    engine.find = reply
    connection.lag_query, connection.prometheus_url = 'offsets{topic="$topic"}', engine.url
    connection.save()
    imported(connection)
    assert any("clicks" in path for path in asked)
    assert cluster.arrivals.get(source_id="shop.clicks").mean_eps == pytest.approx(250.0, rel=0.02)
    engine.find = lambda path: Reply({}, 500) if "query_range" in path else flink.reply(path)
    connection_poll(connection)
    assert "prometheus_away" in codes_of(connection)


_COUNTERS = {
    "numRecordsIn": "read-records",
    "numRecordsOut": "write-records",
    "accumulateBusyTimeMs": "accumulated-busy-time",
    "accumulateIdleTimeMs": "accumulated-idle-time",
    "accumulateBackPressuredTimeMs": "accumulated-backpressured-time",
}


def series(flink: FakeFlink, path: str) -> Reply:
    """Answer of a Prometheus that scrapes the Flink; it refuses queries of all else."""
    asked = {name: values[0] for name, values in parse_qs(urlsplit(path).query).items()}
    metric, job = asked["query"].partition("{")[0].removeprefix("flink_taskmanager_job_task_"), flink.jobs[0]
    if metric not in _COUNTERS and not metric.startswith(("flink_", "1 - avg", "num")):
        return Reply({"status": "error", "errorType": "bad_data", "error": "1:4: parse error"}, 400)
    start_s, end_s, step_s = (float(asked[name]) for name in ("start", "end", "step"))
    times = [start_s + i * step_s for i in range(int((end_s - start_s) / step_s) + 1)] if metric in _COUNTERS else []
    rows = []
    for i, vertex in enumerate(job.vertices):
        told = [replace(flink, now_s=at_s - EPOCH_S).metrics(job, i)[_COUNTERS[metric]] for at_s in times]
        values = [[at_s, str(value)] for at_s, value in zip(times, told, strict=True)]
        rows.append({"metric": {"task_id": vertex.id, "task_attempt_id": "1"}, "values": values})
    return Reply({"status": "success", "data": {"resultType": "matrix", "result": rows}})


def test_counters_from_before_come_from_a_prometheus_beside_it(
    connection: Connection, engine: EngineServer, flink: FakeFlink
) -> None:
    flink.now_s = 600.0
    connection.prometheus_url, connection.latency_query = engine.url, "max(x("
    connection.save()
    engine.find = lambda path: series(flink, path) if "query_range" in path else flink.reply(path)
    done(connection_check(connection=connection))
    assert {"history_read", "latency_missing"} <= codes_of(connection)
    assert any("bad_data: 1:4: parse error" in finding["message"] for finding in connection.findings)
    imported(connection)
    row = ImportedJob.objects.get()
    assert row.polls.count() > 60 and row.polls.order_by("at")[0].at.timestamp() == pytest.approx(EPOCH_S, abs=100.0)
    assert connection.look["jobs"][0]["operators"][1]["span_s"] == pytest.approx(700.0, abs=100.0)
    connection_poll(connection)
    row.refresh_from_db()
    assert row.restarts_seen == 0 and "history_read" not in codes_of(connection)


def test_job_that_appears_later_is_in_doubt_until_its_counters_differ_and_then_measured(
    connection: Connection, flink: FakeFlink, cluster: Cluster
) -> None:
    """The source tells no busy time and puts out two for one: what it put out was one per event for good."""
    imported(connection)
    vertices = (FakeVertex("Source: bids", None, selectivity=1.0), FakeVertex("split", 0.0005, selectivity=2.0))
    flink.jobs.append(
        FakeJob("late", (*vertices, FakeVertex("score", None, selectivity=0.5), FakeVertex("Sink: out", 0.001)))
    )
    connection_poll(connection)
    query = cluster.queries.get(name="late")

    def doubts() -> dict[str, list[str]]:
        rows = Operator.objects.filter(version=query.running_version)
        return {row.name: row.extra["unread"] for row in rows if row.extra.get("unread")}

    assert set(doubts()) == {"bids", "split", "score"}
    for _ in range(3):
        connection_poll(connection)
    query.refresh_from_db()
    known = statistics_of(query)
    assert known["split"][0] == pytest.approx(2.0, rel=0.01) and known["split"][2] == "measured"
    assert known["score"][0] == pytest.approx(0.5, rel=0.01) and known["score"][2] == "unknown"
    assert known["bids"][2] == "unknown"
    assert doubts() == {}
    flink.restart("late")
    connection_poll(connection)
    query.refresh_from_db()
    assert statistics_of(query) == known and doubts() == {}


def _window_job(selectivity: float) -> FakeJob:
    """A window of ten minutes that puts out so many results for each event, and what reads it."""
    window = FakeVertex("Window(TumblingEventTimeWindows(600000))", 0.0005, selectivity=selectivity)
    return FakeJob(
        "win", (FakeVertex("Source: bids", 0.0001), window, FakeVertex("score", 0.005), FakeVertex("Sink: out", 0.001))
    )


def _window_doubts(cluster: Cluster) -> list[str]:
    version = cluster.queries.get(name="win").running_version
    doubts: list[str] = Operator.objects.get(version=version, name="window").extra.get("unread", [])
    return doubts


def test_window_that_has_not_closed_stays_in_doubt(connection: Connection, flink: FakeFlink, cluster: Cluster) -> None:
    imported(connection)
    flink.step_s = 30.0
    flink.jobs.append(_window_job(0.0))
    for _ in range(4):
        connection_poll(connection)
        assert UNCOUNTED in _window_doubts(cluster)
    flink.change("win", lambda job: replace(job, vertices=_window_job(0.5).vertices))
    for _ in range(2):
        connection_poll(connection)
    assert UNCOUNTED not in _window_doubts(cluster)


def test_restart_does_not_wear_the_results_of_a_window_away(
    connection: Connection, flink: FakeFlink, cluster: Cluster
) -> None:
    flink.jobs[:] = [_window_job(0.5)]
    flink.step_s = 30.0
    imported(connection)
    for _ in range(4):
        connection_poll(connection)
    flink.restart("win", vertices=_window_job(0.0).vertices)
    for _ in range(9):  # 270 s of a window of 600 s
        connection_poll(connection)
    assert statistics_of(cluster.queries.get(name="win"))["window"][0] == pytest.approx(0.5)
    assert UNCOUNTED not in _window_doubts(cluster)


def test_window_that_was_counted_keeps_its_selectivity_once_its_polls_are_gone(
    connection: Connection, flink: FakeFlink, cluster: Cluster
) -> None:
    flink.jobs[:] = [_window_job(0.5)]
    imported(connection)
    flink.restart("win", vertices=_window_job(0.0).vertices)
    ImportedJob.objects.get(name="win").polls.all().delete()
    for _ in range(4):
        connection_poll(connection)
    assert statistics_of(cluster.queries.get(name="win"))["window"][0] == pytest.approx(0.5)


def test_results_of_a_sink_are_counted_by_the_sink_itself(
    connection: Connection, flink: FakeFlink, cluster: Cluster
) -> None:
    """An aggregate chained to its sink updates each row with two: the vertex counts none of what it puts out."""
    flink.change("shop", lambda job: replace(job, vertices=(*job.vertices[:3], FakeVertex("Sink: top", 0.001, 2.0))))
    imported(connection)
    for _ in range(3):
        connection_poll(connection)
    assert statistics_of(cluster.queries.get())["top"][0] == pytest.approx(2.0, rel=0.01)
    assert "sink_selectivity" not in codes_of(connection)


def test_job_under_another_name_is_offered_as_the_query_that_it_was(
    connection: Connection, flink: FakeFlink, cluster: Cluster
) -> None:
    imported(connection)
    flink.jobs = [replace(shop_job(), name="shop-v2", run=2, started_s=flink.now_s)]
    connection_poll(connection)
    connection.refresh_from_db()
    connection_poll(connection)
    connection.refresh_from_db()
    (finding,) = [row for row in connection.findings if row["code"] == "job_renamed"]
    assert "shop-v2 has the very operators of shop" in finding["message"] and finding["subject"] == "shop-v2"
