"""How each agent shares its core now, and how it is to."""

from __future__ import annotations

from apps.fleet.models import Cluster
from apps.refinement.choices import GIVEN, SPREADING
from apps.refinement.holding import refusal_of, version_of
from apps.refinement.models import RolloutMember, SchedulePart
from apps.refinement.schedules import agents_with_schedules
from apps.refinement.showing import AgentSchedule
from apps.scheduling.selectors import agents_scheduling
from apps.telemetry.models import Agent
from engine.klink.settings import ScheduleSettings

__all__ = ["schedules_of"]


def schedules_of(cluster: Cluster) -> dict[str, AgentSchedule]:
    """By id of each agent that shares a core between live queries, in order of their names."""
    agents = list(agents_with_schedules(agents_scheduling(cluster)))
    had = _settings_of(cluster, agents)
    watched = RolloutMember.objects.filter(
        rollout__config__cluster=cluster, rollout__state__in=SPREADING, stage=0, state__in=GIVEN
    )
    canaries = set(watched.values_list("agent", "rollout__config__number"))
    return {str(agent.pk): _state(agent, had, canaries) for agent in agents}


def _settings_of(cluster: Cluster, agents: list[Agent]) -> dict[tuple[int, str], ScheduleSettings]:
    """By number of the configuration and agent's id, `*` for all: of those that agents say they have."""
    numbers = {version_of(_report(agent)) for agent in agents}
    parts = SchedulePart.objects.filter(config__cluster=cluster, config__number__in=numbers)
    found = parts.values_list("config__number", "document")
    return {(number, said["agent"]): ScheduleSettings.parse(said["schedule"]) for number, said in found}


def _report(agent: Agent) -> dict:
    return agent.heartbeat.get("schedule") or {}


def _state(
    agent: Agent, had: dict[tuple[int, str], ScheduleSettings], canaries: set[tuple[object, int]]
) -> AgentSchedule:
    report, number = _report(agent), agent.schedule_number or 0
    version = version_of(report)
    settings = had.get((version, str(agent.pk))) or had.get((version, "*")) or ScheduleSettings()
    return AgentSchedule(
        agent=agent,
        settings=settings,
        config=f"c-{version}" if version else "",
        version=version,
        wanted=f"c-{number}" if number else "",
        part_id=agent.schedule_id,
        behind=version < number,
        canary=(agent.pk, number) in canaries,
        refused=refusal_of(report, number),
        report=report,
    )
