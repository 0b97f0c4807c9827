"""Flink's REST answers become places, jobs and counters; what is wrong with them is said all at once."""

from __future__ import annotations

import copy
import time
from typing import Any

import pytest

from engine.connectors.chains import read_chain
from engine.connectors.flink import MAX_VERTICES, next_paths, read_flink
from engine.connectors.flink_metrics import (
    MAX_URL_BYTES,
    MarkerLatency,
    marker_paths,
    metric_paths,
    read_markers,
    read_metrics,
)
from engine.connectors.flink_polls import poll_flink, poll_paths
from engine.connectors.picture import CounterPoll, EngineJob, EnginePicture
from engine.errors import DocumentError
from tests.engine.connectors.flink_answers import JOB, NOW_MS, cluster, job_answer, poll, taskmanager, vertex

NOW_S = NOW_MS / 1000
CHAIN = (
    vertex("v1", "Source: clicks[4] -> Calc[5]", written=100, busy="NaN"),
    vertex("v2", "enrich", ("v1", "HASH"), read=100, written=90, busy=50, idle=900),
    vertex("v3", "out[7]: Writer", "v2", read=90),
)


def codes(picture: EnginePicture) -> set[str]:
    return {finding.code for finding in picture.findings}


def read_one(answers: dict[str, Any]) -> EngineJob:
    return read_flink(answers, NOW_S).jobs[0]


def faults_of(answers: Any) -> list[str]:
    with pytest.raises(DocumentError) as caught:
        read_flink(answers, NOW_S)
    return [str(fault) for fault in caught.value.faults]


def test_vertices_are_in_topological_order_whatever_the_plan_says() -> None:
    job = read_one(cluster(*reversed(CHAIN)))
    assert [vertex.id for vertex in job.vertices] == ["v1", "v2", "v3"]
    assert [exchange.strategy for exchange in job.vertices[1].inputs] == ["hash"]
    assert [vertex.kind for vertex in job.vertices] == ["source", "other", "sink"]


def test_labels_lose_the_numbers_of_a_session_so_that_a_redeploy_has_the_same_shape() -> None:
    again = [vertex("v1", "Source: clicks[14] -> Calc[15]"), CHAIN[1], vertex("v3", "out[17]: Writer", "v2")]
    first, second = read_one(cluster(*CHAIN)), read_one(cluster(*again))
    assert [vertex.label for vertex in first.vertices] == ["clicks", "enrich", "out"]
    assert first.shape == second.shape


def test_a_rescale_has_another_shape() -> None:
    rescaled = [*CHAIN[:1], vertex("v2", "enrich", ("v1", "HASH"), parallelism=2), CHAIN[2]]
    assert read_one(cluster(*CHAIN)).shape != read_one(cluster(*rescaled)).shape


def test_memory_of_resources_is_megabytes_and_of_the_configuration_bytes() -> None:
    by_resource = read_flink(cluster(*CHAIN), NOW_S).places[0]
    assert by_resource.memory_bytes == (256 + 64 + 32) * 2**20
    row = taskmanager(memoryConfiguration={"totalProcessMemory": 838_860_800})
    assert (
        read_flink(cluster(*CHAIN) | {"/taskmanagers": {"taskmanagers": [row]}}, NOW_S).places[0].memory_bytes
        == 838_860_800
    )


def test_cores_fall_back_to_the_hardware_where_the_resource_has_none() -> None:
    row = taskmanager(totalResource={"cpuCores": 0.0})
    assert read_flink(cluster(*CHAIN) | {"/taskmanagers": {"taskmanagers": [row]}}, NOW_S).places[0].cores == 8.0


def test_cores_that_a_setting_promises_are_no_more_than_the_host_has() -> None:
    """Sixteen slots on a machine of two cores are two cores; two such TaskManagers have one each."""
    rows = [taskmanager(name, slots=16, totalResource={"cpuCores": 16.0}) for name in ("tm1", "tm2")]
    rows = [row | {"hardware": {"cpuCores": 2}} for row in rows]
    one = read_flink(cluster(*CHAIN) | {"/taskmanagers": {"taskmanagers": rows[:1]}}, NOW_S)
    assert [place.cores for place in one.places] == [2.0] and "cores_promised" in codes(one)
    both = read_flink(cluster(*CHAIN) | {"/taskmanagers": {"taskmanagers": rows}}, NOW_S)
    assert [place.cores for place in both.places] == [1.0, 1.0] and "cores_shared" in codes(both)


def test_quota_of_a_container_counts_where_it_is_less_than_its_host() -> None:
    row = taskmanager(totalResource={"cpuCores": 0.5}) | {"hardware": {"cpuCores": 1}}
    picture = read_flink(cluster(*CHAIN) | {"/taskmanagers": {"taskmanagers": [row]}}, NOW_S)
    assert [place.cores for place in picture.places] == [0.5] and "cores_promised" not in codes(picture)


def test_taskmanagers_of_one_host_share_its_cores() -> None:
    rows = [taskmanager(name, totalResource={"cpuCores": 8.0}) for name in ("tm1", "tm2")]
    picture = read_flink(cluster(*CHAIN) | {"/taskmanagers": {"taskmanagers": rows}}, NOW_S)
    assert [place.cores for place in picture.places] == [4.0, 4.0]
    assert "cores_shared" in codes(picture)


def test_subtasks_know_their_place_and_a_subtask_without_one_is_said() -> None:
    answers = cluster(*CHAIN)
    assert [s.place for vertex in read_one(answers).vertices for s in vertex.subtasks] == ["tm1"] * 3
    answers[f"/jobs/{JOB}/vertices/v2"]["subtasks"][0]["taskmanager-id"] = "(unassigned)"
    picture = read_flink(answers, NOW_S)
    assert picture.jobs[0].vertices[1].subtasks[0].place is None
    assert "subtasks_unplaced" in codes(picture)


def test_places_are_read_from_the_answer_by_taskmanagers_as_well() -> None:
    answers = cluster(*CHAIN[:1], vertex("v2", "enrich", "v1", parallelism=2))
    del answers[f"/jobs/{JOB}/vertices/v2"]
    rows = [{"taskmanager-id": "tm1", "status-counts": {"RUNNING": 2, "FINISHED": 0}}]
    answers[f"/jobs/{JOB}/vertices/v2/taskmanagers"] = {"taskmanagers": rows}
    assert [subtask.place for subtask in read_one(answers).vertices[1].subtasks] == ["tm1", "tm1"]


def test_checkpoints_of_the_longest_interval_are_off() -> None:
    path = f"/jobs/{JOB}/checkpoints/config"
    off = read_one(cluster(*CHAIN) | {path: {"mode": "exactly_once", "interval": 9223372036854775807}})
    on = read_one(cluster(*CHAIN) | {path: {"mode": "exactly_once", "interval": 10000}})
    assert off.settings["execution.checkpointing.interval"] == "off"
    assert on.settings["execution.checkpointing.interval"] == "10000 ms"


def test_buffer_timeout_is_assumed_unless_told_and_only_where_something_is_read() -> None:
    picture = read_flink(cluster(*CHAIN), NOW_S)
    assert [vertex.buffer_timeout_s for vertex in picture.jobs[0].vertices] == [0.1, 0.1, None]
    assert "buffer_timeout_assumed" in codes(picture)
    user = {"execution-config": {"user-config": {"execution.buffer-timeout.interval": "20 ms"}}}
    told = read_flink(cluster(*CHAIN) | {f"/jobs/{JOB}/config": user}, NOW_S)
    assert told.jobs[0].vertices[0].buffer_timeout_s == 0.02
    assert "buffer_timeout_assumed" not in codes(told)


def test_buffers_that_never_time_out_are_said() -> None:
    config = [{"key": "execution.buffer-timeout.enabled", "value": "false"}]
    picture = read_flink(cluster(*CHAIN) | {"/jobmanager/config": config}, NOW_S)
    assert picture.jobs[0].vertices[0].buffer_timeout_s is None
    assert "buffers_without_timeout" in codes(picture)


SQL_SOURCE = "[6]:WatermarkAssigner(rowtime=[ts], watermark=[(ts - 1000:INTERVAL SECOND)])<br/>"
SQL_WINDOW = "[10]:GlobalWindowAggregate(groupBy=[k], window=[{}], select=[k])<br/>+- out[12]: Writer<br/>"


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        ("TUMBLE(slice_end=[$slice_end], size=[5 s])", {"type": "tumbling", "size": 5.0, "watermark_delay_s": 1.0}),
        (
            "HOP(slice_end=[$slice_end], size=[1 min], slide=[10 s])",
            {"type": "sliding", "size": 60.0, "slide": 10.0, "watermark_delay_s": 1.0},
        ),
    ],
)
def test_sql_windows_and_watermarks_are_read_from_descriptions(window: str, expected: dict[str, Any]) -> None:
    job = read_one(
        cluster(
            vertex("v1", "Source: clicks[4] -> WatermarkAssigner[6]", description=SQL_SOURCE),
            vertex("v2", "GlobalWindowAggregate[10] -> out[12]: Writer", "v1", description=SQL_WINDOW.format(window)),
        )
    )
    assert job.vertices[0].watermark_delay_s == 1.0
    assert job.vertices[1].kind == "window"
    assert job.vertices[1].window == {"policy": "time", "work_at": "close"} | expected


def test_a_pattern_waits_for_the_watermark_that_no_plan_tells() -> None:
    picture = read_flink(cluster(CHAIN[0], vertex("v2", "CepOperator -> results: Writer", "v1")), NOW_S)
    pattern = picture.jobs[0].vertices[1]
    assert pattern.window is not None and pattern.window["watermark_delay_s"] == pattern.window["size"] == 0.2
    assert pattern.unread and "watermark_assumed" in codes(picture)


def test_a_window_without_a_fixed_size_is_said_and_not_guessed() -> None:
    description = SQL_WINDOW.format("SESSION(win_start=[w], gap=[?])")
    picture = read_flink(
        cluster(CHAIN[0], vertex("v2", "GlobalWindowAggregate[1]", "v1", description=description)), NOW_S
    )
    assert picture.jobs[0].vertices[1].window is None
    assert "lasts as long as events of its key come" in picture.jobs[0].vertices[1].unread[0]
    assert {"window_unknown", "plan_unread"} <= set(codes(picture))


def test_windows_of_java_jobs_are_read_from_names() -> None:
    name = "Window(SlidingProcessingTimeWindows(10000, 5000), ProcessingTimeTrigger, Sum)"
    job = read_one(cluster(CHAIN[0], vertex("v2", name, "v1")))
    assert job.vertices[1].window == {"policy": "time", "type": "sliding", "size": 10.0, "slide": 5.0}


def test_an_unknown_version_is_read_with_a_warning() -> None:
    picture = read_flink(cluster(*CHAIN) | {"/overview": {"flink-version": "3.1-SNAPSHOT"}}, NOW_S)
    assert picture.version == "3.1-SNAPSHOT" and len(picture.jobs) == 1
    assert "version_unknown" in codes(picture)


def test_clocks_apart_are_said_and_the_engines_is_used() -> None:
    picture = read_flink(cluster(*CHAIN), NOW_S + 90.0)
    assert picture.at_s == NOW_S
    assert "clocks_apart" in codes(picture)


def test_a_job_that_went_between_two_answers_is_left_out_with_a_warning() -> None:
    picture = read_flink(
        cluster() | {f"/jobs/{JOB}": {"errors": ["x.NotFoundException: Job not found\n\tat y"]}}, NOW_S
    )
    assert picture.jobs == () and "job_gone" in codes(picture)


def test_ended_and_batch_jobs_are_left_out() -> None:
    ended = cluster() | {"/jobs/overview": {"jobs": [{"jid": JOB, "name": "o", "state": "FINISHED"}]}}
    assert read_flink(ended, NOW_S).jobs == ()
    batch = read_flink(cluster() | {f"/jobs/{JOB}": job_answer(*CHAIN) | {"job-type": "BATCH"}}, NOW_S)
    assert batch.jobs == () and "batch_job" in codes(batch)


def test_batch_jobs_of_old_versions_are_known_by_their_plan() -> None:
    old = job_answer(*CHAIN)
    del old["job-type"]
    old["plan"]["type"] = "BATCH"
    picture = read_flink(cluster() | {f"/jobs/{JOB}": old}, NOW_S)
    assert picture.jobs == () and "batch_job" in codes(picture)
    old["plan"]["type"] = "STREAMING"
    assert len(read_flink(cluster() | {f"/jobs/{JOB}": old}, NOW_S).jobs) == 1
    listing = {"jobs": [{"jid": JOB, "name": "orders", "state": "RUNNING", "jobType": "BATCH"}]}
    assert read_flink(cluster() | {f"/jobs/{JOB}": old, "/jobs/overview": listing}, NOW_S).jobs == ()


def test_odd_figures_that_nobody_needs_refuse_nothing() -> None:
    odd = job_answer(*CHAIN) | {"start-time": -1, "duration": "soon", "timestamps": {"RUNNING": 1_700_000_000_000}}
    odd["vertices"][0] |= {"maxParallelism": "many", "duration": None, "tasks": []}
    job = read_flink(cluster(*CHAIN) | {f"/jobs/{JOB}": odd}, NOW_S).jobs[0]
    assert job.started_at_s == 1_700_000_000.0
    places = [taskmanager(), {"id": "tm2", "slotsNumber": "some"}]
    picture = read_flink(cluster(*CHAIN) | {"/taskmanagers": {"taskmanagers": places}}, NOW_S)
    assert [place.id for place in picture.places] == ["tm1"] and "part_unreadable" in codes(picture)


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ("<html><title>Login</title></html>", "an object of answers"),
        ({"/jobs/overview": "<html>Login</html>"}, "'<html>Login</html>'; allowed: a JSON object"),
        ({"/jobs/overview": {"status": "success", "data": {}}}, "jobs is missing; allowed: a list"),
        ({"/jobs/overview": {"errors": ["Unable to load requested file /bad-request."]}}, "bad-request"),
        ({"/api/v1/query": {}}, "there is no list of jobs"),
    ],
)
def test_what_is_no_answer_of_flink_is_refused_in_clear_words(answers: Any, words: str) -> None:
    assert words in " ".join(faults_of(answers))


def test_half_an_answer_has_every_fault_with_its_path() -> None:
    broken = copy.deepcopy(job_answer(*CHAIN))
    del broken["state"], broken["vertices"][1]["name"]
    broken["plan"]["nodes"][0]["inputs"][0]["id"] = "v9"
    faults = faults_of(cluster(*CHAIN) | {f"/jobs/{JOB}": broken})
    assert [fault.split(": ")[0] for fault in faults] == [
        f"/jobs/{JOB} state",
        f"/jobs/{JOB} plan.nodes",
        f"/jobs/{JOB} vertices[1].name",
    ]


def test_a_cycle_in_the_plan_is_a_fault() -> None:
    loop = [vertex("v1", "a", "v2"), vertex("v2", "b", "v1")]
    assert "cycle" in " ".join(faults_of(cluster(*loop)))


def test_a_job_of_ten_thousand_vertices_is_left_out_quickly() -> None:
    many = [vertex(f"v{i}", "map") for i in range(10_000)]
    answers = cluster() | {f"/jobs/{JOB}": job_answer(*many)}
    begun = time.process_time()
    picture = read_flink(answers, NOW_S)
    assert time.process_time() - begun < 5.0
    assert picture.jobs == () and "job_too_large" in codes(picture)
    assert f"10,000 vertices; allowed: {MAX_VERTICES:,}" in str(picture.findings[-1].message)
    with pytest.raises(DocumentError, match="10,000 vertices"):
        poll_flink(answers, JOB, 0.0)


def test_three_rounds_of_questions_lead_to_a_whole_picture() -> None:
    whole = cluster(*CHAIN) | {f"/jobs/{JOB}/config": {}, f"/jobs/{JOB}/checkpoints/config": {"interval": 1}}
    whole["/taskmanagers/tm1/metrics?get=Status.JVM.CPU.Load,Status.JVM.CPU.Time"] = []
    answers: dict[str, Any] = {}
    rounds = []
    while (asking := next_paths(answers)).requests:
        assert asking.answer_bytes > 0
        rounds.append(asking.requests)
        answers |= {path: whole.get(path, {"errors": ["no"]}) for path in asking.paths}
    assert rounds == [4, 5, 5]  # more is chained to its source, which counts by a metric of its own
    assert read_flink(answers, NOW_S) == read_flink(whole, NOW_S)


def test_only_wanted_jobs_are_asked_for_by_name_or_id() -> None:
    answers = {path: answer for path, answer in cluster().items() if path != f"/jobs/{JOB}"}
    assert f"/jobs/{JOB}" in next_paths(answers, jobs=["orders"]).paths
    assert f"/jobs/{JOB}" in next_paths(answers, jobs=[JOB]).paths
    assert f"/jobs/{JOB}" not in next_paths(answers, jobs=["others"]).paths


def test_upload_and_url_read_the_same_with_origin_and_version_prefix() -> None:
    answers = cluster(*CHAIN)
    uploaded = {f"https://jm:8081/v1{path}": answer for path, answer in answers.items()}
    assert read_flink(uploaded, NOW_S) == read_flink(answers, NOW_S)


def test_a_poll_asks_a_job_its_split_vertices_and_the_cpu_of_places() -> None:
    wide = [CHAIN[0], vertex("v2", "enrich", "v1", parallelism=2), CHAIN[2]]
    paths = poll_paths(read_flink(cluster(*wide), NOW_S)).paths
    cpu = "/taskmanagers/tm1/metrics?get=Status.JVM.CPU.Load,Status.JVM.CPU.Time"
    assert paths == (f"/jobs/{JOB}", f"/jobs/{JOB}/vertices/v2", cpu)


def test_names_of_metrics_are_chunked_below_the_longest_url_and_use_the_plural() -> None:
    names = [{"id": f"Source__orders[{i}].numRecordsOut"} for i in range(400)] + [{"id": "busyTimeMsPerSecond"}]
    asking = metric_paths(JOB, "v1", names, [".numRecordsOut"])
    assert asking.requests > 1 and max(map(len, asking.paths)) <= MAX_URL_BYTES < 4096
    assert sum(path.count("numRecordsOut") for path in asking.paths) == 400
    assert not any("subtask=" in path or "busyTime" in path for path in asking.paths)
    assert metric_paths(JOB, "v1", [], [".numRecordsOut"]).requests == 0


def test_metrics_are_read_as_numbers_or_texts_without_nan() -> None:
    answer = [{"id": "a", "value": "990"}, {"id": "b", "sum": 4.5, "max": 3}, {"id": "c", "value": "NaN"}, {"id": "d"}]
    assert read_metrics(answer) == {"a": 990.0, "b": 4.5}
    assert read_metrics({"errors": ["x"]}) == {}


def test_markers_tell_the_slowest_way_to_a_sink_in_seconds() -> None:
    way = "latency.source_id.v1.operator_id.v3.operator_subtask_index"
    rows = [(f"{way}.{i}.latency_{kind}", 10.0 * (i + 1)) for i in range(2) for kind in ("mean", "p98", "p99")]
    names = [{"id": name} for name, _ in [*rows, ("Sink.latency_p99", 0.0)]]
    (path,) = marker_paths(JOB, "v3", names)
    assert path.count("latency_mean") == path.count("latency_p99") == 2 and "p98" not in path and "Sink" not in path
    answers = {path: [{"id": name, "max": value, "sum": 900.0} for name, value in rows]}
    assert read_markers(answers, JOB) == MarkerLatency(mean_s=0.02, p99_s=0.02)
    assert read_markers(answers, "another") is None and marker_paths(JOB, "v3", {"errors": ["x"]}) == ()


def test_a_poll_has_seconds_and_no_busy_time_where_it_is_nan() -> None:
    counters = poll(0.0, *CHAIN, load=0.25, cpu_s=7.5)
    assert counters.at_s == NOW_S
    assert counters.vertices["v1"].busy_s is None and counters.vertices["v1"].clock_s is None
    assert counters.vertices["v2"].busy_s == 0.05 and counters.vertices["v2"].clock_s == pytest.approx(0.95)
    assert (counters.cpu_loads, counters.cpu_s) == ({"tm1": 0.25}, {"tm1": 7.5})


def test_a_busy_time_of_minus_one_is_missing_and_negative_records_are_none() -> None:
    counters = poll(0.0, vertex("v1", "a", read=-3, busy=-1, idle=0))
    assert counters.vertices["v1"].busy_s is None
    assert counters.vertices["v1"].records_in == 0.0


def test_a_vertex_that_has_ended_while_its_job_runs_is_not_busy() -> None:
    ended = vertex("v1", "Source: file", written=100, busy=90_000, idle=10) | {"status": "FINISHED"}
    assert poll(0.0, ended, *CHAIN[1:]).vertices["v1"].busy_s is None
    assert poll(0.0, ended, *CHAIN[1:]).vertices["v1"].records_out == 100.0


def test_counters_not_collected_from_all_subtasks_yet_are_missing() -> None:
    counters = poll(0.0, vertex("v1", "a", read=10, written=5, read_records_complete=False))
    assert counters.vertices["v1"].records_in is None
    assert counters.vertices["v1"].records_out == 5.0


def test_an_attempt_changes_with_a_restart_and_not_with_time() -> None:
    first, later = poll(0.0, *CHAIN), poll(60.0, *CHAIN)
    restarted = poll(60.0, vertex("v1", "Source: clicks[4] -> Calc[5]", start=2), *CHAIN[1:])
    assert first.attempt == later.attempt != restarted.attempt
    assert len(first.attempt) <= 64


def test_a_poll_survives_being_kept() -> None:
    counters = poll(0.0, *CHAIN, load=0.25, cpu_s=7.5)
    assert CounterPoll.parse(counters.to_dict() | {"of_tomorrow": 1}) == counters


def test_a_poll_of_a_job_that_is_gone_says_so() -> None:
    with pytest.raises(DocumentError, match="Job not found"):
        poll_flink({f"/jobs/{JOB}": {"errors": ["Job not found"]}}, JOB, 0.0)
    with pytest.raises(DocumentError, match="not asked"):
        poll_flink({}, JOB, 0.0)


def test_window_with_a_name_of_its_own_is_read_from_its_description() -> None:
    description = "Window(TumblingEventTimeWindows(5000), EventTimeTrigger, Summary)<br/>"
    chain = read_chain("count", description, has_inputs=True, has_readers=True)
    assert (chain.label, chain.kind) == ("count", "window")
    assert chain.window is not None
    assert (chain.window.size_s, chain.window.event_time) == (5.0, True)
