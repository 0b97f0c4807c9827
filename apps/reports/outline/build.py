"""The blocks of a report, from its facts alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from zoneinfo import ZoneInfo

from apps.reports.blocks import Block
from apps.reports.choices import ReportKind, Trigger
from apps.reports.outline.fleet import fleet_blocks, summary_blocks
from apps.reports.outline.forecast import forecast_blocks
from apps.reports.outline.latency import latency_blocks
from apps.reports.outline.objectives import objective_blocks
from apps.reports.outline.purchases import purchase_blocks
from apps.reports.outline.rest import basis_blocks, change_blocks, risk_blocks
from apps.reports.outline.times import told

__all__ = ["outline", "title_lines"]

_SECTIONS: dict[str, Callable[[dict[str, Any]], Iterator[Block]]] = {
    "objectives": objective_blocks,
    "fleet": fleet_blocks,
    "forecast": forecast_blocks,
    "purchases": purchase_blocks,
    "risks": risk_blocks,
    "changes": change_blocks,
}


def outline(facts: dict[str, Any]) -> list[Block]:
    """Every block of a report, in order; the title block is `title_lines`."""
    if facts["kind"] == ReportKind.LATENCY:
        return [*latency_blocks(facts), *basis_blocks(facts)]
    blocks = list(summary_blocks(facts))
    for name in facts["parameters"]["sections"]:
        blocks += _SECTIONS[name](facts)
    return [*blocks, *basis_blocks(facts)]


def title_lines(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """Who, when, what: the title block, as (name, value)."""
    zone = ZoneInfo(facts["time_zone"])
    covers = facts["covers"]
    begin = told(covers["from"], zone) if covers["from"] else "the first estimate"
    return [
        ("Cluster", facts["cluster"]["name"]),
        ("Written", f"{told(facts['written_at'], zone)}, {_why(facts, zone)}"),
        ("Covers", f"{begin} to {told(covers['until'], zone)}"),
        ("Scenario", _scenario(facts)),
        ("Times", facts["time_zone"]),
    ]


def _why(facts: dict[str, Any], zone: ZoneInfo) -> str:
    if facts["trigger"] == Trigger.MANUAL:
        return f"by {facts['requested_by']}" if facts["requested_by"] else "by hand"
    due = told(facts["due_at"], zone)
    if facts["trigger"] == Trigger.MADE_UP:
        several = f", for {facts['missed']} due times that were missed" if facts["missed"] > 1 else ""
        return f"made up for {due}{several}"
    return f"by schedule for {due}"


def _scenario(facts: dict[str, Any]) -> str:
    if facts["kind"] == ReportKind.LATENCY:
        name = facts["subject"].get("query") or f"team {facts['subject'].get('team')}"
        return f"What runs now, for the users of {name}"
    growth = facts["parameters"]["growth"]
    extra = f"; purchases at +{growth * 100:g}% load with any one node lost" if "purchases" in facts else ""
    return f"What runs now{extra}"
