"""Transitions of a rollout: begin, send to a stage, stop, roll back. The caller has locked the policy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from django.forms.models import model_to_dict

from apps.accounts.models import User
from apps.core.errors import Conflict
from apps.fleet.models import Cluster
from apps.rollouts.choices import ENDED, GIVEN, UNDER_WAY, ConfigOrigin, ConfigState, MemberState, RolloutState
from apps.rollouts.configs.parts import agents_of, part_of, parts_stamp, schedule_make, schedule_part_of
from apps.rollouts.configs.versions import config_reissue, config_store, configs_announce
from apps.rollouts.documents import document_plain, document_stamp
from apps.rollouts.models import (
    RefinedConfig,
    RefinedPart,
    Rollout,
    RolloutEvent,
    RolloutMember,
    RolloutPolicy,
    SchedulePart,
)
from apps.rollouts.rollout.members import members_create
from apps.telemetry.configs import configs_renew
from apps.telemetry.models import Agent, Assignment
from engine.klink.settings import ScheduleSettings

__all__ = [
    "agents_holding",
    "assignments_holding",
    "event_add",
    "rollback_create",
    "rollout_begin_next",
    "rollout_stop",
    "rollout_transition",
    "rollouts_under_way",
    "stage_send",
]


def rollout_begin_next(policy: RolloutPolicy, now: datetime) -> bool:
    """Begin the first waiting rollout, if none is under way."""
    if rollouts_under_way(policy.cluster).exists():
        return False
    waiting = Rollout.objects.filter(config__cluster=policy.cluster, state=RolloutState.WAITING)
    row = waiting.select_related("config__cluster").order_by("created_at", "pk").first()
    if row is None:
        return False
    _begin(row, policy, now)
    return True


def _begin(row: Rollout, policy: RolloutPolicy, now: datetime) -> None:
    canary_ids: Sequence[str] = row.policy.get("canaries", ())
    row.config = config_reissue(row.config, now)
    row.policy = {**model_to_dict(policy, exclude=["id", "cluster"]), "canaries": list(canary_ids)}
    row.started_at = row.stage_at = now
    row.save()
    if not members_create(row, now, canary_ids):
        rollout_stop(row, now, ["none of its agents takes part"], None)
        return
    rollout_transition(row, RolloutState.CANARY, now, "canaries begin")
    stage_send(row, now)


def stage_send(row: Rollout, now: datetime) -> None:
    """Send the configuration to pending members of the stages reached so far."""
    members = row.members.filter(stage__lte=row.stage, state=MemberState.PENDING)
    agents = list(members.values_list("agent", flat=True))
    if agents:
        row.members.filter(agent__in=agents).update(state=MemberState.SENT, at=now)
        # the TTL of parts stamped at the beginning may be half over
        stamped = [part for parts in row.config.all_parts for part in parts_stamp(parts, now)]
        configs_renew({*agents, *agents_of(stamped)})
        configs_announce(row.config.cluster)


def rollout_stop(row: Rollout, now: datetime, reasons: Sequence[str], user: User | None) -> Rollout:
    """End a rollout before its configuration was current."""
    row.config.state, row.reasons = ConfigState.STOPPED, list(reasons)
    row.config.save(update_fields=["state", "updated_at"])
    return rollout_transition(
        row, RolloutState.STOPPED, now, f"stopped: {'; '.join(reasons) or 'no reason given'}", user
    )


def rollout_transition(
    row: Rollout, state: RolloutState, now: datetime, words: str, user: User | None = None
) -> Rollout:
    """Change the state of a rollout, with an event."""
    row.state = state
    row.ended_at = now if state in ENDED else None
    row.save()
    event_add(row, now, words, user)
    configs_announce(row.config.cluster)
    return row


def event_add(row: Rollout, now: datetime, words: str, user: User | None = None) -> None:
    """Add an event to the rollout's history."""
    RolloutEvent.objects.create(rollout=row, at=now, by=user, words=words[:400])


def rollouts_under_way(cluster: Cluster) -> Any:
    """The rollout of a cluster that holds up the others; there is one at most."""
    rows = Rollout.objects.filter(config__cluster=cluster, state__in=UNDER_WAY)
    return rows.select_related("config__cluster", "back").order_by("pk")


def rollback_create(row: Rollout, now: datetime, reasons: Sequence[str], user: User | None) -> list[Any]:
    """Create the configuration that undoes a rollout's, for every agent that is to have it; returns their ids.

    Raises
    ------
    Conflict
        It was done, and no agent has it any more.
    """
    bad = row.config
    holders, scheduling = assignments_holding(bad), agents_holding(bad)
    if not holders and not scheduling and row.state == RolloutState.DONE:
        raise Conflict(f"{bad.name} is in force nowhere any more; there is nothing to roll back.")
    words = f"Rolls back {bad.name}: {'; '.join(reasons)}"[:200] if reasons else f"Rolls back {bad.name}"
    row.back = config_store(
        cluster=bad.cluster, origin=ConfigOrigin.ROLLBACK, drafts=(), now=now, words=words, author=user
    )
    row.back.parent, row.back.state = bad, ConfigState.ROLLING
    row.back.save(update_fields=["parent", "state", "updated_at"])
    RefinedPart.objects.bulk_create(_restored_part(row.back, bad, holder, now) for holder in holders)
    SchedulePart.objects.bulk_create(_restored_schedule(row.back, bad, agent, now) for agent in scheduling)
    agents = {holder.agent_id for holder in holders} | {agent.pk for agent in scheduling} | set(_agents_sent(row))
    RolloutMember.objects.bulk_create(
        [RolloutMember(rollout=row, agent_id=agent, stage=row.stage, at=now) for agent in agents],
        ignore_conflicts=True,  # most are members already
    )
    row.members.filter(agent__in=agents).update(state=MemberState.SENT, at=now, applied_at=None, reasons=[])
    return sorted(agents)


def _agents_sent(row: Rollout) -> list[Any]:
    return list(row.members.filter(state__in=GIVEN).values_list("agent", flat=True))


def assignments_holding(config: RefinedConfig) -> list[Assignment]:
    """Assignments whose agents are to have a configuration, also those disabled or set by hand now."""
    rows = Assignment.objects.filter(live__in=config.parts.values("live"))
    return [row for row in rows.select_related("agent", "live__query__cluster") if _is_held_by(row, config)]


def agents_holding(config: RefinedConfig) -> list[Agent]:
    """Agents that are to schedule by a configuration, also those disabled now."""
    agents = Agent.objects.filter(cluster=config.cluster_id) if config.schedule_parts.exists() else ()
    return [agent for agent in agents if _is_from(config, agent, schedule_part_of)]


def _is_held_by(assignment: Assignment, config: RefinedConfig) -> bool:
    return _is_from(config, assignment, part_of)


def _is_from(config: RefinedConfig, taker: Any, part_of_taker: Callable[..., Any]) -> bool:
    """Whether the recipient has this configuration, or a rollback to it."""
    part = part_of_taker(taker)
    while part is not None and part.config.origin == ConfigOrigin.ROLLBACK and part.config.parent is not None:
        part = part_of_taker(taker, below=part.config.parent.number)
    return part is not None and part.config_id == config.pk


def _restored_part(back: RefinedConfig, bad: RefinedConfig, assignment: Assignment, now: datetime) -> RefinedPart:
    before = part_of(assignment, below=bad.number)
    document = document_stamp(before.document, back, now) if before else document_plain(back, assignment, now)
    live = assignment.live
    return RefinedPart(config=back, live=live, agent=assignment.agent, plan=live.plan, document=document)


def _restored_schedule(back: RefinedConfig, bad: RefinedConfig, agent: Agent, now: datetime) -> SchedulePart:
    """The schedule an agent had before; without one the defaults, in full."""
    before = schedule_part_of(agent, below=bad.number)
    settings = before.document["schedule"] if before else ScheduleSettings().to_dict()
    return schedule_make(config=back, agent=agent, settings=settings, now=now)
