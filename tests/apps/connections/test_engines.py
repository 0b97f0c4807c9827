"""Spark, Prometheus and Kafka: progress, PromQL and lag by the same way as Flink's answers."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.core.files.base import ContentFile
from django.utils import timezone

from apps.connections import scores
from apps.connections.models import Connection, ImportedJob
from apps.connections.services import connection_check, connection_create, connection_import
from apps.connections.uploads import upload_store
from apps.connections.work import connection_poll
from apps.core.errors import Malformed
from apps.estimates.models import AccuracyObservation, EstimateRun, ObjectiveStatus
from apps.estimates.services import ESTIMATE
from apps.fleet.models import Cluster
from apps.jobs.models import Job
from apps.queries.models import Operator, OperatorInput
from tests.apps import small_cluster
from tests.apps.connections.engine_server import EngineServer, Reply
from tests.apps.domain import make_query, start
from tests.apps.microbatch.spark_progress import progress, progress_of_run

pytestmark = pytest.mark.django_db

PROGRESS = "\n".join(json.dumps(document) for document in progress_of_run(range(40)))
OPERATORS = [
    {"name": "parse", "rate": "parse_rate", "cost": "parse_cost", "outputs": "score_rate"},
    {"name": "score", "rate": "score_rate", "cost": "score_cost", "reads": ["parse"], "parallelism": 2},
]
VALUES = {"parse_rate": 100.0, "parse_cost": 0.002, "score_rate": 50.0, "score_cost": 0.01}


@pytest.fixture
def cluster() -> Cluster:
    return small_cluster.small_cluster()


def done(job: Job) -> Job:
    small_cluster.run_jobs()
    job.refresh_from_db()
    return job


def statistics_of(cluster: Cluster, query: str) -> dict[str, tuple[float, float | None, str]]:
    rows = OperatorInput.objects.filter(operator__version__query__cluster=cluster, operator__version__query__name=query)
    return {row.operator.name: (row.selectivity, row.cycles_per_event, row.evidence) for row in rows}


def codes_of(connection: Connection) -> set[str]:
    connection.refresh_from_db()
    return {finding["code"] for finding in connection.findings}


def test_progress_of_spark_is_a_running_query_by_upload_as_by_url(cluster: Cluster, engine: EngineServer) -> None:
    uploaded = connection_create(cluster=cluster, name="spark", engine="spark")
    upload_store(connection=uploaded, file=ContentFile(PROGRESS.encode(), name="progress.jsonl"))
    job = done(connection_import(connection=uploaded))
    assert job.state == "succeeded", job.error
    assert cluster.queries.get().state == "running" and {"places_missing"} <= codes_of(uploaded)
    statistics = statistics_of(cluster, "orders")
    assert any(evidence == "measured" for _, _, evidence in statistics.values())
    engine.replies["/progress"] = Reply(PROGRESS.encode(), kind="application/x-ndjson")
    other = small_cluster.small_cluster("other")
    asked = connection_create(cluster=other, name="spark", engine="spark", url=engine.url)
    job = done(connection_import(connection=asked))
    assert job.state == "succeeded", job.error
    assert statistics_of(other, "orders") == statistics


def test_driver_without_progress_has_nothing_to_import(cluster: Cluster, engine: EngineServer) -> None:
    engine.replies["/api/v1/version"] = Reply({"spark": "4.0.0"})
    engine.replies["/api/v1/applications?status=running"] = Reply([])
    engine.replies["/progress"] = Reply(b"<html>Not found.</html>", kind="text/html")  # as its web UI does
    connection = connection_create(cluster=cluster, name="spark", engine="spark", url=engine.url)
    job = done(connection_check(connection=connection))
    assert job.state == "succeeded", job.error
    assert {"progress_missing", "jobs_missing"} <= codes_of(connection) and connection.engine_version == "4.0.0"


def prometheus(path: str) -> Reply:
    asked = parse_qs(urlsplit(path).query)
    value = VALUES[asked["query"][0]]
    start, end, step = (float(asked[name][0]) for name in ("start", "end", "step"))
    times = [start + step * i for i in range(int((end - start) / step) + 1)]
    row = {"metric": {}, "values": [[at, str(value)] for at in times]}
    return Reply({"status": "success", "data": {"resultType": "matrix", "result": [row]}})


def test_mapped_operators_of_a_prometheus_are_a_running_query(cluster: Cluster, engine: EngineServer) -> None:
    engine.find = prometheus
    fields: dict[str, Any] = {"name": "own", "engine": "prometheus", "url": engine.url, "operators": OPERATORS}
    connection = connection_create(cluster=cluster, **fields)
    job = done(connection_import(connection=connection))
    assert job.state == "succeeded", job.error
    statistics = statistics_of(cluster, "own")
    assert statistics["parse"] == (pytest.approx(0.5, rel=0.01), pytest.approx(2e6, rel=0.01), "measured")
    assert statistics["score"][1] == pytest.approx(1e7, rel=0.01)
    assert cluster.arrivals.get(source_id="own.parse").mean_eps == pytest.approx(100.0, rel=0.05)


def test_prometheus_without_operators_says_what_it_lacks(cluster: Cluster, engine: EngineServer) -> None:
    connection = connection_create(cluster=cluster, name="own", engine="prometheus", url=engine.url)
    job = done(connection_check(connection=connection))
    assert job.state == "failed" and job.error is not None
    assert [fault["path"] for fault in job.error["faults"]] == ["operators"]
    with pytest.raises(Malformed) as refused:
        connection_create(
            cluster=cluster, name="two", engine="prometheus", operators=[{"name": 7, "raet": "x"}, "none"]
        )
    assert all(fault.path.startswith("operators") for fault in refused.value.faults)
    with pytest.raises(Malformed, match="tells its operators itself"):
        connection_create(cluster=cluster, name="two", engine="flink", operators=OPERATORS)


def test_lag_of_kafka_is_a_finding(cluster: Cluster) -> None:
    connection = connection_create(cluster=cluster, name="lag", engine="kafka")
    table = "GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG CONSUMER-ID HOST CLIENT-ID\n"
    table += "shop orders 0 10 25 15 c-1 /10.0.0.1 c\n"
    upload_store(connection=connection, file=ContentFile(table.encode(), name="lag.txt"))
    job = done(connection_check(connection=connection))
    assert job.state == "succeeded", job.error
    connection.refresh_from_db()
    assert "The group shop is 15 events behind." in {finding["message"] for finding in connection.findings}
    assert "jobs_missing" not in codes_of(connection)


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (Reply(b"not here", 404, "text/plain"), "answers 404 for /: not here"),
        (Reply(b"<html>login</html>", 200, "text/html"), "answers / with HTML"),
        (Reply({"status": "error", "error": "parse error"}), "it is no lag of a consumer group; allowed: Burrow"),
        (Reply({"error": True, "status": {}}), "it answered with an error: an error without words"),
        (Reply({"error_code": 40403, "message": "no group"}, 404), "it answered with an error: 40403: no group"),
        (Reply([]), "it is no lag of a consumer group; allowed: Burrow"),
    ],
)
def test_other_service_than_one_that_tells_lag_is_refused_by_what_it_says(
    cluster: Cluster, engine: EngineServer, reply: Reply, words: str
) -> None:
    engine.replies["/"] = reply
    job = done(
        connection_check(connection=connection_create(cluster=cluster, name="lag", engine="kafka", url=engine.url))
    )
    assert words in str(job.error)


def test_lag_of_kafka_is_the_backlog_of_the_query_that_reads_the_topic(cluster: Cluster) -> None:
    places = {"parse": "a", "count": "a"}
    query = start(make_query(cluster), places)
    connection = connection_create(cluster=cluster, name="lag", engine="kafka")
    table = "GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG CONSUMER-ID HOST CLIENT-ID\n"
    table += "shop clicks 0 10 25 15 c-1 /10.0.0.1 c\nshop clicks 1 10 35 25 c-1 /10.0.0.1 c\n"
    upload_store(connection=connection, file=ContentFile(table.encode(), name="lag.txt"))
    done(connection_import(connection=connection))
    query.refresh_from_db()
    assert [(row["from"], row["events"], row["origin"]) for row in query.backlogs] == [("clicks", 40.0, "measured")]
    other = start(make_query(cluster, "other"), places)
    done(connection_import(connection=connection))
    connection.refresh_from_db()
    other.refresh_from_db()
    assert other.backlogs == []
    assert "backlog_unassigned" in codes_of(connection)


def spark_batches(
    ends_at: datetime, count: int, *, rows: int = 10_000, duration_ms: float = 600.0, **more: Any
) -> list[dict[str, Any]]:
    """Progress of a query whose newest batch began just before."""
    begins = [ends_at - timedelta(seconds=5 * (count - i)) for i in range(count)]
    return [
        progress(i, rows + i % 7 * 1_000, duration_ms + i % 3, timestamp=begin.isoformat(), **more)
        for i, begin in enumerate(begins)
    ]


def serve(engine: EngineServer, documents: list[dict[str, Any]]) -> None:
    text = "\n".join(json.dumps(document) for document in documents)
    engine.replies["/progress"] = Reply(text.encode(), kind="application/x-ndjson")


def spark_connection(cluster: Cluster, engine: EngineServer, documents: list[dict[str, Any]]) -> Connection:
    """A connection with what it imported, under an objective of a minute."""
    serve(engine, documents)
    connection = connection_create(cluster=cluster, name="spark", engine="spark", url=engine.url)
    job = done(connection_import(connection=connection, objectives={"*": {"statistic": "worst", "bound_s": 60.0}}))
    assert job.state == "succeeded", job.error
    return connection


def test_new_checkpoint_and_new_run_are_attempts_of_the_query_that_runs(cluster: Cluster, engine: EngineServer) -> None:
    now = timezone.now()
    before = spark_batches(now - timedelta(seconds=300), 30)
    connection = spark_connection(cluster, engine, before)
    serve(engine, [*before, *spark_batches(now, 30, id="another", runId="run-2")])
    connection_poll(connection)
    assert [query.state for query in cluster.queries.all()] == ["running"]
    job = ImportedJob.objects.get()
    assert job.engine_id == "another" and job.restarts_seen == 1


def test_latency_of_batches_is_held_against_the_estimate(
    cluster: Cluster, engine: EngineServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scores, "STRETCH_S", 5.0)
    now = timezone.now()
    connection = spark_connection(cluster, engine, spark_batches(now - timedelta(seconds=120), 30))
    ESTIMATE.request(cluster=cluster)
    small_cluster.run_jobs()
    EstimateRun.objects.update(created_at=now - timedelta(seconds=100))
    serve(engine, spark_batches(now, 12, duration_ms=2_400.0, runId="run-2"))
    connection_poll(connection)
    row = AccuracyObservation.objects.get()
    assert (row.origin, row.observed_s) == ("spark", pytest.approx(5.0 + 2.4, abs=0.05))
    assert row.covered is False


def test_time_of_a_batch_that_changed_is_that_of_the_query_from_then_on(cluster: Cluster, engine: EngineServer) -> None:
    now = timezone.now()
    slow = spark_batches(now - timedelta(seconds=200), 40, duration_ms=1_300.0)
    connection = spark_connection(cluster, engine, slow)
    overheads = [row.extra["trigger"]["overhead_s"] for row in Operator.objects.all()]
    serve(engine, [*slow, *spark_batches(now, 30, duration_ms=550.0, runId="run-2")])
    connection_poll(connection)
    assert "batches_drift" in codes_of(connection)
    after = [row.extra["trigger"]["overhead_s"] for row in Operator.objects.all()]
    assert overheads == pytest.approx([1.3] * len(after), rel=0.01) and after == pytest.approx(
        [0.55] * len(after), rel=0.02
    )


@pytest.mark.parametrize("offsets_move", [False, True], ids=["no arrivals", "offsets that move"])
def test_query_of_which_no_row_was_seen_never_holds(
    cluster: Cluster, engine: EngineServer, *, offsets_move: bool
) -> None:
    documents = spark_batches(timezone.now(), 30)
    for i, document in enumerate(documents):
        offsets = {"endOffset": {"orders": {"0": 10 * i}}, "latestOffset": {"orders": {"0": 10 * i + 5}}}
        source = {"description": "KafkaV2[Subscribe[orders]]", "numInputRows": 0} | (offsets if offsets_move else {})
        document |= {"numInputRows": 0, "sources": [source]}
    connection = spark_connection(cluster, engine, documents)
    assert {"no_events"} <= codes_of(connection)
    ESTIMATE.request(cluster=cluster)
    small_cluster.run_jobs()
    assert {row.state for row in ObjectiveStatus.objects.all()} == {"unknown"}
