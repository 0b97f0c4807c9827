"""Outcomes of events: an occurrence that is over, held against its plan: factors, objectives and nodes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Annotated, ClassVar

from django.db.models import Count, Max, Q
from django.utils import timezone

from apps.estimates.choices import RunOrigin
from apps.estimates.models import AccuracyObservation, EstimateRun, NodeEstimate, QueryEstimate
from apps.planning.choices import FactorOf, RunState
from apps.planning.event_factors import EventFactor
from apps.planning.event_loads import came_factors
from apps.planning.event_times import Occurrence, occurrences
from apps.planning.models import EventRun, PlannedEvent
from apps.queries.choices import ObjectiveState, QueryState
from apps.queries.models import Query
from engine.events.answer import EventAnswer, EventQuery
from engine.records import Moment, Record, Words

__all__ = ["EventOutcome", "FactorOutcome", "NodesOutcome", "ObjectiveOutcome", "event_outcome", "occurrence_over"]

HELD, MISSED, UNKNOWN = "held", "missed", "unknown"


@dataclass(frozen=True)
class FactorOutcome(Record):
    """Factor of a source: as planned, and as it came by what was recorded."""

    source: str
    planned: Annotated[float | None, Words("Mean over the event; null where nothing was planned.")]
    came: Annotated[float | None, Words("Mean over the hours on record; null where too few are.")]
    came_peak: float | None
    known_share: Annotated[float, Words("Share of its hours that are on record.")]


@dataclass(frozen=True)
class ObjectiveOutcome(Record):
    """Objective of a query over the event: measured where measurements are, and estimated apart from that."""

    query: str
    bound_s: float
    measured: Annotated[str, Words("held, missed or unknown, by measured intervals.")]
    measured_worst_s: float | None
    measured_intervals: int
    missed_intervals: int
    estimated: Annotated[str, Words("held, missed or unknown, by the estimates made meanwhile.")]
    expected: Annotated[str, Words("held or missed by the plan with the nodes there were; unknown without one.")]


@dataclass(frozen=True)
class NodesOutcome(Record):
    """Nodes of the event: planned, and those that estimates made meanwhile were of; null where nobody knows."""

    planned: int | None
    present: Annotated[int | None, Words("When it was planned.")]
    used_least: int | None
    used_most: int | None


@dataclass(frozen=True)
class EventOutcome(Record):
    """The newest occurrence that is over, held against the plan that was made before it began."""

    TITLE: ClassVar[str] = "an outcome"

    is_over: bool
    starts_at: Moment | None = None
    ends_at: Moment | None = None
    planned_at: Annotated[Moment | None, Words("When the answer was made that it is held against.")] = None
    snapshot: str = ""
    factors: tuple[FactorOutcome, ...] = ()
    objectives: tuple[ObjectiveOutcome, ...] = ()
    nodes: NodesOutcome | None = None


def occurrence_over(event: PlannedEvent, now: datetime) -> Occurrence | None:
    """The newest occurrence that is over; None before the first has ended."""
    if event.ends_at > now:
        return None
    newest = None
    for newest, later in pairwise(_with_end(occurrences(event))):
        if newest is not None and (later is None or later.ends_at > now):
            return newest
    return newest


def _with_end(found: Iterator[Occurrence]) -> Iterator[Occurrence | None]:
    yield from found
    yield None


def event_outcome(event: PlannedEvent) -> EventOutcome:
    """The newest occurrence that is over; `is_over` is False while there is none."""
    occurrence = occurrence_over(event, timezone.now())
    if occurrence is None:
        return EventOutcome(False)
    runs = EventRun.objects.filter(event=event, state=RunState.ANSWERED, finished_at__lte=occurrence.starts_at)
    run = runs.filter(starts_at=occurrence.starts_at).order_by("-finished_at").first()
    answer = None if run is None else EventAnswer.parse(run.result)
    return EventOutcome(
        True,
        occurrence.starts_at,
        occurrence.ends_at,
        None if run is None else run.finished_at,
        "" if run is None else run.snapshot,
        tuple(_factors(event, occurrence, answer)),
        tuple(_objectives(event, occurrence, answer)),
        _nodes(event, occurrence, answer),
    )


def _factors(event: PlannedEvent, occurrence: Occurrence, answer: EventAnswer | None) -> Iterator[FactorOutcome]:
    came = came_factors(event.cluster, occurrence, event.time_zone)
    if answer is not None:
        planned = {entry.source: entry.factor_mean for entry in answer.sources if "@" not in entry.source}
    else:
        given = [EventFactor.parse(item) for item in event.factors]
        planned = {factor.name: factor.by for factor in given if factor.of == FactorOf.SOURCE}
    for name in sorted(planned.keys() | came.keys()):
        found = came.get(name)
        yield FactorOutcome(
            name,
            planned.get(name),
            None if found is None else found.mean,
            None if found is None else found.peak,
            0.0 if found is None else found.known_share,
        )


def _objectives(event: PlannedEvent, occurrence: Occurrence, answer: EventAnswer | None) -> Iterator[ObjectiveOutcome]:
    within = Q(starts_at__lt=occurrence.ends_at, ends_at__gt=occurrence.starts_at)
    observed = AccuracyObservation.objects.filter(within, cluster=event.cluster, disturbed="").exclude(
        origin=RunOrigin.SIMULATED
    )
    estimated = QueryEstimate.objects.filter(
        run__cluster=event.cluster,
        run__created_at__gte=occurrence.starts_at,
        run__created_at__lt=occurrence.ends_at,
    ).order_by()
    states = {
        row["query_id"]: row
        for row in estimated.values("query_id").annotate(
            bad=Count("pk", filter=Q(state=ObjectiveState.BREACHED)),
            blind=Count("pk", filter=Q(state=ObjectiveState.UNKNOWN)),
        )
    }
    expected = {entry.forecast.query: _expected(entry) for entry in (answer.queries if answer else ())}
    rows = Query.objects.filter(cluster=event.cluster, objective_bound_s__isnull=False)
    for query in rows.exclude(state=QueryState.DRAFT):
        bound_s = query.objective_bound_s
        own = observed.filter(query=query, statistic=query.objective_statistic)
        counts = own.aggregate(
            n=Count("pk"), late=Count("pk", filter=Q(observed_s__gt=bound_s)), worst=Max("observed_s")
        )
        state = states.get(query.pk)
        yield ObjectiveOutcome(
            query.name,
            bound_s,
            UNKNOWN if not counts["n"] else MISSED if counts["late"] else HELD,
            counts["worst"],
            counts["n"],
            counts["late"],
            UNKNOWN if state is None else MISSED if state["bad"] else UNKNOWN if state["blind"] else HELD,
            expected.get(query.name, UNKNOWN),
        )


def _expected(entry: EventQuery) -> str:
    if entry.breaks:
        return MISSED
    return UNKNOWN if entry.forecast.unknown or entry.forecast.is_for_person else HELD


def _nodes(event: PlannedEvent, occurrence: Occurrence, answer: EventAnswer | None) -> NodesOutcome:
    runs = EstimateRun.objects.filter(
        cluster=event.cluster,
        created_at__gte=occurrence.starts_at - timedelta(hours=1),
        created_at__lt=occurrence.ends_at,
    )
    servers = NodeEstimate.objects.filter(run__in=runs).exclude(node_name="").order_by()
    counts = list(servers.values("run").annotate(n=Count("node_name", distinct=True)).values_list("n", flat=True))
    purchase = None if answer is None else answer.purchase
    return NodesOutcome(
        None if purchase is None else purchase.nodes,
        None if answer is None else answer.nodes,
        min(counts, default=None),
        max(counts, default=None),
    )
