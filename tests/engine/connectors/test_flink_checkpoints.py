"""Checkpoints of Flink jobs as a term of latency: pauses of operators, and results that wait to be committed."""

from __future__ import annotations

from typing import Any

import pytest

from engine.connectors.document import import_picture
from engine.connectors.flink import next_paths, read_flink
from engine.connectors.flink_checkpoints import is_checkpoint_path
from engine.connectors.picture import EnginePicture
from tests.engine.connectors.flink_answers import JOB, cluster, vertex

NOW_S = 1_700_000_100.0
BEGUN_MS = 1_699_999_000_000
BASE = f"/jobs/{JOB}/checkpoints"
SINK = "out[7]: Writer -> out[7]: Committer"
CHAIN = [
    vertex("v1", "Source: clicks", start=BEGUN_MS),
    vertex("v2", "count", ("v1", "HASH"), start=BEGUN_MS),
    vertex("v3", SINK, ("v2", "FORWARD"), start=BEGUN_MS),
]
NAMES = f"/jobs/{JOB}/vertices/v3/subtasks/metrics"
COUNTED = ("out__Committer.successfulCommittables", "out__Writer.numRecordsIn")


def spread(least: float, mean: float, most: float) -> dict[str, float]:
    return {"min": least, "avg": mean, "max": most}


def checkpoint(number: int, lasting_ms: float = 400, apart_ms: float = 10_000, **fields: Any) -> dict[str, Any]:
    begun = BEGUN_MS + 600_000 + number * apart_ms
    row = {"id": number, "status": "COMPLETED", "trigger_timestamp": begun, "end_to_end_duration": lasting_ms}
    return row | {"is_savepoint": False} | fields


def subtasks(sync: tuple[float, float, float], aligning_ms: float = 0.0, *, unaligned: bool = False) -> dict[str, Any]:
    summary = {"checkpoint_duration": {"sync": spread(*sync), "async": spread(1, 2, 900)}}
    summary["alignment"] = {"duration": spread(0, aligning_ms / 2, aligning_ms)}
    return {"summary": summary, "subtasks": [{"index": 0, "unaligned_checkpoint": unaligned}]}


def answers(*rows: dict[str, Any], counted: Any = None, **more: Any) -> dict[str, Any]:
    told: dict[str, Any] = {f"{BASE}/config": {"interval": 10_000, "mode": "exactly_once"}, BASE: {"history": [*rows]}}
    if counted is not None:
        told[NAMES] = [{"id": name} for name in COUNTED]
        asked = next(path for path in next_paths(cluster(*CHAIN) | told).paths if "Committ" in path)
        told[asked] = [{"id": name, "sum": value} for name, value in zip(COUNTED, counted, strict=True)]
    return cluster(*CHAIN) | told | more


def told_of(picture: EnginePicture, code: str) -> list[str]:
    return [str(finding.message) for finding in picture.findings if finding.code == code]


def checkpoints(picture: EnginePicture) -> list[Any]:
    return [row.get("checkpoint") for row in import_picture(picture, {}).queries[0].body["operators"]]


ROWS = [checkpoint(number) for number in range(40, 43)]


def test_pauses_are_the_synchronous_part_and_the_alignment_of_the_newest_checkpoints() -> None:
    parts = {f"{BASE}/details/{n}/subtasks/v2": subtasks((10 * n, 20 * n, 30 * n), 100) for n in (41, 42)}
    still = {f"{BASE}/details/{n}/subtasks/v1": subtasks((0, 0, 0)) for n in (41, 42)}
    picture = read_flink(answers(*ROWS, counted=(0, 9), **parts, **still), NOW_S)
    assert checkpoints(picture) == [None, {"interval_s": 10.0, "pause_s": [0.41, 0.88, 1.36]}, None]
    assert "stops count for 0.88\u00a0s on average and 1.4\u00a0s at most" in told_of(picture, "checkpoints_pause")[0]


@pytest.mark.parametrize("part", [{"unaligned": True}, {"aligning_ms": 0.0}])
def test_unaligned_checkpoints_hold_no_channel_up(part: dict[str, Any]) -> None:
    told = {"aligning_ms": 5_000.0} | part
    picture = read_flink(answers(*ROWS, **{f"{BASE}/details/42/subtasks/v2": subtasks((10, 20, 30), **told)}), NOW_S)
    assert checkpoints(picture)[1] == {"interval_s": 10.0, "pause_s": [0.01, 0.02, 0.03]}


def test_newest_checkpoints_are_asked_about_by_vertex_and_again_as_they_move() -> None:
    asked = [path for path in next_paths(answers(*ROWS)).paths if "/subtasks/v" in path]
    assert asked == [f"{BASE}/details/{n}/subtasks/v{v}" for n in (40, 41, 42) for v in (1, 2, 3)]
    assert all(is_checkpoint_path(path) for path in asked)
    short = [checkpoint(number, 3) for number in range(40, 43)]
    assert not [path for path in next_paths(answers(*short)).paths if "/subtasks/v" in path]


def test_results_of_a_committer_wait_for_the_next_checkpoint_until_that_is_complete() -> None:
    late = checkpoint(43, 900, trigger_timestamp=ROWS[-1]["trigger_timestamp"] + 25_000)
    picture = read_flink(answers(*ROWS, late, counted=(12, 3_000)), NOW_S)
    assert checkpoints(picture)[2] == {"interval_s": 10.0, "commits": True, "duration_s": [0.4, 0.525, 15.9]}
    assert told_of(picture, "results_commit") == [
        "Results of out are committed at checkpoints: each waits for the next one to be complete."
    ]


def test_sink_that_committed_nothing_while_it_wrote_lets_its_results_go() -> None:
    picture = read_flink(answers(*ROWS, counted=(0, 3_000)), NOW_S)
    assert checkpoints(picture)[2] is None
    assert "committed nothing over 3 checkpoints" in told_of(picture, "results_uncommitted")[0]


@pytest.mark.parametrize(
    ("rows", "counted"),
    [(ROWS, None), (ROWS, (0, 0)), (ROWS[:2], (0, 3_000)), ([checkpoint(-59 + n) for n in range(3)], (0, 3_000))],
    ids=["no count", "no result", "two checkpoints", "a minute"],
)
def test_results_wait_as_long_as_it_is_open_whether_they_are_committed(
    rows: list[dict[str, Any]], counted: tuple[float, float] | None
) -> None:
    picture = read_flink(answers(*rows, counted=counted), NOW_S)
    assert checkpoints(picture)[2]["commits"] is True
    (finding,) = [finding for finding in picture.findings if finding.code == "results_commit"]
    assert finding.level == "assumed" and "at least once" in str(finding.message)


def test_checkpoint_that_is_not_complete_yet_leaves_the_wait_unknown() -> None:
    picture = read_flink(answers(checkpoint(1, status="IN_PROGRESS"), checkpoint(2, is_savepoint=True)), NOW_S)
    assert told_of(picture, "checkpoints_unmeasured")
    rows = import_picture(picture, {}).queries[0].body["operators"]
    assert [row.get("unread") for row in rows][2] == ["its results wait for a checkpoint, and none is complete yet"]
    assert picture.jobs[0].shape == read_flink(answers(*ROWS), NOW_S).jobs[0].shape  # no version of its own


@pytest.mark.parametrize(
    "config", [{"interval": 2**63 - 1}, {"errors": ["Checkpointing is not enabled for this job."]}]
)
def test_job_without_checkpoints_has_none_and_a_committer_without_them_is_said(config: dict[str, Any]) -> None:
    picture = read_flink(answers(*ROWS, **{f"{BASE}/config": config}), NOW_S)
    assert checkpoints(picture) == [None, None, None]
    assert "exactly once are never seen" in told_of(picture, "results_uncommitted")[0]


@pytest.mark.parametrize(
    "broken",
    [
        {BASE: {"history": "x", "summary": [1]}},
        {BASE: {"history": [7, {"id": "NaN"}, {"id": 3, "end_to_end_duration": -5, "trigger_timestamp": -1}]}},
        {BASE: "<html>"},
        {f"{BASE}/details/42/subtasks/v2": {"summary": {"checkpoint_duration": {"sync": {"min": -1, "avg": "x"}}}}},
        {f"{BASE}/details/42/subtasks/v2": [1]},
    ],
)
def test_answers_that_tell_nothing_of_checkpoints_make_no_pause(broken: dict[str, Any]) -> None:
    picture = read_flink(answers(*ROWS, **broken), NOW_S)
    assert checkpoints(picture)[:2] == [None, None]


def test_files_that_are_rolled_wait_for_more_than_a_checkpoint_and_for_a_person() -> None:
    writer = vertex("v3", "Calc[2] -> StreamingFileWriter", ("v2", "FORWARD"), start=BEGUN_MS)
    told = answers(*ROWS) | cluster(*CHAIN[:2], writer)
    rows = import_picture(read_flink(told, NOW_S), {}).queries[0].body["operators"]
    assert rows[2]["checkpoint"]["commits"] is True
    assert any("closed by size or age" in part for part in rows[2]["unread"])
