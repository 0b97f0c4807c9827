"""Checkpoints of silent agents count in results until their own rows come, each row exactly once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from agent.runtime import Runtime, Spool
from agent.wire import Frame, FrameKind, decode_frames, table_of
from engine.dataflow.arrow.kernels import aggregate_kernel, whole
from engine.dataflow.pipeline import Pipeline
from spark_jobs import state
from spark_jobs.state import FlowState
from tests.agent.runtime.doubles import TableSource
from tests.agent.runtime.epochs import PIPELINE, config, runtime_of
from tests.agent.runtime.epochs import QUERY as PROBES
from tests.agent.runtime.pipelines import probe_records
from tests.spark.live.agents import SECOND, START_US, SmallAgent, expected
from tests.spark.live.rows import in_order
from tests.spark.live.world import World

QUERY = "here/pairs"


def two_agents(world: World, pipeline: Pipeline) -> list[SmallAgent]:
    world.console.add(QUERY, pipeline, ["a0", "a1"], idle_after_s=0.2)
    return [SmallAgent(f"a{i}", QUERY, pipeline, holds=True) for i in range(2)]


def outlast_silence(world: World, agent: SmallAgent, **drawn: Any) -> None:
    """Two epochs, with which the other agent is silent: the first one after a pause of both makes nobody so."""
    for _ in range(2):
        time.sleep(0.3)
        world.send(agent.run(1, **drawn))


def left_by(agent: SmallAgent, begin_us: int) -> int:
    """Records of a window in the last whole checkpoint that an agent sent."""
    last = max(frame.epoch for frame in agent.sent if frame.kind == FrameKind.CHECKPOINT)
    parts = [frame for frame in agent.sent if frame.kind == FrameKind.CHECKPOINT and frame.epoch == last]
    rows = pa.concat_tables([table_of(frame.body) for frame in parts]).to_pylist()
    return sum(row["_rows"] for row in rows if round(row["window_start"].timestamp() * SECOND) == begin_us)


@pytest.mark.parametrize("shards", [1, 3])
def test_a_silent_agents_checkpoint_is_in_the_result_until_it_is_back(
    world: World, pairs: Pipeline, shards: int
) -> None:
    world.shards = shards
    ours, silent = two_agents(world, pairs)
    world.send(ours.run(4, factor=0.7), silent.run(4, factor=0.7))
    world.process()
    seen = list(silent.records)
    outlast_silence(world, ours, factor=0.7)
    sink = world.process()
    first = world.console.latest(QUERY)[START_US]
    assert sink.facts.flows[QUERY, pairs.digest]["excluded"] == ["a1"]
    assert first.extra["recovered"] == {"a1": left_by(silent, START_US)}
    assert (first.extra["complete"], first.extra["missing"], first.extra["revision"]) == (False, ["a1"], 0)
    # drained by proxies or left behind, all that it had sent by then is there
    assert silent.records == seen
    assert world.console.rows(QUERY) == expected(pairs, [ours, silent], START_US + 5 * SECOND) != []

    world.send(silent.run(3, factor=0.7))
    world.process()
    second = world.console.latest(QUERY)[START_US]
    assert (second.extra["complete"], second.extra["missing"], second.extra["revision"]) == (True, [], 1)
    assert "recovered" not in second.extra
    assert world.console.rows(QUERY) == expected(pairs, [ours, silent], START_US + 5 * SECOND)
    kept = [world.flow(QUERY, pairs.digest, shard).checkpoints.get("a1") for shard in range(shards)]
    begins = {row["window_start"].timestamp() for part in kept if part for row in part.rows.to_pylist()}
    assert begins == {START_US / SECOND + 5}
    assert world.quarantined() == []


def test_late_records_of_another_agent_count_beside_what_was_left_behind(world: World, pairs: Pipeline) -> None:
    ours, silent = two_agents(world, pairs)
    world.send(ours.run(4, factor=1.0), silent.run(4, factor=1.0))
    world.process()
    outlast_silence(world, ours, factor=1.0)
    world.process()
    late = SmallAgent("a2", QUERY, pairs)
    world.send(late.run(1, factor=0.0)[:-1])
    world.process()
    again = world.console.latest(QUERY)[START_US]
    assert (again.extra["revision"], again.extra["recovered"]) == (1, {"a1": left_by(silent, START_US)})
    assert world.console.rows(QUERY) == expected(pairs, [ours, silent, late], START_US + 5 * SECOND)


def test_a_window_that_only_a_silent_agent_had_records_of_has_a_result(world: World, pairs: Pipeline) -> None:
    ours, silent = two_agents(world, pairs)
    world.send(ours.run(4, count=0, factor=1.0), silent.run(4, factor=1.0))
    world.process()
    outlast_silence(world, ours, count=0, factor=1.0)
    world.process()
    assert world.console.latest(QUERY)[START_US].extra["recovered"] == {"a1": left_by(silent, START_US)}
    assert world.console.rows(QUERY) == expected(pairs, [silent], START_US + 5 * SECOND) != []
    assert world.flow(QUERY, pairs.digest).windows[START_US].records == 0


def test_checkpoints_of_ended_agents_and_unreadable_ones_are_dropped(world: World, pairs: Pipeline) -> None:
    ended, wrong = two_agents(world, pairs)
    frames = ended.run(2, factor=1.0, final=True)
    broken = [
        replace(frame, extra={}) if frame.kind == FrameKind.CHECKPOINT else frame for frame in wrong.run(1, factor=1.0)
    ]
    unreadable = next(frame for frame in wrong.run(1, factor=1.0) if frame.kind == FrameKind.CHECKPOINT)
    broken.append(replace(unreadable, seq=broken[-1].seq + 1, body=b"not Arrow"))
    world.send(frames, broken)
    world.process()
    flow = world.flow(QUERY, pairs.digest)
    assert (flow.checkpoints, flow.arriving) == ({}, {})
    *parts, body = [told.partition(": ")[2] for told in world.quarantined()]
    assert parts == ["a checkpoint's part is None of None; allowed: 1 to as many as there are"] * 2
    assert "no Arrow IPC stream" in body


def epochs_of(agent: str, source: TableSource, folder: Path) -> Iterator[list[Frame]]:
    """Frames of a real agent with fixed load factors, epoch by epoch."""
    settings = replace(config(0.6, 1, 1, 0.9, checkpoint_share=1.0, sub_epochs=3), agent=agent)
    runtime, spool = runtime_of(folder, source, settings)
    for frames in iter(lambda: frames_after(runtime, spool), []):
        yield frames
        if source.done:
            break
    yield frames_after(runtime, spool)


def frames_after(runtime: Runtime, spool: Spool) -> list[Frame]:
    assert runtime.run_epoch()
    found = list(spool.unsent(2**30))
    spool.acknowledged(found[-1][0])
    return [frame for _, data in found for frame, _ in decode_frames(data)]


def closed(tables: list[pa.Table]) -> list[dict[str, Any]]:
    """Rows of the windows before the one in which the records end."""
    rows = whole(PIPELINE, pa.concat_tables(tables)).to_pylist()
    return in_order([row for row in rows if row["window_start"].timestamp() < START_US / SECOND + 30])


def test_real_agents_of_which_one_dies_and_comes_back(world: World, tmp_path: Path) -> None:
    world.console.add(PROBES, PIPELINE, ["living", "dying"], idle_after_s=0.2)
    tables = [probe_records(PIPELINE, 1500, seed=seed) for seed in (1, 2)]
    living, dying = (TableSource(table, [20]) for table in tables)
    dead = epochs_of("dying", dying, tmp_path / "dying")
    for i, frames in enumerate(dead):
        world.send(frames)
        if i > 8 and any(frame.kind == FrameKind.CHECKPOINT for frame in frames):
            break
    seen = tables[1].slice(0, dying.position_at)
    assert 0 < seen.num_rows < tables[1].num_rows
    world.process()
    for i, frames in enumerate(epochs_of("living", living, tmp_path / "living")):
        if i < 2:  # the first one after a pause of both makes nobody silent
            time.sleep(0.3)
        world.send(frames)
    world.process()
    assert world.console.rows(PROBES) == closed([tables[0], seen]) != []
    assert any(frame.extra.get("recovered", {}).get("dying") for frame in world.console.latest(PROBES).values())
    for frames in dead:
        world.send(frames)
    world.process()
    assert world.console.rows(PROBES) == closed(tables)
    last = world.console.latest(PROBES).values()
    assert all(frame.extra["complete"] and "recovered" not in frame.extra for frame in last)
    assert world.flow(PROBES, PIPELINE.digest).checkpoints == {}
    # marks of a source that has come to its end name a time that is none
    assert all("a mark's watermarks" in told for told in world.quarantined())


def rows_of(pipeline: Pipeline, begins_s: list[int]) -> pa.Table:
    schema = aggregate_kernel(pipeline).partial_schema
    empty = {field.name: None for field in schema}
    rows = [empty | {"window_start": START_US + begin * SECOND, "_rows": 1} for begin in begins_s]
    return pa.Table.from_pylist(rows, schema=schema)


def kept_of(pipeline: Pipeline, begins_s: list[int]) -> FlowState:
    flow = FlowState(QUERY, pipeline.digest)
    state.keep_checkpoint(flow, "a1", rows_of(pipeline, begins_s), 1, {"part": 1, "parts": 1}, 1)
    return flow


def begins_us(begins_s: list[int]) -> list[int]:
    return [START_US + begin * SECOND for begin in begins_s]


def begins_in(flow: FlowState) -> list[int]:
    rows = flow.checkpoints["a1"].rows["window_start"].cast(pa.int64()).to_pylist()
    return [(begin - START_US) // SECOND for begin in rows]


def test_partial_rows_supersede_those_of_their_windows_only(pairs: Pipeline) -> None:
    flow = kept_of(pairs, [0, 5, 5, 10])
    state.supersede_checkpoint(flow, "a1", begins_us([5, 15]), 2)
    assert (begins_in(flow), flow.checkpoints["a1"].step) == ([0, 10], 2)
    state.supersede_checkpoint(flow, "a1", begins_us([15]), 3)
    assert flow.checkpoints["a1"].step == 2, "nothing changed, nothing is written again"
    state.supersede_checkpoint(flow, "a1", begins_us([0, 10]), 4)
    assert flow.checkpoints == {}


@pytest.mark.parametrize(("passed_s", "left"), [(4, [0, 5, 10]), (5, [5, 10]), (12, [10])])
def test_checkpoint_rows_of_final_windows_are_dropped(pairs: Pipeline, passed_s: int, left: list[int]) -> None:
    flow = kept_of(pairs, [0, 5, 10])
    flow.passed_us = START_US + passed_s * SECOND
    state.drop_passed_checkpoints(flow, pairs, 2)
    assert begins_in(flow) == left


@pytest.mark.parametrize(("ended", "opened"), [(False, [0]), (True, [0, 5, 10])])
def test_window_of_silent_agents_alone_is_issued_in_time(pairs: Pipeline, ended: bool, opened: list[int]) -> None:
    flow = kept_of(pairs, [0, 5, 10])
    flow.excluded, flow.watermark_us, flow.ended = ["a1"], START_US + 7 * SECOND, ended
    state.open_checkpoint_windows(flow, pairs, 2)
    assert [(begin - START_US) // SECOND for begin in sorted(flow.windows)] == opened


def test_ended_agent_has_no_checkpoint(pairs: Pipeline) -> None:
    flow = kept_of(pairs, [0])
    state.keep_checkpoint(flow, "a1", rows_of(pairs, [5]), 2, {"part": 1, "parts": 2}, 2)
    state.drop_checkpoint(flow, "a1")
    assert (flow.checkpoints, flow.arriving) == ({}, {})


def test_incomplete_checkpoint_waits_for_its_other_parts(pairs: Pipeline) -> None:
    flow = kept_of(pairs, [0])

    def come(begin: int, epoch: int, part: int, parts: int = 3) -> None:
        state.keep_checkpoint(flow, "a1", rows_of(pairs, [begin]), epoch, {"part": part, "parts": parts}, 2)

    come(5, 2, 1)
    come(10, 2, 2)
    assert (begins_in(flow), flow.arriving["a1"].parts) == ([0], 2)
    come(15, 2, 3)
    assert (begins_in(flow), flow.arriving) == ([5, 10, 15], {})
    come(20, 3, 1)
    come(25, 3, 3)
    assert (begins_in(flow), flow.arriving) == ([5, 10, 15], {}), "the second part is lost, and with it the others"
    come(30, 4, 1)
    come(35, 5, 2)
    assert (begins_in(flow), flow.arriving) == ([5, 10, 15], {}), "parts of two epochs are no whole"


def test_an_empty_checkpoint_takes_the_place_of_the_one_before(pairs: Pipeline) -> None:
    flow = kept_of(pairs, [0])
    state.keep_checkpoint(flow, "a1", rows_of(pairs, []), 2, {"part": 1, "parts": 1}, 2)
    assert flow.checkpoints == {}
