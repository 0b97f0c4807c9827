"""Refined configurations and schedules: created, checked and switched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Max

from apps.accounts.models import User
from apps.core.clock import shared_now
from apps.core.errors import Fault, Malformed, fault_count
from apps.fleet.models import Cluster
from apps.fleet.validation import check_row
from apps.ledger.recorder import recorded
from apps.rollouts.config_selectors import settings_changes
from apps.rollouts.learned_figures import watermarks_for, watermarks_in
from apps.rollouts.members import Recipient, stage_epochs, stage_sizes
from apps.rollouts.models import (
    UNDER_WAY,
    ConfigOrigin,
    ConfigState,
    Learned,
    RefinedConfig,
    Rollout,
    RolloutPolicy,
    RolloutState,
    SchedulePart,
)
from apps.rollouts.predictions import WORSE, ConfigCheck, drafts_check
from apps.rollouts.rollout_selectors import rollout_policy
from apps.rollouts.rollout_services import rollout_start
from apps.rollouts.schedule_selectors import AgentSchedule, ScheduleSwitch, SwitchAgent, Switched, schedules_of
from apps.rollouts.versions import (
    PartDraft,
    ScheduleDraft,
    config_store,
    configs_announce,
    learned_in,
    policy_locked,
)
from apps.telemetry.configs import settings_read
from apps.telemetry.models import Agent, Assignment, LiveQuery
from apps.telemetry.selectors import agents_scheduling, assignments_adapting, parts_running
from engine.jarvis.refined_config import ENOUGH_RECORDS, LearnedFigures
from engine.jarvis.settings import AdaptationSettings
from engine.klink.settings import ScheduleSettings
from engine.rollouts.measures import EPOCH_S

__all__ = [
    "ConfigRequest",
    "config_check",
    "config_create",
    "configs_purge",
    "policy_update",
    "schedule_preview",
    "schedule_switch",
]

_MAX_WAVES = 10


@dataclass(frozen=True)
class ConfigRequest:
    """Request of a person for a configuration.

    `settings` are those of adapting (`engine.jarvis.settings`), `schedule` those of scheduling
    (`engine.klink.settings`); fields left out have their defaults, None leaves all of them as they are. Without
    `queries` (names) it is for every live query of the cluster, without `agents` (names) for all of their agents; a
    schedule is for whole agents, and excludes queries. `learned` includes learned figures of operators and watermarks
    with enough evidence.
    """

    settings: Mapping[str, object] | None
    queries: Sequence[str] = field(default=())
    agents: Sequence[str] = field(default=())
    learned: bool = True
    schedule: Mapping[str, object] | None = None


@dataclass(frozen=True)
class _Drafts:
    """All parts of a configuration to be made."""

    parts: list[PartDraft]
    schedules: list[ScheduleDraft]


@transaction.atomic
def config_create(
    *, cluster: Cluster, wish: ConfigRequest, words: str = "", user: User | None = None, now: datetime | None = None
) -> RefinedConfig:
    """Create a configuration and check it on recorded epochs; no agent has it before its rollout starts.

    One that is predicted to be worse than the policy allows is kept as refused.

    Raises
    ------
    Malformed
        With every fault: settings out of their safe range, queries that are not live, agents that take no part.
    """
    now = now or shared_now()
    policy = policy_locked(cluster)
    faults = [Fault("words", f"words has {len(words)} characters; allowed: 200")] if len(words) > 200 else []
    drafts = _drafts(cluster, wish, faults)
    checked = drafts_check(cluster, drafts.parts, policy, now, drafts.schedules)
    config = config_store(
        cluster=cluster, origin=ConfigOrigin.PERSON, drafts=drafts.parts, schedules=drafts.schedules, now=now,
        author=user, words=words or _words(wish), settings=dict(wish.settings or {}), checked=checked.to_dict(),
        schedule=None if wish.schedule is None else dict(wish.schedule),
        scope={"queries": list(wish.queries), "agents": list(wish.agents), "learned": wish.learned},
    )  # fmt: skip
    if checked.health == WORSE:
        config.state = ConfigState.REFUSED
        config.save(update_fields=["state", "updated_at"])
    return config


def config_check(*, cluster: Cluster, wish: ConfigRequest, now: datetime | None = None) -> ConfigCheck:
    """Check a configuration on recently recorded epochs; nothing is stored."""
    policy = RolloutPolicy.objects.filter(cluster=cluster).first() or RolloutPolicy(cluster=cluster)
    drafts = _drafts(cluster, wish, [])
    return drafts_check(cluster, drafts.parts, policy, now or shared_now(), drafts.schedules)


def _words(wish: ConfigRequest) -> str:
    parts = []
    for settings, what in ((wish.settings, ""), (wish.schedule, "scheduling ")):
        if settings is not None:
            parts.append(what + (", ".join(f"{name} {value}" for name, value in settings.items()) or "defaults"))
    return f"Sets {'; '.join(parts)}"[:200]


def _drafts(cluster: Cluster, wish: ConfigRequest, faults: list[Fault]) -> _Drafts:
    assignments = assignments_adapting(cluster) if wish.settings is not None else []
    scheduling = list(agents_scheduling(cluster)) if wish.schedule is not None else []
    if wish.settings is None and wish.schedule is None:
        faults.append(Fault("settings", "neither settings nor schedule is given; allowed: one of them, or both"))
    lives = {assignment.live.query.name: assignment.live for assignment in assignments}
    agents = {assignment.agent.name: assignment.agent for assignment in assignments} | {
        agent.name: agent for agent in scheduling
    }
    if wish.schedule is not None and wish.queries:
        faults.append(Fault("queries", "a schedule is of whole agents, not of queries; allowed beside it: no queries"))
    else:
        faults += _unknown("queries", wish.queries, lives, "no live query that an agent adapts")
    what = "no agent that adapts a live query" if wish.schedule is None else "no agent that runs a live query"
    faults += _unknown("agents", wish.agents, agents, what)
    chosen = [live for name, live in lives.items() if not wish.queries or name in wish.queries]
    settings = _settings(wish, chosen, faults)
    if wish.schedule is not None:
        ScheduleSettings.read(wish.schedule, "", "schedule", faults)
    if not agents and not faults:
        doing = "adapts" if wish.schedule is None else "runs"
        faults.append(Fault("queries", f"no agent of {cluster.slug} {doing} a live query"))
    drafts = _Drafts([], [])
    if not faults:
        drafts = _Drafts(_parts(chosen, assignments, wish, settings), _schedules(wish, agents))
    if not drafts.parts and not drafts.schedules and not faults:
        faults.append(Fault("agents", "none of these agents takes part in one of these queries"))
    if faults:
        first = f"{faults[0].path}: {faults[0].message}"
        raise Malformed(f"The configuration has {fault_count(faults)}; first: {first}.", faults)
    return drafts


def _schedules(wish: ConfigRequest, agents: Mapping[str, Agent]) -> list[ScheduleDraft]:
    """One part for all, or one for each chosen agent."""
    if wish.schedule is None:
        return []
    if not wish.agents:
        return [ScheduleDraft(None, wish.schedule)]
    return [ScheduleDraft(agents[name], wish.schedule) for name in dict.fromkeys(wish.agents)]


def _settings(wish: ConfigRequest, chosen: Sequence[LiveQuery], faults: list[Fault]) -> dict[str, object]:
    """The settings as stored; load factors by hand have to fit every chosen query."""
    if wish.settings is None:
        return {}
    before = len(faults)
    AdaptationSettings.read(wish.settings, "", "settings", faults)
    if len(faults) > before:
        return {}
    settings: dict[str, object] = {}
    for live in chosen:
        settings_faults: list[Fault] = []
        settings = settings_read(wish.settings, live.source_operators, settings_faults)
        faults += [Fault(fault.path, f"{fault.message} (query {live.query.name})") for fault in settings_faults]
    return settings


def _parts(
    chosen: Sequence[LiveQuery], assignments: Sequence[Assignment], wish: ConfigRequest, settings: Mapping[str, object]
) -> list[PartDraft]:
    """One part with settings for all agents, and one each for agents that are chosen or have learned figures."""
    cluster = assignments[0].agent.cluster_id if wish.learned and assignments else None
    learned_by_part, watermarks = (learned_in(cluster), watermarks_in(cluster)) if cluster else ({}, {})
    drafts = [PartDraft(live, None, settings, watermarks_for(watermarks, live)) for live in chosen]
    drafts = [] if wish.agents else drafts
    keys = {live.pk for live in chosen}
    for assignment in assignments:
        if assignment.live_id in keys and (not wish.agents or assignment.agent.name in wish.agents):
            learned = _learned_figures(learned_by_part.get((assignment.live_id, assignment.agent_id)))
            own = (assignment.live_id, assignment.agent_id) in watermarks
            if wish.agents or learned.operators or own:
                learned = learned.with_watermarks(watermarks_for(watermarks, assignment.live, assignment.agent_id))
                drafts.append(PartDraft(assignment.live, assignment.agent, settings, learned))
    return drafts


def _learned_figures(row: Learned | None) -> LearnedFigures:
    """Learned figures of a query's operators at an agent, if there is enough evidence."""
    nothing = LearnedFigures()
    if row is None or any(operator.records < ENOUGH_RECORDS for operator in row.figures.operators):
        return nothing
    return nothing.with_operators(row.figures)


def _unknown(path: str, names: Sequence[str], names_known: Mapping[str, object], what: str) -> list[Fault]:
    listed = ", ".join(sorted(names_known)[:10]) or "none"
    return [
        Fault(f"{path}[{index}]", f"{name!r} is {what}; there are: {listed}")
        for index, name in enumerate(names)
        if name not in names_known
    ]


@recorded()
def policy_update(*, cluster: Cluster, **values: Any) -> RolloutPolicy:
    """Change the rollout policy. Rollouts under way keep theirs."""
    policy = policy_locked(cluster)
    for name, value in values.items():
        setattr(policy, name, value)
    check_row(policy, _wave_faults(policy.waves))
    policy.save()
    configs_announce(cluster)
    return policy


def _wave_faults(waves: Any) -> list[Fault]:
    allowed = f"1 to {_MAX_WAVES} shares above 0 that grow and end with 1"
    numbers = isinstance(waves, list) and all(type(share) in (int, float) and 0 < share <= 1 for share in waves)
    if not numbers or not 1 <= len(waves) <= _MAX_WAVES or waves[-1] != 1 or sorted(set(waves)) != waves:
        return [Fault("waves", f"waves is {str(waves)[:60]}; allowed: {allowed}")]
    return []


CONFIGS_KEPT = timedelta(days=30)
_ENDED_STATES = (ConfigState.REFUSED, ConfigState.SUPERSEDED, ConfigState.STOPPED, ConfigState.ROLLED_BACK)


@transaction.atomic
def configs_purge(now: datetime | None = None) -> int:
    """Purge configurations that ended long ago; returns how many.

    A cluster's newest one stays, so that no number is ever given twice.
    """
    newest = RefinedConfig.objects.values("cluster").annotate(number=Max("number"))
    old = RefinedConfig.objects.filter(state__in=_ENDED_STATES, updated_at__lt=(now or shared_now()) - CONFIGS_KEPT)
    for row in newest:
        old = old.exclude(cluster=row["cluster"], number=row["number"])
    gone = old.count()
    old.delete()
    return gone


_OPEN_STATES = (*UNDER_WAY, RolloutState.WAITING)


def schedule_preview(
    *, cluster: Cluster, settings: Mapping[str, object], agents: Sequence[str] = (), canaries: Sequence[str] = ()
) -> Switched:
    """Preview a switch: agents (by name; all unless given), judged measures, shortest duration.

    `canaries` (names) would come first; without any they are chosen by chance when it begins.

    Raises
    ------
    Malformed
        With every fault: settings out of their safe range, agents that run no live query.
    """
    requested, chosen = _checked_request(cluster, settings, agents, canaries)
    policy = rollout_policy(cluster)
    stages = stage_sizes(len(chosen), policy, len(set(canaries)))
    return Switched(
        settings=requested,
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
    settings: Mapping[str, object],
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
    cluster: Cluster, settings: Mapping[str, object], agents: Sequence[str], canaries: Sequence[str]
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
        changes=tuple(settings_changes(state.settings, settings)),
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
    longest = [max((stage_epochs(policy, stage, [taker]) for taker in alike), default=0) for stage in range(stages)]
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
