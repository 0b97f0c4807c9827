"""Progress of Spark and its executors become places, jobs in micro-batches and their statistics."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from engine.connectors.document import import_picture
from engine.connectors.picture import JobSample
from engine.connectors.spark import PROGRESS, next_spark_paths, read_spark, sample_spark, spark_latencies
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


def test_new_checkpoint_of_a_named_query_is_the_same_query() -> None:
    later = [batch(number + 100, 10_000, id="another", runId="run-2") for number in range(10)]
    jobs = read_spark(cluster([*run(), *later]), 0.0).jobs
    assert [(job.id, job.name) for job in jobs] == [("another", "orders")]


def test_new_checkpoint_of_a_query_without_a_name_is_the_same_query_if_it_reads_and_writes_the_same() -> None:
    before = run(name=None)
    later = [batch(number + 100, 10_000, id="another", runId="run-2", name=None) for number in range(10)]
    assert [job.id for job in read_spark(cluster([*before, *later]), 0.0).jobs] == ["another"]
    elsewhere = [
        document | {"sources": [{"description": "KafkaV2[Subscribe[views]]", "numInputRows": 10_000}]}
        for document in later
    ]
    assert len(read_spark(cluster([*before, *elsewhere]), 0.0).jobs) == 2


def test_queries_without_a_name_that_run_beside_each_other_are_two() -> None:
    beside = [batch(number, 10_000, id="another", runId="run-2", name=None) for number in range(10)]
    assert len(read_spark(cluster([*run(name=None), *beside]), 0.0).jobs) == 2


def test_runs_of_one_query_are_attempts_of_it() -> None:
    again = [batch(number + 100, 10_000, runId=f"run-{number // 5 + 2}") for number in range(15)]
    answers = cluster([*run(), *again])
    (job,) = read_spark(answers, 0.0).jobs
    assert job.started_at_s == (BEGIN + timedelta(seconds=5 * 110)).timestamp()
    assert sample_spark(job, answers).operators["source-0"].events > 0.0


def test_sample_of_a_job_is_found_by_the_checkpoint_that_it_had_before() -> None:
    job = read_spark(cluster(), 0.0).jobs[0]
    later = [batch(number + 100, 10_000, id="another", runId="run-2") for number in range(10)]
    assert sample_spark(job, cluster([*run(), *later])).operators["source-0"].events > 0.0


def test_batches_of_another_plan_before_a_redeploy_do_not_count() -> None:
    states = [{"operatorName": "dedupe", "numRowsUpdated": 5, "allUpdatesTimeMs": 9_000}]
    later = [batch(number + 100, 20_000 + 1_000 * number, runId="run-2") for number in range(10)]
    sampled = sample(cluster([*run(stateOperators=states), *later]))
    assert sampled.operators["source-0"].events == sum(20_000 + 1_000 * number for number in range(10))


def timed(rows: Iterable[int], factor: float, first: int = 0) -> list[dict[str, Any]]:
    """Batches that take a multiple of what they usually take."""
    return [
        batch(first + i, count, durationMs={"triggerExecution": factor * 1000 * (FIXED_S + PER_ROW_S * count)})
        for i, count in enumerate(rows)
    ]


SIZES = [10_000 + 1_000 * (number % 20) for number in range(60)]


@pytest.mark.parametrize("sizes", [SIZES[:30], [15_000] * 30], ids=["of many sizes", "of one size"])
def test_batches_that_became_faster_are_told_and_counted_as_they_are_now(sizes: list[int]) -> None:
    answers = cluster([*timed(SIZES, 2.5), *timed(sizes, 1.0, 60)])
    sampled = sample(answers)
    (drift,) = [finding for finding in sampled.findings if finding.code == "batches_drift"]
    assert "less than those before them foretold" in str(drift.message)
    trigger = read_spark(answers, 0.0).jobs[0].vertices[0].trigger
    cost_s = sampled.operators["source-0"].cost_s
    assert trigger is not None and cost_s is not None
    assert trigger["overhead_s"] + cost_s / 4 * 15_000 == pytest.approx(FIXED_S + PER_ROW_S * 15_000, rel=0.02)


def test_batches_that_only_became_larger_are_no_drift() -> None:
    for small in ([1_000] * 40, [1_000, 1_050] * 20):
        codes = {finding.code for finding in sample(cluster(timed([*small, *[40_000] * 20], 1.0))).findings}
        assert "batches_drift" not in codes


def test_latency_of_a_batch_is_its_wait_and_its_time() -> None:
    answers = cluster(run([10_000] * 6))
    job = read_spark(answers, 0.0).jobs[0]
    batch_s, first_s = FIXED_S + PER_ROW_S * 10_000, BEGIN.timestamp()
    worst, mean = (spark_latencies(job, answers, statistic) for statistic in ("worst", "mean"))
    assert worst[0] == (pytest.approx(first_s + 5.0 + batch_s), pytest.approx(5.0 + batch_s))
    assert [latency_s for _, latency_s in mean] == pytest.approx([2.5 + batch_s] * 5)
    assert spark_latencies(job, cluster(run([0] * 6)), "worst") == []


def test_work_per_row_that_is_not_told_is_the_most_that_it_can_be() -> None:
    sizes = [10_000 + 1_000 * (number % 5) for number in range(20)]
    progress = [batch(i, rows, durationMs={"triggerExecution": 600 + 40 * (i % 2)}) for i, rows in enumerate(sizes)]
    sampled = sample(cluster(progress))
    assert {finding.code for finding in sampled.findings} == {"fixed_time_unknown"}
    cost_s = sampled.operators["source-0"].cost_s
    assert cost_s is not None and 4 * 1e-6 < cost_s <= 4 * 0.64 / 10_000
