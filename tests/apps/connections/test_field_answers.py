"""Answers of Flink as they are met: plans, waiting jobs, offsets and exporters give the right value by every way in."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest
from django.core.files.base import ContentFile
from rest_framework.test import APIClient

from apps.connections.models import Connection, ImportedJob
from apps.connections.services import connection_check, connection_create, connection_import
from apps.connections.uploads import upload_store
from apps.estimates.models import ObjectiveStatus
from apps.estimates.services import ESTIMATE
from apps.fleet.models import Cluster
from apps.jobs.models import Job
from apps.queries.models import Operator, OperatorInput, Query
from tests.apps import small_cluster
from tests.apps.connections.engine_server import EngineServer, Reply
from tests.apps.connections.flink_rounds import LiveFlink, RecordedJob, RecordedVertex, rounds_of

pytestmark = pytest.mark.django_db

ROOT = Path(__file__).resolve().parents[3]
ORDERS = RecordedVertex("Source: orders")
PAYS = RecordedVertex("Source: pays")
OFFSETS = 'kafka_topic_partition_current_offset{topic="$topic"}'


@pytest.fixture
def cluster() -> Cluster:
    return small_cluster.small_cluster()


def done(job: Job) -> Job:
    small_cluster.run_jobs()
    job.refresh_from_db()
    return job


def uploaded(cluster: Cluster, rounds: Any, name: str = "shop", **objectives: Any) -> Connection:
    connection = connection_create(cluster=cluster, name=name, engine="flink")
    upload_store(connection=connection, file=ContentFile(json.dumps(rounds).encode(), name="answers.json"))
    checked = done(connection_check(connection=connection))
    assert checked.state == "succeeded", checked.error
    job = done(connection_import(connection=connection, objectives=objectives or None))
    assert job.state == "succeeded", job.error
    connection.refresh_from_db()
    return connection


def asked(cluster: Cluster, engine: EngineServer, flink: LiveFlink, **objectives: Any) -> Connection:
    engine.find = flink.reply
    fields: dict[str, Any] = {
        "url": engine.url,
        "prometheus_url": engine.url,
        "lag_query": OFFSETS,
        "poll_interval_s": 5.0,
    }
    connection = connection_create(cluster=cluster, name="shop", engine="flink", **fields)
    job = done(connection_import(connection=connection, objectives=objectives or None))
    assert job.state == "succeeded", job.error
    connection.refresh_from_db()
    return connection


def codes_of(connection: Connection) -> dict[str, str]:
    return {finding["code"]: finding["message"] for finding in connection.findings}


def inputs_of(query: Query) -> dict[str, list[tuple[float, float]]]:
    rows = OperatorInput.objects.filter(operator__version=query.running_version).select_related("operator")
    found: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        found.setdefault(row.operator.name, []).append((row.selectivity, row.cycles_per_event or 0.0))
    return found


def operator_of(cluster: Cluster, name: str) -> Operator:
    return Operator.objects.get(version__query__cluster=cluster, name=name)


def state_of(cluster: Cluster, query: str) -> str:
    done(ESTIMATE.request(cluster=cluster)[1])
    return ObjectiveStatus.objects.get(query__cluster=cluster, query__name=query).state


def test_waiting_job_is_left_out_and_the_others_are_read(cluster: Cluster) -> None:
    out = RecordedVertex("Sink: out", inputs=("Source: orders",))
    waiting = RecordedJob("waiting", state="CREATED", answer={"vertices": [], "plan": {}})
    unplanned = {"id": "v", "name": "map", "parallelism": -1}
    later = RecordedJob(
        "later", state="INITIALIZING", answer={"vertices": [unplanned], "plan": {"nodes": [{"id": "v"}]}}
    )
    connection = uploaded(cluster, rounds_of(RecordedJob("shop", (ORDERS, out)), waiting, later))
    assert [row.name for row in connection.jobs.all()] == ["shop"]
    assert "job_waiting" in codes_of(connection)


def test_known_job_that_waits_again_goes_on_in_the_cluster(cluster: Cluster) -> None:
    job = RecordedJob("shop", (ORDERS, RecordedVertex("Sink: out", inputs=("Source: orders",))))
    connection = uploaded(cluster, rounds_of(job))
    ImportedJob.objects.update(seen_at="2020-01-01T00:00:00Z")
    waiting = RecordedJob("shop", state="CREATED", answer={"vertices": [], "plan": {}})
    upload_store(connection=connection, file=ContentFile(json.dumps(rounds_of(waiting)).encode(), name="answers.json"))
    assert done(connection_import(connection=connection)).state == "succeeded"
    assert cluster.queries.get(name="shop").state == "running"


def test_one_unreadable_job_refuses_no_other(cluster: Cluster) -> None:
    broken = RecordedJob("broken", answer={"vertices": [{"id": 7}], "plan": {"nodes": "none"}})
    out = RecordedVertex("Sink: out", inputs=("Source: orders",))
    connection = uploaded(cluster, rounds_of(RecordedJob("shop", (ORDERS, out)), broken))
    assert "broken" in codes_of(connection)["part_unreadable"]
    assert [row.name for row in connection.jobs.all()] == ["shop"]


def test_stream_joined_with_itself_carries_what_the_reader_counts(cluster: Cluster) -> None:
    join = RecordedVertex("Join[3]", 400.0, 0.0023, ("Source: orders", "Source: orders"))
    uploaded(cluster, rounds_of(RecordedJob("shop", (ORDERS, join))))
    inputs = inputs_of(cluster.queries.get(name="shop"))
    assert inputs["orders"] == [(pytest.approx(1.0, rel=0.02), pytest.approx(5e5, rel=0.02))]
    assert len(inputs["join"]) == 2 and inputs["join"][0][1] == pytest.approx(2.3e6, rel=0.02)


def test_join_of_windows_waits_for_the_window(cluster: Cluster) -> None:
    window = "TUMBLE(win_start=[window_start], win_end=[window_end], size=[5 min])"
    description = f"[9]:WindowJoin(leftWindow=[{window}], rightWindow=[{window}], joinType=[InnerJoin])<br/>"
    join = RecordedVertex("WindowJoin[9]", 400.0, 0.0005, ("Source: orders", "Source: pays"), description)
    uploaded(cluster, rounds_of(RecordedJob("shop", (ORDERS, PAYS, join))))
    assert operator_of(cluster, "window-join").extra["window"]["size"] == 300.0


def test_unknown_part_of_a_plan_is_named_and_kept_with_its_operator(cluster: Cluster) -> None:
    ponder = RecordedVertex("Ponder[9]", 200.0, 0.0005, ("Source: orders",), "[9]:Ponder(by=[k])<br/>")
    connection = uploaded(cluster, rounds_of(RecordedJob("shop", (ORDERS, ponder))))
    assert "Ponder" in codes_of(connection)["plan_unread"]
    assert operator_of(cluster, "ponder").extra["unread"] == ["Ponder: the operator is not known"]


SINK = RecordedVertex("Sink: out", 1000.0, 0.0002, ("Source: in",))
SLOW = RecordedJob("slow-fetcher", (RecordedVertex("Source: in", 1000.0, 0.0002), SINK))


def test_source_that_reads_less_than_comes_costs_the_rate_that_it_did(cluster: Cluster, engine: EngineServer) -> None:
    flink = LiveFlink(SLOW, time.time(), [({"partition": "0"}, 2000.0)])
    connection = asked(cluster, engine, flink, **{"*": {"statistic": "worst", "bound_s": 5.0}})
    assert "2,000 events/s came" in codes_of(connection)["source_behind"]
    ((_, cycles),) = inputs_of(cluster.queries.get())["in"]
    assert cycles == pytest.approx(1e6, rel=0.05)
    assert cluster.arrivals.get(source_id="slow-fetcher.in").mean_eps == pytest.approx(2000.0, rel=0.05)
    assert state_of(cluster, "slow-fetcher") != "holds"


def test_offsets_of_two_exporters_count_once(cluster: Cluster, engine: EngineServer) -> None:
    job = RecordedJob("two", (RecordedVertex("Source: in", 1000.0, 0.0006), SINK))
    exporters = [{"topic": "in", "partition": "0", "instance": f"exporter-{i}:9308"} for i in range(2)]
    flink = LiveFlink(job, time.time(), [(labels, 1000.0) for labels in exporters])
    connection = asked(cluster, engine, flink, **{"*": {"statistic": "worst", "bound_s": 5.0}})
    assert "offsets_twice" in codes_of(connection) and "source_behind" not in codes_of(connection)
    assert cluster.arrivals.get(source_id="two.in").mean_eps == pytest.approx(1000.0, rel=0.05)
    assert state_of(cluster, "two") == "unknown"  # not breached: nothing holds yet by statistics of seconds


WILD = Path(os.environ.get("SLUICE_CASES") or ROOT.parent / "shared" / "cases") / "wild"


@pytest.mark.skipif(not WILD.exists(), reason="no specimens (SLUICE_CASES)")
def test_specimens_are_imported_with_the_right_values(cluster: Cluster) -> None:
    """Those of the shared cases: a waiting job, a self-join, a join of windows."""
    connections = {
        name: uploaded(small_cluster.small_cluster(name), json.loads(file.read_text()), name=name)
        for name, file in (
            ("waiting", next(WILD.glob("010-*/answers.json"))),
            ("join", next(WILD.glob("011-*/answers.json"))),
            ("window", next(WILD.glob("014-*/answers.json"))),
        )
    }
    assert "job_waiting" in codes_of(connections["waiting"])
    assert inputs_of(connections["join"].cluster.queries.get())["orders"][0][0] == pytest.approx(1.0, rel=0.02)
    assert operator_of(connections["window"].cluster, "window-join").extra["window"]["size"] == 300.0


def test_two_clusters_with_equal_taskmanagers_are_both_imported(cluster: Cluster) -> None:
    out = RecordedVertex("Sink: out", inputs=("Source: orders",))
    for name in ("first", "second"):
        uploaded(cluster, rounds_of(RecordedJob(name, (ORDERS, out))), name=name)
    assert (
        cluster.pools.get(name="flink-first").nodes.get().name
        != cluster.pools.get(name="flink-second").nodes.get().name
    )
    assert set(cluster.queries.values_list("name", flat=True)) == {"first", "second"}
    again = Connection.objects.get(name="second")
    assert done(connection_import(connection=again)).state == "succeeded"
    assert cluster.pools.get(name="flink-second").nodes.count() == 1


MAPPED = [
    {"name": "parse", "rate": "rate", "cost": "cost", "outputs": "out"},
    {"name": "count", "reads": ["parse"], "rate": "out", "cost": "cost"},
]


def aligned_reply(path: str) -> Reply:
    """Answers of a part of a storage that stand beside the steps that were asked for."""
    asked_for = {name: float(value) for name, value in re.findall(r"(start|end|step)=([\d.]+)", path)}
    value = {"rate": "500", "cost": "0.0008", "out": "250"}[path.partition("query=")[2].partition("&")[0]]
    step_s = asked_for["step"]
    times = [asked_for["start"] - 0.4 * step_s + step_s * i for i in range(60)]
    result = [{"metric": {}, "values": [[at_s, value] for at_s in times]}]
    return Reply({"status": "success", "isPartial": True, "data": {"resultType": "matrix", "result": result}})


def test_range_answers_beside_the_steps_give_statistics(cluster: Cluster, engine: EngineServer) -> None:
    engine.find = aligned_reply
    connection = connection_create(cluster=cluster, name="own", engine="prometheus", url=engine.url, operators=MAPPED)
    job = done(connection_import(connection=connection))
    assert job.state == "succeeded", job.error
    inputs = inputs_of(cluster.queries.get())
    assert inputs["parse"] == [(pytest.approx(0.5), pytest.approx(8e5))]
    connection.refresh_from_db()
    assert "partial_answer" in codes_of(connection)
    starts = {float(found) for path in engine.asked for found in re.findall(r"start=([\d.]+)", path)}
    assert starts and all(start_s % 15.0 == 0.0 for start_s in starts)


REPLICAS = """apiVersion: flink.apache.org/v1beta1
kind: FlinkDeployment
metadata: {name: orders, namespace: streams}
spec:
  flinkConfiguration: {taskmanager.numberOfTaskSlots: "2"}
  mode: standalone
  taskManager: {replicas: 1, resource: {memory: 2Gi, cpu: 1}}
  job: {jarURI: "local:///x.jar", parallelism: 8}
"""


def test_replicas_of_taskmanagers_decide_on_the_parallelism(api: APIClient, cluster: Cluster) -> None:
    source = RecordedVertex("Source: orders", parallelism=8)
    out = RecordedVertex("Sink: out", inputs=("Source: orders",), parallelism=8)
    uploaded(cluster, rounds_of(RecordedJob("orders", (source, out))))
    answer = api.post("/api/v1/kubernetes-reviews", {"cluster": "little", "manifest": REPLICAS}, format="json")
    (review,) = answer.json()["reviews"]
    assert review["basis"] == "less"
    assert "It asks for a parallelism of 2; the statistics" in review["message"] and "are of 8" in review["message"]
