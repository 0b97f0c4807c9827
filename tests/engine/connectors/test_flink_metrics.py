"""Metrics of vertices: events that wait before sources, by Flink and by the offsets of Spark's progress."""

from __future__ import annotations

from typing import Any

import pytest

from engine.connectors.flink_metrics import pending_paths, read_pending
from engine.microbatch.progress import read_progress

METRICS = "/jobs/j/vertices/v/subtasks/metrics"


def progress(**source: Any) -> dict[str, Any]:
    return {
        "id": "q",
        "runId": "r",
        "timestamp": "2026-03-01T12:00:00.000Z",
        "batchId": 3,
        "numInputRows": 10,
        "durationMs": {"triggerExecution": 500},
        "sources": [{"description": "KafkaV2[Subscribe[clicks]]", "numInputRows": 10, **source}],
    }


def waiting(**source: Any) -> float | None:
    return read_progress([progress(**source)]).batches[0].sources[0].waiting


def test_pending_records_are_asked_by_their_names_and_summed_over_subtasks() -> None:
    names = [{"id": "Source__clicks.pendingRecords"}, {"id": "Source__taps.pendingRecords"}, {"id": "numRecordsIn"}]
    (path,) = pending_paths("j", "v", names)
    answer = [
        {"id": "Source__clicks.pendingRecords", "sum": 1200.0, "max": 700.0},
        {"id": "Source__taps.pendingRecords", "sum": 30, "max": 30},
    ]
    assert read_pending({METRICS: names, path: answer}, "j") == {"v": 1230.0}
    assert read_pending({path: answer}, "another") == {}


@pytest.mark.parametrize("value", [-1, "NaN", None, "many", True])
def test_pending_records_that_are_not_known_are_left_out(value: Any) -> None:
    path = f"{METRICS}?agg=sum,max&get=Source__clicks.pendingRecords"
    assert read_pending({path: [{"id": "Source__clicks.pendingRecords", "sum": value}]}, "j") == {}


def test_source_without_pending_records_asks_nothing() -> None:
    assert pending_paths("j", "v", [{"id": "numRecordsIn"}]) == ()
    assert pending_paths("j", "v", {"errors": ["gone"]}) == ()


def test_events_beyond_the_batch_are_newest_less_end_offsets() -> None:
    ends, latest = {"clicks": {"0": 100, "1": 50}}, {"clicks": {"0": 400, "1": 60}}
    assert waiting(endOffset=ends, latestOffset=latest) == 310.0
    assert waiting(endOffset=latest, latestOffset=latest) == 0.0


def test_lag_of_partitions_stands_in_where_newest_offsets_are_not_told() -> None:
    ends = {"clicks": {"0": 100, "1": 50, "2": 1}}
    told = {"avgOffsetsBehindLatest": "2.0E2", "maxOffsetsBehindLatest": "500"}
    assert waiting(endOffset=ends, metrics=told) == 600.0
    assert waiting(metrics=told) == 500.0
    assert waiting() is None
