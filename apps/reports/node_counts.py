"""Numbers of nodes side by side: what bench, forecast, report and event say, and what each of them assumes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.accounts.choices import Scope
from apps.core.errors import SluiceError
from apps.core.reach import AskedOn
from apps.core.rest.api import ApiMixin
from apps.planning.choices import RunState
from apps.planning.event_answers import event_answer, event_run_latest
from apps.planning.event_factors import factors_text
from apps.planning.events import event_of
from apps.planning.forecast_findings import forecast_answer, forecast_latest, forecast_regret
from apps.planning.models import PlannedEvent
from apps.reports.choices import ReportKind, ReportState
from apps.reports.models import Report
from apps.reports.report import ProvisioningReport, read_facts
from apps.reports.sections.purchases import ReportPurchases
from engine.events.answer import EventAnswer, EventStep
from engine.records import Moment, Record, Words
from engine.words import counted, duration_words

__all__ = ["NodeCount", "NodeCounts", "NodeCountsView", "node_counts"]


@dataclass(frozen=True)
class NodeCount(Record):
    """A number of nodes and the question that it answers; null with the reason in `why_none` where there is none."""

    says: Annotated[str, Words("bench, forecast, report or event.")]
    nodes: int | None
    load: str
    horizon: str
    survives: str
    objective: str
    costs: Annotated[str, Words("Mean costs, or random costs and arrivals.")]
    at: Annotated[Moment | None, Words("When it was computed.")]
    snapshot: Annotated[str, Words("Digest of the cluster it was computed on, and with it of the statistics.")]
    why_none: str = ""


@dataclass(frozen=True)
class NodeStep(Record):
    """A line of the way from one number to another: one assumption changes."""

    text: str
    nodes: int | None
    more: Annotated[int | None, Words("Against the line before; null where one of both is not known.")]


@dataclass(frozen=True)
class NodeCounts(Record):
    """Numbers side by side, and the way from what is enough now to what the event needs, line by line."""

    TITLE: ClassVar[str] = "numbers of nodes"

    present: int
    counts: tuple[NodeCount, ...]
    steps: tuple[NodeStep, ...]


def node_counts(event: PlannedEvent) -> NodeCounts:
    """Numbers of nodes of the event's cluster."""
    run = event_run_latest(event, RunState.ANSWERED)
    answer = None if run is None else event_answer(run)
    own = _count_of_event(event, answer, event.factors if run is None else run.question["factors"])
    if run is not None:
        own = NodeCount(**vars(own) | {"at": run.finished_at, "snapshot": run.snapshot})
    counts = (_count_of_bench(answer, own), _count_of_forecast(event), _count_of_report(event), own)
    present = answer.nodes if answer is not None else event.cluster.nodes.count()
    return NodeCounts(present, counts, tuple(_steps(event, answer)))


def _step(answer: EventAnswer | None, kind: str) -> EventStep | None:
    return next((step for step in answer.steps if step.kind == kind), None) if answer is not None else None


def _count_of_bench(answer: EventAnswer | None, own: NodeCount) -> NodeCount:
    step = _step(answer, "lost")
    why = "no number looked at is enough"
    if step is not None and step.nodes is not None:
        why = ""
    elif step is not None and step.is_cut:
        why = f"the time for it was over; {_cut_words(step)}"
    return NodeCount(
        says="bench",
        nodes=None if step is None else step.nodes,
        load="the load of the estimate, as it is",
        horizon="the estimate's stretch",
        survives="any one node lost",
        objective="fewest nodes that keep every objective",
        costs="mean costs",
        at=own.at,
        snapshot=own.snapshot,
        why_none="the event was not answered yet" if step is None else why,
    )


def _cut_words(step: EventStep) -> str:
    """Range of a number whose search had no time left."""
    least = counted(step.at_least, "node")
    if step.enough is None:
        return f"not known, at least {least}"
    return f"not known, at least {least} and at most {counted(step.enough, 'node')}"


def _count_of_forecast(event: PlannedEvent) -> NodeCount:
    row = forecast_latest(event.cluster)
    nodes, why = None, "there is no forecast: it takes a load history"
    if row is not None:
        days = max(1, row.horizon * row.bucket_s // 86_400)
        why = "its time has passed" if row.is_over else ""
        try:
            cost = event.cost_per_violation_hour
            if not why:
                nodes = forecast_regret(row, cost_per_violation_hour=cost, horizon_days=days).recommended
        except SluiceError as error:
            why = error.message.removesuffix(".")
    judged = ""
    if row is not None and row.result and (sizes := [pool.size for pool in forecast_answer(row).pools]):
        judged = f" of {min(sizes)} to {max(sizes)}"
    return NodeCount(
        says="forecast",
        nodes=nodes,
        load="what its sources are forecast to bring, without the event",
        horizon="" if row is None else duration_words(float(row.horizon * row.bucket_s)),
        survives="all nodes up",
        objective=f"the number{judged} that costs least to regret",
        costs="random costs and arrivals",
        at=None if row is None else row.created_at,
        snapshot="" if row is None else row.snapshot,
        why_none=why,
    )


def _count_of_report(event: PlannedEvent) -> NodeCount:
    reports = Report.objects.filter(
        definition__cluster=event.cluster, definition__kind=ReportKind.PROVISIONING, state=ReportState.READY
    )
    row = reports.defer("html", "pdf", "csv").order_by("-covers_until").first()
    facts = None if row is None else read_facts(row.result)
    purchases = facts.purchases if isinstance(facts, ProvisioningReport) else None
    nodes, growth = None, ""
    why = "no provisioning report was written yet" if row is None else "the newest report has no purchases"
    if isinstance(purchases, ReportPurchases):
        growth = f"+{100 * purchases.growth:g}%"
        why = "no purchase keeps every objective at that load"
        if purchases.choices and purchases.answered_growth is not None:
            nodes, why = purchases.choices[0].whole, ""
            growth = f"+{100 * purchases.answered_growth:g}%"
    return NodeCount(
        says="report",
        nodes=nodes,
        load=f"the load of the estimate and {growth} of all sources" if growth else "the load of the estimate and more",
        horizon="the estimate's stretch",
        survives="any one node lost",
        objective="cheapest nodes that keep every objective, on top of those there are",
        costs="random costs and arrivals",
        at=None if row is None else row.covers_until,
        snapshot="",
        why_none=why,
    )


def _count_of_event(event: PlannedEvent, answer: EventAnswer | None, factors: list[dict[str, Any]]) -> NodeCount:
    purchase = None if answer is None else answer.purchase
    lose_one = event.lose_one if answer is None else answer.lose_one
    why = "no type that was looked at is enough" if answer is not None else "the event was not answered yet"
    beyond = 0 if purchase is None else purchase.beyond
    is_confirmed = purchase is None or purchase.confirmed
    kept = f"every objective but {beyond}, which no number keeps," if beyond else "every objective"
    return NodeCount(
        says="event",
        nodes=None if purchase is None else purchase.nodes,
        load=f"ordinary load at its hours, with {factors_text(factors) or 'the factors of the last time'}",
        horizon="" if answer is None else duration_words(answer.ends_s - answer.starts_s),
        survives="any one node lost" if lose_one else "all nodes up",
        objective=f"cheapest nodes that keep {kept} at the peak, on top of those there are",
        costs="random costs and arrivals" if is_confirmed else "mean costs: random ones did not confirm it",
        at=None,
        snapshot="",
        why_none="" if purchase is not None else why,
    )


def _steps(event: PlannedEvent, answer: EventAnswer | None) -> list[NodeStep]:
    if answer is None:
        return []
    lost = "any one node lost" if answer.lose_one else "all nodes up"
    texts = {
        "now": "The load of the estimate, all nodes up, mean costs",
        "lost": "Any one node may be lost: what the bench says",
        "load": f"The event's load at its peak, {lost}",
        "random": "Random costs and arrivals, a longer search for places, the nodes there are kept: what to buy",
    }
    lines: list[NodeStep] = []
    before: int | None = None
    for step in answer.steps:
        nodes = step.nodes
        more = None if nodes is None or before is None else nodes - before
        text = texts[step.kind]
        if nodes is None:
            text += f": {_cut_words(step)}" if step.is_cut else f": more than {counted(step.most, 'node')}"
        lines.append(NodeStep(text, nodes, more))
        before = nodes
    return lines


class NodeCountsView(ApiMixin, APIView):
    """Numbers of nodes side by side."""

    asked_on = AskedOn.NARROWED

    scopes = {"GET": Scope.READ}

    @extend_schema(responses=NodeCounts)
    def get(self, request: Request, pk: int) -> Response:
        """Numbers of nodes by bench, forecast, report and event, what each assumes, and the way between them."""
        return Response(node_counts(event_of(pk)).to_dict())
