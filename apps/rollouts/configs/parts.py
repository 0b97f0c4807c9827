"""Parts of configurations: which one an agent is to have, for a query and for its schedule."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, TypeVar

from django.db import transaction
from django.db.models import Exists, F, Model, OuterRef, Q, QuerySet, Subquery

from apps.rollouts.choices import GIVEN, IN_FORCE, SPREADING, RolloutState
from apps.rollouts.documents import TTL_S, document_renew, document_stamp
from apps.rollouts.models import RefinedConfig, RefinedPart, RolloutMember, SchedulePart
from apps.telemetry.configs import configs_renew, live_served, refiner, scheduler
from apps.telemetry.models import Agent, Assignment
from apps.telemetry.selectors import agents_scheduling
from engine.refined_document import SCHEMA

__all__ = [
    "agents_of",
    "agents_to_schedule",
    "agents_with_schedules",
    "assignments_refined",
    "part_of",
    "parts_in_force",
    "parts_reaching",
    "parts_renew",
    "parts_stamp",
    "refined_of",
    "schedule_make",
    "schedule_of",
    "schedule_part_of",
]


Part = TypeVar("Part", bound=Model)


def parts_reaching(parts: QuerySet[Part], agent: Any) -> QuerySet[Part]:
    """Of these parts (of queries, or of schedules) those an agent may have: newest first, and of one configuration
    its own before that for all. `agent` is its id, or an `OuterRef` to it.

    Parts sent to members of a rollout count until it ends: then they are in force, or rolled back, or void.
    """
    member = OuterRef(agent) if isinstance(agent, OuterRef) else agent
    spreads = Q(rollout__config=OuterRef("config"), rollout__state__in=SPREADING)
    returns = Q(rollout__back=OuterRef("config"), rollout__state=RolloutState.ROLLING_BACK)
    members = RolloutMember.objects.filter(spreads | returns, agent=member, state__in=GIVEN)
    rows = parts.filter(Q(agent=agent) | Q(agent=None))
    rows = rows.filter(Q(config__state__in=IN_FORCE) | Exists(members))
    return rows.order_by("-config__number", F("agent").asc(nulls_last=True))


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
    """The schedule part an agent is to have; `below` a configuration's number: the one it would have without it."""
    rows = SchedulePart.objects.filter(config__cluster=agent.cluster_id)
    if below is not None:
        rows = rows.filter(config__number__lt=below)
    return parts_reaching(rows, agent.pk).select_related("config__parent").first()


@scheduler
def schedule_of(agent: Agent) -> dict[str, Any] | None:
    """The document an agent is sent; None if it has none."""
    part = schedule_part_of(agent)
    return part.document if part else None


def agents_with_schedules(agents: QuerySet[Agent]) -> QuerySet[Agent]:
    """Agents with `schedule_id`, the part each is to have now, and `schedule_number`, that of its configuration."""
    parts = SchedulePart.objects.filter(config__cluster=OuterRef("cluster"))
    reaching = parts_reaching(parts, OuterRef("pk"))
    return agents.annotate(
        schedule_id=Subquery(reaching.values("pk")[:1]), schedule_number=Subquery(reaching.values("config__number")[:1])
    )


def agents_to_schedule(config: RefinedConfig) -> list[Agent]:
    """Agents to which a configuration gives a schedule."""
    meant = set(config.schedule_parts.values_list("agent", flat=True))
    if not meant:
        return []
    return [agent for agent in agents_scheduling(config.cluster_id) if None in meant or agent.pk in meant]


_RENEWED = timedelta(seconds=TTL_S / 2)


def part_of(assignment: Assignment, *, below: int | None = None) -> RefinedPart | None:
    """The part an agent is to have in a query; `below` a configuration's number: the one it would have without it."""
    parts = RefinedPart.objects.filter(live=assignment.live_id, plan=assignment.live.plan)
    reaching = parts_reaching(parts, assignment.agent_id)
    if below is not None:
        reaching = reaching.filter(config__number__lt=below)
    return reaching.select_related("config__parent").first()


@refiner
def refined_of(assignment: Assignment) -> dict[str, Any] | None:
    """The document an agent is sent; None if it has none."""
    part = part_of(assignment)
    return part.document if part else None


def assignments_refined(assignments: QuerySet[Assignment]) -> QuerySet[Assignment]:
    """Assignments with `part_id`, the part each is to have now."""
    parts = RefinedPart.objects.filter(live=OuterRef("live"), plan=OuterRef("live__plan"))
    return assignments.annotate(part_id=Subquery(parts_reaching(parts, OuterRef("agent")).values("pk")[:1]))


@transaction.atomic
def parts_renew(now: datetime) -> int:
    """Renew parts in force before their TTL ends; returns how many were renewed."""
    running = Assignment.objects.filter(enabled=True, live__in=live_served())
    queries, schedules = parts_in_force(running, Agent.objects.filter(enabled=True))
    stamped = [
        *parts_stamp(RefinedPart.objects.filter(pk__in=queries), now),
        *parts_stamp(SchedulePart.objects.filter(pk__in=schedules), now),
    ]
    configs_renew(agents_of(stamped))
    return len(stamped)


def parts_in_force(assignments: QuerySet[Assignment], agents: QuerySet[Agent]) -> tuple[set[int], set[int]]:
    """Ids of the parts in force at these: of queries, and of schedules."""
    queries = assignments_refined(assignments).values_list("part_id", flat=True)
    schedules = agents_with_schedules(agents).values_list("schedule_id", flat=True)
    return {pk for pk in queries if pk is not None}, {pk for pk in schedules if pk is not None}


def agents_of(parts: Iterable[RefinedPart | SchedulePart]) -> set[Any]:
    """Ids of agents that may have one of these parts."""
    agents: set[Any] = set()
    for part in parts:
        if part.agent_id:
            agents.add(part.agent_id)
        elif isinstance(part, SchedulePart):
            agents |= set(part.config.cluster.agents.values_list("pk", flat=True))
        else:
            agents |= set(part.live.assignments.values_list("agent", flat=True))
    return agents


def parts_stamp(parts: QuerySet[Any], now: datetime) -> list[RefinedPart | SchedulePart]:
    """Renew those of these parts, of queries or of schedules, whose TTL is half over; returns them."""
    stale = round((now - _RENEWED).timestamp() * 1e6)
    related = "live" if parts.model is RefinedPart else "config__cluster"
    rows = list(parts.filter(document__valid_from_us__lt=stale).select_related(related))
    for part in rows:
        part.document = document_renew(part.document, now)
        part.save(update_fields=["document"])
    return rows
