"""State variables hold all that a step needs, in typed columns that a later release reads."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from spark_jobs.input.arrivals import Arrival
from spark_jobs.state import AgentCheckpoint, AgentMarks, FlowState, FlowWindow, JoinWindow, SideRows, StoredTable
from spark_jobs.variables import FlowVariables, GenerationsVariables
from tests.spark.live.variables import MemoryHandle

ROWS = pa.table({"window_start": pa.array([10, 20], pa.timestamp("us", "UTC")), "n": [1, 2]})


def flow_with(step: int) -> FlowState:
    flow = FlowState("here/q", "p1", watermark_us=3, passed_us=1, late=4, early=2, started_us=7, step=step, now_ms=5)
    flow.agents["a"] = AgentMarks(1, 2, 3, False, ["b"], [(3, 2), (9, 8)])
    flow.lost, flow.whole_from = ["c"], {"d": 12}
    for begin in (10, 20):
        flow.windows[begin] = FlowWindow(StoredTable.of(pa.table({"n": [begin]})), step, 1, 0, ["a"])
    flow.checkpoints["a"] = AgentCheckpoint.of(ROWS, step, 7, 2)
    flow.arriving["b"] = AgentCheckpoint.of(ROWS.slice(1), step, 8)
    flow.sides[10] = JoinWindow([SideRows.of(ROWS, step)], [SideRows.of(ROWS.slice(0, 1), step)])
    flow.work = [(1, 2, 3, 4, 5, 6)]
    return flow


def facts(flow: FlowState) -> dict[str, Any]:
    """Everything of a flow, with the rows of its tables."""
    plain = {name: value for name, value in vars(flow).items() if name not in ("windows", "sides")}
    for name in ("checkpoints", "arriving"):
        plain[name] = {
            agent: (c.rows.to_pylist(), c.step, c.epoch, c.parts, c.begins) for agent, c in plain[name].items()
        }
    plain["windows"] = {
        b: (w.partial.to_pylist(), w.step, w.records, w.revision, w.missing) for b, w in flow.windows.items()
    }
    plain["sides"] = {
        b: [[(p.rows.to_pylist(), p.step) for p in parts] for parts in (s.records, s.others)]
        for b, s in flow.sides.items()
    }
    return plain


def test_a_flow_comes_back_as_it_was() -> None:
    variables, made = FlowVariables(MemoryHandle()), flow_with(3)
    assert variables.load("here/q", "p1") is None
    variables.save(made)
    variables.set_work(made)
    found = variables.load("here/q", "p1")
    assert found is not None and facts(found) == facts(made)
    variables.clear()
    assert variables.load("here/q", "p1") is None


def test_only_what_a_step_changed_is_written_and_what_went_is_removed() -> None:
    handle = MemoryHandle()
    variables = FlowVariables(handle)
    variables.load("here/q", "p1")
    variables.save(flow_with(3))
    written = handle.getMapState("windows", "", "")
    before = dict(written)
    flow = variables.load("here/q", "p1")
    assert flow is not None
    flow.step = 4
    flow.windows[20].stored, flow.windows[20].step = StoredTable.of(pa.table({"n": [7]})), 4
    del flow.sides[10], flow.checkpoints["a"]
    variables.save(flow)
    assert written[10,] is before[10,] and written[20,] != before[20,]
    assert dict(handle.getMapState("sides", "", "")) == {}
    assert list(handle.getMapState("checkpoints", "", "")) == [("b", True)]
    again = variables.load("here/q", "p1")
    assert again is not None and again.windows[20].partial["n"].to_pylist() == [7]


def test_windows_are_read_when_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    handle = MemoryHandle()
    variables = FlowVariables(handle)
    variables.load("here/q", "p1")
    variables.save(flow_with(1))
    windows = handle.getMapState("windows", "", "")
    read: list[Any] = []
    monkeypatch.setattr(type(windows), "getValue", lambda self, key: read.append(key) or self[key])
    flow = FlowVariables(handle).load("here/q", "p1")
    assert flow is not None and read == []
    assert flow.windows[10].partial.num_rows == flow.windows[10].partial.num_rows == 1
    assert read == [(10,)]


def test_frames_that_wait_and_positions_come_back_as_they_were() -> None:
    variables = GenerationsVariables(MemoryHandle())
    waiting = [Arrival("0/1-0", "a", "l", 9, "mark", "here/q", "p1", 0, 0, "{}", b"x", 1, 1, True)]
    assert (variables.waiting(), variables.positions(), variables.heard()) == ([], {}, {})
    variables.set_waiting(waiting, before=False)
    variables.set_positions({("a", "l"): 7})
    variables.set_heard({("here/q", "p1"): 5})
    assert variables.waiting() == waiting
    assert (variables.positions(), variables.heard()) == ({("a", "l"): 7}, {("here/q", "p1"): 5})
    variables.set_waiting([], before=True)
    assert variables.waiting() == []
