"""Counters of a window that all processes share: how often something was tried lately.

They lie in Redis, whose clock ends the windows. Each process counts in its own memory as well and goes by that while
Redis does not answer: with n processes a caller then reaches up to n times a limit, and never loses all limits.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import redis
from django.conf import settings
from django.core.cache import cache
from rest_framework.request import Request
from rest_framework.throttling import SimpleRateThrottle

__all__ = ["CountedWindow", "TokenRateThrottle", "count_of", "count_up", "forget_counts", "take_back"]

_PREFIX = "sluice:count:"
_TIMEOUT_S = 0.5
_PAUSE_S = 5.0  # after Redis did not answer: requests do not wait for it one by one
_log = logging.getLogger(__name__)
_not_before = 0.0  # on the monotonic clock

# a counter that expires in between is begun anew, never left without an end
_COUNT_UP = """
local seen = {}
for index, key in ipairs(KEYS) do
  redis.call('SET', key, 0, 'NX', 'PX', ARGV[index])
  seen[2 * index - 1] = redis.call('INCR', key)
  seen[2 * index] = redis.call('PTTL', key)
end
return seen
"""
_TAKE_BACK = """
for _, key in ipairs(KEYS) do
  if tonumber(redis.call('GET', key) or '0') > 0 then redis.call('DECR', key) end
end
"""


@dataclass(frozen=True)
class CountedWindow:
    """A counter that begins with the first event and ends `window_s` later; more than `limit` events are too many."""

    key: str
    limit: int
    window_s: float


def count_up(windows: Sequence[CountedWindow]) -> float:
    """Count one event in each window. Seconds until the fullest of those that are over their limit ends; 0 for none."""
    seen = zip(windows, _counted(windows), strict=True)
    over = [left / 1e3 for window, (count, left) in seen if count > window.limit]
    return max(over, default=0.0)


def count_of(window: CountedWindow) -> int:
    """Count one event in a window; returns how many it has by now."""
    return int(_counted([window])[0][0])


def _counted(windows: Sequence[CountedWindow]) -> list[tuple[float, float]]:
    """Count one event in each window: (events, milliseconds left) of each."""
    own = [_count_here(window) for window in windows]
    sent = [_PREFIX + window.key for window in windows], [round(window.window_s * 1e3) for window in windows]
    flat = _in_redis(_COUNT_UP, *sent)
    return list(zip(flat[::2], flat[1::2], strict=True)) if flat else [(count, left * 1e3) for count, left in own]


def take_back(windows: Sequence[CountedWindow]) -> None:
    """Take one event of each window back."""
    for window in windows:
        if entry := cache.get(_PREFIX + window.key):
            count, ends = entry
            cache.set(_PREFIX + window.key, (max(0, count - 1), ends), max(0.0, ends - time.monotonic()))
    _in_redis(_TAKE_BACK, [_PREFIX + window.key for window in windows], [])


def forget_counts(windows: Sequence[CountedWindow]) -> None:
    """Begin these windows anew."""
    keys = [_PREFIX + window.key for window in windows]
    cache.delete_many(keys)
    _in_redis("return redis.call('DEL', unpack(KEYS))", keys, [])


class TokenRateThrottle(SimpleRateThrottle):
    """A rate per token, else per signed-in user, else per address (`DEFAULT_THROTTLE_RATES["token"]`).

    Counted over all processes: it keeps one runaway script from starving people.
    """

    scope = "token"
    left_s = 0.0

    def allow_request(self, request: Request, view: Any) -> bool:
        window = CountedWindow(self.get_cache_key(request, view), int(self.num_requests), float(self.duration))
        self.left_s = count_up([window])
        return not self.left_s

    def wait(self) -> float | None:
        return self.left_s or None

    def get_cache_key(self, request: Request, view: Any) -> str:
        if request.auth is not None:
            caller = f"token:{request.auth.pk}"
        elif request.user and request.user.is_authenticated:
            caller = f"user:{request.user.pk}"
        else:
            caller = f"address:{self.get_ident(request)}"
        return f"rate:{caller}"


def _count_here(window: CountedWindow) -> tuple[int, float]:
    """Count in this process; without a lock, since a lost count of two at once does not matter here."""
    now = time.monotonic()
    count, ends = cache.get(_PREFIX + window.key) or (0, now + window.window_s)
    cache.set(_PREFIX + window.key, (count + 1, ends), max(0.0, ends - now))
    return count + 1, max(0.0, ends - now)


def _in_redis(script: str, keys: Sequence[str], values: Sequence[int]) -> list[int]:
    """Run a script and return its answer; nothing while Redis is away."""
    global _not_before
    if time.monotonic() < _not_before:
        return []
    try:
        return _client(settings.REDIS_URL).eval(script, len(keys), *keys, *values) or []  # type: ignore[return-value]
    except redis.RedisError as error:
        _log.warning("limits are counted by each process for %g s, Redis does not answer: %s", _PAUSE_S, error)
        _not_before = time.monotonic() + _PAUSE_S
        return []


@lru_cache(maxsize=4)
def _client(url: str) -> redis.Redis:
    return redis.Redis.from_url(url, socket_connect_timeout=_TIMEOUT_S, socket_timeout=_TIMEOUT_S, retry=None)
