"""Advisory locks of processes on all hosts: they save work that another would undo, and guard nothing.

They lie in Redis. Who gets none in time, or no answer from Redis, goes on without: what is stored has to be checked as
if there were none.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import redis
from django.conf import settings
from redis.exceptions import LockError

__all__ = ["advisory_lock"]

_PREFIX = "sluice:lock:"
_TIMEOUT_S = 0.5
_LOOK_S = 0.02
_log = logging.getLogger(__name__)


@contextmanager
def advisory_lock(name: str, *, wait_s: float, lasts_s: float) -> Iterator[bool]:
    """Hold the lock `name`, waiting up to `wait_s` seconds for it; whether it is held.

    After `lasts_s` seconds others may have it as well, so that a process that died keeps nobody waiting for longer.
    """
    with redis.Redis.from_url(
        settings.REDIS_URL, socket_connect_timeout=_TIMEOUT_S, socket_timeout=_TIMEOUT_S, retry=None
    ) as client:
        lock = client.lock(_PREFIX + name, timeout=lasts_s, sleep=_LOOK_S, blocking_timeout=wait_s)
        try:
            is_held = lock.acquire()
        except redis.RedisError as error:
            _log.warning("%s goes on without its lock, Redis does not answer: %s", name, error)
            is_held = False
        try:
            yield is_held
        finally:
            if is_held:
                with suppress(LockError, redis.RedisError):  # it has run out, or will
                    lock.release()
