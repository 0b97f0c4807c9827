"""Which configuration each agent has, and which it is to have."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import OuterRef, Subquery

from apps.fleet.models import Cluster
from apps.refinement.choices import GIVEN, SPREADING, ConfigOrigin
from apps.refinement.giving import assignments_refined
from apps.refinement.models import RefinedConfig, RefinedPart, RolloutMember, SchedulePart
from apps.refinement.reaching import reached
from apps.refinement.showing import AgentConfigState
from apps.telemetry.choices import AgentKind
from apps.telemetry.configs import live_served
from apps.telemetry.models import Assignment

__all__ = ["config_of_agents", "refusal_of", "version_of"]


@dataclass(frozen=True)
class _Meant:
    """What an agent said of a query or its schedule, and the number of the configuration that is meant for it."""

    report: Mapping[str, Any]
    number: int


def config_of_agents(cluster: Cluster) -> dict[str, AgentConfigState]:
    """Which configuration each agent of a cluster has that takes part in a live query, by the agent's id."""
    rows = Assignment.objects.filter(enabled=True, agent__cluster=cluster, live__in=live_served())
    rows = rows.exclude(agent__kind=AgentKind.PRODUCER).select_related("agent", "live__query__cluster")
    by_agent: dict[str, list[Assignment]] = defaultdict(list)
    schedules = reached(SchedulePart.objects.filter(config__cluster=cluster), OuterRef("agent"))
    number = Subquery(schedules.values("config__number")[:1])
    for one in assignments_refined(rows).annotate(schedule_number=number):
        by_agent[str(one.agent_id)].append(one)
    ids = {one.part_id for listed in by_agent.values() for one in listed if one.part_id is not None}
    numbers = dict(RefinedPart.objects.filter(pk__in=ids).values_list("pk", "config__number"))
    meant = {agent: _meant(listed, numbers) for agent, listed in by_agent.items()}
    configs = _configs(cluster, {version_of(one.report) for listed in meant.values() for one in listed})
    canaries = _canaries(cluster)
    return {agent: _state(by_agent[agent], meant[agent], configs, canaries.get(agent)) for agent in by_agent}


def _meant(listed: Sequence[Assignment], numbers: Mapping[int, int]) -> list[_Meant]:
    """For an agent's queries that adapt, and its schedule."""
    agent = listed[0].agent
    found = [_Meant(one.report, numbers.get(one.part_id, 0)) for one in listed if not one.by_hand]
    if agent.kind == AgentKind.AGENT:
        found.append(_Meant(agent.heartbeat.get("schedule") or {}, listed[0].schedule_number or 0))
    return found


def _configs(cluster: Cluster, numbers: Collection[int]) -> dict[int, RefinedConfig]:
    rows = RefinedConfig.objects.filter(cluster=cluster, number__in=numbers)
    return {one.number: one for one in rows.select_related("parent__parent").defer("checked")}


def version_of(report: Mapping[str, Any]) -> int:
    """Of the configuration that an agent says it has, in a query or of its schedule; 0 where it has none."""
    return (report.get("refined") or {}).get("version") or 0


def _canaries(cluster: Cluster) -> dict[str, int]:
    """Numbers of configurations that are watched at their canaries, by agent."""
    rows = RolloutMember.objects.filter(rollout__config__cluster=cluster, rollout__state__in=SPREADING)
    found = rows.filter(stage=0, state__in=GIVEN).values_list("agent", "rollout__config__number")
    return {str(agent): number for agent, number in found}


def _state(
    listed: Sequence[Assignment], meant: Sequence[_Meant], configs: Mapping[int, RefinedConfig], canary: int | None
) -> AgentConfigState:
    by_hand = all(one.by_hand for one in listed)
    version = max((version_of(one.report) for one in meant), default=0)
    wanted = max((one.number for one in meant), default=0)
    return AgentConfigState(
        config=f"c-{version}" if version else "",
        version=version,
        same_as=_same_as(configs.get(version)),
        canary=canary is not None and canary == wanted,
        behind=any(version_of(one.report) < one.number for one in meant),
        by_hand=by_hand,
        refused=tuple(reason for one in meant for reason in refusal_of(one.report, one.number)),
    )


def refusal_of(report: Mapping[str, Any], number: int) -> tuple[str, ...]:
    """Why an agent refuses the configuration that is meant for it; empty where it does not."""
    refused = report.get("refused") or {}
    return tuple(map(str, refused.get("reasons", ()))) if number and refused.get("version") == number else ()


def _same_as(config: RefinedConfig | None) -> str:
    """What a rollback brought back: what was current before the one that it takes back."""
    if config is None or config.origin != ConfigOrigin.ROLLBACK or config.parent is None:
        return ""
    return config.parent.parent.name if config.parent.parent else ""
