"""A restarted query starts without state, whether the console or an agent is first to know."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.dataflow.pipeline import Pipeline
from spark_jobs.console import ConsoleClient
from spark_jobs.input.arrivals import Arrival
from spark_jobs.plans import Plans
from spark_jobs.state import FlowState, StreamState
from spark_jobs.step import restart_flows
from tests.spark.live.consoles import SmallConsole, small_console
from tests.spark.live.test_arrivals import numbered

QUERY = "here/pairs"


@pytest.fixture
def console() -> Any:
    with small_console() as listening:
        yield listening


def plans_of(console: SmallConsole, folder: Path) -> Plans:
    plans = Plans(folder, ConsoleClient(console.url, "a-token"))
    assert plans.refresh()
    return plans


def frame_of(pairs: Pipeline) -> list[Arrival]:
    return numbered(1, query=QUERY, plan=pairs.digest)


def test_frame_of_an_unknown_query_refreshes_the_plans(console: SmallConsole, pairs: Pipeline, tmp_path: Path) -> None:
    plans = plans_of(console, tmp_path)
    key = QUERY, pairs.digest
    state = StreamState(flows={key: FlowState(*key, watermark_us=9, passed_us=8, started_us=1)})
    restart_flows(state, plans, [])
    assert state.flows[key].passed_us == 8
    console.add(QUERY, pairs, ["a0"], started_us=2)
    restart_flows(state, plans, frame_of(pairs))
    assert state.flows[key] == FlowState(*key, started_us=2)


@pytest.mark.parametrize("before_us", [0, 2])
def test_run_continues_after_a_regular_restart(
    console: SmallConsole, pairs: Pipeline, tmp_path: Path, before_us: int
) -> None:
    """Also one of a state that does not know of runs yet."""
    console.add(QUERY, pairs, ["a0"], started_us=2)
    key = QUERY, pairs.digest
    state = StreamState(flows={key: FlowState(*key, watermark_us=9, passed_us=8, started_us=before_us)})
    restart_flows(state, plans_of(console, tmp_path), frame_of(pairs))
    assert state.flows[key] == FlowState(*key, watermark_us=9, passed_us=8, started_us=before_us)
