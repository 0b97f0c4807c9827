"""Which configuration each agent has, and which it is to have."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from apps.fleet.models import Cluster
from apps.refinement.choices import GIVEN, SPREADING, ConfigOrigin
from apps.refinement.giving import assignments_refined
from apps.refinement.models import RefinedConfig, RefinedPart, RolloutMember
from apps.refinement.showing import AgentConfigState
from apps.telemetry.choices import AgentKind
from apps.telemetry.configs import live_served
from apps.telemetry.models import Assignment

__all__ = ["config_of_agents"]


def config_of_agents(cluster: Cluster) -> dict[str, AgentConfigState]:
    """Which configuration each agent of a cluster has that takes part in a live query, by the agent's id."""
    rows = Assignment.objects.filter(enabled=True, agent__cluster=cluster, live__in=live_served())
    rows = rows.exclude(agent__kind=AgentKind.PRODUCER).select_related("agent", "live__query__cluster")
    by_agent: dict[str, list[Assignment]] = defaultdict(list)
    for one in assignments_refined(rows):
        by_agent[str(one.agent_id)].append(one)
    ids = {one.part_id for listed in by_agent.values() for one in listed if one.part_id is not None}
    numbers = dict(RefinedPart.objects.filter(pk__in=ids).values_list("pk", "config__number"))
    configs = _configs(cluster, {_version(one) for listed in by_agent.values() for one in listed})
    canaries = _canaries(cluster)
    return {agent: _state(listed, numbers, configs, canaries.get(agent)) for agent, listed in by_agent.items()}


def _configs(cluster: Cluster, numbers: Collection[int]) -> dict[int, RefinedConfig]:
    rows = RefinedConfig.objects.filter(cluster=cluster, number__in=numbers)
    return {one.number: one for one in rows.select_related("parent__parent").defer("checked")}


def _version(assignment: Assignment) -> int:
    """Of the configuration that an agent says it has in a query; 0 where it has none."""
    return (assignment.report.get("refined") or {}).get("version") or 0


def _canaries(cluster: Cluster) -> dict[str, int]:
    """Numbers of configurations that are watched at their canaries, by agent."""
    rows = RolloutMember.objects.filter(rollout__config__cluster=cluster, rollout__state__in=SPREADING)
    found = rows.filter(stage=0, state__in=GIVEN).values_list("agent", "rollout__config__number")
    return {str(agent): number for agent, number in found}


def _state(
    listed: Sequence[Assignment],
    numbers: Mapping[int, int],
    configs: Mapping[int, RefinedConfig],
    canary: int | None,
) -> AgentConfigState:
    if all(one.by_hand for one in listed):
        return AgentConfigState("", 0, by_hand=True)
    adapting = [one for one in listed if not one.by_hand]
    has = [_version(one) for one in adapting]
    wanted = [numbers.get(one.part_id, 0) for one in adapting]
    refused = [one.report.get("refused") or {} for one in adapting]
    version = max(has)
    return AgentConfigState(
        config=f"c-{version}" if version else "",
        version=version,
        same_as=_same_as(configs.get(version)),
        canary=canary is not None and canary == max(wanted),
        behind=any(ours < theirs for ours, theirs in zip(has, wanted, strict=True)),
        refused=tuple(
            str(reason)
            for one, number in zip(refused, wanted, strict=True)
            if number and one.get("version") == number
            for reason in one.get("reasons", ())
        ),
    )


def _same_as(config: RefinedConfig | None) -> str:
    """What a rollback brought back: what was current before the one that it takes back."""
    if config is None or config.origin != ConfigOrigin.ROLLBACK or config.parent is None:
        return ""
    return config.parent.parent.name if config.parent.parent else ""
