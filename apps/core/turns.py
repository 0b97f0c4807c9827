"""Turns that processes of all hosts take at one thing. A turn saves work that another would undo, and guards nothing.

It lies in Redis. Who gets none in time, or no answer from Redis, goes on without: what is stored has to be checked as
if there were no turns.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import redis
from django.conf import settings
from redis.exceptions import LockError

__all__ = ["shared_turn"]

_PREFIX = "sluice:turn:"
_TIMEOUT_S = 0.5
_LOOK_S = 0.02
_log = logging.getLogger(__name__)


@contextmanager
def shared_turn(name: str, *, wait_s: float, lasts_s: float) -> Iterator[bool]:
    """Take the turn at `name`, waiting up to `wait_s` seconds for it; whether it was had.

    After `lasts_s` seconds others may have it as well, so that a process that died keeps nobody waiting for longer.
    """
    with redis.Redis.from_url(
        settings.REDIS_URL, socket_connect_timeout=_TIMEOUT_S, socket_timeout=_TIMEOUT_S, retry=None
    ) as client:
        turn = client.lock(_PREFIX + name, timeout=lasts_s, sleep=_LOOK_S, blocking_timeout=wait_s)
        try:
            is_had = turn.acquire()
        except redis.RedisError as error:
            _log.warning("%s goes on without its turn, Redis does not answer: %s", name, error)
            is_had = False
        try:
            yield is_had
        finally:
            if is_had:
                with suppress(LockError, redis.RedisError):  # it has run out, or will
                    turn.release()
