"""How agents are to share their cores by configurations: the documents, and which of them an agent is to have now."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db.models import OuterRef, QuerySet, Subquery

from apps.refinement.documents import TTL_S, document_stamp
from apps.refinement.models import RefinedConfig, SchedulePart
from apps.refinement.reaching import reached
from apps.scheduling.selectors import agents_scheduling
from apps.telemetry.adapting import scheduler
from apps.telemetry.models import Agent
from engine.refined import SCHEMA

__all__ = ["agents_with_schedules", "schedule_make", "schedule_of", "schedule_part_of", "schedule_takers"]


def schedule_make(
    *, config: RefinedConfig, agent: Agent | None, settings: Mapping[str, Any], now: datetime
) -> SchedulePart:
    """The part of a configuration for an agent, or for all; not saved. What `settings` leave out has its default."""
    says = {
        "schema": SCHEMA,
        "agent": str(agent.pk) if agent else "*",
        "schedule": dict(settings),
        "ttl_s": TTL_S,
        "fallback": "default",
    }
    return SchedulePart(config=config, agent=agent, document=document_stamp(says, config, now))


def schedule_part_of(agent: Agent, *, below: int | None = None) -> SchedulePart | None:
    """What an agent is to have now; `below` a configuration's number: what it would have without it."""
    rows = SchedulePart.objects.filter(config__cluster=agent.cluster_id)
    if below is not None:
        rows = rows.filter(config__number__lt=below)
    return reached(rows, agent.pk).select_related("config__parent").first()


@scheduler
def schedule_of(agent: Agent) -> dict[str, Any] | None:
    """The document that an agent is sent; None where there is none."""
    part = schedule_part_of(agent)
    return part.document if part else None


def agents_with_schedules(agents: QuerySet[Agent]) -> QuerySet[Agent]:
    """Agents with `schedule_id`, the part that each is to have now, and the number of its configuration."""
    parts = SchedulePart.objects.filter(config__cluster=OuterRef("cluster"))
    found = reached(parts, OuterRef("pk"))
    return agents.annotate(
        schedule_id=Subquery(found.values("pk")[:1]), schedule_number=Subquery(found.values("config__number")[:1])
    )


def schedule_takers(config: RefinedConfig) -> list[Agent]:
    """Agents that a configuration tells how to schedule."""
    meant = set(config.schedule_parts.values_list("agent", flat=True))
    if not meant:
        return []
    return [agent for agent in agents_scheduling(config.cluster_id) if None in meant or agent.pk in meant]
