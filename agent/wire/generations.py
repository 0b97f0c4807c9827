"""Agent generations that nobody can send for any more: removed from Redis and from the stream processor's state.

Sequence numbers keep a frame from counting twice, so a generation expires only when nobody can send for it: its agent
was removed, or has begun a later generation and sent nothing of this one for 30 days, by when a repetition would
belong to windows long passed. None of its frames may be in a stream or wait for the stream processor, either: a stream
processor that begins at the oldest entries again must know which ones it had.

The console names expired generations; the stream processor drops them, so that it never publishes positions that Redis
has dropped.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

import redis

from agent.wire.broker import (
    ACCEPTED,
    ACCEPTED_AT,
    COMMITTED,
    FORGET,
    PARTITIONS,
    oldest_at_s,
    partition_of,
    run_script,
)

__all__ = ["expired_generations", "expired_names", "forget_generations", "known_generations", "mark_expired"]

IDLE_MS = 30 * 86_400_000
_NAMED = "sluice:outlived"


@dataclass(frozen=True)
class Generation:
    """One numbering of an agent, as Redis knows it."""

    agent: str
    life: str
    last_ms: int  #: when its last frame was accepted, by the clock of Redis
    settled: bool  #: all of it is behind the stream processor's checkpoint, and trimmed

    @property
    def series(self) -> tuple[str, str]:
        """Series of successive generations: a producer numbers each query by itself, as QUERY-LIFE."""
        return self.agent, self.life.rpartition("-")[0]


def known_generations(client: redis.Redis, now_ms: int) -> list[Generation]:
    """Every generation with sequence numbers in Redis; one without a time of its last frame gets `now_ms`."""
    accepted, committed, at = (_numbers(client, key) for key in (ACCEPTED, COMMITTED, ACCEPTED_AT))
    begins_ms = [1000 * (oldest_at_s(client, number, "0-0") or now_ms / 1000) for number in range(PARTITIONS)]
    generations = []
    for name in accepted.keys() | committed.keys():
        if name not in at:
            client.hsetnx(ACCEPTED_AT, name, now_ms)
        agent, _, life = name.rpartition(":")
        last_ms = at.get(name, now_ms)
        settled = accepted.get(name, 0) <= committed.get(name, 0) and last_ms < begins_ms[partition_of(agent)]
        generations.append(Generation(agent, life, last_ms, settled))
    return generations


def expired_generations(lives: Collection[Generation], agents: Collection[str], now_ms: int) -> list[Generation]:
    """Generations among `lives` that no sender can continue, where `agents` are all that exist."""
    last_ms: dict[tuple[str, str], int] = {}
    for live in lives:
        last_ms[live.series] = max(live.last_ms, last_ms.get(live.series, 0))
    return [
        live
        for live in lives
        if live.settled
        and (live.agent not in agents or (live.last_ms < last_ms[live.series] and now_ms - live.last_ms > IDLE_MS))
    ]


def mark_expired(client: redis.Redis, lives: Iterable[Generation]) -> int:
    """Leave their names for the stream processor; returns how many were not named before."""
    names = [f"{live.agent}:{live.life}" for live in lives]
    return int(client.sadd(_NAMED, *names)) if names else 0  # type: ignore[arg-type]


def expired_names(client: redis.Redis) -> set[tuple[str, str]]:
    """Agent and life of those that the console has named."""
    names: Any = client.smembers(_NAMED)
    return {(agent, life) for agent, _, life in (name.decode().rpartition(":") for name in names)}


def forget_generations(client: redis.Redis, lives: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
    """Drop the sequence numbers of named generations; returns those dropped, without generations that began to send
    again.
    """
    names = {f"{agent}:{life}": (agent, life) for agent, life in lives}
    keys = [ACCEPTED, COMMITTED, ACCEPTED_AT, _NAMED]
    gone = run_script(client, FORGET, keys, list(names)) if names else []
    return {names[name.decode()] for name in gone}


def _numbers(client: redis.Redis, key: str) -> dict[str, int]:
    fields: Any = client.hgetall(key)
    return {name.decode(): int(value) for name, value in fields.items()}
