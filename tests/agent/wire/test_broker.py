"""Frames in Redis: each once and in order, bounded and fair, also after Redis has lost data."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator

import pytest
import redis

from agent.wire import Frame, FrameKind, broker, decode_frames, encode_frame
from agent.wire.broker import ENTRY_BYTES, BrokerLimits
from tests.servers import PATIENCE_S, RedisServer

LIMITS = BrokerLimits()


@pytest.fixture
def client(redis_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(redis_url) as connection:
        yield connection


def given(agent: str, *seqs: int, life: str = "l1", body_bytes: int = 100) -> list[tuple[Frame, bytes]]:
    frames = [
        Frame(FrameKind.RECORDS, agent, life, seq, query="c/q", plan="p", entry=1, body=b"x" * body_bytes)
        for seq in seqs
    ]
    return [(frame, encode_frame(frame)) for frame in frames]


def stored(client: redis.Redis, agent: str) -> list[int]:
    entries = broker.read_entries(client, broker.partition_of(agent), count=100_000)
    return [entry.seq for entry in entries if entry.agent == agent]


def test_frames_stand_as_they_were_sent(client: redis.Redis) -> None:
    sent = given("a", 1, 2)
    result = broker.accept_frames(client, sent, LIMITS)
    assert (result.accepted_seq, result.committed_seq, result.duplicates, result.refused) == (2, 0, 0, None)
    first, second = broker.read_entries(client, broker.partition_of("a"))
    assert (first.agent, first.life, first.seq, first.kind, first.query, first.plan, first.entry) == (
        *("a", "l1", 1, "records", "c/q", "p"),
        1,
    )
    assert second.data == sent[1][1]
    assert next(decode_frames(second.data))[0] == sent[1][0]
    assert broker.last_ids(client)[broker.partition_of("a")] == second.id


def test_repeated_frame_is_acknowledged_again_and_stored_once(client: redis.Redis) -> None:
    broker.accept_frames(client, given("a", 1, 2, 3), LIMITS)
    result = broker.accept_frames(client, given("a", 2, 3, 4), LIMITS)
    assert (result.accepted_seq, result.duplicates, result.refused) == (4, 2, None)
    assert stored(client, "a") == [1, 2, 3, 4]


def test_gap_is_refused_with_the_expected_number(client: redis.Redis) -> None:
    result = broker.accept_frames(client, given("a", 1, 2, 4, 5), LIMITS)
    assert (result.refused, result.accepted_seq, result.expected) == ("gap", 2, 3)
    assert stored(client, "a") == [1, 2]


def test_generations_are_numbered_separately(client: redis.Redis) -> None:
    broker.accept_frames(client, given("a", 1, 2), LIMITS)
    assert broker.accept_frames(client, given("a", 1, life="l2"), LIMITS).accepted_seq == 1
    assert broker.accept_frames(client, given("a", 3), LIMITS).accepted_seq == 3


def test_posts_at_the_same_moment_are_stored_once(redis_url: str, client: redis.Redis) -> None:
    sent = given("a", *range(1, 41))

    def send(seed: int) -> None:
        order = random.Random(seed)
        with redis.Redis.from_url(redis_url) as own:
            while broker.generation_progress(own, "a", "l1").accepted_seq < 40:
                begin = order.randrange(40)
                broker.accept_frames(own, sent[begin : begin + order.randint(1, 8)], LIMITS)

    threads = [threading.Thread(target=send, args=[seed]) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert stored(client, "a") == list(range(1, 41))


def cost(*sent: tuple[Frame, bytes]) -> int:
    return sum(len(data) + ENTRY_BYTES for _, data in sent)


def test_the_prefix_that_fits_is_taken(client: redis.Redis) -> None:
    sent = given("a", *range(1, 11))
    limits = BrokerLimits(total_bytes=cost(*sent[:6]) + 1, retry_after_s=3.0)
    result = broker.accept_frames(client, sent, limits)
    assert (result.refused, result.retry_after_s) == ("full", 3.0)
    assert result.accepted_seq == len(stored(client, "a")) == 3  # what is held, once more, is still free
    assert broker.held_bytes(client) == {"a": cost(*sent[:3])}


def test_one_agent_cannot_fill_the_broker(client: redis.Redis) -> None:
    limits = BrokerLimits(total_bytes=100_000)
    rates = {"greedy": 10, "b": 1, "c": 1}
    seqs = dict.fromkeys(rates, 0)
    refused = dict.fromkeys(rates, 0)
    for _ in range(30):  # rounds in which the stream processor reads nothing
        for agent, rate in rates.items():
            result = broker.accept_frames(client, given(agent, *range(seqs[agent] + 1, seqs[agent] + 1 + rate)), limits)
            refused[agent] += result.refused == "full"
            seqs[agent] = result.accepted_seq
    held = broker.held_bytes(client)
    assert refused["greedy"] > 20
    assert refused["b"] == refused["c"] == 0
    assert held["greedy"] < limits.total_bytes / 2
    assert seqs["b"] == seqs["c"] == 30


def test_queries_of_equal_weight_get_equal_shares(client: redis.Redis) -> None:
    limits, agents = BrokerLimits(total_bytes=200_000), ["a", "b", "c", "d"]
    seqs = dict.fromkeys(agents, 0)
    for _ in range(200):
        for agent in agents:
            seqs[agent] = broker.accept_frames(client, given(agent, seqs[agent] + 1), limits).accepted_seq
    held = broker.held_bytes(client)
    assert max(held.values()) - min(held.values()) <= max(held.values()) / 20
    assert sum(held.values()) <= limits.total_bytes


def test_trimming_gives_back_what_was_held(client: redis.Redis) -> None:
    sent = given("a", *range(1, 6))
    broker.accept_frames(client, sent, LIMITS)
    partition = broker.partition_of("a")
    entries = broker.read_entries(client, partition)
    assert broker.trim_streams(client, {partition: entries[2].id}) == 3
    assert broker.held_bytes(client) == {"a": cost(*sent[3:])}
    assert stored(client, "a") == [4, 5]
    assert broker.trim_streams(client, {partition: entries[2].id}) == 0
    assert broker.trim_streams(client, broker.last_ids(client)) == 2
    assert (broker.held_bytes(client), client.hgetall("sluice:held")) == ({}, {})
    assert broker.last_ids(client)[partition] == entries[4].id  # known although nothing is left
    assert broker.accept_frames(client, given("a", 6), LIMITS).accepted_seq == 6


def test_trimming_goes_in_steps_and_touches_only_what_it_may(
    client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker, "_TRIM_ENTRIES", 7)
    broker.accept_frames(client, given("a", *range(1, 41)), LIMITS)
    partition = broker.partition_of("a")
    upto = broker.read_entries(client, partition)[29].id
    assert broker.trim_streams(client, {partition: upto}) == 30
    assert stored(client, "a") == list(range(31, 41))


def test_readers_go_on_where_they_were(client: redis.Redis) -> None:
    broker.accept_frames(client, given("a", *range(1, 8)), LIMITS)
    partition, after, seen = broker.partition_of("a"), "0-0", []
    while entries := broker.read_entries(client, partition, after, count=3):
        seen += [entry.seq for entry in entries]
        after = entries[-1].id
    assert seen == list(range(1, 8))


def test_read_range_is_bounded_by_entries_and_bytes(client: redis.Redis) -> None:
    sent = given("a", *range(1, 8))
    broker.accept_frames(client, sent, LIMITS)
    partition = broker.partition_of("a")
    ids = [entry.id for entry in broker.read_entries(client, partition)]
    assert broker.read_reach(client, partition, "0-0", 3, 10**9).last_id == ids[2]
    assert broker.read_reach(client, partition, ids[2], 100, cost(*sent[3:5])).last_id == ids[4]
    assert broker.read_reach(client, partition, "0-0", 100, 1).entries == 1  # however small the bound, it goes on
    assert broker.read_reach(client, partition, ids[-1], 100, 10**9).last_id == ids[-1]


def test_committed_numbers_never_go_back(client: redis.Redis) -> None:
    broker.accept_frames(client, given("a", 1, 2, 3), LIMITS)
    broker.publish_committed(client, {("a", "l1"): 3, ("b", "l9"): 7})
    broker.publish_committed(client, {("a", "l1"): 2})
    assert broker.generation_progress(client, "a", "l1").committed_seq == 3
    assert broker.generation_progress(client, "b", "l9") == broker.GenerationProgress(7, 7)
    broker.publish_committed(client, {})


def test_the_streams_state_is_forgotten_in_time(client: redis.Redis) -> None:
    assert broker.stream_state(client) is None
    broker.write_state(client, {"state": "ready", "batch": 3})
    assert broker.stream_state(client) == {"state": "ready", "batch": 3}
    assert 0 < client.pttl("sluice:stream:state") <= 10_000


def test_empty_redis_continues_after_the_committed_position(client: redis.Redis) -> None:
    broker.accept_frames(client, given("a", *range(1, 9)), LIMITS)
    client.flushall()
    result = broker.accept_frames(client, given("a", 9), LIMITS, floor=5)
    assert (result.refused, result.expected) == ("gap", 6)
    result = broker.accept_frames(client, given("a", *range(4, 10)), LIMITS, floor=5)
    assert (result.accepted_seq, result.committed_seq, result.duplicates) == (9, 5, 2)
    assert stored(client, "a") == [6, 7, 8, 9]
    assert broker.generation_progress(client, "a", "l1", floor=5) == broker.GenerationProgress(9, 5)


def test_committed_frames_are_not_accepted_again_after_a_loss(client: redis.Redis) -> None:
    broker.accept_frames(client, given("a", 1, 2), LIMITS)
    broker.publish_committed(client, {("a", "l1"): 4})  # the stream processor had 3 and 4 before Redis lost them
    result = broker.accept_frames(client, given("a", 3, 4, 5), LIMITS)
    assert (result.accepted_seq, result.duplicates) == (5, 2)
    assert stored(client, "a") == [1, 2, 5]


def kill_at(moment: threading.Event, server: RedisServer) -> None:
    moment.wait(PATIENCE_S)
    server.kill()


@pytest.mark.slow
def test_a_killed_redis_keeps_entries_and_numbers_together(redis_server: RedisServer) -> None:
    """kill -9 in mid-run, again and again: whatever it still knows, nothing is missing, doubled or miscounted."""
    client = redis.Redis.from_url(redis_server.url, socket_timeout=PATIENCE_S)
    sent, seq = given("a", *range(1, 3001), body_bytes=2000), 0
    for _ in range(3):
        midway, enough = threading.Event(), min(seq + 300, 2900)
        killer = threading.Thread(target=kill_at, args=(midway, redis_server))
        killer.start()
        try:
            while seq < 2990:
                seq = broker.accept_frames(client, sent[seq : seq + 10], LIMITS).accepted_seq
                if seq >= enough:
                    midway.set()
        except (redis.ConnectionError, redis.TimeoutError):
            pass
        killer.join()
        redis_server.start()
        known = broker.generation_progress(client, "a", "l1").accepted_seq
        assert known <= seq + 10
        assert stored(client, "a") == list(range(1, known + 1))
        assert broker.held_bytes(client).get("a", 0) == cost(*sent[:known])
        result = broker.accept_frames(client, sent[known + 1 : known + 3], LIMITS)
        assert (result.refused, result.expected) == ("gap", known + 1)
        seq = known
    assert seq > 0
    client.close()


def test_the_oldest_entry_says_since_when_it_waits(client: redis.Redis) -> None:
    broker.accept_frames(client, given("a", 1, 2), LIMITS)
    partition = broker.partition_of("a")
    first, second = broker.read_entries(client, partition, count=2)
    now_s = int(client.time()[0])
    for after, waits in (("0-0", True), (first.id, True), (second.id, False)):
        found = broker.oldest_at_s(client, partition, after)
        assert (found is not None and abs(found - now_s) < 60) is waits
