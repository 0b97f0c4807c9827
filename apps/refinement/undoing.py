"""What takes a configuration back: one of a higher number, with what each agent had before it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from apps.accounts.models import User
from apps.core.errors import Conflict
from apps.refinement.choices import GIVEN, ConfigOrigin, ConfigState, MemberState, RolloutState
from apps.refinement.documents import document_plain, document_stamp
from apps.refinement.giving import part_of
from apps.refinement.making import config_make
from apps.refinement.models import RefinedConfig, RefinedPart, Rollout, RolloutMember, SchedulePart
from apps.refinement.schedules import schedule_make, schedule_part_of
from apps.telemetry.models import Agent, Assignment
from engine.klink.settings import ScheduleSettings

__all__ = ["config_undo", "holders_of", "schedulers_of"]


def config_undo(row: Rollout, now: datetime, reasons: Sequence[str], user: User | None) -> list[Any]:
    """Make the configuration that undoes a rollout's, for every agent that has it to have; returns their ids.

    Raises
    ------
    Conflict
        It was done, and no agent has it any more.
    """
    bad = row.config
    holders, scheduling = holders_of(bad), schedulers_of(bad)
    if not holders and not scheduling and row.state == RolloutState.DONE:
        raise Conflict(f"{bad.name} is in force nowhere any more; there is nothing to take back.")
    words = f"Takes back {bad.name}{': ' if reasons else ''}{'; '.join(reasons)}"[:200]
    row.back = config_make(
        cluster=bad.cluster, origin=ConfigOrigin.ROLLBACK, drafts=(), now=now, words=words, author=user
    )
    row.back.parent, row.back.state = bad, ConfigState.ROLLING
    row.back.save(update_fields=["parent", "state", "updated_at"])
    RefinedPart.objects.bulk_create(_returned(row.back, bad, one, now) for one in holders)
    SchedulePart.objects.bulk_create(_returned_schedule(row.back, bad, agent, now) for agent in scheduling)
    agents = {one.agent_id for one in holders} | {agent.pk for agent in scheduling} | set(_given(row))
    RolloutMember.objects.bulk_create(
        [RolloutMember(rollout=row, agent_id=agent, stage=row.stage, at=now) for agent in agents],
        ignore_conflicts=True,  # most are members already
    )
    row.members.filter(agent__in=agents).update(state=MemberState.SENT, at=now, applied_at=None, reasons=[])
    return sorted(agents)


def _given(row: Rollout) -> list[Any]:
    return list(row.members.filter(state__in=GIVEN).values_list("agent", flat=True))


def holders_of(config: RefinedConfig) -> list[Assignment]:
    """Parts in queries whose agents are to have a configuration, also those that are disabled or set by hand now."""
    rows = Assignment.objects.filter(live__in=config.parts.values("live"))
    return [one for one in rows.select_related("agent", "live__query__cluster") if _has(one, config)]


def schedulers_of(config: RefinedConfig) -> list[Agent]:
    """Agents that are to schedule by a configuration, also those that are disabled now."""
    agents = Agent.objects.filter(cluster=config.cluster_id) if config.schedule_parts.exists() else ()
    return [agent for agent in agents if _is_from(config, agent, schedule_part_of)]


def _has(assignment: Assignment, config: RefinedConfig) -> bool:
    return _is_from(config, assignment, part_of)


def _is_from(config: RefinedConfig, taker: Any, part_of_taker: Callable[..., Any]) -> bool:
    """Whether it has this configuration, or one that brought it back."""
    part = part_of_taker(taker)
    while part is not None and part.config.origin == ConfigOrigin.ROLLBACK and part.config.parent is not None:
        part = part_of_taker(taker, below=part.config.parent.number)
    return part is not None and part.config_id == config.pk


def _returned(back: RefinedConfig, bad: RefinedConfig, assignment: Assignment, now: datetime) -> RefinedPart:
    before = part_of(assignment, below=bad.number)
    document = document_stamp(before.document, back, now) if before else document_plain(back, assignment, now)
    live = assignment.live
    return RefinedPart(config=back, live=live, agent=assignment.agent, plan=live.plan, document=document)


def _returned_schedule(back: RefinedConfig, bad: RefinedConfig, agent: Agent, now: datetime) -> SchedulePart:
    """What it had before; without anything the defaults, said in full words."""
    before = schedule_part_of(agent, below=bad.number)
    settings = before.document["schedule"] if before else ScheduleSettings().to_dict()
    return schedule_make(config=back, agent=agent, settings=settings, now=now)
