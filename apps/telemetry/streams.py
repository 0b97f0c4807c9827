"""Redis as this process reaches it, and what the stream processor says of itself there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import redis
from django.conf import settings
from redis.backoff import NoBackoff
from redis.retry import Retry

from agent.wire import broker
from apps.core.errors import Unavailable

__all__ = ["limits", "redis_or_unavailable", "stream_client", "stream_state"]

_TIMEOUT_S = 3.0
_RETRY_S = 2.0


def stream_client() -> redis.Redis:
    """The client of this process, with connections kept. A second try is safe: every script may be repeated."""
    return _client(settings.REDIS_URL)


@lru_cache(maxsize=4)
def _client(url: str) -> redis.Redis:
    return redis.Redis.from_url(url, socket_connect_timeout=1.0, socket_timeout=_TIMEOUT_S, retry=Retry(NoBackoff(), 1))


def limits() -> broker.Limits:
    """How much may wait for the stream processor."""
    return broker.Limits(total_bytes=settings.STREAM_MAX_BYTES, retry_after_s=_RETRY_S)


@contextmanager
def redis_or_unavailable() -> Iterator[redis.Redis]:
    """The client; whatever Redis refuses (it is away, full, loading, read-only) becomes a 503 to come back from."""
    try:
        yield stream_client()
    except redis.RedisError as error:
        word = "does not answer" if isinstance(error, (redis.ConnectionError, redis.TimeoutError)) else "takes nothing"
        raise Unavailable(f"Redis {word} at present. Try again in a moment.", retry_after_s=_RETRY_S) from error


def stream_state() -> dict[str, Any]:
    """What the stream processor says of itself; `{"state": "away"}` when it is silent, `unknown` without Redis."""
    try:
        found = broker.stream_state(stream_client())
    except (redis.RedisError, ValueError):
        return {"state": "unknown"}
    return found or {"state": "away"}
