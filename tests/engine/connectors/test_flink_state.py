"""State of Flink jobs by checkpoints, and memory of TaskManagers for it."""

from __future__ import annotations

from typing import Any

import pytest

from engine.connectors.document import import_picture
from engine.connectors.flink import next_paths, read_flink
from engine.connectors.picture import EnginePicture
from tests.engine.connectors.flink_answers import JOB, cluster, taskmanager, vertex

NOW_S = 1_700_000_100.0
MB = 2**20
CHAIN = [vertex("v1", "Source: clicks"), vertex("v2", "Window(TumblingEventTimeWindows(5000))", ("v1", "HASH"))]
BASE = f"/jobs/{JOB}/checkpoints"


def answers(
    newest: dict[str, Any] | None,
    tasks: dict[str, Any] | None = None,
    backend: str = "HashMapStateBackend",
    **more: Any,
) -> dict[str, Any]:
    told: dict[str, Any] = {
        f"{BASE}/config": {"interval": 1000, "state_backend": backend},
        BASE: {"latest": {"completed": newest, "savepoint": None}},
    }
    if tasks is not None and newest is not None:
        told[f"{BASE}/details/{newest['id']}"] = {"id": newest["id"], "tasks": tasks}
    return cluster(*CHAIN) | told | more


def sizes(picture: EnginePicture) -> list[float | None]:
    return [vertex.state_bytes for vertex in picture.jobs[0].vertices]


def codes(picture: EnginePicture) -> list[str]:
    return [finding.code for finding in picture.findings if finding.code.startswith("state_")]


NEWEST = {"id": 7, "state_size": 3_000_000, "checkpointed_size": 1_000}
TASKS = {"v1": {"state_size": 0, "checkpointed_size": 0}, "v2": {"state_size": 3_000_000, "checkpointed_size": 1_000}}


def test_state_by_operator_is_the_full_size_of_the_newest_checkpoint() -> None:
    picture = read_flink(answers(NEWEST, TASKS), NOW_S)
    assert sizes(picture) == [0.0, 3_000_000.0]
    (finding,) = [finding for finding in picture.findings if finding.code == "state_measured"]
    assert "checkpoint 7" in str(finding.message)
    assert "full sizes" in str(finding.message)
    assert "on the heap" in str(finding.message)


def test_details_are_asked_for_once_the_newest_checkpoint_is_known() -> None:
    without = answers(NEWEST)
    assert f"{BASE}/details/7" in next_paths(without).paths
    assert not any("checkpoints" in path for path in next_paths(answers(None)).paths)
    assert BASE in next_paths({path: answer for path, answer in without.items() if path != BASE}).paths


@pytest.mark.parametrize(
    ("told", "code"),
    [
        (answers(None), "state_unknown"),
        (answers(NEWEST), "state_unknown"),
        (answers(NEWEST, {}), "state_unknown"),
        (answers(NEWEST) | {f"{BASE}/details/7": {"errors": ["Could not find checkpoint 7."]}}, "state_unknown"),
        (answers(NEWEST) | {BASE: {"errors": ["Checkpointing has not been enabled."]}}, "state_unknown"),
        (answers(NEWEST) | {BASE: "<html>"}, "state_unknown"),
        (answers(NEWEST) | {BASE: {"latest": {"completed": {"id": "x"}}}}, "state_unknown"),
    ],
)
def test_state_that_is_not_told_is_unknown_and_said_so(told: dict[str, Any], code: str) -> None:
    picture = read_flink(told, NOW_S)
    assert sizes(picture) == [None, None]
    assert codes(picture) == [code]


def test_size_of_an_incremental_checkpoint_is_not_taken_for_the_state() -> None:
    """Before `checkpointed_size` was told, `state_size` of RocksDB may be the increment alone."""
    old = {"id": 7, "state_size": 1_000}
    tasks = {"v1": {"state_size": 0}, "v2": {"state_size": 1_000}}
    picture = read_flink(answers(old, tasks, "RocksDBStateBackend"), NOW_S)
    assert sizes(picture) == [None, None]
    assert codes(picture) == ["state_incremental"]
    full = {"/jobmanager/config": [{"key": "state.backend.incremental", "value": "false"}]}
    assert sizes(read_flink(answers(old, tasks, "RocksDBStateBackend", **full), NOW_S)) == [0.0, 1_000.0]
    assert sizes(read_flink(answers(old, tasks, "HashMapStateBackend"), NOW_S)) == [0.0, 1_000.0]


@pytest.mark.parametrize(
    ("backend", "memory_bytes", "on_disk"),
    [
        ("HashMapStateBackend", 256 * MB, False),
        ("EmbeddedRocksDBStateBackend", 64 * MB, True),
        ("org.apache.flink.state.forst.ForStStateBackend", 64 * MB, True),
        ("com.example.OurBackend", 64 * MB, None),
    ],
)
def test_node_has_the_memory_that_its_state_backend_uses(
    backend: str, memory_bytes: float, on_disk: bool | None
) -> None:
    picture = read_flink(answers(NEWEST, TASKS, backend), NOW_S)
    pool = import_picture(picture, {})
    assert [node.memory_bytes for node in pool.nodes] == [memory_bytes]
    rows = pool.queries[0].body["operators"]
    assert [row.get("state_bytes") for row in rows] == [0.0, 3_000_000.0]
    assert [row.get("state_on_disk") for row in rows] == [on_disk, on_disk]


def test_managed_memory_of_nothing_is_not_what_state_may_take() -> None:
    row = taskmanager(totalResource={"cpuCores": 2.0, "taskHeapMemory": 512, "managedMemory": 0})
    told = answers(NEWEST, TASKS, "com.example.OurBackend") | {"/taskmanagers": {"taskmanagers": [row]}}
    assert import_picture(read_flink(told, NOW_S), {}).nodes[0].memory_bytes == 512 * MB


def test_memory_of_the_configuration_is_bytes_and_the_machines_is_no_memory_for_state() -> None:
    config = {"taskHeap": 268_435_456, "managedMemory": 67_108_864, "totalProcessMemory": 838_860_800}
    row = taskmanager(totalResource={}, memoryConfiguration=config)
    place = read_flink(answers(NEWEST) | {"/taskmanagers": {"taskmanagers": [row]}}, NOW_S).places[0]
    assert (place.memory_bytes, place.heap_bytes, place.managed_bytes) == (838_860_800, 256 * MB, 64 * MB)
    bare = taskmanager(totalResource={}, hardware={"cpuCores": 8, "physicalMemory": 17_179_869_184})
    picture = read_flink(answers(NEWEST) | {"/taskmanagers": {"taskmanagers": [bare]}}, NOW_S)
    pool = import_picture(picture, {})
    assert pool.nodes[0].memory_bytes is None
    assert "memory_unknown" in [finding.code for finding in pool.findings]


def joined(description: str = "[8]:Join(joinType=[InnerJoin], where=[(auction = id)])") -> dict[str, Any]:
    rows = [
        vertex("v1", "Source: bids[1]"),
        vertex("v2", "Source: auctions[2]"),
        vertex("v3", "Join[8] -> out[9]: Writer", ("v1", "HASH"), ("v2", "HASH"), description=description),
    ]
    return cluster(*rows)


def checkpoint(i: int, size: float, **fields: Any) -> dict[str, Any]:
    return {
        "id": i, "status": "COMPLETED", "trigger_timestamp": 1_700_000_000_000 + 10_000 * i, "state_size": size,
        "checkpointed_size": 1_000,
    } | fields  # fmt: skip


def unbounded(answers: dict[str, Any]) -> list[str]:
    findings = read_flink(answers, NOW_S).findings
    return [str(finding.message) for finding in findings if finding.code == "state_unbounded"]


def test_join_that_keeps_every_row_is_told_with_its_growth_an_hour() -> None:
    rows = [checkpoint(i, (10 + i) * MB) for i in range(10)]
    rows.insert(3, checkpoint(50, 900 * MB, status="FAILED"))
    rows.insert(3, {"id": 51, "status": "IN_PROGRESS"})
    history = {BASE: {"latest": {"completed": rows[-1]}, "history": rows[::-1]}}
    (message,) = unbounded(joined() | history)
    assert "out of orders keeps every row" in message and "10 checkpoints, over 90\u00a0s" in message
    assert "state of 19 MiB grows by 360 MiB an hour" in message.replace("\u00a0", " ")


@pytest.mark.parametrize(
    "rows",
    [[], [checkpoint(0, MB)], [{**checkpoint(i, i * MB), "checkpointed_size": None} for i in range(2)]],
    ids=["none", "one", "two"],
)
def test_growth_that_checkpoints_do_not_tell_is_said_to_be_unknown(rows: list[dict[str, Any]]) -> None:
    (message,) = unbounded(joined() | {BASE: {"latest": {}, "history": rows}})
    assert "by how much an hour" in message and "grows by" not in message


def test_rows_with_a_time_to_live_are_no_unbounded_state() -> None:
    kept = joined() | {"/jobmanager/config": [{"key": "table.exec.state.ttl", "value": "1 h"}]}
    hinted = joined("[8]:Join(joinType=[InnerJoin], stateTtlHint=[[[STATE_TTL options:{a=1d, b=4d}]]])")
    window = joined("[8]:WindowJoin(leftWindow=[TUMBLE(win_start=[w], size=[5 s])], joinType=[InnerJoin])")
    window[f"/jobs/{JOB}"]["vertices"][2]["name"] = "WindowJoin[8] -> out[9]: Writer"
    assert [unbounded(answers) for answers in (kept, hinted, window)] == [[], [], []]
