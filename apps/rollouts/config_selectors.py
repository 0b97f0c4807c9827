"""Reading configurations: their parts beside what was in force before, and which one each agent has."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import OuterRef, QuerySet, Subquery

from agent.wire.heartbeat import AcknowledgingReport
from apps.core.errors import Missing
from apps.fleet.models import Cluster
from apps.rollouts.models import (
    GIVEN,
    IN_FORCE,
    SPREADING,
    ConfigOrigin,
    RefinedConfig,
    RefinedPart,
    Rollout,
    RolloutMember,
    SchedulePart,
)
from apps.rollouts.versions import assignments_refined, part_of, parts_reaching, schedule_part_of
from apps.telemetry.configs import live_served
from apps.telemetry.models import AgentKind, Assignment
from engine.jarvis.refined_config import OperatorPrior, RefinedAdaptation
from engine.jarvis.settings import AdaptationSettings
from engine.klink.settings import ScheduleSettings
from engine.records import Record

__all__ = [
    "AgentConfigState",
    "ConfigView",
    "PartView",
    "config_detail",
    "config_numbered",
    "config_parts",
    "config_schedules",
    "configs_by_agent",
    "configs_listed",
    "refusal_reasons",
    "reported_version",
    "settings_changes",
]

_ADAPTATION, _SCHEDULE = AdaptationSettings(), ScheduleSettings()


def configs_listed(cluster: Cluster) -> QuerySet[RefinedConfig]:
    """Configurations of a cluster, newest first, with author, parent and rollout."""
    return RefinedConfig.objects.filter(cluster=cluster).select_related("author", "parent", "cluster", "rollout")


def config_numbered(cluster: Cluster, number: int) -> RefinedConfig:
    """A cluster's configuration by its number."""
    config = configs_listed(cluster).filter(number=number).first()
    if config is None:
        message = f"no configuration c-{number}"
        raise Missing(f"Cluster {cluster.slug!r} has {message}.", [("number", message)])
    return config


#: What changed, before and after, such as ("cost of rtt", "12 µs", "15 µs").
Change = tuple[str, str, str]


@dataclass(frozen=True)
class AgentConfigState:
    """Configuration of an agent."""

    config: str  #: `c-117`, empty if it has none
    version: int  #: 0 if it has none
    same_as: str = ""  #: `c-116`, if a rollback restored that one
    canary: bool = False
    behind: bool = False  #: a newer one is intended for it
    by_hand: bool = False  #: load factors are set by hand in every query it runs; it may still get a schedule
    refused: tuple[str, ...] = ()  #: reasons why it refuses the intended one


@dataclass(frozen=True)
class PartView:
    """A part of a configuration beside what was in force before it."""

    query: str
    agent: str  #: name, or `all agents`
    document: Any  #: as agents get it
    refined: RefinedAdaptation
    before: RefinedAdaptation | None
    changes: tuple[Change, ...]


@dataclass(frozen=True)
class SchedulePartView:
    """A schedule part of a configuration beside what was in force before it."""

    agent: str  #: name, or `all agents`
    document: Any  #: as agents get it
    before: ScheduleSettings | None
    changes: tuple[Change, ...]


@dataclass(frozen=True)
class ConfigView:
    """A configuration with its parts and its rollout."""

    config: Any
    parts: tuple[PartView, ...]
    settings: tuple[Change, ...]  #: of what it sets
    rollout: Any | None
    events: tuple[Any, ...]
    schedules: tuple[SchedulePartView, ...] = ()
    schedule: tuple[Change, ...] = ()  #: of what it sets of scheduling


@dataclass(frozen=True)
class _IntendedConfig:
    """An agent's report on a query or its schedule, and the number of the configuration intended for it."""

    report: AcknowledgingReport
    number: int


def configs_by_agent(cluster: Cluster) -> dict[str, AgentConfigState]:
    """Configurations by id of each agent of a cluster that takes part in a live query."""
    rows = Assignment.objects.filter(enabled=True, agent__cluster=cluster, live__in=live_served())
    rows = rows.exclude(agent__kind=AgentKind.PRODUCER).select_related("agent", "live__query__cluster")
    by_agent: dict[str, list[Assignment]] = defaultdict(list)
    schedules = parts_reaching(SchedulePart.objects.filter(config__cluster=cluster), OuterRef("agent"))
    number = Subquery(schedules.values("config__number")[:1])
    for assignment in assignments_refined(rows).annotate(schedule_number=number):
        by_agent[str(assignment.agent_id)].append(assignment)
    ids = {
        assignment.part_id for listed in by_agent.values() for assignment in listed if assignment.part_id is not None
    }
    numbers = dict(RefinedPart.objects.filter(pk__in=ids).values_list("pk", "config__number"))
    meant = {agent: _intended_configs(listed, numbers) for agent, listed in by_agent.items()}
    configs = _configs(
        cluster, {reported_version(assignment.report) for listed in meant.values() for assignment in listed}
    )
    canaries = _canaries(cluster)
    return {agent: _state(by_agent[agent], meant[agent], configs, canaries.get(agent)) for agent in by_agent}


def _intended_configs(listed: Sequence[Assignment], numbers: Mapping[int, int]) -> list[_IntendedConfig]:
    """Intended configurations of an agent's queries that adapt, and of its schedule."""
    agent = listed[0].agent
    intended = [
        _IntendedConfig(assignment.report, numbers.get(assignment.part_id, 0))
        for assignment in listed
        if not assignment.by_hand
    ]
    if agent.kind == AgentKind.AGENT:
        intended.append(_IntendedConfig(agent.heartbeat.get("schedule") or {}, listed[0].schedule_number or 0))
    return intended


def _configs(cluster: Cluster, numbers: Collection[int]) -> dict[int, RefinedConfig]:
    rows = RefinedConfig.objects.filter(cluster=cluster, number__in=numbers)
    return {config.number: config for config in rows.select_related("parent__parent").defer("checked")}


def reported_version(report: AcknowledgingReport) -> int:
    """Number of the reported configuration, of a query or of the schedule; 0 if there is none."""
    return (report.get("refined") or {}).get("version") or 0


def _canaries(cluster: Cluster) -> dict[str, int]:
    """Numbers of configurations under trial at canaries, by agent."""
    rows = RolloutMember.objects.filter(rollout__config__cluster=cluster, rollout__state__in=SPREADING)
    canaries = rows.filter(stage=0, state__in=GIVEN).values_list("agent", "rollout__config__number")
    return {str(agent): number for agent, number in canaries}


def _state(
    listed: Sequence[Assignment],
    meant: Sequence[_IntendedConfig],
    configs: Mapping[int, RefinedConfig],
    canary: int | None,
) -> AgentConfigState:
    by_hand = all(intended.by_hand for intended in listed)
    version = max((reported_version(intended.report) for intended in meant), default=0)
    number = max((intended.number for intended in meant), default=0)
    return AgentConfigState(
        config=f"c-{version}" if version else "",
        version=version,
        same_as=_same_as(configs.get(version)),
        canary=canary is not None and canary == number,
        behind=any(reported_version(intended.report) < intended.number for intended in meant),
        by_hand=by_hand,
        refused=tuple(reason for intended in meant for reason in refusal_reasons(intended.report, intended.number)),
    )


def refusal_reasons(report: AcknowledgingReport, number: int) -> tuple[str, ...]:
    """Reasons why an agent refuses the configuration intended for it; empty if it does not."""
    refused = report.get("refused") or {}
    return tuple(map(str, refused.get("reasons", ()))) if number and refused.get("version") == number else ()


def _same_as(config: RefinedConfig | None) -> str:
    """The configuration a rollback restores: the one before that it rolls back."""
    if config is None or config.origin != ConfigOrigin.ROLLBACK or config.parent is None:
        return ""
    return config.parent.parent.name if config.parent.parent else ""


MAX_PARTS = 200  #: shown of one configuration


def config_detail(config: RefinedConfig) -> ConfigView:
    """A configuration with its first parts, each beside what was in force before it."""
    parts, schedules = config_parts(config), config_schedules(config)
    before = next((part.before.settings for part in parts if part.before), _ADAPTATION)
    was = next((part.before for part in schedules if part.before), _SCHEDULE)
    rollout = Rollout.objects.filter(config=config).first() or Rollout.objects.filter(back=config).first()
    return ConfigView(
        config=config,
        parts=parts,
        settings=tuple(_given(before, AdaptationSettings.parse(config.settings), config.settings)),
        rollout=rollout,
        events=tuple(rollout.events.select_related("by")) if rollout else (),
        schedules=schedules,
        schedule=()
        if config.schedule is None
        else tuple(_given(was, ScheduleSettings.parse(config.schedule), config.schedule)),
    )


def config_parts(config: RefinedConfig) -> tuple[PartView, ...]:
    """The first parts for queries."""
    rows = config.parts.select_related("live__query__cluster", "agent").order_by("live__query__name", "agent__name")
    return tuple(_part(part) for part in rows[:MAX_PARTS])


def config_schedules(config: RefinedConfig) -> tuple[SchedulePartView, ...]:
    """The first schedule parts."""
    rows = config.schedule_parts.select_related("agent", "config").order_by("agent__name")
    return tuple(_schedule(part) for part in rows[:MAX_PARTS])


def _part(part: RefinedPart) -> PartView:
    row, refined = _before(part), RefinedAdaptation.parse(part.document)
    before = RefinedAdaptation.parse(row.document) if row else None
    return PartView(
        query=part.live.query.name,
        agent=part.agent.name if part.agent else "all agents",
        document=part.document,
        refined=refined,
        before=before,
        changes=tuple(_refined_changes(before, refined)),
    )


def _before(part: RefinedPart) -> RefinedPart | None:
    if part.agent is not None:
        mine = Assignment(live=part.live, agent=part.agent)
        return part_of(mine, below=part.config.number)
    rows = RefinedPart.objects.filter(live=part.live, agent=None, plan=part.plan)
    return rows.filter(config__number__lt=part.config.number).order_by("-config__number").first()


def _schedule(part: SchedulePart) -> SchedulePartView:
    if part.agent is not None:
        before = schedule_part_of(part.agent, below=part.config.number)
    else:
        rows = SchedulePart.objects.filter(config__cluster=part.config.cluster_id, agent=None)
        rows = rows.filter(config__number__lt=part.config.number, config__state__in=IN_FORCE)
        before = rows.order_by("-config__number").first()
    settings = ScheduleSettings.parse(before.document["schedule"]) if before else None
    now = ScheduleSettings.parse(part.document["schedule"])
    return SchedulePartView(
        agent=part.agent.name if part.agent else "all agents",
        document=part.document,
        before=settings,
        changes=tuple(settings_changes(settings or _SCHEDULE, now)),
    )


def settings_changes(before: Record, after: Record) -> Iterator[Change]:
    """Differences of two settings of one kind."""
    old, new = before.to_dict(), after.to_dict()
    for name, value in new.items():
        if old[name] != value:
            yield name, _text(old[name]), _text(value)


def _given(before: Record, after: Record, names: Container[str]) -> Iterator[Change]:
    """Settings of these names, differing or not."""
    old = before.to_dict()
    for name, value in after.to_dict().items():
        if name in names:
            yield name, _text(old[name]), _text(value)


def _refined_changes(before: RefinedAdaptation | None, after: RefinedAdaptation) -> Iterator[Change]:
    """Differences of two refined documents."""
    yield from settings_changes(before.settings if before else _ADAPTATION, after.settings)
    operators = {operator.id: operator for operator in before.operators} if before else {}
    for operator in after.operators:
        yield from _operator(operators.get(operator.id), operator)
    yield from _watermarks(before, after)
    plans = [_plan(refined) for refined in (before, after)]
    if plans[0] != plans[1]:
        yield ("planned load factors", *plans)


def _operator(before: OperatorPrior | None, after: OperatorPrior) -> Iterator[Change]:
    rows = (("cost_s", "cost", 1e6, " µs"), ("group_cost_s", "cost per group", 1e6, " µs"), ("groups", "groups", 1, ""))
    for name, label, scale, unit in (*rows, ("relay", "relay ratio", 1, "")):
        old, new = (_number(getattr(prior, name, None), scale, unit) for prior in (before, after))
        if old != new:
            yield f"{label} of {after.id}", old, new


def _watermarks(before: RefinedAdaptation | None, after: RefinedAdaptation) -> Iterator[Change]:
    priors = {prior.stream: prior for prior in (before.watermarks if before else None) or ()}
    for prior in after.watermarks or ():
        for name, label in (("period_s", "period"), ("mean_s", "delay of watermarks")):
            old, new = (_number(getattr(each, name, None), 1, " s") for each in (priors.get(prior.stream), prior))
            if old != new:
                yield f"{label} of {prior.stream}", old, new
    old, new = (_number(getattr(refined, "event_cost_s", None), 1e6, " µs") for refined in (before, after))
    if old != new:
        yield "cost of a record", old, new


def _plan(refined: RefinedAdaptation | None) -> str:
    plan = refined.plan_prior if refined else None
    return _text(plan.load_factors) if plan else "–"


def _number(value: float | None, scale: float, unit: str) -> str:
    return "–" if value is None else f"{value * scale:.3g}{unit}"


def _text(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(f"{number:.3g}" for number in value) or "–"
    return f"{value:g}" if isinstance(value, float) else str(value)
