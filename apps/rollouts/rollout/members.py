"""Members of a rollout: agents, their stages, and their acknowledgements."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from apps.rollouts.choices import GIVEN, MemberState
from apps.rollouts.configs.parts import agents_to_schedule
from apps.rollouts.models import RefinedConfig, Rollout, RolloutMember
from apps.telemetry.models import Agent, Assignment
from apps.telemetry.selectors import SILENT_S, assignments_adapting, parts_running
from engine.rollouts.epochs import EPOCH_S

__all__ = [
    "Recipient",
    "acknowledgements_note",
    "assignments_of",
    "canaries_replace",
    "is_reporting",
    "members_create",
    "members_sync",
    "recipients_of",
]


@dataclass
class Recipient:
    """Recipient of a configuration: an agent with parts in it."""

    agent: Agent
    parts: list[Assignment] = field(default_factory=list)  #: assignments with a part in the configuration
    runs: list[Assignment] = field(default_factory=list)  #: assignments whose epochs show its effect
    schedules: bool = False  #: it gets a schedule


def recipients_of(config: RefinedConfig) -> dict[Any, Recipient]:
    """Recipients of a configuration by agent's id. A schedule affects everything that an agent runs."""
    recipients: dict[Any, Recipient] = {}
    for assignment in assignments_of(config):
        recipients.setdefault(assignment.agent_id, Recipient(assignment.agent)).parts.append(assignment)
    scheduling = agents_to_schedule(config)
    runs: dict[Any, list[Assignment]] = {}
    for part in parts_running(config.cluster_id) if scheduling else ():
        runs.setdefault(part.agent_id, []).append(part)
    for agent in scheduling:
        recipient = recipients.setdefault(agent.pk, Recipient(agent))
        recipient.schedules, recipient.runs = True, runs.get(agent.pk, [])
    for recipient in recipients.values():
        recipient.runs = recipient.runs or recipient.parts
    return recipients


def assignments_of(config: RefinedConfig) -> list[Assignment]:
    """Assignments with a part in a configuration, at agents that adapt."""
    parts = {(part.live_id, part.agent_id): part.plan for part in config.parts.all()}
    assignments = []
    for assignment in assignments_adapting(config.cluster_id) if parts else ():
        plan = parts.get((assignment.live_id, assignment.agent_id), parts.get((assignment.live_id, None)))
        if plan == assignment.live.plan:
            assignments.append(assignment)
    return assignments


def is_reporting(agent: Agent, now: datetime, within_s: float = SILENT_S) -> bool:
    """Whether an agent reports."""
    return agent.last_seen is not None and now - agent.last_seen <= timedelta(seconds=within_s)


def members_create(rollout: Rollout, now: datetime, canary_ids: Collection[str] = ()) -> list[RolloutMember]:
    """Create the members of a rollout that begins. Canaries are agents that report, those in `canary_ids` first."""
    agents = {pk: recipient.agent for pk, recipient in recipients_of(rollout.config).items()}
    ordered = sorted(agents.values(), key=lambda agent: _rank(agent, rollout, now, canary_ids))
    stages = stage_sizes(len(ordered), rollout.policy, len(set(canary_ids) & {str(pk) for pk in agents}))
    rollout.policy = {**rollout.policy, "last_stage": len(stages) - 1}
    rollout.save(update_fields=["policy"])
    numbers = [stage for stage, count in enumerate(stages) for _ in range(count)]
    rows = [
        RolloutMember(rollout=rollout, agent=agent, stage=stage, at=now)
        for agent, stage in zip(ordered, numbers, strict=True)
    ]
    return RolloutMember.objects.bulk_create(rows)


def stage_sizes(agents: int, policy: Mapping[str, Any], chosen: int = 0) -> list[int]:
    """Sizes of the stages: agents that each adds; empty stages are left out.

    Examples
    --------
    >>> policy = {"canary_count": 1, "canary_share": 0.1, "waves": [0.3, 1.0]}
    >>> stage_sizes(46, policy), stage_sizes(3, policy), stage_sizes(1, policy)
    ([5, 9, 32], [1, 2], [1])
    """
    canaries = max(policy["canary_count"], math.ceil(policy["canary_share"] * agents), chosen)
    stages = [min(canaries, max(1, agents - 1))] if agents else [0]
    for share in policy["waves"]:
        more = min(agents, math.ceil(share * agents)) - sum(stages)
        stages += [more] if more > 0 else []
    return stages


def _rank(agent: Agent, rollout: Rollout, now: datetime, chosen: Collection[str]) -> tuple[Any, ...]:
    """Random order, the same for the same rollout, so that canaries are not always the same agents."""
    chance = hashlib.sha256(f"{rollout.config.number} {agent.pk}".encode()).hexdigest()
    return (not is_reporting(agent, now), str(agent.pk) not in chosen, chance)


def members_sync(rollout: Rollout, now: datetime) -> dict[Any, Recipient]:
    """Add new agents to the last wave and drop those that left; returns the recipients by agent's id.

    Agents that were sent the configuration stay members, and count no more.
    """
    present = recipients_of(rollout.config)
    known = set(rollout.members.values_list("agent_id", flat=True))
    rollout.members.filter(state=MemberState.PENDING).exclude(agent_id__in=present).delete()
    fresh = [agent for agent in present if agent not in known]
    if fresh:
        last = max(rollout.last_stage, 1)
        rollout.policy = {**rollout.policy, "last_stage": last}
        rollout.save(update_fields=["policy"])
        RolloutMember.objects.bulk_create(
            RolloutMember(rollout=rollout, agent_id=agent, stage=last, at=now) for agent in fresh
        )
    return present


def canaries_replace(rollout: Rollout, present: Collection[Any], now: datetime) -> list[str]:
    """Replace canaries where all have left, or are silent and never applied it; returns the names of the new ones.

    `present` are ids of the agents that take part.
    """
    canaries = rollout.members.filter(stage=0)
    left = canaries.filter(agent__in=present)
    if left.exclude(state=MemberState.SILENT).exists() or left.filter(applied_at__isnull=False).exists():
        return []
    waiting = rollout.members.filter(state=MemberState.PENDING, agent__in=present).select_related("agent")
    ready = [member for member in waiting if is_reporting(member.agent, now)]
    chosen = ready[: max(1, min(canaries.count(), len(ready) - 1))]
    rollout.members.filter(pk__in=[member.pk for member in chosen]).update(stage=0)
    return [member.agent.name for member in chosen]


_NO_SCHEDULE_REPORT = ["it reports no schedule"]


def acknowledgements_note(row: Rollout, recipients: Mapping[Any, Recipient], now: datetime) -> bool:
    """Note which members applied, refused or are silent; returns whether every member that was sent the configuration
    has acknowledged it, or was waited for long enough.

    `recipients` are those of the configuration that members are given now, by agent's id.
    """
    reports, unable = _reports(recipients)
    members = list(row.members.filter(state__in=GIVEN, agent__in=reports).select_related("agent"))
    if not any(is_reporting(agent, now) for agent in row.config.cluster.agents.filter(enabled=True)):
        row.heard_at = now  # the console was down, or all agents are: no agent in particular is silent
        row.save(update_fields=["heard_at", "updated_at"])
    for member in members:
        _acknowledgement_note(
            row, member, reports[member.agent_id], now, _NO_SCHEDULE_REPORT if member.agent_id in unable else []
        )
    return not any(member.state == MemberState.SENT for member in members)


def _reports(recipients: Mapping[Any, Recipient]) -> tuple[dict[Any, list[Mapping[str, Any]]], set[Any]]:
    """The last reports of recipients on their parts, by agent's id; and the ids of recipients of a schedule whose
    heartbeats report none."""
    reports, unable = {}, set()
    for pk, recipient in recipients.items():
        schedule = recipient.agent.heartbeat.get("schedule") or {}
        reports[pk] = [part.report for part in recipient.parts] + ([schedule] if recipient.schedules else [])
        if recipient.schedules and recipient.agent.heartbeat and not schedule:
            unable.add(pk)
    return reports, unable


def _acknowledgement_note(
    row: Rollout, member: RolloutMember, reports: list[Mapping[str, Any]], now: datetime, otherwise: list[str]
) -> None:
    """`otherwise`: possible reasons of a missing acknowledgement."""
    state, reasons = _acknowledged_state(row.given.number, reports)
    reasons = reasons if state else otherwise
    had = MemberState.APPLIED in (state, member.state)
    since = member.agent.last_seen if had else member.at
    times = [time for time in (since, row.heard_at) if time is not None]
    if state != MemberState.REFUSED and now - max(times) > timedelta(seconds=row.policy["silent_epochs"] * EPOCH_S):
        state = MemberState.SILENT
    elif state is None and had:
        state = MemberState.SENT  # set by hand meanwhile, or restarted: it has to apply it once more
    state = state or member.state
    if (state, reasons) == (member.state, member.reasons):
        return
    member.at = now if state != member.state else member.at
    member.state, member.reasons = state, reasons
    if state == MemberState.APPLIED and member.applied_at is None:
        member.applied_at = now
    member.save(update_fields=["state", "reasons", "at", "applied_at"])


def _acknowledged_state(number: int, reports: list[Mapping[str, Any]]) -> tuple[MemberState | None, list[str]]:
    """The acknowledged state of a configuration with its reasons; None while there is no acknowledgement."""
    refused = [report["refused"] for report in reports if (report.get("refused") or {}).get("version") == number]
    if refused:
        return MemberState.REFUSED, [str(reason) for refusal in refused for reason in refusal.get("reasons", ())]
    taken = [((report.get("refined") or {}).get("version") or 0) >= number for report in reports]
    return (MemberState.APPLIED if taken and all(taken) else None), []
