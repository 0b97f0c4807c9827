"""Which parts of configurations have reached an agent: the newest that was given to it, or that is in force for all."""

from __future__ import annotations

from typing import Any, TypeVar

from django.db.models import Exists, F, Model, OuterRef, Q, QuerySet

from apps.refinement.choices import GIVEN, IN_FORCE, SPREADING, RolloutState
from apps.refinement.models import RolloutMember

__all__ = ["reached"]

Part = TypeVar("Part", bound=Model)


def reached(parts: QuerySet[Part], agent: Any) -> QuerySet[Part]:
    """Of these parts (of queries, or of schedules) those that an agent may have: newest first, and of one configuration
    its own before that for all. `agent` is its id, or an `OuterRef` to it.

    What a rollout gave to its members counts until it ends: then it is in force, or taken back, or nothing any more.
    """
    member = OuterRef(agent) if isinstance(agent, OuterRef) else agent
    spreads = Q(rollout__config=OuterRef("config"), rollout__state__in=SPREADING)
    returns = Q(rollout__back=OuterRef("config"), rollout__state=RolloutState.ROLLING_BACK)
    given = RolloutMember.objects.filter(spreads | returns, agent=member, state__in=GIVEN)
    rows = parts.filter(Q(agent=agent) | Q(agent=None))
    rows = rows.filter(Q(config__state__in=IN_FORCE) | Exists(given))
    return rows.order_by("-config__number", F("agent").asc(nulls_last=True))
