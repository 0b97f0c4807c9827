"""Frames out of Kafka, from rows as Spark's connector gives them; no broker runs here, the connector is not tested."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from agent.wire import encode_frame
from engine.dataflow.pipeline import Pipeline
from spark_jobs.input.source import FIRST_PARTITION, spans_of_messages
from spark_jobs.session import Options, WrongOptions
from tests.spark.live.agents import SECOND, START_US, SmallAgent, expected
from tests.spark.live.world import World

QUERY = "here/pairs"
#: Columns of the connector, by its documentation.
CONNECTOR = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
)


def test_frames_in_messages_count_like_those_of_the_broker(spark: Any, world: World, pairs: Pipeline) -> None:
    agents = [SmallAgent(f"a{i}", QUERY, pairs) for i in range(3)]
    world.console.add(QUERY, pairs, [agent.name for agent in agents])
    world.send(agents[0].run(11))
    now, messages = datetime.now(UTC), []
    for partition, agent in enumerate(agents[1:]):
        frames = [encode_frame(frame) for frame in agent.run(11)]
        values = [b"".join(frames[begin : begin + 3]) for begin in range(0, len(frames), 3)]
        values.insert(9, b"no frame")  # its offset is between 9 and 11: ids are in the order of numbers
        for offset, value in enumerate(values):
            messages.append((agent.name.encode(), value, "frames", partition, offset, now, 0))
    rows = spans_of_messages(spark.createDataFrame(messages, CONNECTOR)).collect()
    world.messages = [tuple(row) for row in reversed(rows)]
    sink = world.process()
    assert world.console.rows(QUERY) == expected(pairs, agents, START_US + 11 * SECOND) != []
    assert world.positions() == {(agent.name, "l1"): agent.seq for agent in agents}
    assert sink.facts.count("quarantined") == 2 == len(world.quarantined())
    assert all("frame 1 is cut off" in reason for reason in world.quarantined())
    assert {int(number) for number in world.partitions} >= {FIRST_PARTITION, FIRST_PARTITION + 1}
    world.messages = [tuple(row) for row in rows]
    assert world.process().facts.count("duplicates") > 0, "a topic that is read again counts nothing twice"
    assert world.console.rows(QUERY) == expected(pairs, agents, START_US + 11 * SECOND)


def test_half_a_topic_is_refused() -> None:
    with pytest.raises(WrongOptions, match=r"SLUICE_KAFKA_TOPIC is not set; allowed: both"):
        Options.of({"SLUICE_URL": "u", "SLUICE_STREAM_TOKEN": "t", "REDIS_URL": "r", "SLUICE_KAFKA_SERVERS": "k:9092"})
