"""A configuration part by part, beside what agents had before it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from apps.refinement.giving import part_of
from apps.refinement.models import RefinedConfig, RefinedPart, Rollout
from apps.refinement.showing import ConfigView, PartView
from apps.telemetry.models import Assignment
from engine.jarvis.settings import Settings

__all__ = ["MOST_PARTS", "changes_of", "config_detail"]

MOST_PARTS = 200  #: are shown of one configuration

Change = tuple[str, str, str]


def config_detail(config: RefinedConfig) -> ConfigView:
    """A configuration with its first parts, each beside what was in force before it."""
    rows = config.parts.select_related("live__query__cluster", "agent").order_by("live__query__name", "agent__name")
    parts = tuple(_part(part) for part in rows[:MOST_PARTS])
    before = next((part.before["settings"] for part in parts if part.before), {})
    rollout = Rollout.objects.filter(config=config).first() or Rollout.objects.filter(back=config).first()
    return ConfigView(
        config=config,
        parts=parts,
        settings=tuple(_settings(before, config.settings, given=True)),
        rollout=rollout,
        events=tuple(rollout.events.select_related("by")) if rollout else (),
    )


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


def changes_of(before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> Iterator[Change]:
    """What differs between two refined documents, in words: (what, before, after)."""
    yield from _settings(before["settings"] if before else {}, after["settings"])
    known = {one["id"]: one for one in (before or {}).get("operators", ())}
    for one in after["operators"]:
        yield from _operator(known.get(one["id"], {}), one)
    plans = [_plan(document) for document in (before or {}, after)]
    if plans[0] != plans[1]:
        yield ("planned load factors", *plans)


def _settings(before: Mapping[str, Any], after: Mapping[str, Any], *, given: bool = False) -> Iterator[Change]:
    """What differs, or with `given` everything that `after` says."""
    old, new = Settings.parse(dict(before)).to_dict(), Settings.parse(dict(after)).to_dict()
    for name, value in new.items():
        if (name in after) if given else (old[name] != value):
            yield name, _text(old[name]), _text(value)


def _operator(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Change]:
    rows = (("cost_s", "cost", 1e6, " µs"), ("group_cost_s", "cost per group", 1e6, " µs"), ("groups", "groups", 1, ""))
    for name, label, scale, unit in (*rows, ("relay", "relay ratio", 1, "")):
        old, new = (_number(row.get(name), scale, unit) for row in (before, after))
        if old != new:
            yield f"{label} of {after['id']}", old, new


def _plan(document: Mapping[str, Any]) -> str:
    plan = document.get("plan_prior")
    return _text(plan["load_factors"]) if plan else "–"


def _number(value: float | None, scale: float, unit: str) -> str:
    return "–" if value is None else f"{value * scale:.3g}{unit}"


def _text(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(f"{one:.3g}" for one in value) or "–"
    return f"{value:g}" if isinstance(value, float) else str(value)
