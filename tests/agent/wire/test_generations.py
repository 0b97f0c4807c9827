"""Sequence numbers of generations are dropped when no sender can continue them, and not before."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from agent.wire import Frame, FrameKind, broker, encode_frame, generations

DAY_MS = 86_400_000


@pytest.fixture
def client(redis_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(redis_url) as connection:
        yield connection


def send(client: redis.Redis, agent: str, life: str, seq: int = 1, *, worked_off: bool = True) -> None:
    """One frame; where it is worked off, it is committed and trimmed, too."""
    frame = Frame(FrameKind.RECORDS, agent, life, seq, query="c/q", plan="p", entry=1, body=b"x")
    assert broker.accept_frames(client, [(frame, encode_frame(frame))], broker.BrokerLimits()).refused is None
    if worked_off:
        broker.publish_committed(client, {(agent, life): seq})
        broker.trim_streams(client, broker.last_ids(client))


def now_ms(client: redis.Redis, days: float = 0) -> int:
    seconds, micros = client.time()
    return int(seconds) * 1000 + int(micros) // 1000 + 1 + round(days * DAY_MS)


def age(client: redis.Redis, agent: str, life: str, days: float) -> None:
    """Its last frame came so long ago."""
    client.hset(broker.ACCEPTED_AT, f"{agent}:{life}", now_ms(client, -days))


def outlived(client: redis.Redis, *agents: str, days: float = 0) -> set[tuple[str, str]]:
    now = now_ms(client, days)
    return {
        (generation.agent, generation.life)
        for generation in generations.expired_generations(generations.known_generations(client, now), agents, now)
    }


def test_generations_of_removed_agents_expire_when_all_frames_are_trimmed(client: redis.Redis) -> None:
    send(client, "here", "l1")
    send(client, "gone", "l1")
    assert outlived(client, "here", "gone") == set()
    assert outlived(client, "here") == {("gone", "l1")}
    send(client, "gone", "l1", 2, worked_off=False)
    assert outlived(client, "here") == set(), "not worked off"
    broker.publish_committed(client, {("gone", "l1"): 2})
    assert outlived(client, "here") == set(), "a stream processor that begins anew would read it again"
    broker.trim_streams(client, broker.last_ids(client))
    assert outlived(client, "here") == {("gone", "l1")}


def test_generation_expires_a_month_after_its_last_frame_if_there_is_a_later_one(client: redis.Redis) -> None:
    for life in ("l1", "l2", "7-a", "8-a", "8-b"):
        send(client, "a", life)
    for life, days in {"l1": 31, "7-a": 99, "8-a": 29, "l2": 30.5, "8-b": 1}.items():
        age(client, "a", life, days)
    # l2 is the latest of its series, and so is 7-a, a producer's only one for another query
    assert outlived(client, "a") == {("a", "l1")}
    assert outlived(client, "a", days=2) == {("a", "l1"), ("a", "8-a")}


def test_generation_without_a_time_ages_from_the_first_look(client: redis.Redis) -> None:
    broker.publish_committed(client, {("a", "old"): 5})
    send(client, "a", "new")
    age(client, "a", "new", -1)
    assert outlived(client, "a") == set()
    assert outlived(client, "a", days=29) == set()
    assert outlived(client, "a", days=31) == {("a", "old")}


def test_expired_generation_leaves_nothing_and_a_sending_one_is_kept(client: redis.Redis) -> None:
    send(client, "gone", "l1")
    send(client, "back", "l1")
    found = [generation for generation in generations.known_generations(client, now_ms(client)) if generation.settled]
    assert generations.mark_expired(client, found) == 2
    assert generations.mark_expired(client, found) == 0
    assert generations.expired_names(client) == {("gone", "l1"), ("back", "l1")}
    send(client, "back", "l1", 2, worked_off=False)
    assert generations.forget_generations(client, generations.expired_names(client)) == {("gone", "l1")}
    assert generations.expired_names(client) == set()
    assert broker.generation_progress(client, "gone", "l1") == broker.GenerationProgress(0, 0)
    assert broker.generation_progress(client, "back", "l1") == broker.GenerationProgress(2, 1)
    for key in (broker.ACCEPTED, broker.COMMITTED, broker.ACCEPTED_AT):
        assert client.hkeys(key) == [b"back:l1"]
    assert generations.forget_generations(client, []) == set()
