"""What a silent agent left behind counts in results until its own rows come, each exactly once."""

from __future__ import annotations

import time
from dataclasses import replace

import pyarrow as pa
import pytest

from agent.wire import Frame, FrameKind, table_of
from engine.dataflow.arrow import aggregate_kernel
from engine.dataflow.pipeline import Pipeline
from spark_jobs import checkpoints
from spark_jobs.state import Flow
from tests.spark.live.agents import SECOND, START_US, SmallAgent, expected
from tests.spark.live.world import World

QUERY = "here/pairs"


def two_agents(world: World, pipeline: Pipeline) -> list[SmallAgent]:
    world.at_hand_bytes = 2**26
    world.console.add(QUERY, pipeline, ["a0", "a1"], idle_after_s=1.0)
    return [SmallAgent(f"a{i}", QUERY, pipeline, holds=True) for i in range(2)]


def left_by(agent: SmallAgent, begin_us: int) -> int:
    """Records of a window in the last whole checkpoint that an agent sent."""
    last = max(frame.epoch for frame in agent.sent if frame.kind == FrameKind.CHECKPOINT)
    parts = [frame for frame in agent.sent if frame.kind == FrameKind.CHECKPOINT and frame.epoch == last]
    rows = pa.concat_tables([table_of(frame.body) for frame in parts]).to_pylist()
    return sum(row["_rows"] for row in rows if round(row["window_start"].timestamp() * SECOND) == begin_us)


def test_a_silent_agents_checkpoint_is_in_the_result_until_it_is_back(world: World, pairs: Pipeline) -> None:
    ours, silent = two_agents(world, pairs)
    world.send(ours.run(4, factor=0.7), silent.run(4, factor=0.7))
    world.drain()
    seen = list(silent.records)
    time.sleep(1.2)
    world.send(ours.run(2, factor=0.7))
    loop = world.drain()
    first = world.console.latest(QUERY)[START_US]
    assert loop.state.flows[QUERY, pairs.digest].excluded == ["a1"]
    assert first.extra["recovered"] == {"a1": left_by(silent, START_US)}
    assert (first.extra["complete"], first.extra["missing"], first.extra["revision"]) == (False, ["a1"], 0)
    # drained by proxies or left behind, all that it had sent by then is there
    assert silent.records == seen
    assert world.console.rows(QUERY) == expected(pairs, [ours, silent], START_US + 5 * SECOND) != []

    world.send(silent.run(3, factor=0.7))
    loop = world.drain()
    second = world.console.latest(QUERY)[START_US]
    assert (second.extra["complete"], second.extra["missing"], second.extra["revision"]) == (True, [], 1)
    assert "recovered" not in second.extra
    assert world.console.rows(QUERY) == expected(pairs, [ours, silent], START_US + 5 * SECOND)
    kept = loop.state.flows[QUERY, pairs.digest].checkpoints["a1"]
    assert {row["window_start"].timestamp() for row in kept.rows.to_pylist()} == {START_US / SECOND + 5}
    assert world.quarantined() == []


def test_late_records_of_another_agent_count_beside_what_was_left_behind(world: World, pairs: Pipeline) -> None:
    ours, silent = two_agents(world, pairs)
    world.send(ours.run(4, factor=1.0), silent.run(4, factor=1.0))
    world.drain()
    time.sleep(1.2)
    world.send(ours.run(2, factor=1.0))
    world.drain()
    late = SmallAgent("a2", QUERY, pairs)
    world.send(late.run(1, factor=0.0)[:-1])
    world.drain()
    again = world.console.latest(QUERY)[START_US]
    assert (again.extra["revision"], again.extra["recovered"]) == (1, {"a1": left_by(silent, START_US)})
    assert world.console.rows(QUERY) == expected(pairs, [ours, silent, late], START_US + 5 * SECOND)


def test_a_window_that_only_a_silent_agent_had_records_of_has_a_result(world: World, pairs: Pipeline) -> None:
    ours, silent = two_agents(world, pairs)
    world.send(ours.run(3, count=0, factor=1.0), silent.run(3, factor=1.0))
    world.drain()
    time.sleep(1.2)
    world.send(ours.run(3, count=0, factor=1.0))
    loop = world.drain()
    assert world.console.latest(QUERY)[START_US].extra["recovered"] == {"a1": left_by(silent, START_US)}
    assert world.console.rows(QUERY) == expected(pairs, [silent], START_US + 5 * SECOND) != []
    assert loop.state.flows[QUERY, pairs.digest].windows[START_US].records == 0


def test_half_a_checkpoint_takes_no_place_and_waits_for_the_rest(world: World, pairs: Pipeline) -> None:
    ours, silent = two_agents(world, pairs)
    world.send(ours.run(2, factor=1.0), silent.run(1, factor=1.0))
    frames = silent.run(1, factor=1.0)
    assert [frame.kind for frame in frames] == [FrameKind.CHECKPOINT, FrameKind.CHECKPOINT, FrameKind.MARK]
    world.send(frames[:1])
    flow = world.drain().state.flows[QUERY, pairs.digest]
    assert (flow.checkpoints["a1"].epoch, flow.arriving["a1"].epoch) == (START_US, START_US + SECOND)
    world.send(frames[1:])
    flow = world.drain().state.flows[QUERY, pairs.digest]
    assert (flow.checkpoints["a1"].epoch, flow.arriving) == (START_US + SECOND, {})
    assert sum(flow.checkpoints["a1"].rows["_rows"].to_pylist()) == left_by(silent, START_US)


def test_an_agent_that_ended_leaves_nothing_behind(world: World, pairs: Pipeline) -> None:
    ours, silent = two_agents(world, pairs)
    checkpoint = silent.run(2, factor=1.0)
    final = replace(checkpoint[-1], seq=silent.seq + 1, extra=checkpoint[-1].extra | {"final": True})
    world.send(ours.run(2, factor=1.0), [*checkpoint, final])
    flow = world.drain().state.flows[QUERY, pairs.digest]
    assert set(flow.checkpoints) == {"a0"}


def test_a_checkpoint_that_does_not_say_its_part_is_put_aside(world: World, pairs: Pipeline) -> None:
    ours, _ = two_agents(world, pairs)
    frames: list[Frame] = ours.run(1, factor=1.0)
    world.send([replace(frame, extra={}) if frame.kind == FrameKind.CHECKPOINT else frame for frame in frames])
    flow = world.drain().state.flows[QUERY, pairs.digest]
    assert (flow.checkpoints, flow.arriving) == ({}, {})
    assert [told.partition(": ")[2] for told in world.quarantined()] == [
        "a checkpoint's part is None of None; allowed: 1 to as many as there are"
    ] * 2


def rows_of(pipeline: Pipeline, begins_s: list[int]) -> pa.Table:
    schema = aggregate_kernel(pipeline).partial_schema
    empty = {field.name: None for field in schema}
    rows = [empty | {"window_start": START_US + begin * SECOND, "_rows": 1} for begin in begins_s]
    return pa.Table.from_pylist(rows, schema=schema)


def kept_of(pipeline: Pipeline, begins_s: list[int]) -> Flow:
    flow = Flow(QUERY, pipeline.digest)
    checkpoints.keep(flow, "a1", rows_of(pipeline, begins_s), 1, {"part": 1, "parts": 1}, 1)
    return flow


def begins_in(flow: Flow) -> list[int]:
    rows = flow.checkpoints["a1"].rows["window_start"].cast(pa.int64()).to_pylist()
    return [(begin - START_US) // SECOND for begin in rows]


def test_partial_rows_supersede_those_of_their_windows_only(pairs: Pipeline) -> None:
    flow = kept_of(pairs, [0, 5, 5, 10])
    checkpoints.supersede(flow, "a1", rows_of(pairs, [5, 15]), 2)
    assert (begins_in(flow), flow.checkpoints["a1"].step) == ([0, 10], 2)
    checkpoints.supersede(flow, "a1", rows_of(pairs, [15]), 3)
    assert flow.checkpoints["a1"].step == 2, "nothing changed, nothing is written again"
    checkpoints.supersede(flow, "a1", rows_of(pairs, [0, 10]), 4)
    assert flow.checkpoints == {}


@pytest.mark.parametrize(("passed_s", "left"), [(4, [0, 5, 10]), (5, [5, 10]), (12, [10])])
def test_what_is_too_old_to_be_issued_again_is_forgotten(pairs: Pipeline, passed_s: int, left: list[int]) -> None:
    flow = kept_of(pairs, [0, 5, 10])
    flow.passed_us = START_US + passed_s * SECOND
    checkpoints.drop_passed(flow, pairs, 2)
    assert begins_in(flow) == left


def test_an_empty_checkpoint_takes_the_place_of_the_one_before(pairs: Pipeline) -> None:
    flow = kept_of(pairs, [0])
    checkpoints.keep(flow, "a1", rows_of(pairs, []), 2, {"part": 1, "parts": 1}, 2)
    assert flow.checkpoints == {}
