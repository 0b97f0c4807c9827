"""Results equal those of the query run whole, at any split and place of its operators."""

from __future__ import annotations

import random
import shutil
import time
from datetime import UTC, datetime

import pyarrow.compute as pc
import pytest
import redis

from agent.wire import Frame, broker, generations
from engine.dataflow.pipeline import Pipeline
from tests.spark.live.agents import SECOND, START_US, SmallAgent, expected
from tests.spark.live.world import World

QUERY = "here/pairs"


def three_agents(world: World, pipeline: Pipeline) -> list[SmallAgent]:
    agents = [SmallAgent(f"a{i}", QUERY, pipeline) for i in range(3)]
    world.console.add(QUERY, pipeline, [agent.name for agent in agents])
    return agents


@pytest.mark.slow
@pytest.mark.night
def test_results_do_not_depend_on_load_factors_nor_on_shards_in_spark(
    world: World, pairs: Pipeline, sliding: Pipeline
) -> None:
    world.shards = 3
    agents = three_agents(world, pairs)
    other = SmallAgent("b0", "here/sliding", sliding)
    world.console.add("here/sliding", sliding, [other.name])
    world.send(*(agent.run(11) for agent in [*agents, other]))
    world.drain()
    until = START_US + 11 * SECOND
    assert world.console.rows(QUERY) == expected(pairs, agents, until) != []
    assert world.console.rows("here/sliding") == expected(sliding, [other], until) != []
    assert world.quarantined() == []


@pytest.mark.night
def test_results_do_not_depend_on_load_factors_nor_on_where_drivers_end(
    world: World, pairs: Pipeline, sliding: Pipeline
) -> None:
    agents = three_agents(world, pairs)
    others = [SmallAgent(f"b{i}", "here/sliding", sliding) for i in range(2)]
    world.console.add("here/sliding", sliding, [other.name for other in others])
    for epochs in (7, 1, 8):
        world.send(*(agent.run(epochs) for agent in [*agents, *others]))
        world.drain(max_entries=100)
    until = START_US + 16 * SECOND
    assert world.console.rows(QUERY) == expected(pairs, agents, until) != []
    assert world.console.rows("here/sliding") == expected(sliding, others, until) != []
    complete = [frame.extra["complete"] for frame in world.console.results]
    assert all(complete) and all(frame.extra["revision"] == 0 for frame in world.console.results)
    counted = sum(frame.extra["records"] for frame in world.console.results if frame.query == QUERY)
    kept = [row for row in expected_records(agents, until) if row["err"] == 0]
    assert counted == len(kept)


def expected_records(agents: list[SmallAgent], until_us: int) -> list[dict]:
    rows = [row for agent in agents for table in agent.records for row in table.to_pylist()]
    whole_until = until_us - (until_us - START_US) % (5 * SECOND)
    return [row for row in rows if row["ts"].timestamp() * SECOND < whole_until]


def test_frames_that_come_twice_and_in_any_order_count_once(world: World, pairs: Pipeline) -> None:
    agents = three_agents(world, pairs)
    frames: list[Frame] = [frame for agent in agents for frame in agent.run(11)]
    jumbled = frames + frames[::3]
    random.Random(5).shuffle(jumbled)
    for part in (jumbled[: len(jumbled) // 2], jumbled[len(jumbled) // 2 :]):
        world.put(part)
        sink = world.process()
    assert world.console.rows(QUERY) == expected(pairs, agents, START_US + 11 * SECOND) != []
    assert world.positions() == {(agent.name, "l1"): agent.seq for agent in agents}
    assert (world.waiting(), sink.facts.count("duplicates")) == ([], len(frames[::3]))


def test_lost_checkpoint_continues_after_the_committed_position(world: World, pairs: Pipeline) -> None:
    """Frames that Redis still holds are read again and known; results of open windows name whose records are gone."""
    agents = three_agents(world, pairs)
    world.send(*(agent.run(4) for agent in agents))
    world.drain()
    with redis.Redis.from_url(world.url) as client:
        broker.trim_streams(client, broker.last_ids(client))
    shutil.rmtree(world.folder / "keyed" / "checkpoint-0")
    world.send(*(agent.run(7) for agent in agents))
    sink = world.drain()
    assert committed(world.url, agents) == [agent.seq for agent in agents]
    assert sink.facts.waiting == {}
    torn, whole = (frame.extra for _, frame in sorted(world.console.latest(QUERY).items()))
    assert (torn["complete"], torn["missing"]) == (False, ["a0", "a1", "a2"])
    assert (whole["complete"], whole["missing"]) == (True, [])
    assert torn["batch"] > 1_000, "steps grow over checkpoints"
    assert [row for row in world.console.rows(QUERY) if _begins(row, 5)] == [
        row for row in expected(pairs, agents) if _begins(row, 5)
    ]


def committed(url: str, agents: list[SmallAgent]) -> list[int]:
    with redis.Redis.from_url(url) as client:
        return [broker.generation_progress(client, agent.name, agent.life).committed_seq for agent in agents]


def test_expired_generation_is_dropped_everywhere_and_its_agent_may_go_on(world: World, pairs: Pipeline) -> None:
    agents = three_agents(world, pairs)
    gone, *rest = agents
    world.send(gone.run(11, final=True))
    world.process()
    with redis.Redis.from_url(world.url) as client:
        broker.trim_streams(client, broker.last_ids(client))
        found = [
            generation for generation in generations.known_generations(client, 2**52) if generation.agent == gone.name
        ]
        assert [result.settled for result in found] == [True]
        generations.mark_expired(client, found)
        world.send(*(agent.run(11) for agent in rest))
        world.process()
        assert world.positions() == {(agent.name, "l1"): agent.seq for agent in rest}
        assert {generation.agent for generation in generations.known_generations(client, 2**52)} == {
            agent.name for agent in rest
        }
    assert world.console.rows(QUERY) == expected(pairs, agents, START_US + 11 * SECOND) != []


def _begins(row: dict, second: int) -> bool:
    return row["window_start"] == datetime.fromtimestamp(START_US / 1e6 + second, UTC)


def test_a_query_that_is_started_again_takes_records_as_old_as_before(world: World, pairs: Pipeline) -> None:
    """A recorded file is read from its beginning again."""
    agents = [SmallAgent("a0", QUERY, pairs)]
    world.console.add(QUERY, pairs, ["a0"], retain_s=5, started_us=1)
    world.send(agents[0].run(30, final=True))
    world.process()
    first = world.console.rows(QUERY)
    world.console.results.clear()
    world.console.queries.clear()
    world.console.add(QUERY, pairs, ["a0"], retain_s=5, started_us=2)
    again = SmallAgent("a0", QUERY, pairs, seq=agents[0].seq)
    world.send(again.run(30, final=True))
    world.process()
    assert world.flow(QUERY, pairs.digest).late == 0
    assert world.console.rows(QUERY) == first == expected(pairs, [again])


def test_windows_run_into_late_records_are_issued_again_and_older_ones_counted(world: World, pairs: Pipeline) -> None:
    fast, slow = SmallAgent("a0", QUERY, pairs), SmallAgent("a1", QUERY, pairs)
    world.console.add(QUERY, pairs, ["a0"], retain_s=20)  # nobody waits for a1
    early = slow.run(7, factor=1.0)
    late = slow.step(factor=1.0)
    world.send(fast.run(11))
    world.process()
    first = {begin: frame.extra["revision"] for begin, frame in world.console.latest(QUERY).items()}
    assert first == {START_US: 0, START_US + 5 * SECOND: 0}
    world.send(early)
    world.process()
    assert world.console.rows(QUERY) == expected(pairs, [fast, slow_until(slow, 7)], START_US + 10 * SECOND)
    assert {frame.extra["revision"] for frame in world.console.latest(QUERY).values()} == {1}
    world.send(fast.run(25))
    world.process()
    flow = world.flow(QUERY, pairs.digest)
    before = world.console.rows(QUERY)
    days = int(time.time() - START_US / SECOND) // 86_400
    ahead, known = SmallAgent("a2", QUERY, pairs, epoch=(days + 3) * 86_400), len(flow.windows)
    world.send(late, ahead.run(3, factor=1.0))
    world.process()
    flow = world.flow(QUERY, pairs.digest)
    assert flow.late > 0
    assert flow.early == sum(table.filter(pc.equal(table["err"], 0)).num_rows for table in ahead.records)
    assert len(flow.windows) == known, "no window is open for a clock that is days ahead"
    assert world.console.rows(QUERY) == before


def slow_until(agent: SmallAgent, epochs: int) -> SmallAgent:
    seen = SmallAgent(agent.name, agent.query, agent.pipeline)
    seen.records = agent.records[:epochs]
    return seen


def test_batch_is_one_job_with_one_task_for_all_spans_and_one_for_each_state(world: World, pairs: Pipeline) -> None:
    """Jobs and tasks are what a batch costs by itself, whatever its frames, agents and partitions."""
    agents = three_agents(world, pairs)
    world.send(*(agent.run(3) for agent in agents))
    world.drain()
    tracker = world.session().sparkContext.statusTracker()
    jobs = [tracker.getJobInfo(number) for number in tracker.getJobIdsForGroup(str(world.query.runId))]
    batches = [progress for progress in world.query.recentProgress if progress["numInputRows"]]
    tasks = [sum(tracker.getStageInfo(stage).numTasks for stage in job.stageIds) for job in jobs]
    shuffled = int(world.session().conf.get("spark.sql.shuffle.partitions"))
    assert len(jobs) == len(batches) > 0
    assert tasks == [1 + 2 * shuffled] * len(batches)
