"""Progress of Spark and its executors become places, jobs in micro-batches and their statistics."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from engine.connectors.document import import_picture
from engine.connectors.picture import JobSample
from engine.connectors.spark import PROGRESS, next_spark_paths, read_spark, sample_spark
from engine.document.deployment import Deployment
from engine.errors import DocumentError

BEGIN = datetime(2026, 11, 1, 8, tzinfo=UTC)
FIXED_S, PER_ROW_S = 0.4, 0.00002
APPLICATION = "app-1"
EXECUTORS_PATH = f"/api/v1/applications/{APPLICATION}/executors"


def batch(number: int, rows: int, **changed: Any) -> dict[str, Any]:
    duration_ms = (FIXED_S + PER_ROW_S * rows) * 1000
    return {
        "id": "90a7ee2c-0f2c-4c6e-9a55-3b1f3a4f0001",
        "runId": "run-1",
        "name": "orders",
        "timestamp": (BEGIN + timedelta(seconds=5 * number)).isoformat().replace("+00:00", "Z"),
        "batchId": number,
        "numInputRows": rows,
        "durationMs": {"addBatch": duration_ms * 0.8, "triggerExecution": duration_ms, "walCommit": 24},
        "stateOperators": [],
        "sources": [{"description": "KafkaV2[Subscribe[clicks]]", "numInputRows": rows}],
        "sink": {"description": "org.apache.spark.sql.execution.streaming.ConsoleTable$@7687f0e2", "numOutputRows": -1},
    } | changed


def run(rows: Iterable[int] = (*[10_000] * 3, *range(10_000, 50_000, 2_000)), **changed: Any) -> list[dict[str, Any]]:
    return [batch(number, count, **changed) for number, count in enumerate(rows)]


def executor(id_: str, cores: int = 2, **changed: Any) -> dict[str, Any]:
    return {
        "id": id_,
        "hostPort": f"10.0.0.{id_[-1]}:7337",
        "isActive": True,
        "totalCores": cores,
        "maxTasks": cores,
    } | changed


def cluster(progress: Any = None, executors: Iterable[dict[str, Any]] = ()) -> dict[str, Any]:
    rows = list(executors) or [executor("driver", 0), executor("1"), executor("2")]
    return {
        "/api/v1/version": {"spark": "4.1.1"},
        "/api/v1/applications?status=running": [{"id": APPLICATION, "name": "shop"}],
        EXECUTORS_PATH: rows,
        PROGRESS: run() if progress is None else progress,
    }


def sample(answers: dict[str, Any]) -> JobSample:
    return sample_spark(read_spark(answers, 0.0).jobs[0], answers, step_s=5.0)


def test_executors_are_places_and_the_driver_is_not() -> None:
    picture = read_spark(cluster(), 0.0)
    assert [(place.name, place.cores, place.slots, place.host) for place in picture.places] == [
        ("executor-1", 2.0, 2, "10.0.0.1"),
        ("executor-2", 2.0, 2, "10.0.0.2"),
    ]
    assert picture.version == "4.1.1"


def test_in_local_mode_the_driver_does_the_work() -> None:
    assert [p.name for p in read_spark(cluster(executors=[executor("driver", 2)]), 0.0).places] == ["executor-driver"]


def test_dead_executors_and_those_without_cores_are_left_out() -> None:
    rows = [executor("1"), executor("2", isActive=False), executor("3", 0)]
    picture = read_spark(cluster(executors=rows), 0.0)
    assert [place.name for place in picture.places] == ["executor-1"]
    assert "cores_unknown" in {finding.code for finding in picture.findings}


def test_a_query_is_a_job_of_sources_state_and_sink_in_its_trigger() -> None:
    states = [{"operatorName": "stateStoreSave", "numRowsUpdated": 5, "numShufflePartitions": 200}]
    job = read_spark(cluster(run(stateOperators=states)), 0.0).jobs[0]
    assert [(vertex.label, vertex.kind) for vertex in job.vertices] == [
        ("clicks", "source"),
        ("stateStoreSave", "aggregate"),
        ("ConsoleTable", "sink"),
    ]
    assert {vertex.trigger["interval_s"] for vertex in job.vertices if vertex.trigger} == {5.0}
    assert job.settings == {"spark.sql.shuffle.partitions": "200"}


def test_executors_that_come_and_go_are_no_new_version() -> None:
    few, many = (read_spark(cluster(executors=[executor(str(i)) for i in range(1, n)]), 0.0).jobs[0] for n in (2, 6))
    assert few.shape == many.shape


def test_a_batch_is_fixed_time_and_work_of_all_servers_together() -> None:
    answers = cluster()
    sampled = sample(answers)
    source = sampled.operators["source-0"]
    assert source.cost_s == pytest.approx(4 * PER_ROW_S, rel=1e-6)
    pool = import_picture(read_spark(answers, 0.0), {sampled.job: sampled})
    row = pool.queries[0].body["operators"][0]
    assert row["trigger"] == {"interval_s": 5.0, "overhead_s": pytest.approx(FIXED_S)}
    assert [node.cores for node in pool.nodes] == [2, 2]
    assert [part["fraction"] for part in pool.queries[0].placement["clicks"]] == pytest.approx([0.25] * 4)
    Deployment.parse(pool.to_deployment({"orders.clicks": [1000.0] * 10}, 1.0))


def test_time_of_state_is_told_by_tasks_and_the_rest_is_counted_at_the_source() -> None:
    progress = [
        batch(
            number,
            rows,
            stateOperators=[
                {"operatorName": "stateStoreSave", "allUpdatesTimeMs": rows * 0.02, "numRowsUpdated": rows / 10}
            ],
        )
        for number, rows in enumerate((*[10_000] * 3, *range(10_000, 50_000, 2_000)))
    ]
    sampled = sample(cluster(progress))
    assert sampled.operators["state-0"].cost_s == pytest.approx(0.00002)
    assert sampled.operators["state-0"].selectivity == pytest.approx(0.1)
    assert sampled.operators["source-0"].cost_s == pytest.approx(4 * PER_ROW_S - 0.00002)


def test_batches_of_one_size_take_both_times_as_long_as_can_be_and_say_so() -> None:
    answers = cluster(run([10_000] * 12))
    sampled = sample(answers)
    assert {finding.code for finding in sampled.findings} == {"fixed_time_unknown"}
    trigger = read_spark(answers, 0.0).jobs[0].vertices[0].trigger
    assert trigger is not None and trigger["overhead_s"] == pytest.approx(0.6)


def test_rows_of_a_batch_came_since_the_batch_before_it_began() -> None:
    counts = sample(cluster(run([1_000] * 13))).arrivals["source-0"]
    assert (counts.step_s, counts.origin) == (5.0, "read")
    assert counts.counts == pytest.approx((1_000.0,) * 12)


def test_newest_offsets_of_the_broker_tell_what_came_whatever_was_read() -> None:
    progress = [
        batch(
            number,
            1_000,
            sources=[
                {
                    "description": "KafkaV2[Subscribe[clicks]]",
                    "numInputRows": 1_000,
                    "latestOffset": {"clicks": {"0": 2_000 * number, "1": "1.0E3"}},
                    "metrics": {"maxOffsetsBehindLatest": str(1_000.0 * number)},
                }
            ],
        )
        for number in range(12)
    ]
    sampled = sample(cluster(progress))
    counts = sampled.arrivals["source-0"]
    assert counts.origin == "offsets" and counts.counts == pytest.approx((2_000.0,) * 11)
    assert "source_backpressured" in {finding.code for finding in sampled.findings}


def test_offsets_of_a_source_that_is_no_broker_are_no_events() -> None:
    """The rate source's offsets are seconds: of a real Spark, 7 of them were 14,000 rows."""
    progress = [
        batch(n, 1_000, sources=[{"description": "RateStreamV2[…]", "numInputRows": 1_000, "latestOffset": 7 * n}])
        for n in range(12)
    ]
    counts = sample(cluster(progress)).arrivals["source-0"]
    assert counts.origin == "read" and counts.counts == pytest.approx((1_000.0,) * 11)


def test_batches_that_follow_one_another_have_no_trigger_and_say_so() -> None:
    progress = [
        batch(n, 10_000 + 500 * n, timestamp=(BEGIN + timedelta(seconds=0.6 * n)).isoformat()) for n in range(12)
    ]
    picture = read_spark(cluster(progress), 0.0)
    trigger = picture.jobs[0].vertices[0].trigger
    assert trigger is not None and trigger["interval_s"] == 0.001
    assert "trigger_assumed" in {finding.code for finding in picture.findings}


def test_progress_by_lines_and_of_several_queries_is_read() -> None:
    lines = "\n".join(json.dumps(document) for document in (*run(), *run(id="other", runId="run-2", name=None)))
    assert [job.name for job in read_spark({PROGRESS: lines}, 0.0).jobs] == ["orders", "query-other"]


def test_without_progress_the_executors_are_known_and_that_it_is_missing_is_said() -> None:
    answers = {path: answer for path, answer in cluster().items() if path != PROGRESS}
    picture = read_spark(answers, 7.0)
    assert picture.jobs == () and len(picture.places) == 2 and picture.at_s == 7.0
    assert "progress_missing" in {finding.code for finding in picture.findings}


def test_a_query_without_executors_is_one_server_without_a_node() -> None:
    answers = {PROGRESS: run()}
    picture = read_spark(answers, 0.0)
    assert "places_missing" in {finding.code for finding in picture.findings}
    assert import_picture(picture, {}).queries[0].placement["clicks"] == []


@pytest.mark.parametrize("answers", [{}, {"/api/v1/applications?status=running": "<html>"}, "<html>"])
def test_what_is_no_answer_of_spark_is_refused(answers: Any) -> None:
    with pytest.raises(DocumentError):
        read_spark(answers, 0.0)


def test_every_fault_of_progress_is_told_with_its_place() -> None:
    with pytest.raises(DocumentError) as caught:
        read_spark({PROGRESS: [batch(0, 10, runId=None), batch(1, -5)]}, 0.0)
    assert [fault.path for fault in caught.value.faults] == ["/progress [0].runId", "/progress [1].numInputRows"]


def test_rounds_of_questions_end() -> None:
    answers: dict[str, Any] = {}
    rounds = []
    while (asking := next_spark_paths(answers)).requests:
        rounds.append(asking.paths)
        answers |= {path: cluster().get(path) for path in asking.paths}
    assert rounds[-1] == (EXECUTORS_PATH,)
