"""Config versions: a number, parts and a state each, under the lock of the cluster's policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import Any

from django.db.models import Max

from apps.core.events import announce
from apps.fleet.models import Cluster
from apps.rollouts.choices import IN_FORCE, ConfigOrigin, ConfigState
from apps.rollouts.configs.parts import parts_in_force, schedule_make
from apps.rollouts.documents import document_make, document_stamp
from apps.rollouts.models import RefinedConfig, RefinedPart, RolloutPolicy, SchedulePart
from apps.telemetry.models import Agent, Assignment, LiveQuery

__all__ = [
    "PartDraft",
    "ScheduleDraft",
    "config_reissue",
    "config_store",
    "configs_announce",
    "configs_supersede",
    "policy_locked",
]


@dataclass(frozen=True)
class PartDraft:
    """A part to be made: for a query at an agent, or at all agents (None)."""

    live: LiveQuery
    agent: Agent | None
    settings: Mapping[str, Any]
    learned: Mapping[str, Any] | None = None


def policy_locked(cluster: Cluster) -> RolloutPolicy:
    """The policy of a cluster, locked until the transaction ends; every change of its rollouts locks it first."""
    RolloutPolicy.objects.get_or_create(cluster=cluster)
    return RolloutPolicy.objects.select_for_update(of=("self",)).select_related("cluster").get(cluster=cluster)


@dataclass(frozen=True)
class ScheduleDraft:
    """A schedule part to be made: for an agent, or for all agents (None)."""

    agent: Agent | None
    settings: Mapping[str, Any]


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
