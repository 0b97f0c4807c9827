"""Planned events of the coming weeks: what they break, what to order until when, and what is left to do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from zoneinfo import ZoneInfo

from apps.fleet.models import Cluster
from apps.planning.choices import RunState
from apps.planning.event_answers import event_answer, event_run_latest
from apps.planning.event_checklists import checklist_of
from apps.planning.event_factors import factors_text
from apps.planning.event_times import occurrence_at
from apps.planning.events import events_visible
from apps.reports.blocks import Block, ReportColumn, ReportHeading, ReportTable, ReportText, local_time, or_missing
from apps.ui.numbers import money
from engine.records import Moment, Record
from engine.words import counted

__all__ = ["ReportEvent", "event_blocks", "event_facts"]

_MAX_EVENTS = 20


@dataclass(frozen=True)
class ReportEvent(Record):
    """An event to come; what was not worked out for its next occurrence is null."""

    name: str
    starts_at: Moment
    ends_at: Moment
    load: str
    owner: str
    worked_out_at: Moment | None
    breaks: int | None
    first_at: Moment | None
    order: str
    order_by: Moment | None
    cost: float | None
    to_do: int

    @property
    def breaking(self) -> str:
        return "not worked out" if self.breaks is None else counted(self.breaks, "objective")


def event_facts(cluster: Cluster, horizon_days: int, now: datetime) -> list[ReportEvent]:
    """Events that are on or begin within the horizon, the next one first."""
    until, found = now + timedelta(days=horizon_days), []
    for event in events_visible(cluster):
        occurrence = occurrence_at(event, now)
        if occurrence.ends_at <= now or occurrence.starts_at > until:
            continue
        run = event_run_latest(event, RunState.ANSWERED)
        answer = event_answer(run) if run is not None and run.starts_at == occurrence.starts_at else None
        purchase = None if answer is None else answer.purchase
        first = answer.breaking[0].forecast.first_mean if answer is not None and answer.breaking else None
        is_bought = purchase is not None and bool(purchase.added)
        order = "" if answer is None else "no number is enough" if purchase is None else "nothing"
        found.append(
            ReportEvent(
                name=event.name,
                starts_at=occurrence.starts_at,
                ends_at=occurrence.ends_at,
                load=factors_text(event.factors) or "as the last time",
                owner=event.owner.username if event.owner else "",
                worked_out_at=run.finished_at if run is not None and answer is not None else None,
                breaks=None if answer is None else len(answer.breaking),
                first_at=None if answer is None or first is None else _moment(answer.at_s(first.index)),
                order=counted(purchase.added or 0, f"{purchase.name} node") if purchase and is_bought else order,
                order_by=_moment(purchase.order_by_s) if purchase and is_bought else None,
                cost=purchase.cost if purchase and is_bought else None,
                to_do=sum(not item.done_at for item in checklist_of(event)),
            )
        )
    return sorted(found, key=lambda entry: (entry.starts_at, entry.name))[:_MAX_EVENTS]


def _moment(at_s: float) -> datetime:
    return datetime.fromtimestamp(at_s, UTC)


def event_blocks(events: list[ReportEvent], horizon_days: int, currency: str, zone: ZoneInfo) -> Iterator[Block]:
    """Events by their beginnings, with what to do for each until when."""
    yield ReportHeading("events", "Planned events", f"The next {horizon_days} days")
    if not events:
        yield ReportText(f"No event is planned within {counted(horizon_days, 'day')}.")
        return
    time = partial(local_time, zone=zone)
    columns: list[ReportColumn[ReportEvent]] = [
        ReportColumn("Event", "event", "name", strong=True, width=1.6),
        ReportColumn("From", "starts_at", write=time, width=1.5),
        ReportColumn("To", "ends_at", write=time, width=1.5),
        ReportColumn("Load", "load", width=1.8),
        ReportColumn("Breaks", "breaks", show=lambda row: row.breaking, num=True, width=1.1),
        ReportColumn("First", "first_at", write=time, width=1.5),
        ReportColumn("Order", "order", write=or_missing, width=1.3),
        ReportColumn("Until", "order_by", write=time, width=1.5),
        ReportColumn("Cost", "cost", write=partial(money, currency=currency), num=True),
        ReportColumn("To do", "to_do", num=True, width=0.7),
        ReportColumn("Owner", "owner", write=or_missing),
    ]
    yield ReportTable("events", "Planned events", columns, events, limit=_MAX_EVENTS)
    if any(entry.breaks is None for entry in events):
        yield ReportText("What was not worked out has no answer about its next occurrence.", quiet=True)
