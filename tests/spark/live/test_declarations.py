"""State variables are declared when they are first used, as Spark's client asks for it."""

from __future__ import annotations

from typing import Any

from pyspark.sql.streaming.stateful_processor_api_client import StatefulProcessorHandleState as HandleState

from spark_jobs.declarations import DeclaringHandle
from spark_jobs.variables import FlowVariables, StatisticsVariables


class Client:
    def __init__(self, state: HandleState) -> None:
        self.handle_state = state

    def set_handle_state(self, state: HandleState) -> None:
        self.handle_state = state


class Handle:
    """As Spark's: it takes declarations in two of its states alone."""

    def __init__(self, state: HandleState) -> None:
        self._statefulProcessorApiClient = Client(state)
        self.declared: dict[str, str] = {}

    def getValueState(self, name: str, schema: Any) -> Any:
        return self._variable(name, schema)

    def getListState(self, name: str, schema: Any) -> Any:
        return self._variable(name, schema)

    def getMapState(self, name: str, key: Any, value: Any) -> Any:
        return self._variable(name, key)

    def _variable(self, name: str, schema: Any) -> Any:
        assert self._statefulProcessorApiClient.handle_state in (HandleState.PRE_INIT, HandleState.CREATED)
        self.declared[name] = schema.simpleString()
        return self

    def get(self) -> None:
        return None


def test_task_declares_the_variables_that_it_uses() -> None:
    handle = Handle(HandleState.CREATED)
    flows, statistics = FlowVariables(DeclaringHandle(handle)), StatisticsVariables(DeclaringHandle(handle))
    handle._statefulProcessorApiClient.handle_state = HandleState.INITIALIZED
    assert handle.declared == {}
    assert flows.load("here/q", "p") is None
    assert list(handle.declared) == ["flow"]
    state, waiting = statistics.load_clock()
    assert (state.step, waiting) == (0, {"counters": 0, "sweeps": 0})
    assert list(handle.declared) == ["flow", "clock"]
    assert handle.declared["flow"].startswith("struct<format:int,step:bigint,started_us:bigint")
    assert handle._statefulProcessorApiClient.handle_state == HandleState.INITIALIZED


def test_driver_declares_all_variables() -> None:
    handle = Handle(HandleState.PRE_INIT)
    FlowVariables(DeclaringHandle(handle))
    StatisticsVariables(DeclaringHandle(handle))
    assert {"flow", "windows", "checkpoints", "sides", "work", "work_sums", "clock", "counters", "swept_sent"} <= set(
        handle.declared
    )
