"""How long is known what nobody has any more: plans without a query, numbers of lives that have ended."""

from __future__ import annotations

from datetime import datetime, timedelta

import redis
from django.db import transaction
from django.db.models import DateTimeField, Exists, ExpressionWrapper, F, OuterRef, QuerySet
from django.utils import timezone

from agent.wire import lives
from apps.telemetry.directory import forget_facts_on_commit
from apps.telemetry.models import Agent, KnownPlan
from apps.telemetry.streams import stream_client

__all__ = ["PLANS_KEPT", "lives_purge", "plans_purge"]

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


def lives_purge(now: datetime | None = None) -> int:
    """Name lives that nobody can send for; the stream processor forgets them. Returns how many are named anew."""
    now_ms = round((now or timezone.now()).timestamp() * 1000)
    try:
        found = lives.known(stream_client(), now_ms)  # before the agents: one that joins now is among these
        agents = {str(pk) for pk in Agent.objects.values_list("pk", flat=True)}
        return lives.name_outlived(stream_client(), lives.outlived(found, agents, now_ms))
    except redis.RedisError:
        return 0  # named an hour later


def _silent_since() -> QuerySet[KnownPlan.agents.through]:
    """Parts of agents that were last heard of while the plan was in use."""
    ended = ExpressionWrapper(OuterRef("used_at") + _NOTED, output_field=DateTimeField())
    parts = KnownPlan.agents.through.objects.filter(knownplan=OuterRef("pk"))
    return parts.filter(agent__last_seen__gte=OuterRef("created_at"), agent__last_seen__lte=ended)
