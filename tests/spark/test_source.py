"""The streaming source over a real Redis: exact over restarts, bounded, trimmed only behind the checkpoint."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import redis
from pyspark.errors import StreamingQueryException

from agent.wire import broker, encode_frame
from spark_jobs.input.entries import UNREADABLE, EntryReader
from spark_jobs.input.source import SpansReader, spans_of
from spark_jobs.plans import PLAN_NUMBER
from tests.servers import PATIENCE_S, RedisServer, wait_until
from tests.spark.frames import COLUMNS, Collected, read_spans, records_frame, send, waiting

AGENTS = ("a1", "a2", "a3", "a4", "a5")


@pytest.fixture
def stream(spark: Any, redis_server: RedisServer, tmp_path: Path) -> Collected:
    return Collected(spark, redis_server.url, tmp_path / "checkpoint")


def send_range(url: str, first: int, last: int, agents: tuple[str, ...] = AGENTS) -> None:
    for agent in agents:
        send(url, [records_frame(agent, seq) for seq in range(first, last + 1)])


def put(client: redis.Redis, agent: str, life: str, seq: int, data: bytes, entry_id: str = "*") -> None:
    """An entry that came by another way than `broker.accept`."""
    partition = broker.partition_of(agent)
    fields = {"f": data, "a": agent, "l": life, "s": seq, "k": "records", "q": "", "p": "", "e": 1}
    given = client.xadd(f"sluice:frames:{partition}", fields, id=entry_id)
    client.xadd(f"sluice:sizes:{partition}", {"a": agent, "b": len(data)}, id=given)


def test_every_frame_comes_once_in_order_and_a_restart_goes_on_from_the_checkpoint(stream: Collected) -> None:
    send_range(stream.url, 1, 20)
    stream.drain(max_entries=30)
    send_range(stream.url, 21, 30)
    stream.drain()
    assert {agent: stream.numbers(agent) for agent in AGENTS} == {agent: list(range(1, 31)) for agent in AGENTS}
    rows = [row for batch in stream.batches.values() for row in batch]
    assert {row.records for row in rows} == {5}
    assert all(row.total == sum(range(row.seq * 10_000, row.seq * 10_000 + 5)) for row in rows)
    assert max(map(len, stream.batches.values())) <= 50


def test_a_batch_that_failed_is_read_again_with_the_same_entries(stream: Collected) -> None:
    send_range(stream.url, 1, 6)
    query = stream.start(max_entries=10, fail_at=1)
    with pytest.raises(StreamingQueryException, match="the sink fails"):
        query.awaitTermination(PATIENCE_S)
    before = {number: sorted(map(tuple, rows)) for number, rows in stream.batches.items()}
    send_range(stream.url, 7, 8)
    stream.drain(max_entries=1000)
    assert sorted(map(tuple, stream.batches[1])) == before[1]
    assert (stream.runs[0], stream.runs[1]) == (1, 2)
    assert {agent: stream.numbers(agent) for agent in AGENTS} == {agent: list(range(1, 9)) for agent in AGENTS}


def test_entries_are_trimmed_behind_the_checkpoint_only(stream: Collected) -> None:
    send_range(stream.url, 1, 4)
    query = stream.start(max_entries=8, fail_at=1)
    with pytest.raises(StreamingQueryException):
        query.awaitTermination(PATIENCE_S)
    with redis.Redis.from_url(stream.url) as client:
        kept = {
            (entry.agent, entry.seq)
            for number in range(broker.PARTITIONS)
            for entry in broker.read_entries(client, number)
        }
    done = {(row.agent, row.seq) for row in stream.batches[0]}
    assert done
    assert kept == {(agent, seq) for agent in AGENTS for seq in range(1, 5)} - done
    stream.drain()
    send_range(stream.url, 5, 5)
    stream.drain()  # the first thing that a later batch does is to commit those before it
    assert waiting(stream.url) <= len(AGENTS)


def test_batches_are_bounded_in_entries_and_in_bytes(stream: Collected) -> None:
    send_range(stream.url, 1, 12)
    stream.drain(max_entries=12)
    assert sum(map(len, stream.batches.values())) == 60
    assert max(map(len, stream.batches.values())) <= 12
    size = len(records_frame("a1", 1).body) + 2 * broker.ENTRY_BYTES
    send_range(stream.url, 13, 24)
    sizes = Collected(stream.spark, stream.url, stream.checkpoint)
    sizes.drain(max_bytes=8 * size)
    assert sum(map(len, sizes.batches.values())) == 60
    assert max(map(len, sizes.batches.values())) <= 16


def test_a_frame_larger_than_a_batch_still_comes(stream: Collected) -> None:
    send(stream.url, [records_frame("a1", 1, records=50_000), records_frame("a1", 2)])
    stream.drain(max_bytes=1000)
    assert stream.numbers("a1") == [1, 2]


def test_redis_away_and_back_in_mid_run(stream: Collected, redis_server: RedisServer) -> None:
    send_range(stream.url, 1, 3)
    query = stream.start(available_now=False)
    try:
        wait_until(lambda: len(stream.numbers("a1")) == 3, what="the first frames")
        redis_server.stop()
        time.sleep(4)  # longer than one trigger waits for an answer
        redis_server.start()
        send_range(stream.url, 4, 6)
        wait_until(
            lambda: all(len(stream.numbers(agent)) == 6 for agent in AGENTS), what="the frames after the restart"
        )
        assert query.isActive
    finally:
        query.stop()
    assert {agent: stream.numbers(agent) for agent in AGENTS} == {agent: list(range(1, 7)) for agent in AGENTS}


def test_a_stream_that_lost_its_tail_is_read_from_its_beginning(stream: Collected) -> None:
    """Ids of entries are times: after a loss and a clock that went back they lie below the checkpoint."""
    send_range(stream.url, 1, 3, ("a1",))
    stream.drain()
    with redis.Redis.from_url(stream.url) as client:
        client.flushall()
        for seq in (1, 2):
            data = encode_frame(records_frame("a1", seq, life="l2"))
            put(client, "a1", "l2", seq, data, f"1000-{seq}")
            stream.drain()
    assert stream.numbers("a1", "l2") == [1, 2]
    assert stream.numbers("a1") == [1, 2, 3]


def test_an_entry_that_is_no_frame_comes_as_unreadable_and_harms_no_other(spark: Any, stream: Collected) -> None:
    send_range(stream.url, 1, 1, ("a1",))
    bad = [b"SLF1 and then nonsense", encode_frame(records_frame("a2", 3)), b""]
    with redis.Redis.from_url(stream.url) as client:
        for seq, data in enumerate(bad, 2):
            put(client, "a1", "l1", seq, data)
    rows: list[Any] = []
    query = (
        spans_of(spark, stream.url)
        .mapInArrow(read_spans(stream.url), COLUMNS)
        .writeStream.foreachBatch(lambda frame, number: rows.extend(frame.collect()))
        .option("checkpointLocation", str(stream.checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(PATIENCE_S)
    assert [(row.agent, row.seq, row.kind) for row in rows] == [
        ("a1", 1, "records"),
        *(("a1", seq, UNREADABLE) for seq in (2, 3, 4)),
    ]
    assert [bytes(row.body) for row in rows[1:]] == bad
    faults = [json.loads(row.extra)["fault"] for row in rows[1:]]
    assert "frame 1 says" in faults[0]
    assert faults[1] == "the frame says agent a2, life l1, number 3"
    assert "holds one frame" in faults[2]


def test_planning_without_redis_brings_no_batch_and_reading_says_so(redis_server: RedisServer, capsys: Any) -> None:
    reader = SpansReader(redis_server.url, 10, 1000)
    start = reader.initialOffset()
    redis_server.stop()
    assert reader.latestOffset(start, reader.getDefaultReadLimit()) == start
    reader.commit(start)
    said = capsys.readouterr().err
    assert "no new batch until it does" in said
    assert "trimmed later" in said
    with pytest.raises(RuntimeError, match=r"Redis has given no answer for 0\.2 s"):
        list(EntryReader(redis_server.url, patience_s=0.2).frames(0, "0-0", "1-0"))


def test_a_change_of_the_plan_visits_every_partition_and_no_agent_is_silent_for_it(redis_server: RedisServer) -> None:
    with redis.Redis.from_url(redis_server.url) as client:
        put(client, "a1", "l1", 1, encode_frame(records_frame("a1", 1)), "4-0")
        put(client, "a2", "l1", 1, encode_frame(records_frame("a2", 1)), "9-0")
        client.set(PLAN_NUMBER, 3)
    reader, partition = SpansReader(redis_server.url, 10, 10**6), broker.partition_of("a1")
    start = reader.initialOffset()
    first = reader.latestOffset(start, reader.getDefaultReadLimit())
    [whole] = reader.partitions(start, first)  # one task, whatever the broker's partitions
    spans = sorted(reader.read(whole))
    assert [span[0] for span in spans] == [-1, 0, 1, 2, 3]
    assert spans[0][1:3] == ("0", "3")
    assert {span[3:] for span in spans} == {(3, 4, 9, None)}, "all have arrived up to the earliest of what came last"
    with redis.Redis.from_url(redis_server.url) as client:
        put(client, "a1", "l1", 2, encode_frame(records_frame("a1", 2)), "12-0")
    second = reader.latestOffset(first, reader.getDefaultReadLimit())
    [whole] = reader.partitions(first, second)
    assert list(reader.read(whole)) == [(partition, "4-0", "12-0", 3, 12, 12, None)]
    assert reader.partitions(second, second) == []
