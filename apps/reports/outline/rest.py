"""The sections of risks and changes, and on what the report rests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from zoneinfo import ZoneInfo

from apps.admission.choices import AdmissionState, Verdict
from apps.reports.blocks import Block, Cell, Column, Heading, Table, Text
from apps.reports.outline.times import told
from apps.ui.numbers import seconds

__all__ = ["basis_blocks", "change_blocks", "risk_blocks"]

_LEVELS = {"high": ("High", "breached"), "medium": ("Medium", "at_risk"), "low": ("Low", "none")}
_RISKS = (Column("Risk", "level", width=0.8), Column("Where", "where", width=1.6), Column("Why", "why", width=5))
_PARTS = (Column("What changed", "change", width=1),)
_DECISIONS = (
    Column("When", "decided_at", width=1.5),
    Column("Query", "query", width=1.8),
    Column("Verdict", "verdict", width=1.3),
    Column("What became of it", "state", width=1.3),
    Column("By", "by", width=0.9),
    Column("Why", "headline", width=3.4),
)


def risk_blocks(facts: dict[str, Any]) -> Iterator[Block]:
    yield Heading("risks", "Risks", "The gravest first")
    risks = facts["risks"]
    if not risks and not facts["estimate"]:
        yield Text("Nothing runs yet, so nothing is at risk.")
        return
    if not risks:
        yield Text("None was found: every objective holds with its interval, no node drains, every cost was measured.")
        return
    rows = []
    for risk in risks:
        word, state = _LEVELS[risk["level"]]
        rows.append(
            [
                Cell(word, risk["level"], state=state),
                Cell(risk["subject"], risk["subject"], strong=True),
                Cell(risk["text"], risk["text"]),
            ]
        )
    yield Table("risks", "Risks", _RISKS, rows)


def change_blocks(facts: dict[str, Any]) -> Iterator[Block]:
    found, zone = facts["changes"], ZoneInfo(facts["time_zone"])
    yield Heading("changes", "Changes since the last report", told(found["since"], zone) if found["since"] else "")
    if not found["since"]:
        yield Text("This is the first report of its kind; the next one will say what has changed since.")
        return
    if not found["parts"] and not found["decisions"]:
        yield Text("Nothing: the fleet, the queries and their arrivals are what they were, and nothing was decided.")
        return
    if found["parts"]:
        yield Table(
            "changes", "What changed", _PARTS, [[Cell(_upper(text), text)] for text in found["parts"]], shown=30
        )
    if found["decisions"]:
        rows = [_decision(row, zone) for row in found["decisions"]]
        yield Table("decisions", "Admissions decided", _DECISIONS, rows, shown=30)


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]


def _decision(row: dict[str, Any], zone: ZoneInfo) -> list[Cell]:
    verdict = Verdict(row["verdict"]).label if row["verdict"] else "–"
    state = AdmissionState(row["state"]).label
    return [
        Cell(told(row["at"], zone), row["at"]),
        Cell(f"{row['query']} v{row['version']}", row["query"], strong=True),
        Cell(f"{verdict}, overridden" if row["overridden"] else verdict, row["verdict"]),
        Cell(state, row["state"]),
        Cell(row["by"] or "by rule", row["by"]),
        Cell(row["headline"], row["headline"]),
    ]


def basis_blocks(facts: dict[str, Any]) -> Iterator[Block]:
    """How we know: which estimate, and what the words mean."""
    yield Heading("basis", "What this rests on")
    run, zone = facts["estimate"], ZoneInfo(facts["time_zone"])
    if run is None:
        yield Text("There was nothing to estimate.", quiet=True)
        return
    yield Text(
        f"Estimate {run['id']} of {told(run['created_at'], zone)}, over {seconds(run['stretch_s'])} of arrivals, on "
        f"the snapshot {run['snapshot'][:12]}. An estimate is what the model Flow says of the objective's statistic; "
        "the interval covers 90% of what the statistics' samples allow. Excess is work that waits, in seconds to "
        "clear it. "
        "Headroom is the objective minus the estimate.",
        quiet=True,
    )
