"""A configuration part by part, beside what agents had before it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from apps.refinement.choices import IN_FORCE
from apps.refinement.giving import part_of
from apps.refinement.models import RefinedConfig, RefinedPart, Rollout, SchedulePart
from apps.refinement.schedules import schedule_part_of
from apps.refinement.showing import ConfigView, PartView, SchedulePartView
from apps.telemetry.models import Assignment
from engine.jarvis.settings import Settings
from engine.klink.settings import ScheduleSettings

__all__ = ["MOST_PARTS", "changes_of", "config_detail", "config_parts", "config_schedules", "schedule_changes"]

MOST_PARTS = 200  #: are shown of one configuration

Change = tuple[str, str, str]


def config_detail(config: RefinedConfig) -> ConfigView:
    """A configuration with its first parts, each beside what was in force before it."""
    parts, schedules = config_parts(config), config_schedules(config)
    before = next((part.before["settings"] for part in parts if part.before), {})
    was = next((one.before["schedule"] for one in schedules if one.before), {})
    rollout = Rollout.objects.filter(config=config).first() or Rollout.objects.filter(back=config).first()
    return ConfigView(
        config=config,
        parts=parts,
        settings=tuple(_settings(before, config.settings, given=True)),
        rollout=rollout,
        events=tuple(rollout.events.select_related("by")) if rollout else (),
        schedules=schedules,
        schedule=() if config.schedule is None else tuple(schedule_changes(was, config.schedule, given=True)),
    )


def config_parts(config: RefinedConfig) -> tuple[PartView, ...]:
    """What it holds for queries, the first parts of it."""
    rows = config.parts.select_related("live__query__cluster", "agent").order_by("live__query__name", "agent__name")
    return tuple(_part(part) for part in rows[:MOST_PARTS])


def config_schedules(config: RefinedConfig) -> tuple[SchedulePartView, ...]:
    """What it holds of scheduling, the first parts of it."""
    rows = config.schedule_parts.select_related("agent", "config").order_by("agent__name")
    return tuple(_schedule(part) for part in rows[:MOST_PARTS])


def _part(part: RefinedPart) -> PartView:
    before = _before(part)
    document = before.document if before else None
    return PartView(
        query=part.live.query.name,
        agent=part.agent.name if part.agent else "all agents",
        document=part.document,
        before=document,
        changes=tuple(changes_of(document, part.document)),
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
    document = before.document if before else None
    return SchedulePartView(
        agent=part.agent.name if part.agent else "all agents",
        document=part.document,
        before=document,
        changes=tuple(schedule_changes(document["schedule"] if document else {}, part.document["schedule"])),
    )


def schedule_changes(before: Mapping[str, Any], after: Mapping[str, Any], *, given: bool = False) -> Iterator[Change]:
    """What differs between two settings of scheduling, or with `given` everything that `after` says."""
    old, new = (ScheduleSettings.parse(dict(one)).to_dict() for one in (before, after))
    yield from _differing(old, new, after if given else None)


def changes_of(before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> Iterator[Change]:
    """What differs between two refined documents, in words: (what, before, after)."""
    yield from _settings(before["settings"] if before else {}, after["settings"])
    known = {one["id"]: one for one in (before or {}).get("operators", ())}
    for one in after["operators"]:
        yield from _operator(known.get(one["id"], {}), one)
    yield from _watermarks(before or {}, after)
    plans = [_plan(document) for document in (before or {}, after)]
    if plans[0] != plans[1]:
        yield ("planned load factors", *plans)


def _settings(before: Mapping[str, Any], after: Mapping[str, Any], *, given: bool = False) -> Iterator[Change]:
    """What differs, or with `given` everything that `after` says."""
    old, new = Settings.parse(dict(before)).to_dict(), Settings.parse(dict(after)).to_dict()
    yield from _differing(old, new, after if given else None)


def _differing(old: Mapping[str, Any], new: Mapping[str, Any], said: Mapping[str, Any] | None) -> Iterator[Change]:
    for name, value in new.items():
        if (name in said) if said is not None else (old[name] != value):
            yield name, _text(old[name]), _text(value)


def _operator(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Change]:
    rows = (("cost_s", "cost", 1e6, " µs"), ("group_cost_s", "cost per group", 1e6, " µs"), ("groups", "groups", 1, ""))
    for name, label, scale, unit in (*rows, ("relay", "relay ratio", 1, "")):
        old, new = (_number(row.get(name), scale, unit) for row in (before, after))
        if old != new:
            yield f"{label} of {after['id']}", old, new


def _watermarks(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Change]:
    known = {one["stream"]: one for one in before.get("watermarks") or ()}
    for one in after.get("watermarks") or ():
        was = known.get(one["stream"], {})
        for name, label in (("period_s", "period"), ("mean_s", "delay of watermarks")):
            old, new = (_number(row.get(name), 1, " s") for row in (was, one))
            if old != new:
                yield f"{label} of {one['stream']}", old, new
    old, new = (_number(row.get("event_cost_s"), 1e6, " µs") for row in (before, after))
    if old != new:
        yield "cost of a record", old, new


def _plan(document: Mapping[str, Any]) -> str:
    plan = document.get("plan_prior")
    return _text(plan["load_factors"]) if plan else "–"


def _number(value: float | None, scale: float, unit: str) -> str:
    return "–" if value is None else f"{value * scale:.3g}{unit}"


def _text(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(f"{one:.3g}" for one in value) or "–"
    return f"{value:g}" if isinstance(value, float) else str(value)
