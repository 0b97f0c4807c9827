"""Which configuration an agent is to have now: the newest that reached it, or that is in force for all."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet, Subquery

from apps.refinement.choices import GIVEN, IN_FORCE, SPREADING, RolloutState
from apps.refinement.documents import TTL_S, document_renew
from apps.refinement.models import RefinedPart, RolloutMember
from apps.telemetry.adapting import refiner
from apps.telemetry.choices import AgentKind
from apps.telemetry.configs import configs_renew, live_served
from apps.telemetry.models import Assignment

__all__ = [
    "agents_of",
    "assignments_adapting",
    "assignments_refined",
    "part_of",
    "parts_renew",
    "parts_stamp",
    "refined_of",
]

_RENEWED = timedelta(seconds=TTL_S / 2)


def part_of(assignment: Assignment, *, below: int | None = None) -> RefinedPart | None:
    """What an agent is to have in a query now; `below` a configuration's number: what it would have without it."""
    found = _parts(assignment.agent_id).filter(live=assignment.live_id, plan=assignment.live.plan)
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
    parts = _parts(OuterRef("agent")).filter(live=OuterRef("live"), plan=OuterRef("live__plan"))
    return assignments.annotate(part_id=Subquery(parts.values("pk")[:1]))


def assignments_adapting(cluster: Any) -> list[Assignment]:
    """Parts in live queries of a cluster at agents that adapt: not producers, not those set by hand."""
    rows = Assignment.objects.filter(enabled=True, agent__enabled=True, agent__cluster=cluster, live__in=live_served())
    rows = rows.exclude(agent__kind=AgentKind.PRODUCER).select_related("agent", "live__query__cluster", "live__source")
    return [one for one in rows.order_by("live__query__name", "agent__name") if not one.by_hand]


@transaction.atomic
def parts_renew(now: datetime) -> int:
    """Stamp what is in force anew before its time to live is over; returns how many parts were."""
    wanted = assignments_refined(Assignment.objects.filter(enabled=True, live__in=live_served()))
    ids = {part_id for part_id in wanted.values_list("part_id", flat=True) if part_id is not None}
    stamped = parts_stamp(RefinedPart.objects.filter(pk__in=ids), now)
    configs_renew(agents_of(stamped))
    return len(stamped)


def agents_of(parts: Iterable[RefinedPart]) -> set[Any]:
    """Ids of agents that may have one of these parts."""
    agents: set[Any] = set()
    for part in parts:
        agents |= {part.agent_id} if part.agent_id else set(part.live.assignments.values_list("agent", flat=True))
    return agents


def parts_stamp(parts: QuerySet[RefinedPart], now: datetime) -> list[RefinedPart]:
    """Make those of these parts valid from now on of which half of the time is over; returns them."""
    stale = round((now - _RENEWED).timestamp() * 1e6)
    rows = list(parts.filter(document__valid_from_us__lt=stale).select_related("live"))
    for part in rows:
        part.document = document_renew(part.document, now)
        part.save(update_fields=["document"])
    return rows


def _parts(agent: Any) -> QuerySet[RefinedPart]:
    """Parts that an agent may have: newest first, and of one configuration its own before that for all.

    What a rollout gave to its members counts until it ends: then it is in force, or taken back, or nothing any more.
    """
    member = OuterRef(agent) if isinstance(agent, OuterRef) else agent
    spreads = Q(rollout__config=OuterRef("config"), rollout__state__in=SPREADING)
    returns = Q(rollout__back=OuterRef("config"), rollout__state=RolloutState.ROLLING_BACK)
    given = RolloutMember.objects.filter(spreads | returns, agent=member, state__in=GIVEN)
    rows = RefinedPart.objects.filter(Q(agent=agent) | Q(agent=None))
    rows = rows.filter(Q(config__state__in=IN_FORCE) | Exists(given))
    return rows.order_by("-config__number", F("agent").asc(nulls_last=True))
