"""A whole report: its facts as one document, and the blocks that every rendering is made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal
from zoneinfo import ZoneInfo

from pydantic import Field

from apps.admission.choices import AdmissionState, Verdict
from apps.reports.blocks import (
    Block,
    ReportColumn,
    ReportHeading,
    ReportTable,
    ReportText,
    local_time,
    or_missing,
)
from apps.reports.choices import SECTIONS, ReportKind, Trigger
from apps.reports.sections.events import ReportEvent, event_blocks
from apps.reports.sections.fleet import ReportFleet, fleet_blocks, summary_blocks
from apps.reports.sections.forecast import NoForecast, ReportForecast, forecast_blocks
from apps.reports.sections.objectives import (
    AbsentQuery,
    LatencyCurve,
    ObjectiveCounts,
    ReportObjectives,
    latency_blocks,
    objective_blocks,
)
from apps.reports.sections.promises import ReportPromises, promise_blocks
from apps.reports.sections.purchases import NoPurchases, ReportPurchases, purchase_blocks
from apps.ui.numbers import seconds
from engine.records import Moment, Omitted, Record

__all__ = [
    "AnyReport",
    "LatencyParameters",
    "LatencyReport",
    "ProvisioningParameters",
    "ProvisioningReport",
    "ReportBasis",
    "ReportChanges",
    "ReportCluster",
    "ReportDecision",
    "ReportPeriod",
    "ReportRisk",
    "read_facts",
]


@dataclass(frozen=True)
class ReportCluster(Record):
    slug: str
    name: str


@dataclass(frozen=True)
class ReportPeriod(Record):
    """From the report before it to the moment that it describes."""

    since: Annotated[Moment | None, Field(alias="from")]
    until: Moment


@dataclass(frozen=True)
class ReportBasis(Record):
    """The estimate that a report rests on."""

    id: int
    created_at: Moment
    snapshot: str
    stretch_s: float


@dataclass(frozen=True, kw_only=True)
class ReportFacts(Record):
    """The title block: author, subject, time; and what is the same in every kind of report."""

    TITLE: ClassVar[str] = "a report"

    format: Literal["sluice/report"] = "sluice/report"
    version: Literal[1] = 1
    kind: str
    id: str
    name: str
    cluster: ReportCluster
    time_zone: str
    trigger: str
    requested_by: str
    due_at: Moment | None
    missed: int
    covers: ReportPeriod
    written_at: Moment
    parameters: Any
    estimate: ReportBasis | None

    @property
    def zone(self) -> ZoneInfo:
        return ZoneInfo(self.time_zone)

    @property
    def scenario(self) -> str:
        raise NotImplementedError

    def sections(self) -> Iterator[Block]:
        raise NotImplementedError

    @property
    def blocks(self) -> list[Block]:
        """Every block of the report, in order, but for its title."""
        return [*self.sections(), *_basis(self.estimate, self.zone)]

    @property
    def title(self) -> list[tuple[str, str]]:
        """The title block as (name, value): subject, author, time."""
        begin = local_time(self.covers.since, self.zone) if self.covers.since else "the first estimate"
        return [
            ("Cluster", self.cluster.name),
            ("Written", f"{local_time(self.written_at, self.zone)}, {self._cause}"),
            ("Covers", f"{begin} to {local_time(self.covers.until, self.zone)}"),
            ("Scenario", self.scenario),
            ("Times", self.time_zone),
        ]

    @property
    def _cause(self) -> str:
        if self.trigger == Trigger.MANUAL:
            return f"by {self.requested_by}" if self.requested_by else "by hand"
        if self.trigger == Trigger.DEMO:
            return "with the demo"
        due = local_time(self.due_at, self.zone)
        if self.trigger == Trigger.MADE_UP:
            if self.missed > 1:
                return f"made up for {due}, for {self.missed} due times that were missed"
            return f"made up for {due}"
        return f"by schedule for {due}"


@dataclass(frozen=True)
class LatencyParameters(Record):
    """One query, or every query of a team."""

    query: Omitted[str] = None
    team: Omitted[str] = None


@dataclass(frozen=True, kw_only=True)
class LatencyReport(ReportFacts):
    """Latency, for the users of a query or a team; what of it does not run is named, too."""

    parameters: LatencyParameters
    subject: LatencyParameters
    objectives: ReportObjectives
    absent: list[AbsentQuery]
    curves: dict[str, LatencyCurve]
    finding: str = ""

    @property
    def scenario(self) -> str:
        return f"What runs now, for the users of {self.subject.query or f'team {self.subject.team}'}"

    def sections(self) -> Iterator[Block]:
        return latency_blocks(self.objectives, self.curves, self.absent)


@dataclass(frozen=True)
class ProvisioningParameters(Record):
    """Sections, days of the forecast, and more load to buy for: 0.6 is +60 %."""

    sections: list[str] = field(default_factory=lambda: list(SECTIONS))
    horizon_days: int = 28
    growth: float = 0.6


@dataclass(frozen=True)
class ReportRisk(Record):
    level: Literal["high", "medium", "low"]
    subject: str
    text: str


@dataclass(frozen=True)
class ReportDecision(Record):
    """An admission that was decided."""

    query: str
    version: int
    verdict: str
    state: str
    by: str
    overridden: bool
    headline: str
    at: Moment


@dataclass(frozen=True, kw_only=True)
class ReportChanges(Record):
    """Parts of the snapshot that differ, in words, and the admissions decided since. Empty for a first report."""

    since: Moment | None = None
    parts: list[str]
    more_parts: Omitted[int] = None
    decisions: list[ReportDecision]


@dataclass(frozen=True, kw_only=True)
class ProvisioningReport(ReportFacts):
    """The fleet: headroom, shortage, what to buy. Sections that were not asked for are left out."""

    parameters: ProvisioningParameters
    objectives: ReportObjectives
    fleet: ReportFleet
    forecast: Omitted[ReportForecast | NoForecast] = None
    events: Omitted[list[ReportEvent]] = None
    purchases: Omitted[ReportPurchases | NoPurchases] = None
    promises: Omitted[ReportPromises] = None
    risks: Omitted[list[ReportRisk]] = None
    changes: Omitted[ReportChanges] = None
    counts: ObjectiveCounts
    finding: str = ""

    @property
    def scenario(self) -> str:
        if self.purchases is None:
            return "What runs now"
        return f"What runs now; purchases at +{self.parameters.growth * 100:g}% load with any one node lost"

    def sections(self) -> Iterator[Block]:
        yield from summary_blocks(self.objectives, self.fleet)
        for name in self.parameters.sections:
            yield from self._section(name)

    def _section(self, name: str) -> Iterator[Block]:
        match name:
            case "objectives":
                yield from objective_blocks(self.objectives, self.zone)
            case "fleet":
                yield from fleet_blocks(self.fleet)
            case "forecast" if self.forecast is not None:
                yield from forecast_blocks(self.forecast, self.fleet.currency, self.zone)
            case "events" if self.events is not None:
                yield from event_blocks(self.events, self.parameters.horizon_days, self.fleet.currency, self.zone)
            case "purchases" if self.purchases is not None:
                yield from purchase_blocks(self.purchases)
            case "promises" if self.promises is not None:
                yield from promise_blocks(self.promises, self.zone)
            case "risks" if self.risks is not None:
                yield from _risk_blocks(self.risks, is_estimated=self.estimate is not None)
            case "changes" if self.changes is not None:
                yield from _change_blocks(self.changes, self.zone)


AnyReport = LatencyReport | ProvisioningReport


def read_facts(document: Mapping[str, Any]) -> AnyReport:
    """Facts of a finished report as they are stored."""
    if document["kind"] == ReportKind.LATENCY:
        return LatencyReport.parse(document)
    return ProvisioningReport.parse(document)


_LEVELS = {"high": "breached", "medium": "at_risk", "low": "none"}
_RISKS: Sequence[ReportColumn[ReportRisk]] = (
    ReportColumn("Risk", "level", write=str.title, state=lambda risk: _LEVELS[risk.level], width=0.8),
    ReportColumn("Where", "where", "subject", strong=True, width=1.6),
    ReportColumn("Why", "why", "text", width=5),
)


def _risk_blocks(risks: Sequence[ReportRisk], *, is_estimated: bool) -> Iterator[Block]:
    yield ReportHeading("risks", "Risks", "The gravest first")
    if risks:
        yield ReportTable("risks", "Risks", _RISKS, risks)
    elif not is_estimated:
        yield ReportText("Nothing runs yet, so nothing is at risk.")
    else:
        yield ReportText(
            "None was found: every objective holds with its interval, no node drains, every cost was measured."
        )


def _change_blocks(changes: ReportChanges, zone: ZoneInfo) -> Iterator[Block]:
    since = local_time(changes.since, zone) if changes.since else ""
    yield ReportHeading("changes", "Changes since the last report", since)
    if not changes.since:
        yield ReportText("This is the first report of its kind; the next one will say what has changed since.")
        return
    if not changes.parts and not changes.decisions:
        yield ReportText(
            "Nothing: the fleet, the queries and their arrivals are what they were, and nothing was decided."
        )
    if changes.parts:
        column = ReportColumn[ReportText]("What changed", "change", "text", lambda text: text[:1].upper() + text[1:])
        yield ReportTable("changes", "What changed", [column], [ReportText(part) for part in changes.parts], limit=30)
    if changes.decisions:
        yield ReportTable("decisions", "Admissions decided", _decision_columns(zone), changes.decisions, limit=30)


def _decision_columns(zone: ZoneInfo) -> list[ReportColumn[ReportDecision]]:
    return [
        ReportColumn("When", "decided_at", "at", lambda at: local_time(at, zone), width=1.5),
        ReportColumn("Query", "query", show=lambda row: f"{row.query} v{row.version}", strong=True, width=1.8),
        ReportColumn("Verdict", "verdict", show=_verdict, width=1.3),
        ReportColumn("What became of it", "state", write=lambda state: AdmissionState(state).label, width=1.3),
        ReportColumn("By", "by", write=lambda name: name or "by rule", width=0.9),
        ReportColumn("Why", "headline", width=3.4),
    ]


def _verdict(row: ReportDecision) -> str:
    verdict = or_missing(Verdict(row.verdict).label if row.verdict else "")
    return f"{verdict}, overridden" if row.overridden else verdict


def _basis(run: ReportBasis | None, zone: ZoneInfo) -> Iterator[Block]:
    """The estimate, and the meaning of a report's words."""
    yield ReportHeading("basis", "What this rests on")
    if run is None:
        yield ReportText("There was nothing to estimate.", quiet=True)
        return
    yield ReportText(
        f"Estimate {run.id} of {local_time(run.created_at, zone)}, over {seconds(run.stretch_s)} "
        f"of arrivals, on the snapshot {run.snapshot[:12]}. An estimate is what the model Flow says of the "
        "objective's statistic; the interval covers 90% of what the statistics' samples allow. "
        "Excess is work that waits, in seconds to clear it. Headroom is the objective minus the estimate.",
        quiet=True,
    )
