"""Leases: of all processes on all hosts one at a time may do a thing, as long as it keeps saying that it is there.

A lease lies in Redis with an end. Its holder renews it; of a holder that was killed, froze or lost Redis it runs out,
and another takes it. So there is no holder for up to `lasts_s` seconds then, and never two at the moment of a look:
a process that was frozen finds out with its next look, and has to look right before each thing it does.
"""

from __future__ import annotations

import logging
import os
import socket
import uuid
from contextlib import suppress

import redis
from django.conf import settings

__all__ = ["Lease"]

_PREFIX = "sluice:lease:"
_TIMEOUT_S = 2.0
_log = logging.getLogger(__name__)

# one step: what is free or one's own is taken for so long; the answer is who has it
_TAKE = """
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return holder end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return ARGV[1]
"""
_GIVE_BACK = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"


class Lease:
    """The lease `name` as one process sees it; it runs out `lasts_s` seconds after the last `hold`."""

    def __init__(self, name: str, *, lasts_s: float) -> None:
        self._key, self._lasts_ms = _PREFIX + name, round(lasts_s * 1000)
        self._me = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex}"
        self._client = redis.Redis.from_url(
            settings.REDIS_URL, socket_connect_timeout=_TIMEOUT_S, socket_timeout=_TIMEOUT_S, retry=None
        )
        self._seen = ""

    def hold(self) -> bool:
        """Take the lease or renew it; whether this process has it now. Without an answer of Redis nobody has it.

        Who has it, or that it cannot be known, is logged where that has changed.
        """
        try:
            holder = self._client.eval(_TAKE, 1, self._key, self._me, self._lasts_ms).decode()
        except redis.RedisError as error:
            self._tell(f"unknown, Redis does not answer: {error}")
            return False
        self._tell("this process" if holder == self._me else f"{holder.rpartition(':')[0]}; standing by")
        return bool(holder == self._me)

    def release(self) -> None:
        """Give it back at once, where this process has it."""
        with suppress(redis.RedisError):  # it runs out by itself
            self._client.eval(_GIVE_BACK, 1, self._key, self._me)

    def _tell(self, holder: str) -> None:
        if holder != self._seen:
            self._seen = holder
            _log.warning("%s is held by %s", self._key.removeprefix(_PREFIX), holder)
