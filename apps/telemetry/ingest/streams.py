"""Redis streams of telemetry: client, state of the stream processor, retention of plans and agent generations."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

import redis
from django.conf import settings
from django.db import transaction
from django.db.models import DateTimeField, Exists, ExpressionWrapper, F, OuterRef, QuerySet
from django.utils import timezone
from redis.backoff import NoBackoff
from redis.retry import Retry

from agent.wire import broker, generations
from apps.core.errors import Unavailable
from apps.telemetry.agents.directory import forget_facts_on_commit
from apps.telemetry.models import Agent, KnownPlan

__all__ = [
    "ASSUMED_TRIGGER_S",
    "PLANS_KEPT",
    "generations_purge",
    "limits",
    "plans_purge",
    "redis_or_unavailable",
    "stream_client",
    "stream_state",
    "stream_trigger_s",
]

ASSUMED_TRIGGER_S = 2.0  #: what SLUICE_STREAM_TRIGGER_S is unless it is set
_MAX_TRIGGER_S = 600.0  # that the stream processor's settings allow
_TIMEOUT_S = 3.0
_RETRY_S = 2.0


def stream_client() -> redis.Redis:
    """The client of this process, with connections kept. A second try is safe: every script may be repeated."""
    return _client(settings.REDIS_URL)


@lru_cache(maxsize=4)
def _client(url: str) -> redis.Redis:
    return redis.Redis.from_url(url, socket_connect_timeout=1.0, socket_timeout=_TIMEOUT_S, retry=Retry(NoBackoff(), 1))


def limits() -> broker.BrokerLimits:
    """Limits of the data that waits for the stream processor."""
    return broker.BrokerLimits(total_bytes=settings.STREAM_MAX_BYTES, retry_after_s=_RETRY_S)


@contextmanager
def redis_or_unavailable() -> Iterator[redis.Redis]:
    """The client; whatever Redis refuses (it is away, full, loading, read-only) becomes a 503 to come back from."""
    try:
        yield stream_client()
    except redis.RedisError as error:
        word = "does not answer" if isinstance(error, (redis.ConnectionError, redis.TimeoutError)) else "takes nothing"
        raise Unavailable(f"Redis {word} at present. Try again in a moment.", retry_after_s=_RETRY_S) from error


def stream_state() -> dict[str, Any]:
    """Report of the stream processor about itself; `{"state": "away"}` when it is silent, `unknown` without Redis."""
    try:
        state = broker.stream_state(stream_client())
    except (redis.RedisError, ValueError):
        return {"state": "unknown"}
    return state or {"state": "away"}


def stream_trigger_s() -> float:
    """Trigger interval that the stream processor reports; the usual one while it reports none."""
    trigger_s = stream_state().get("trigger_s")
    if isinstance(trigger_s, bool) or not isinstance(trigger_s, (int, float)):
        return ASSUMED_TRIGGER_S
    return float(trigger_s) if 0.0 < trigger_s <= _MAX_TRIGGER_S else ASSUMED_TRIGGER_S


PLANS_KEPT = timedelta(days=30)  # longer than results of them are, so that each of these has its pipeline
_NOTED = timedelta(days=1)  # `used_at` is written so often at the least


@transaction.atomic
def plans_purge(now: datetime | None = None) -> int:
    """Note which plans queries have, and forget those that none had for long; returns how many are gone.

    A plan is kept as long as an agent that had a part in it has not been heard of since: what it still holds would be
    refused, and everything behind it with it.
    """
    now = now or timezone.now()
    KnownPlan.objects.filter(live__isnull=False, digest=F("live__plan")).update(used_at=now)
    old = KnownPlan.objects.filter(used_at__lt=now - PLANS_KEPT).exclude(Exists(_silent_since()))
    gone = old.count()
    if gone:
        old.delete()
        forget_facts_on_commit()
    return gone


def generations_purge(now: datetime | None = None) -> int:
    """Name lives that nobody can send for; the stream processor forgets them. Returns how many are named anew."""
    now_ms = round((now or timezone.now()).timestamp() * 1000)
    try:
        known = generations.known_generations(
            stream_client(), now_ms
        )  # before the agents: one that joins now is among these
        agents = {str(pk) for pk in Agent.objects.values_list("pk", flat=True)}
        return generations.mark_expired(stream_client(), generations.expired_generations(known, agents, now_ms))
    except redis.RedisError:
        return 0  # named an hour later


def _silent_since() -> QuerySet[Any]:
    """Parts of agents that were last heard of while the plan was in use."""
    ended = ExpressionWrapper(OuterRef("used_at") + _NOTED, output_field=DateTimeField())
    parts = KnownPlan.agents.through.objects.filter(knownplan=OuterRef("pk"))
    return parts.filter(agent__last_seen__gte=OuterRef("created_at"), agent__last_seen__lte=ended)
