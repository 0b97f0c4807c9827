"""Reading of Spark's progress: its forms, its versions, and everything wrong with a file at once."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine.errors import DocumentError
from engine.microbatch.progress import read_progress
from engine.microbatch.progress_text import read_progress_text


def progress(batch: int = 0, rows: int = 100, **changed: Any) -> dict[str, Any]:
    return {
        "id": "q",
        "runId": "run",
        "name": None,
        "timestamp": f"2026-01-01T00:00:{batch:02}.000Z",
        "batchId": batch,
        "numInputRows": rows,
        "durationMs": {"addBatch": 51, "latestOffset": 2, "triggerExecution": 101},
        "stateOperators": [],
        "sources": [{"description": "KafkaV2", "metrics": {"avgOffsetsBehindLatest": "0.0"}}],
    } | changed


def faults(documents: list[Any]) -> dict[str, str]:
    with pytest.raises(DocumentError) as caught:
        read_progress(documents)
    return {fault.path: fault.message for fault in caught.value.faults}


def test_lines_arrays_and_event_logs_give_the_same_batches():
    one, two = progress(0), progress(1)
    lines = f"{json.dumps(one)}\n\n{json.dumps(two)}\n"
    event = {"Event": "org.apache.spark.sql.streaming.StreamingQueryListener$QueryProgressEvent", "progress": one}
    as_text = event | {"progress": json.dumps(two)}
    other = {"Event": "SparkListenerJobStart", "Job ID": 1}
    log = "\n".join(json.dumps(line) for line in (other, event, as_text))
    wanted = read_progress([one, two])
    assert read_progress(read_progress_text(lines).documents) == wanted
    assert read_progress(read_progress_text(json.dumps([one, two])).documents) == wanted
    assert read_progress(read_progress_text(log).documents) == wanted
    assert [batch.batch for batch in wanted.batches] == [0, 1]


def test_event_log_holds_rows_by_source_alone():
    document = progress(1, sources=[{"numInputRows": 700}, {"numInputRows": 30}])
    del document["numInputRows"]
    assert read_progress([document]).batches[0].rows == 730
    del document["sources"][1]["numInputRows"]
    with pytest.raises(DocumentError) as refused:
        read_progress([document])
    assert [fault.path for fault in refused.value.faults] == ["[0].sources[1].numInputRows"]
    document["sources"] = [None, "x"]
    with pytest.raises(DocumentError) as refused:
        read_progress([document])
    assert [fault.path for fault in refused.value.faults] == [f"[0].sources[{i}].numInputRows" for i in (0, 1)]


def test_durations_are_seconds_and_older_versions_have_batch_duration_alone():
    new, old = progress(0), progress(1, batchDuration=250) | {"durationMs": {"addBatch": 51}}
    batches = read_progress([new, old]).batches
    assert [batch.duration_s for batch in batches] == [0.101, 0.25]
    assert batches[0].parts_s == {"addBatch": 0.051, "latestOffset": 0.002}


def test_state_and_event_lag_are_read():
    state = {"operatorName": "stateStoreSave", "numRowsTotal": 6.9e8, "commitTimeMs": 30, "customMetrics": {}}
    document = progress(5, stateOperators=[state], eventTime={"max": "2026-01-01T00:00:02.000Z"})
    batch = read_progress([document]).batches[0]
    assert (batch.state[0].operator, batch.state[0].rows, batch.state[0].commit_ms) == ("stateStoreSave", 6.9e8, 30.0)
    assert batch.state[0].memory_bytes is None
    assert batch.event_lag_s == 3.0


def test_an_idle_query_repeats_its_batch_and_counts_once():
    idle = progress(1, rows=0) | {"durationMs": {"triggerExecution": 3}}
    reading = read_progress([progress(0), progress(1), idle, idle, progress(1)])
    assert [batch.batch for batch in reading.batches] == [0, 1]
    assert (reading.repeated, reading.idle) == (1, 2)


def test_few_damaged_objects_and_odd_figures_are_left_out_and_named():
    odd = progress(3, stateOperators=[{"operatorName": "x", "numRowsTotal": -1, "commitTimeMs": 5}])
    odd |= {"eventTime": {"max": "never"}}
    more = [progress(number) for number in range(4, 20)]
    reading = read_progress([progress(0), progress(1, runId=7), progress(2), odd, *more])
    assert [batch.batch for batch in reading.batches] == [0, 2, 3, *range(4, 20)]
    assert reading.batches[2].state[0].rows is None
    assert reading.batches[2].state[0].commit_ms == 5.0
    assert [fault.path for fault in reading.left_out] == [
        "[1].runId",
        "[3].stateOperators[0].numRowsTotal",
        "[3].eventTime.max",
    ]


@pytest.mark.parametrize("as_text", [False, True])
def test_offsets_are_the_same_as_objects_and_as_text(as_text: bool):
    offsets = {"orders": {"0": 5, "1": 7}}
    source = {"description": "KafkaV2[Subscribe[orders]]", "latestOffset": json.dumps(offsets) if as_text else offsets}
    batch = read_progress([progress(0, sources=[source])]).batches[0]
    assert batch.sources[0].latest == {"orders/0": 5.0, "orders/1": 7.0}


def test_latest_offsets_that_a_platform_leaves_out_are_the_ends_and_what_is_behind():
    source = {"description": "KafkaV2[Subscribe[orders]]", "latestOffset": None}
    source |= {"endOffset": '{"orders": {"0": 5, "1": 7}}', "metrics": {"avgOffsetsBehindLatest": "10.5"}}
    batch = read_progress([progress(0, sources=[source])]).batches[0]
    assert sum((batch.sources[0].latest or {}).values()) == 33.0


def test_every_fault_of_every_object_is_named():
    found = faults(
        [
            progress(0, numInputRows="many", batchId=1.5),
            {"runId": "run"},
            7,
            progress(1, timestamp="yesterday", durationMs={"triggerExecution": -1}),
            progress(2, stateOperators=[{"numRowsTotal": "x"}]),
        ]
    )
    assert found["[0].numInputRows"] == "numInputRows is 'many'; allowed: a whole number from 0 to 1e+15"
    assert found["[0].batchId"] == "batchId is 1.5; allowed: a whole number from 0 to 1e+15"
    assert {"[1].batchId", "[1].numInputRows", "[1].timestamp", "[1].durationMs.triggerExecution"} <= set(found)
    assert found["[2]"] == "[2] is 7; allowed: a progress object"
    assert {"[3].timestamp", "[3].durationMs.triggerExecution", "[4].stateOperators[0].numRowsTotal"} <= set(found)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), True, -1, "12"])
def test_rows_that_are_no_count_are_refused(bad: Any):
    assert list(faults([progress(0, numInputRows=bad)])) == ["[0].numInputRows"]


def test_a_rate_that_spark_could_not_compute_is_left_out():
    assert read_progress([progress(0, inputRowsPerSecond=float("nan"))]).batches[0].rows_per_s is None


def test_a_query_that_never_ran_has_no_micro_batch():
    assert "must have run" in faults([])[""]
    with pytest.raises(DocumentError, match="no progress in it"):
        read_progress_text('{"Event": "SparkListenerApplicationStart"}')


def test_a_file_of_another_kind_has_its_lines_named_but_not_all():
    with pytest.raises(DocumentError) as caught:
        read_progress_text("\n".join("not json" for _ in range(100)))
    assert caught.value.faults[0].path == "line 1"
    assert len(caught.value.faults) == 21
    assert caught.value.faults[-1].message == "and 80 more faults of the same file"
