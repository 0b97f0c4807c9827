"""Unreadable frames go to quarantine, named and counted; frames that are only missing a predecessor or a plan wait."""

from __future__ import annotations

import time
from dataclasses import replace

import pyarrow as pa

from agent.wire import Frame, FrameKind, batch_bytes, encode_frame
from engine.dataflow.pipeline import Pipeline
from spark_jobs.plans import aggregate_of
from tests.spark.live.agents import SECOND, START_US, SmallAgent, expected
from tests.spark.live.world import World

QUERY = "here/pairs"


def one_agent(world: World, pairs: Pipeline) -> SmallAgent:
    world.console.add(QUERY, pairs, ["a0"])
    return SmallAgent("a0", QUERY, pairs)


def broken_frames(agent: SmallAgent) -> list[Frame]:
    """A frame for every way in which a body may be wrong, numbered on from the agent's."""
    wrong = batch_bytes(pa.table({"n": [1]}))
    good = next(frame for frame in agent.sent if frame.kind == FrameKind.RECORDS)
    unwindowed = pa.Table.from_pylist([{}], schema=agent.pipeline.operators[4].input_schema)
    uncounted = pa.Table.from_pylist([{"window_start": 0}], schema=aggregate_of(agent.pipeline).partial_schema)
    partial = Frame(FrameKind.PARTIALS, "a0", "l1", 1, QUERY, agent.pipeline.digest, 4, body=wrong)
    broken = [
        replace(good, body=wrong),
        replace(good, body=b"not Arrow"),
        replace(good, body=good.body[: len(good.body) // 2]),
        replace(good, entry=5),
        partial,
        replace(partial, body=batch_bytes(uncounted)),
        replace(good, entry=4, body=batch_bytes(unwindowed)),
        replace(partial, entry=0),
        replace(good, kind=FrameKind.MARK, body=b"", extra={"watermarks": "soon"}),
        replace(good, kind=FrameKind.MARK, body=b"", extra={"watermarks": {"0": 1}, "closing_epoch_us": "soon"}),
        replace(good, kind=FrameKind.COUNTERS, body=wrong),
    ]
    agent.seq += len(broken)
    return [replace(frame, seq=agent.seq - len(broken) + i) for i, frame in enumerate(broken, start=1)]


def test_unreadable_bodies_go_to_quarantine_and_the_rest_is_exact(world: World, pairs: Pipeline) -> None:
    agent = one_agent(world, pairs)
    frames = agent.run(3, factor=0.5)
    broken = broken_frames(agent)
    world.send([*frames, *broken, *agent.run(3, factor=0.5)])
    sink = world.process()
    assert world.console.rows(QUERY) == expected(pairs, [agent], START_US + 5 * SECOND) != []
    assert sink.facts.count("quarantined") == len(broken) == len(world.quarantined())
    assert world.positions() == {("a0", "l1"): agent.seq}
    said = "\n".join(world.quarantined())
    assert "columns n: int64; allowed: " in said
    assert "records enter at operator 5; allowed: 0, 1, 2, 3, 4" in said
    assert "partial aggregates of operator 0; allowed: 4" in said
    assert "_rows has values that count nothing" in said
    assert "window_start is null" in said


def test_query_with_unreadable_records_only_stops_nothing(world: World, pairs: Pipeline) -> None:
    agent = one_agent(world, pairs)
    frames = agent.run(6, factor=0.0)
    bad = [replace(frame, body=b"not Arrow") if frame.kind == FrameKind.RECORDS else frame for frame in frames]
    world.send(bad)
    sink = world.process()
    assert world.positions() == {("a0", "l1"): agent.seq}
    assert sink.facts.count("quarantined") == sum(frame.kind == FrameKind.RECORDS for frame in frames) > 0


def test_unreadable_bodies_do_not_stop_spark(world: World, pairs: Pipeline) -> None:
    agent = one_agent(world, pairs)
    frames = agent.run(3, factor=0.5)
    broken = broken_frames(agent)[:2]
    agent.seq = broken[-1].seq
    world.send([*frames, *broken, *agent.run(3, factor=0.5)])
    sink = world.drain()
    assert world.console.rows(QUERY) == expected(pairs, [agent], START_US + 5 * SECOND) != []
    assert sink.facts.count("quarantined") == 2 == len(world.quarantined())


def test_bytes_that_are_no_frames_take_their_number_and_nothing_else(world: World, pairs: Pipeline) -> None:
    agent = one_agent(world, pairs)
    frames = agent.run(2)
    place = agent.run(1, count=0)[0]
    damaged = bytearray(encode_frame(place))
    damaged[-1] ^= 255
    world.put(frames)
    world.put([bytes(damaged)], like=place)
    world.put([b"SLF1 and too large" * 400_000], like=replace(place, seq=place.seq + 1))
    agent.seq += 1
    world.put(agent.run(4))
    sink = world.process()
    assert world.console.rows(QUERY) == expected(pairs, [agent], START_US + 5 * SECOND) != []
    assert sink.facts.count("quarantined") == 2
    assert "checksum" in "".join(world.quarantined())


def test_former_plan_is_fetched_and_frames_of_unknown_plans_go_to_quarantine(
    world: World, pairs: Pipeline, sliding: Pipeline
) -> None:
    agent = one_agent(world, pairs)
    world.console.queries.clear()
    world.console.pipelines[pairs.digest] = {"pipeline": dict(pairs.document)}
    unknown = SmallAgent("a1", QUERY, sliding)
    world.send(agent.run(6), unknown.run(1))
    sink = world.process()
    assert world.console.rows(QUERY) == expected(pairs, [agent], START_US + 5 * SECOND) != []
    assert sink.facts.count("unknown") == len(unknown.sent) == len(world.quarantined())
    assert f"plan {sliding.digest[:12]} of query here/pairs is not known" in world.quarantined()[0]


def test_frames_wait_for_their_plan_while_the_console_is_away(world: World, pairs: Pipeline, sliding: Pipeline) -> None:
    agent = one_agent(world, pairs)
    world.send(agent.run(1))
    world.process()
    world.console.add("here/sliding", sliding, ["b0"])
    late = SmallAgent("b0", "here/sliding", sliding)
    world.console.status = 503
    world.send(agent.run(5), late.run(5))
    world.process()
    assert len(world.waiting()) == len(late.sent)
    assert world.console.results == []
    world.console.status = 200
    world.send(agent.run(1), late.run(2))
    world.process()
    assert world.waiting() == []
    assert world.console.rows("here/sliding") == expected(sliding, [late], START_US + 7 * SECOND) != []
    assert world.console.rows(QUERY) == expected(pairs, [agent], START_US + 5 * SECOND) != []
    assert world.quarantined() == []


def test_results_wait_on_disk_for_a_console_that_is_away(world: World, pairs: Pipeline) -> None:
    agent = one_agent(world, pairs)
    world.send(agent.run(1))
    world.process()
    world.console.status = 500
    world.send(agent.run(10))
    world.process()
    assert world.console.results == []
    world.console.status = 200
    world.send(agent.run(1))
    world.process()
    assert world.console.rows(QUERY) == expected(pairs, [agent], START_US + 10 * SECOND) != []


def test_silent_agent_is_excluded_and_named_until_it_sends_again(world: World, pairs: Pipeline) -> None:
    world.console.add(QUERY, pairs, ["a0", "a1"], idle_after_s=2.0)
    agents = [SmallAgent(f"a{i}", QUERY, pairs) for i in range(2)]
    world.send(agents[0].run(5), agents[1].run(3))
    world.process()
    for _ in range(2):
        assert world.console.results == [], "after a pause of both nobody is silent yet"
        time.sleep(2.2)
        world.send(agents[0].run(1))
        sink = world.process()
    assert sink.facts.flows[QUERY, pairs.digest]["excluded"] == ["a1"]
    first = world.console.latest(QUERY)[START_US]
    assert (first.extra["complete"], first.extra["missing"], first.extra["revision"]) == (False, ["a1"], 0)
    world.send(agents[1].run(3))
    world.process()
    second = world.console.latest(QUERY)[START_US]
    assert (second.extra["complete"], second.extra["missing"], second.extra["revision"]) == (True, [], 1)
    assert world.console.rows(QUERY) == expected(pairs, agents, START_US + 5 * SECOND)


def test_a_final_mark_closes_what_is_open(world: World, pairs: Pipeline) -> None:
    agent = one_agent(world, pairs)
    world.send(agent.run(7, final=True))
    world.process()
    assert world.console.rows(QUERY) == expected(pairs, [agent])
    assert len(world.console.latest(QUERY)) == 2
