"""Switches of scheduling: previewed, and made as a configuration with its rollout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db import transaction
from django.forms.models import model_to_dict

from apps.accounts.models import User
from apps.core.clock import shared_now
from apps.core.errors import Fault, Malformed, fault_count
from apps.fleet.models import Cluster
from apps.rollouts.choices import UNDER_WAY, RolloutState
from apps.rollouts.configs.selectors import schedule_changes
from apps.rollouts.configs.services import ConfigRequest, config_create
from apps.rollouts.configs.versions import policy_locked
from apps.rollouts.models import RefinedConfig, Rollout, RolloutPolicy, SchedulePart
from apps.rollouts.rollout.guard import stage_epochs
from apps.rollouts.rollout.members import Recipient, stage_sizes
from apps.rollouts.rollout.selectors import rollout_policy
from apps.rollouts.rollout.services import rollout_start
from apps.rollouts.schedule.selectors import AgentSchedule, ScheduleSwitch, SwitchAgent, SwitchPreview, schedules_of
from apps.telemetry.models import Agent, Assignment
from apps.telemetry.selectors import parts_running
from engine.klink.settings import ScheduleSettings
from engine.rollouts.epochs import EPOCH_S

__all__ = ["schedule_preview", "schedule_switch"]

_OPEN_STATES = (*UNDER_WAY, RolloutState.WAITING)


def schedule_preview(
    *, cluster: Cluster, settings: Mapping[str, Any], agents: Sequence[str] = (), canaries: Sequence[str] = ()
) -> SwitchPreview:
    """Preview a switch: agents (by name; all unless given), judged measures, shortest duration.

    `canaries` (names) would come first; without any they are chosen by chance when it begins.

    Raises
    ------
    Malformed
        With every fault: settings out of their safe range, agents that run no live query.
    """
    requested, chosen = _checked_request(cluster, settings, agents, canaries)
    policy = rollout_policy(cluster)
    stages = stage_sizes(len(chosen), model_to_dict(policy), len(set(canaries)))
    return SwitchPreview(
        settings=dict(requested.to_dict()),
        agents=tuple(_agent(state, requested, canaries) for state in chosen),
        judged=tuple(_judged(policy)),
        stages=tuple(stages),
        least_s=_min_duration_s(cluster, policy, [state.agent for state in chosen], len(stages)),
        waits_for=_waits_for(cluster),
        unchanged=_switch_in_force(cluster, requested, agents, chosen) is not None,
    )


@transaction.atomic
def schedule_switch(
    *,
    cluster: Cluster,
    settings: Mapping[str, Any],
    agents: Sequence[str] = (),
    canaries: Sequence[str] = (),
    user: User | None = None,
    words: str = "",
    now: datetime | None = None,
) -> ScheduleSwitch:
    """Make the switch: a configuration whose rollout begins, or waits in line. If the agents have the schedule already,
    or an equal configuration for the same agents is under way, nothing is made.

    Raises
    ------
    Malformed
        As `schedule_preview`.
    """
    now = now or shared_now()
    policy_locked(cluster)
    requested, chosen = _checked_request(cluster, settings, agents, canaries)
    same = _switch_in_force(cluster, requested, agents, chosen)
    if same is not None:
        return same
    wish = ConfigRequest(None, agents=tuple(dict.fromkeys(agents)), schedule=settings)
    config = config_create(cluster=cluster, wish=wish, words=words, user=user, now=now)
    first = [state.agent for state in chosen if state.agent.name in canaries]
    rollout = rollout_start(config=config, user=user, canaries=first, now=now)
    return ScheduleSwitch(rollout.config, rollout, made=True)


def _checked_request(
    cluster: Cluster, settings: Mapping[str, Any], agents: Sequence[str], canaries: Sequence[str]
) -> tuple[ScheduleSettings, list[AgentSchedule]]:
    faults: list[Fault] = []
    read = ScheduleSettings.read(settings, "", "settings", faults)
    states = {state.agent.name: state for state in schedules_of(cluster).values()}
    names_known = ", ".join(list(states)[:10]) or "none"
    for path, names in (("agents", agents), ("canaries", canaries)):
        faults += [
            Fault(f"{path}[{index}]", f"{name!r} is no agent that runs a live query; there are: {names_known}")
            for index, name in enumerate(names)
            if name not in states
        ]
    faults += [
        Fault(f"canaries[{index}]", f"{name!r} is none of the agents that are switched")
        for index, name in enumerate(canaries)
        if agents and name in states and name not in agents
    ]
    if not states:
        faults.append(Fault("agents", f"no agent of {cluster.slug} runs a live query"))
    if faults or read is None:
        raise Malformed(f"The switch has {fault_count(faults)}; first: {faults[0].path}: {faults[0].message}.", faults)
    return read, [state for name, state in states.items() if not agents or name in agents]


def _agent(state: AgentSchedule, settings: ScheduleSettings, canaries: Sequence[str]) -> SwitchAgent:
    return SwitchAgent(
        name=state.agent.name,
        policy_before=state.policy or state.settings.policy,
        policy_after=settings.policy,
        is_canary=state.agent.name in canaries,
        changes=tuple(schedule_changes(state.settings.to_dict(), settings.to_dict())),
    )


def _judged(policy: RolloutPolicy) -> list[str]:
    late = f"more than {100 * policy.latency_rel:g} % and {policy.latency_abs_s:g} s"
    return [
        f"window latency, mean and p99, all queries of an agent together: {late}",
        f"time in queue: {late}",
        f"overflow: more than {policy.overflow_pp:g} percentage points",
        f"bytes sent per record: more than {100 * policy.bytes_rel:g} %",
        f"delay of frames: {late}",
        f"CPU time per record that saves no bytes: more than {100 * policy.cpu_rel:g} %",
    ]


def _min_duration_s(cluster: Cluster, policy: RolloutPolicy, agents: Sequence[Agent], stages: int) -> float:
    """Shortest duration, as if each stage had one agent: more agents close their windows sooner."""
    runs: dict[Any, list[Assignment]] = {}
    for part in parts_running(cluster):
        runs.setdefault(part.agent_id, []).append(part)
    takers = (Recipient(agent, runs=runs.get(agent.pk, []), schedules=True) for agent in agents)
    alike = {frozenset(part.live_id for part in taker.runs): taker for taker in takers}.values()  # agents are many
    limits = model_to_dict(policy)
    longest = [max((stage_epochs(limits, stage, [taker]) for taker in alike), default=0) for stage in range(stages)]
    return EPOCH_S * sum(longest)


def _waits_for(cluster: Cluster) -> str:
    row = Rollout.objects.filter(config__cluster=cluster, state__in=_OPEN_STATES).order_by("-created_at", "-pk").first()
    return row.config.name if row else ""


def _switch_in_force(
    cluster: Cluster, settings: ScheduleSettings, agents: Sequence[str], chosen: Sequence[AgentSchedule]
) -> ScheduleSwitch | None:
    """The equal switch that makes this one needless: the newest under way, or the schedule in force at all agents."""
    coming = RefinedConfig.objects.filter(
        cluster=cluster, rollout__state__in=_OPEN_STATES, schedule_parts__isnull=False
    )
    newest = coming.select_related("rollout").order_by("-rollout__created_at", "-number").first()
    if newest is not None:
        says_same = newest.schedule is not None and ScheduleSettings.parse(newest.schedule) == settings
        same_agents = set(newest.scope.get("agents", ())) == set(agents)
        onward = newest.rollout.state != RolloutState.ROLLING_BACK
        return ScheduleSwitch(newest, newest.rollout, made=False) if says_same and same_agents and onward else None
    parts_by_id = SchedulePart.objects.select_related("config").in_bulk(
        {state.part_id for state in chosen if state.part_id}
    )
    parts = [parts_by_id.get(state.part_id) for state in chosen]
    meant = [ScheduleSettings.parse(part.document["schedule"]) if part else ScheduleSettings() for part in parts]
    if any(intended != settings for intended in meant):
        return None
    config = next((part.config for part in parts if part), None)
    return ScheduleSwitch(config, Rollout.objects.filter(config=config).first() if config else None, made=False)
