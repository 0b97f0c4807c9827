"""Which configuration an agent is to have now: the newest that reached it, or that is in force for all."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import OuterRef, QuerySet, Subquery

from apps.refinement.documents import TTL_S, document_renew
from apps.refinement.models import RefinedPart, SchedulePart
from apps.refinement.reaching import reached
from apps.refinement.schedules import agents_with_schedules
from apps.telemetry.adapting import refiner
from apps.telemetry.choices import AgentKind
from apps.telemetry.configs import configs_renew, live_served
from apps.telemetry.models import Agent, Assignment

__all__ = [
    "agents_of",
    "assignments_adapting",
    "assignments_refined",
    "part_of",
    "parts_in_force",
    "parts_renew",
    "parts_stamp",
    "refined_of",
]

_RENEWED = timedelta(seconds=TTL_S / 2)


def part_of(assignment: Assignment, *, below: int | None = None) -> RefinedPart | None:
    """What an agent is to have in a query now; `below` a configuration's number: what it would have without it."""
    parts = RefinedPart.objects.filter(live=assignment.live_id, plan=assignment.live.plan)
    found = reached(parts, assignment.agent_id)
    if below is not None:
        found = found.filter(config__number__lt=below)
    return found.select_related("config__parent").first()


@refiner
def refined_of(assignment: Assignment) -> dict[str, Any] | None:
    """The document that an agent is sent; None where there is none."""
    part = part_of(assignment)
    return part.document if part else None


def assignments_refined(assignments: QuerySet[Assignment]) -> QuerySet[Assignment]:
    """Assignments with `part_id`, the part of a configuration that each is to have now."""
    parts = RefinedPart.objects.filter(live=OuterRef("live"), plan=OuterRef("live__plan"))
    return assignments.annotate(part_id=Subquery(reached(parts, OuterRef("agent")).values("pk")[:1]))


def assignments_adapting(cluster: Any) -> list[Assignment]:
    """Parts in live queries of a cluster at agents that adapt: not producers, not those set by hand."""
    rows = Assignment.objects.filter(enabled=True, agent__enabled=True, agent__cluster=cluster, live__in=live_served())
    rows = rows.exclude(agent__kind=AgentKind.PRODUCER).select_related("agent", "live__query__cluster", "live__source")
    return [one for one in rows.order_by("live__query__name", "agent__name") if not one.by_hand]


@transaction.atomic
def parts_renew(now: datetime) -> int:
    """Stamp what is in force anew before its time to live is over; returns how many parts were."""
    running = Assignment.objects.filter(enabled=True, live__in=live_served())
    queries, schedules = parts_in_force(running, Agent.objects.filter(enabled=True))
    stamped = [
        *parts_stamp(RefinedPart.objects.filter(pk__in=queries), now),
        *parts_stamp(SchedulePart.objects.filter(pk__in=schedules), now),
    ]
    configs_renew(agents_of(stamped))
    return len(stamped)


def parts_in_force(assignments: QuerySet[Assignment], agents: QuerySet[Agent]) -> tuple[set[int], set[int]]:
    """Ids of the parts that these are to have now: of queries, and of schedules."""
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
    """Make those of these parts, of queries or of schedules, valid from now on of which half of the time is over;
    returns them."""
    stale = round((now - _RENEWED).timestamp() * 1e6)
    related = "live" if parts.model is RefinedPart else "config__cluster"
    rows = list(parts.filter(document__valid_from_us__lt=stale).select_related(related))
    for part in rows:
        part.document = document_renew(part.document, now)
        part.save(update_fields=["document"])
    return rows
