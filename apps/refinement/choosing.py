"""Which agents get a configuration, and in which stage."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from apps.refinement.choices import MemberState
from apps.refinement.giving import assignments_adapting
from apps.refinement.models import RefinedConfig, Rollout, RolloutMember
from apps.refinement.schedules import schedule_takers
from apps.scheduling.selectors import parts_running
from apps.telemetry.models import Agent, Assignment
from apps.telemetry.states import SILENT_S

__all__ = ["Taker", "assignments_of", "canaries_replace", "is_heard", "members_make", "members_sync", "takers_of"]


@dataclass
class Taker:
    """An agent that a configuration holds something for."""

    agent: Agent
    parts: list[Assignment] = field(default_factory=list)  #: in queries that it holds something for
    runs: list[Assignment] = field(default_factory=list)  #: in queries whose epochs show what comes of it
    schedules: bool = False  #: it is told how to schedule


def takers_of(config: RefinedConfig) -> dict[Any, Taker]:
    """Agents that a configuration holds something for, by id. A schedule bears on all that an agent runs."""
    found: dict[Any, Taker] = {}
    for one in assignments_of(config):
        found.setdefault(one.agent_id, Taker(one.agent)).parts.append(one)
    scheduling = schedule_takers(config)
    runs: dict[Any, list[Assignment]] = {}
    for part in parts_running(config.cluster_id) if scheduling else ():
        runs.setdefault(part.agent_id, []).append(part)
    for agent in scheduling:
        taker = found.setdefault(agent.pk, Taker(agent))
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


def is_heard(agent: Agent, now: datetime, within_s: float = SILENT_S) -> bool:
    """Whether an agent reports."""
    return agent.last_seen is not None and now - agent.last_seen <= timedelta(seconds=within_s)


def members_make(rollout: Rollout, now: datetime, wanted: Collection[str] = ()) -> list[RolloutMember]:
    """The stages of a rollout that begins. Canaries are agents that report, those in `wanted` (ids) first."""
    agents = {pk: taker.agent for pk, taker in takers_of(rollout.config).items()}
    ordered = sorted(agents.values(), key=lambda agent: _rank(agent, rollout, now, wanted))
    stages = stages_of(len(ordered), rollout.policy, len(set(wanted) & {str(pk) for pk in agents}))
    rollout.policy = {**rollout.policy, "last_stage": len(stages) - 1}
    rollout.save(update_fields=["policy"])
    numbers = [stage for stage, count in enumerate(stages) for _ in range(count)]
    rows = [
        RolloutMember(rollout=rollout, agent=agent, stage=stage, at=now)
        for agent, stage in zip(ordered, numbers, strict=True)
    ]
    return RolloutMember.objects.bulk_create(rows)


def stages_of(agents: int, policy: Mapping[str, Any], wanted: int = 0) -> list[int]:
    """How many agents each stage adds; stages that would add nobody are left out.

    Examples
    --------
    >>> policy = {"canary_count": 1, "canary_share": 0.1, "waves": [0.3, 1.0]}
    >>> stages_of(46, policy), stages_of(3, policy), stages_of(1, policy)
    ([5, 9, 32], [1, 2], [1])
    """
    canaries = max(policy["canary_count"], math.ceil(policy["canary_share"] * agents), wanted)
    stages = [min(canaries, max(1, agents - 1))] if agents else [0]
    for share in policy["waves"]:
        more = min(agents, math.ceil(share * agents)) - sum(stages)
        stages += [more] if more > 0 else []
    return stages


def _rank(agent: Agent, rollout: Rollout, now: datetime, wanted: Collection[str]) -> Sequence[Any]:
    """By chance, the same for the same rollout: which agents come first is not always the same."""
    chance = hashlib.sha256(f"{rollout.config.number} {agent.pk}".encode()).hexdigest()
    return (not is_heard(agent, now), str(agent.pk) not in wanted, chance)


def members_sync(rollout: Rollout, now: datetime) -> dict[Any, Taker]:
    """Let agents that came meanwhile join the last wave, and those that left drop out; returns who takes part, by id.

    Whoever was given the configuration stays a member, and is counted no more.
    """
    present = takers_of(rollout.config)
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
    ready = [one for one in waiting if is_heard(one.agent, now)]
    chosen = ready[: max(1, min(canaries.count(), len(ready) - 1))]
    rollout.members.filter(pk__in=[one.pk for one in chosen]).update(stage=0)
    return [one.agent.name for one in chosen]
