"""Config versions: documents as agents get them, the parts an agent is to have, and the state of each version."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain
from typing import Any, TypeVar

from django.db import transaction
from django.db.models import Exists, F, Max, Model, OuterRef, Q, QuerySet, Subquery

from apps.core.events import announce
from apps.fleet.models import Cluster
from apps.rollouts.models import (
    GIVEN,
    IN_FORCE,
    SPREADING,
    ConfigOrigin,
    ConfigState,
    Learned,
    RefinedConfig,
    RefinedPart,
    RolloutMember,
    RolloutPolicy,
    RolloutState,
    SchedulePart,
)
from apps.telemetry.configs import configs_renew, live_served, refiner, scheduler
from apps.telemetry.models import Agent, Assignment, LiveQuery
from apps.telemetry.selectors import agents_scheduling
from engine.jarvis.refined_config import SCHEMA, LearnedFigures, seal

__all__ = [
    "PartDraft",
    "ScheduleDraft",
    "agents_of",
    "agents_to_schedule",
    "agents_with_schedules",
    "assignments_refined",
    "config_reissue",
    "config_store",
    "configs_announce",
    "configs_supersede",
    "document_make",
    "document_plain",
    "document_stamp",
    "learned_in",
    "part_of",
    "parts_reaching",
    "parts_renew",
    "parts_stamp",
    "policy_locked",
    "schedule_make",
    "schedule_part_of",
]

TTL_S = 3600.0  #: after that without contact an agent falls back to its own measurements
_NOTHING = LearnedFigures()


def document_make(
    *,
    config: RefinedConfig,
    live: LiveQuery,
    agent: Agent | None,
    settings: Mapping[str, object],
    learned: LearnedFigures = _NOTHING,
    now: datetime,
) -> dict[str, object]:
    """The document of a query at an agent, or at all agents; without `learned` it holds settings only."""
    document = {
        "schema": SCHEMA,
        "query": live.key,
        "plan": live.plan,
        "agent": str(agent.pk) if agent else "*",
        "settings": dict(settings),
        **learned.to_dict(),
        "ttl_s": TTL_S,
        "fallback": "local",
    }
    return document_stamp(document, config, now)


def document_stamp(document: Mapping[str, object], config: RefinedConfig, now: datetime) -> dict[str, object]:
    """The same content under a configuration's number, valid from now on."""
    content = {
        **document,
        "config": config.name,
        "version": config.number,
        "parent": config.parent.number if config.parent else None,
        "valid_from_us": round(now.timestamp() * 1e6),
    }
    return seal(content)


def document_renew(document: Mapping[str, object], now: datetime) -> dict[str, object]:
    """The same document, valid from now on; to agents it is the same version."""
    return seal({**document, "valid_from_us": round(now.timestamp() * 1e6)})


def document_plain(config: RefinedConfig, assignment: Assignment, now: datetime) -> dict[str, object]:
    """The document of an agent that never got a configuration: the settings of its assignment."""
    live, agent = assignment.live, assignment.agent
    return document_make(config=config, live=live, agent=agent, settings=assignment.settings, now=now)


def learned_in(cluster: Any) -> dict[tuple[int, Any], Learned]:
    """Learned figures of the plans that run in a cluster, by ids of live query and agent."""
    rows = Learned.objects.filter(live__query__cluster=cluster, plan=F("live__plan"))
    return {(row.live_id, row.agent_id): row for row in rows}


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
    *, config: RefinedConfig, agent: Agent | None, settings: Mapping[str, object], now: datetime
) -> SchedulePart:
    """The part of a configuration for an agent, or for all; not saved. What `settings` leave out has its default."""
    document = {
        "schema": SCHEMA,
        "agent": str(agent.pk) if agent else "*",
        "schedule": dict(settings),
        "ttl_s": TTL_S,
        "fallback": "default",
    }
    return SchedulePart(config=config, agent=agent, document=document_stamp(document, config, now))


def schedule_part_of(agent: Agent, *, below: int | None = None) -> SchedulePart | None:
    """The schedule part an agent is to have; `below` a configuration's number: the one it would have without it."""
    rows = SchedulePart.objects.filter(config__cluster=agent.cluster_id)
    if below is not None:
        rows = rows.filter(config__number__lt=below)
    return parts_reaching(rows, agent.pk).select_related("config__parent").first()


@scheduler
def schedule_of(agent: Agent) -> Mapping[str, object] | None:
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
def refined_of(assignment: Assignment) -> Mapping[str, object] | None:
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


@dataclass(frozen=True)
class PartDraft:
    """A part to be made: for a query at an agent, or at all agents (None)."""

    live: LiveQuery
    agent: Agent | None
    settings: Mapping[str, object]
    learned: LearnedFigures = _NOTHING


def policy_locked(cluster: Cluster) -> RolloutPolicy:
    """The policy of a cluster, locked until the transaction ends; every change of its rollouts locks it first."""
    RolloutPolicy.objects.get_or_create(cluster=cluster)
    return RolloutPolicy.objects.select_for_update(of=("self",)).select_related("cluster").get(cluster=cluster)


@dataclass(frozen=True)
class ScheduleDraft:
    """A schedule part to be made: for an agent, or for all agents (None)."""

    agent: Agent | None
    settings: Mapping[str, object]


def config_store(
    *,
    cluster: Cluster,
    origin: ConfigOrigin,
    drafts: Sequence[PartDraft],
    now: datetime,
    schedules: Sequence[ScheduleDraft] = (),
    **fields: Any,
) -> RefinedConfig:
    """Store a new configuration with its parts. The caller has locked the policy."""
    config = RefinedConfig.objects.create(
        cluster=cluster,
        number=_next_number(cluster),
        parent=_newest(cluster),
        origin=origin,
        created_at=now,
        **{"words": "", **fields, "author": fields.get("author")},
    )
    RefinedPart.objects.bulk_create(_part(config, draft, now) for draft in drafts)
    SchedulePart.objects.bulk_create(
        schedule_make(config=config, agent=schedule.agent, settings=schedule.settings, now=now)
        for schedule in schedules
    )
    configs_announce(cluster)
    return config


def _part(config: RefinedConfig, draft: PartDraft, now: datetime) -> RefinedPart:
    document = document_make(
        config=config, live=draft.live, agent=draft.agent, settings=draft.settings, learned=draft.learned, now=now
    )
    return RefinedPart(config=config, live=draft.live, agent=draft.agent, plan=draft.live.plan, document=document)


def config_reissue(config: RefinedConfig, now: datetime) -> RefinedConfig:
    """Issue a configuration that begins: renewed, and under a new number if some agent has a higher one already.

    Agents apply only higher numbers than the one they have, so that nothing old ever comes back to them.
    """
    later = RefinedConfig.objects.filter(cluster=config.cluster, number__gt=config.number)
    later = later.exclude(state__in=(ConfigState.DRAFT, ConfigState.REFUSED))
    if later.exists():
        config = _copied(config, now)
    config.parent, config.state = _newest(config.cluster), ConfigState.ROLLING
    config.save(update_fields=["parent", "state", "updated_at"])
    for part in chain(*config.all_parts):
        part.document = document_stamp(part.document, config, now)
        part.save(update_fields=["document"])
    return config


def _copied(config: RefinedConfig, now: datetime) -> RefinedConfig:
    """A copy under a new number, which takes over the rollout."""
    rollout, name, parts = config.rollout, config.name, [list(rows) for rows in config.all_parts]
    fields = ("cluster", "origin", "author", "settings", "schedule", "scope", "checked")
    same = {field: getattr(config, field) for field in fields}
    words = f"{config.words} (was {name})".strip()[:200]
    copy = RefinedConfig.objects.create(**same, number=_next_number(config.cluster), words=words, created_at=now)
    for part in chain(*parts):
        part.pk, part.config = None, copy
    for model, rows in zip((RefinedPart, SchedulePart), parts, strict=True):
        model.objects.bulk_create(rows)
    RefinedConfig.objects.filter(pk=config.pk).update(state=ConfigState.STOPPED)
    rollout.config = copy
    rollout.save(update_fields=["config"])
    return copy


def _next_number(cluster: Cluster) -> int:
    return 1 + (RefinedConfig.objects.filter(cluster=cluster).aggregate(most=Max("number"))["most"] or 0)


def _newest(cluster: Cluster) -> RefinedConfig | None:
    """The newest configuration that is in force somewhere."""
    return RefinedConfig.objects.filter(cluster=cluster, state=ConfigState.CURRENT).order_by("-number").first()


def configs_supersede(cluster: Cluster) -> None:
    """Update which configurations are superseded everywhere, and which are in force again."""
    assignments = Assignment.objects.filter(live__query__cluster=cluster)
    queries, schedules = parts_in_force(assignments, cluster.agents.all())
    used = set(RefinedPart.objects.filter(pk__in=queries).values_list("config", flat=True))
    used |= set(SchedulePart.objects.filter(pk__in=schedules).values_list("config", flat=True))
    rows = RefinedConfig.objects.filter(cluster=cluster, state__in=IN_FORCE)
    rows.filter(state=ConfigState.CURRENT).exclude(pk__in=used).update(state=ConfigState.SUPERSEDED)
    rows.filter(state=ConfigState.SUPERSEDED, pk__in=used).update(state=ConfigState.CURRENT)


def configs_announce(cluster: Cluster) -> None:
    """Tell open pages that configurations or rollouts have changed."""
    announce(f"rollouts:{cluster.slug}")
