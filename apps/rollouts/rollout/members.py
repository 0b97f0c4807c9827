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
    """An agent that a configuration holds something for."""

    agent: Agent
    parts: list[Assignment] = field(default_factory=list)  #: in queries that it holds something for
    runs: list[Assignment] = field(default_factory=list)  #: in queries whose epochs show what comes of it
    schedules: bool = False  #: it is told how to schedule


def recipients_of(config: RefinedConfig) -> dict[Any, Recipient]:
    """Agents that a configuration holds something for, by id. A schedule bears on all that an agent runs."""
    found: dict[Any, Recipient] = {}
    for one in assignments_of(config):
        found.setdefault(one.agent_id, Recipient(one.agent)).parts.append(one)
    scheduling = agents_to_schedule(config)
    runs: dict[Any, list[Assignment]] = {}
    for part in parts_running(config.cluster_id) if scheduling else ():
        runs.setdefault(part.agent_id, []).append(part)
    for agent in scheduling:
        taker = found.setdefault(agent.pk, Recipient(agent))
        taker.schedules, taker.runs = True, runs.get(agent.pk, [])
    for taker in found.values():
        taker.runs = taker.runs or taker.parts
    return found


def assignments_of(config: RefinedConfig) -> list[Assignment]:
    """Parts in live queries that a configuration holds something for, at agents that adapt."""
    parts = {(part.live_id, part.agent_id): part.plan for part in config.parts.all()}
    found = []
    for one in assignments_adapting(config.cluster_id):
        plan = parts.get((one.live_id, one.agent_id), parts.get((one.live_id, None)))
        if plan == one.live.plan:
            found.append(one)
    return found


def is_reporting(agent: Agent, now: datetime, within_s: float = SILENT_S) -> bool:
    """Whether an agent reports."""
    return agent.last_seen is not None and now - agent.last_seen <= timedelta(seconds=within_s)


def members_create(rollout: Rollout, now: datetime, wanted: Collection[str] = ()) -> list[RolloutMember]:
    """The stages of a rollout that begins. Canaries are agents that report, those in `wanted` (ids) first."""
    agents = {pk: taker.agent for pk, taker in recipients_of(rollout.config).items()}
    ordered = sorted(agents.values(), key=lambda agent: _rank(agent, rollout, now, wanted))
    stages = stage_sizes(len(ordered), rollout.policy, len(set(wanted) & {str(pk) for pk in agents}))
    rollout.policy = {**rollout.policy, "last_stage": len(stages) - 1}
    rollout.save(update_fields=["policy"])
    numbers = [stage for stage, count in enumerate(stages) for _ in range(count)]
    rows = [
        RolloutMember(rollout=rollout, agent=agent, stage=stage, at=now)
        for agent, stage in zip(ordered, numbers, strict=True)
    ]
    return RolloutMember.objects.bulk_create(rows)


def stage_sizes(agents: int, policy: Mapping[str, Any], wanted: int = 0) -> list[int]:
    """How many agents each stage adds; stages that would add nobody are left out.

    Examples
    --------
    >>> policy = {"canary_count": 1, "canary_share": 0.1, "waves": [0.3, 1.0]}
    >>> stage_sizes(46, policy), stage_sizes(3, policy), stage_sizes(1, policy)
    ([5, 9, 32], [1, 2], [1])
    """
    canaries = max(policy["canary_count"], math.ceil(policy["canary_share"] * agents), wanted)
    stages = [min(canaries, max(1, agents - 1))] if agents else [0]
    for share in policy["waves"]:
        more = min(agents, math.ceil(share * agents)) - sum(stages)
        stages += [more] if more > 0 else []
    return stages


def _rank(agent: Agent, rollout: Rollout, now: datetime, wanted: Collection[str]) -> tuple[Any, ...]:
    """By chance, the same for the same rollout: which agents come first is not always the same."""
    chance = hashlib.sha256(f"{rollout.config.number} {agent.pk}".encode()).hexdigest()
    return (not is_reporting(agent, now), str(agent.pk) not in wanted, chance)


def members_sync(rollout: Rollout, now: datetime) -> dict[Any, Recipient]:
    """Let agents that came meanwhile join the last wave, and those that left drop out; returns who takes part, by id.

    Whoever was given the configuration stays a member, and is counted no more.
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
    """Where all canaries have left, or are silent and never had it, others that report become canaries; their names.

    `present` are ids of the agents that take part.
    """
    canaries = rollout.members.filter(stage=0)
    left = canaries.filter(agent__in=present)
    if left.exclude(state=MemberState.SILENT).exists() or left.filter(applied_at__isnull=False).exists():
        return []
    waiting = rollout.members.filter(state=MemberState.PENDING, agent__in=present).select_related("agent")
    ready = [one for one in waiting if is_reporting(one.agent, now)]
    chosen = ready[: max(1, min(canaries.count(), len(ready) - 1))]
    rollout.members.filter(pk__in=[one.pk for one in chosen]).update(stage=0)
    return [one.agent.name for one in chosen]


_NO_SCHEDULE_REPORT = ["it reports nothing of a schedule; agents of older versions know of none"]


def acknowledgements_note(row: Rollout, now: datetime) -> bool:
    """Note who has applied, refused or says nothing; returns whether everybody who was given it has answered, or has
    been waited for long enough."""
    reports, unable = _reports(row)
    members = list(row.members.filter(state__in=GIVEN, agent__in=reports).select_related("agent"))
    if not any(is_reporting(agent, now) for agent in row.config.cluster.agents.filter(enabled=True)):
        row.heard_at = now  # the console was away, or all agents are: nobody in particular is silent
        row.save(update_fields=["heard_at", "updated_at"])
    for member in members:
        _acknowledgement_note(
            row, member, reports[member.agent_id], now, _NO_SCHEDULE_REPORT if member.agent_id in unable else []
        )
    return not any(member.state == MemberState.SENT for member in members)


def _reports(row: Rollout) -> tuple[dict[Any, list[Mapping[str, Any]]], set[Any]]:
    """What agents that take part said last of the queries, and of the schedule, that they are given something for; and
    those that are given a schedule, and report without a word of one."""
    found, unable = {}, set()
    for pk, taker in recipients_of(row.given).items():
        schedule = taker.agent.heartbeat.get("schedule") or {}
        found[pk] = [one.report for one in taker.parts] + ([schedule] if taker.schedules else [])
        if taker.schedules and taker.agent.heartbeat and not schedule:
            unable.add(pk)
    return found, unable


def _acknowledgement_note(
    row: Rollout, member: RolloutMember, reports: list[Mapping[str, Any]], now: datetime, otherwise: list[str]
) -> None:
    """`otherwise`: why it may say nothing of a configuration, where it does not."""
    state, reasons = _acknowledged_state(row.given.number, reports)
    reasons = reasons if state else otherwise
    had = MemberState.APPLIED in (state, member.state)
    since = member.agent.last_seen if had else member.at
    times = [time for time in (since, row.heard_at) if time is not None]
    if state != MemberState.REFUSED and now - max(times) > timedelta(seconds=row.policy["silent_epochs"] * EPOCH_S):
        state = MemberState.SILENT
    elif state is None and had:
        state = MemberState.SENT  # set by hand meanwhile, or begun anew: it has to take it once more
    state = state or member.state
    if (state, reasons) == (member.state, member.reasons):
        return
    member.at = now if state != member.state else member.at
    member.state, member.reasons = state, reasons
    if state == MemberState.APPLIED and member.applied_at is None:
        member.applied_at = now
    member.save(update_fields=["state", "reasons", "at", "applied_at"])


def _acknowledged_state(number: int, reports: list[Mapping[str, Any]]) -> tuple[MemberState | None, list[str]]:
    """What an agent made of a configuration, with its reasons; None while it has said nothing of it."""
    refused = [report["refused"] for report in reports if (report.get("refused") or {}).get("version") == number]
    if refused:
        return MemberState.REFUSED, [str(reason) for one in refused for reason in one.get("reasons", ())]
    taken = [((report.get("refined") or {}).get("version") or 0) >= number for report in reports]
    return (MemberState.APPLIED if taken and all(taken) else None), []
