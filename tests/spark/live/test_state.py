"""States are complete or absent, and hold all that a step needs; Spark's checkpoint follows them."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pyarrow as pa
import pytest

from spark_jobs.driver import settle_state
from spark_jobs.input.arrivals import Arrival
from spark_jobs.state import AgentCheckpoint, AgentMarks, FlowState, FlowWindow, StreamState
from spark_jobs.statistics.subintervals import EPOCHS
from spark_jobs.store import StateStore


def state_with(windows: dict[int, int], step: int = 1, batch: int = 0) -> StreamState:
    """A state whose windows were changed by the steps named."""
    made = {begin: FlowWindow(pa.table({"n": [begin]}), at, 1, 0, ["a"]) for begin, at in windows.items()}
    marks = AgentMarks(1, 2, 3, False, [], [(3, 2)])
    flow = FlowState("here/q", "p1", {"a": marks}, made, 3, 1, 4, False, ["a"], [])
    waiting = [Arrival("0/1-0", "a", "l", 9, "mark", "here/q", "p1", 0, 0, "{}", b"x", 1, 1)]
    positions = {("a", "l"): 7}
    return StreamState(step, 0, batch, 5, positions, {("here/q", "p1"): flow}, waiting, counts={"gaps": 1})


def test_a_state_comes_back_as_it_was(tmp_path: Path) -> None:
    made = state_with({10: 1, 20: 1})
    StateStore(tmp_path).save(made)
    assert StateStore(tmp_path).load() == made


def test_checkpoints_of_agents_lie_in_the_file_of_the_step_that_changed_them(tmp_path: Path) -> None:
    store = StateStore(tmp_path)
    for step in range(1, 7):
        made = state_with({10: step}, step, step)
        flow = made.flows["here/q", "p1"]
        flow.checkpoints["a"] = AgentCheckpoint(pa.table({"n": [1, 2]}), 1, 7, 2)
        flow.arriving["b"] = AgentCheckpoint(pa.table({"n": [3]}), min(step, 2), 8)
        store.save(made)
    assert sorted(int(path.stem) for path in tmp_path.glob("*.state")) == [1, 2, 4, 5, 6]
    assert StateStore(tmp_path).load() == made


def test_counters_of_before_queues_are_read(tmp_path: Path) -> None:
    made = state_with({10: 1})
    older = pa.schema([column for column in EPOCHS if column.name != "records_queued"])
    row = {column.name: "x" if column.type == pa.string() else column.type == pa.bool_() or 7 for column in older}
    made.counters = pa.Table.from_pylist([row], schema=older)
    StateStore(tmp_path).save(made)
    loaded = StateStore(tmp_path).load()
    assert loaded is not None and loaded.counters is not None
    assert loaded.counters.to_pylist() == [row | {"records_queued": 0}]
    assert loaded.counters.schema.equals(EPOCHS)


def test_a_state_of_before_checkpoints_and_learning_is_read(tmp_path: Path) -> None:
    made = state_with({10: 1})
    StateStore(tmp_path).save(made)
    (path,) = tmp_path.glob("*.state")
    with zipfile.ZipFile(path) as file:
        parts = {name: file.read(name) for name in file.namelist()}
    facts = json.loads(parts.pop("facts.json"))
    for flow in facts["flows"]:
        del flow["checkpoints"], flow["arriving"]
    assert "learned" not in facts and "swept" not in facts
    with zipfile.ZipFile(path, "w") as file:
        for name, data in parts.items():
            file.writestr(name, data)
        file.writestr("facts.json", json.dumps(facts))
    assert StateStore(tmp_path).load() == made


def test_only_changed_windows_are_written_and_files_stay_while_they_are_needed(tmp_path: Path) -> None:
    store = StateStore(tmp_path)
    store.save(state_with({10: 1, 20: 1}))
    for step in range(2, 9):
        store.save(state_with({10: 1, 20: step}, step, step))
    assert sorted(int(path.stem) for path in tmp_path.glob("*.state")) == [1, 6, 7, 8]
    loaded = StateStore(tmp_path).load()
    assert loaded == state_with({10: 1, 20: 8}, 8, 8)
    again = StateStore(tmp_path)
    again.load()
    again.save(state_with({20: 9}, 9, 9))
    assert sorted(int(path.stem) for path in tmp_path.glob("*.state")) == [1, 7, 8, 9]


@pytest.mark.parametrize("damage", ["cut", "garbage", "flipped", "gone"])
def test_a_damaged_state_gives_way_to_the_one_before(tmp_path: Path, damage: str) -> None:
    store = StateStore(tmp_path)
    store.save(state_with({10: 1}))
    store.save(state_with({10: 2}, 2, 1))
    newest = tmp_path / "000000000002.state"
    data = bytearray(newest.read_bytes())
    data[60] ^= 255
    whole = {"cut": data[:200], "garbage": b"garbage", "flipped": bytes(data)}
    if damage == "gone":
        newest.unlink()
    else:
        newest.write_bytes(whole[damage])
    assert StateStore(tmp_path).load() == state_with({10: 1})


def test_missing_state_starts_from_nothing(tmp_path: Path) -> None:
    assert settle_state(StateStore(tmp_path / "states"), tmp_path) == StreamState()


@pytest.mark.parametrize(("commits", "run"), [([0, 1], 0), ([0], 0), ([], 0), ([0, 1, 2], 1), (None, 1)])
def test_checkpoint_of_spark_ahead_of_the_state_is_replaced(
    tmp_path: Path, commits: list[int] | None, run: int
) -> None:
    """Frames have numbers: reading those again that Redis still holds counts none twice."""
    store = StateStore(tmp_path / "states")
    store.save(state_with({10: 1}, 1, 1))
    if commits is not None:
        (tmp_path / "checkpoint-0" / "commits").mkdir(parents=True)
        for number in commits:
            (tmp_path / "checkpoint-0" / "commits" / str(number)).touch()
    found = settle_state(StateStore(tmp_path / "states"), tmp_path)
    assert (found.run, found.batch) == ((run, -1) if run else (0, 1))
    assert (tmp_path / "checkpoint-0").is_dir() == (run == 0)
