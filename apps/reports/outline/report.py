"""Blocks of a report, from its facts alone: title, sections, risks, changes and basis."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from zoneinfo import ZoneInfo

from apps.admission.choices import AdmissionState, Verdict
from apps.reports.blocks import Block, ReportCell, ReportColumn, ReportHeading, ReportTable, ReportText
from apps.reports.choices import ReportKind, Trigger
from apps.reports.notation import local_time
from apps.reports.outline.fleet import fleet_blocks, summary_blocks
from apps.reports.outline.forecast import forecast_blocks
from apps.reports.outline.objectives import latency_blocks, objective_blocks
from apps.reports.outline.purchases import purchase_blocks
from apps.ui.numbers import seconds

__all__ = ["basis_blocks", "change_blocks", "report_blocks", "risk_blocks", "title_lines"]


_LEVELS = {"high": ("High", "breached"), "medium": ("Medium", "at_risk"), "low": ("Low", "none")}
_RISKS = (
    ReportColumn("Risk", "level", width=0.8),
    ReportColumn("Where", "where", width=1.6),
    ReportColumn("Why", "why", width=5),
)
_PARTS = (ReportColumn("What changed", "change", width=1),)
_DECISIONS = (
    ReportColumn("When", "decided_at", width=1.5),
    ReportColumn("Query", "query", width=1.8),
    ReportColumn("Verdict", "verdict", width=1.3),
    ReportColumn("What became of it", "state", width=1.3),
    ReportColumn("By", "by", width=0.9),
    ReportColumn("Why", "headline", width=3.4),
)


def risk_blocks(facts: dict[str, Any]) -> Iterator[Block]:
    yield ReportHeading("risks", "Risks", "The gravest first")
    risks = facts["risks"]
    if not risks and not facts["estimate"]:
        yield ReportText("Nothing runs yet, so nothing is at risk.")
        return
    if not risks:
        yield ReportText(
            "None was found: every objective holds with its interval, no node drains, every cost was measured."
        )
        return
    rows = []
    for risk in risks:
        word, state = _LEVELS[risk["level"]]
        rows.append(
            [
                ReportCell(word, risk["level"], state=state),
                ReportCell(risk["subject"], risk["subject"], strong=True),
                ReportCell(risk["text"], risk["text"]),
            ]
        )
    yield ReportTable("risks", "Risks", _RISKS, rows)


def change_blocks(facts: dict[str, Any]) -> Iterator[Block]:
    changes, zone = facts["changes"], ZoneInfo(facts["time_zone"])
    yield ReportHeading(
        "changes", "Changes since the last report", local_time(changes["since"], zone) if changes["since"] else ""
    )
    if not changes["since"]:
        yield ReportText("This is the first report of its kind; the next one will say what has changed since.")
        return
    if not changes["parts"] and not changes["decisions"]:
        yield ReportText(
            "Nothing: the fleet, the queries and their arrivals are what they were, and nothing was decided."
        )
        return
    if changes["parts"]:
        yield ReportTable(
            "changes", "What changed", _PARTS, [[ReportCell(_upper(text), text)] for text in changes["parts"]], shown=30
        )
    if changes["decisions"]:
        rows = [_decision(row, zone) for row in changes["decisions"]]
        yield ReportTable("decisions", "Admissions decided", _DECISIONS, rows, shown=30)


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]


def _decision(row: dict[str, Any], zone: ZoneInfo) -> list[ReportCell]:
    verdict = Verdict(row["verdict"]).label if row["verdict"] else "–"
    state = AdmissionState(row["state"]).label
    return [
        ReportCell(local_time(row["at"], zone), row["at"]),
        ReportCell(f"{row['query']} v{row['version']}", row["query"], strong=True),
        ReportCell(f"{verdict}, overridden" if row["overridden"] else verdict, row["verdict"]),
        ReportCell(state, row["state"]),
        ReportCell(row["by"] or "by rule", row["by"]),
        ReportCell(row["headline"], row["headline"]),
    ]


def basis_blocks(facts: dict[str, Any]) -> Iterator[Block]:
    """Basis of the report: the estimate, and the meaning of its words."""
    yield ReportHeading("basis", "What this rests on")
    run, zone = facts["estimate"], ZoneInfo(facts["time_zone"])
    if run is None:
        yield ReportText("There was nothing to estimate.", quiet=True)
        return
    yield ReportText(
        f"Estimate {run['id']} of {local_time(run['created_at'], zone)}, over {seconds(run['stretch_s'])} "
        f"of arrivals, on the snapshot {run['snapshot'][:12]}. An estimate is what the model Flow says of the "
        "objective's statistic; the interval covers 90% of what the statistics' samples allow. "
        "Excess is work that waits, in seconds to "
        "clear it. "
        "Headroom is the objective minus the estimate.",
        quiet=True,
    )


_SECTIONS: dict[str, Callable[[dict[str, Any]], Iterator[Block]]] = {
    "objectives": objective_blocks,
    "fleet": fleet_blocks,
    "forecast": forecast_blocks,
    "purchases": purchase_blocks,
    "risks": risk_blocks,
    "changes": change_blocks,
}


def report_blocks(facts: dict[str, Any]) -> list[Block]:
    """Every block of a report, in order; the title block is `title_lines`."""
    if facts["kind"] == ReportKind.LATENCY:
        return [*latency_blocks(facts), *basis_blocks(facts)]
    blocks = list(summary_blocks(facts))
    for name in facts["parameters"]["sections"]:
        blocks += _SECTIONS[name](facts)
    return [*blocks, *basis_blocks(facts)]


def title_lines(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """The title block as (name, value): author, time, subject."""
    zone = ZoneInfo(facts["time_zone"])
    covers = facts["covers"]
    begin = local_time(covers["from"], zone) if covers["from"] else "the first estimate"
    return [
        ("Cluster", facts["cluster"]["name"]),
        ("Written", f"{local_time(facts['written_at'], zone)}, {_why(facts, zone)}"),
        ("Covers", f"{begin} to {local_time(covers['until'], zone)}"),
        ("Scenario", _scenario(facts)),
        ("Times", facts["time_zone"]),
    ]


def _why(facts: dict[str, Any], zone: ZoneInfo) -> str:
    if facts["trigger"] == Trigger.MANUAL:
        return f"by {facts['requested_by']}" if facts["requested_by"] else "by hand"
    due = local_time(facts["due_at"], zone)
    if facts["trigger"] == Trigger.MADE_UP:
        if facts["missed"] > 1:
            return f"made up for {due}, for {facts['missed']} due times that were missed"
        return f"made up for {due}"
    return f"by schedule for {due}"


def _scenario(facts: dict[str, Any]) -> str:
    if facts["kind"] == ReportKind.LATENCY:
        name = facts["subject"].get("query") or f"team {facts['subject'].get('team')}"
        return f"What runs now, for the users of {name}"
    if "purchases" not in facts:
        return "What runs now"
    growth = facts["parameters"]["growth"]
    return f"What runs now; purchases at +{growth * 100:g}% load with any one node lost"
