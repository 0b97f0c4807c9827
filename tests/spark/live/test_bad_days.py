"""Plans that change while windows are open, ten thousand queries, and records that are nearly all of one group."""

from __future__ import annotations

import pyarrow as pa
import pytest
import redis

from engine.dataflow.pipeline import Pipeline
from tests.spark.live.agents import SECOND, START_US, SmallAgent, expected
from tests.spark.live.world import World

QUERY = "here/pairs"


def live(world: World, pairs: Pipeline, agents: list[str], **more: float) -> None:
    """The query as the console has it from now on."""
    world.console.queries.clear()
    world.console.add(QUERY, pairs, agents, idle_after_s=3600, **more)


def test_agent_that_is_added_while_a_window_is_open_is_waited_for(world: World, pairs: Pipeline) -> None:
    first, second = (SmallAgent(name, QUERY, pairs) for name in ("a0", "a1"))
    live(world, pairs, ["a0"])
    world.send(first.run(3))
    world.process()
    live(world, pairs, ["a0", "a1"])
    world.send(first.run(4))
    assert world.process().facts.flows[QUERY, pairs.digest]["waiting_for"] == ["a1"]
    assert world.console.results == []
    world.send(second.run(7))
    world.process()
    assert world.console.rows(QUERY) == expected(pairs, [first, second], START_US + 5 * SECOND) != []
    assert [frame.extra["complete"] for frame in world.console.results] == [True]


def test_agent_that_is_removed_holds_no_open_window(world: World, pairs: Pipeline) -> None:
    first, second = (SmallAgent(name, QUERY, pairs) for name in ("a0", "a1"))
    live(world, pairs, ["a0", "a1"])
    world.send(first.run(7), second.run(2))
    world.process()
    assert world.console.results == []
    live(world, pairs, ["a0"], retain_s=60)
    world.process()  # no frame comes: the change of the plan alone visits the flow
    assert world.console.rows(QUERY) == expected(pairs, [first, second], START_US + 5 * SECOND) != []
    assert world.flow(QUERY, pairs.digest).passed_us == START_US + 7 * SECOND - 60 * SECOND


def test_two_versions_of_a_query_in_flight_are_flows_of_their_own(
    world: World, pairs: Pipeline, sliding: Pipeline
) -> None:
    old, new = SmallAgent("a0", QUERY, pairs), SmallAgent("a1", QUERY, sliding)
    live(world, pairs, ["a0"])
    world.send(old.run(3))
    world.process()
    world.console.pipelines[pairs.digest] = {"pipeline": dict(pairs.document)}
    live(world, sliding, ["a1"])
    world.send(old.run(4), new.run(7))  # frames of the version before are still on their way
    world.process()
    by_plan = {
        plan: [frame for frame in world.console.results if frame.plan == plan]
        for plan in (pairs.digest, sliding.digest)
    }
    assert len(by_plan[pairs.digest]) == 1 and len(by_plan[sliding.digest]) >= 1
    assert world.flow(QUERY, pairs.digest).late == world.flow(QUERY, sliding.digest).late == 0


@pytest.mark.night
def test_ten_thousand_queries_cost_a_batch_only_those_it_brings_something_of(world: World, pairs: Pipeline) -> None:
    agent = SmallAgent("a0", "here/q77", pairs)
    for number in range(10_000):
        world.console.add(f"here/q{number}", pairs, ["a0"])
    world.send(agent.run(7))
    sink = world.process()
    assert world.console.rows("here/q77") == expected(pairs, [agent], START_US + 5 * SECOND) != []
    assert [key for key in world.flows if "|" in key] == [f"here/q77|{pairs.digest}|0"]
    assert len(sink.facts.flows) == 1
    with redis.Redis.from_url(world.url) as client:
        sizes = {key: client.strlen(key) for key in client.keys("sluice:stream:[pq]*:*")}  # type: ignore[union-attr]
    assert max(sizes.values()) < 4 * 2**20
    lists = [key for key in sizes if b"queries" in key]
    world.console.queries[5]["retain_s"] = 60
    world.process()
    assert len(lists) == 1 and len(world.flows) <= 8


@pytest.mark.parametrize("shards", [1, 4])
def test_records_of_one_group_are_one_row_of_one_shard(world: World, pairs: Pipeline, shards: int) -> None:
    class Skewed(SmallAgent):
        def _rows(self, begin_us: int, count: int) -> pa.Table:
            rows = super()._rows(begin_us, count)
            for name, value in (("src", "h1"), ("dst", "d1")):
                column = pa.array([value] * rows.num_rows)
                rows = rows.set_column(rows.schema.get_field_index(name), name, column)
            return rows

    world.shards = shards
    agents = [Skewed(f"a{i}", QUERY, pairs) for i in range(3)]
    live(world, pairs, [agent.name for agent in agents])
    world.send(*(agent.run(7, count=400) for agent in agents))
    world.process()
    assert world.console.rows(QUERY) == expected(pairs, agents, START_US + 5 * SECOND) != []
    filled = [shard for shard in range(shards) if world.flow(QUERY, pairs.digest, shard).windows]
    assert len(filled) == 1, "a group lies in one shard, whatever comes of it"
