"""A restarted query starts without state, whether the console or an agent is first to know."""

from __future__ import annotations

import pytest

from engine.dataflow.pipeline import Pipeline
from tests.spark.live.agents import SECOND, START_US, SmallAgent, expected
from tests.spark.live.world import World

QUERY = "here/pairs"


def run_once(world: World, pairs: Pipeline, started_us: int) -> SmallAgent:
    world.console.add(QUERY, pairs, ["a0"], retain_s=5, started_us=started_us)
    agent = SmallAgent("a0", QUERY, pairs)
    world.send(agent.run(30, final=True))
    world.process()
    assert world.flow(QUERY, pairs.digest).passed_us > 0
    world.console.queries.clear()
    return agent


@pytest.mark.parametrize("console_first", [True, False])
def test_restarted_query_has_no_past(world: World, pairs: Pipeline, console_first: bool) -> None:
    agent = run_once(world, pairs, started_us=1)
    world.console.results.clear()
    if not console_first:
        world.process()  # the driver has heard that it was stopped, and agents hear first that it runs again
    world.console.add(QUERY, pairs, ["a0"], retain_s=5, started_us=2)
    again = SmallAgent("a0", QUERY, pairs, seq=agent.seq)
    world.send(again.run(3))
    world.process()
    flow = world.flow(QUERY, pairs.digest)
    assert (flow.started_us, flow.late) == (2, 0) and flow.passed_us < START_US
    world.send(again.run(4))
    world.process()
    assert world.console.rows(QUERY) == expected(pairs, [again], START_US + 5 * SECOND) != []
    assert {frame.extra["revision"] for frame in world.console.results} == {0}


@pytest.mark.parametrize("before_us", [0, 2])
def test_run_continues_after_a_regular_restart(world: World, pairs: Pipeline, before_us: int) -> None:
    """Also one of a state that does not know of runs yet."""
    agent = run_once(world, pairs, started_us=before_us)
    passed_us = world.flow(QUERY, pairs.digest).passed_us
    world.console.add(QUERY, pairs, ["a0"], retain_s=5, started_us=2)
    world.send(agent.run(1))
    world.process()
    flow = world.flow(QUERY, pairs.digest)
    assert flow.started_us == 2 and flow.passed_us >= passed_us > START_US
    assert world.console.rows(QUERY) == expected(pairs, [agent_until(agent, 30)])


def agent_until(agent: SmallAgent, epochs: int) -> SmallAgent:
    seen = SmallAgent(agent.name, agent.query, agent.pipeline)
    seen.records = agent.records[:epochs]
    return seen
