"""Facts of an event: what its newest answer says, and what came, in rows and words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property

from django.utils import timezone
from django.utils.safestring import SafeString

from apps.planning.choices import RunState
from apps.planning.event_answers import event_answer, event_changes, event_run_latest
from apps.planning.event_checklists import CheckItem, checklist_of
from apps.planning.event_factors import factors_text
from apps.planning.event_outcomes import EventOutcome, event_outcome
from apps.planning.event_times import Occurrence, occurrence_at
from apps.planning.models import EventRun, PlannedEvent
from apps.queries.arrivals.times import zone_of
from apps.reports.node_counts import NodeCounts, node_counts
from apps.ui.marks import expected_mark, state_mark
from apps.ui.numbers import Quantity, factor, money, seconds, seconds_range
from apps.ui.sentences import sentence
from engine.events.answer import (
    AS_IT_IS,
    FORECAST,
    GIVEN,
    REST,
    TRACE,
    TYPICAL_WEEK,
    EventAnswer,
    EventFuture,
    EventPurchase,
    EventQuery,
    EventSource,
)
from engine.words import counted, duration_words, listed

__all__ = ["EventFacts", "event_when"]

_NAMED = 4
_RESTS = {FORECAST: "forecast", TYPICAL_WEEK: "same hours of four weeks", AS_IT_IS: "arrivals as they are"}
_FACTORS = {GIVEN: "as planned", TRACE: "as the last time", REST: "the rest"}


def event_when(event: PlannedEvent, occurrence: Occurrence) -> str:
    """27 Nov 2026, 08:00 to 30 Nov 2026, 00:00 (Europe/Berlin)."""
    zone = zone_of(event.time_zone)
    starts, ends = (at.astimezone(zone) for at in (occurrence.starts_at, occurrence.ends_at))
    return f"{_words(starts)} to {_words(ends)} ({event.time_zone})"


def _words(at: datetime) -> str:
    return f"{at.day} {at:%b %Y, %H:%M}"


@dataclass(frozen=True)
class QueryRow:
    """An objective over the event."""

    query: str
    objective: Quantity
    priority: int
    mark: SafeString
    first: datetime | None
    hours: str
    latency: str
    interval: str
    note: str


class EventFacts:
    """Facts of an event for its page, each computed when it is first read."""

    def __init__(self, event: PlannedEvent) -> None:
        self.event, self.cluster = event, event.cluster
        self.zone = zone_of(event.time_zone)

    @cached_property
    def occurrence(self) -> Occurrence:
        return occurrence_at(self.event, timezone.now())

    @property
    def when(self) -> str:
        return event_when(self.event, self.occurrence)

    @property
    def is_over(self) -> bool:
        return self.occurrence.ends_at <= timezone.now()

    @property
    def length(self) -> str:
        return duration_words(self.occurrence.length.total_seconds())

    @property
    def factors(self) -> str:
        words = factors_text(self.event.factors)
        last = "the rest as the last time" if words else "as the last time"
        return ", ".join(part for part in (words, last if self.event.follows_trace else "") if part)

    @cached_property
    def run(self) -> EventRun | None:
        """The newest run, whatever its state."""
        return event_run_latest(self.event)

    @cached_property
    def answered(self) -> EventRun | None:
        return event_run_latest(self.event, RunState.ANSWERED)

    @cached_property
    def answer(self) -> EventAnswer | None:
        return None if self.answered is None else event_answer(self.answered)

    @cached_property
    def changes(self) -> str:
        """Changes since the answer; empty where it still holds."""
        return "" if self.answered is None else listed(event_changes(self.answered), 5)

    @property
    def notes(self) -> list[str]:
        own = [] if self.answered is None else list(self.answered.basis.get("notes", ()))
        return [*own, *map(str, self.answer.assumptions if self.answer else ())]

    def at(self, index: int) -> datetime:
        assert self.answer is not None
        return datetime.fromtimestamp(self.answer.at_s(index), UTC)

    # -- the answer in a sentence

    @property
    def verdict(self) -> SafeString:
        """The answer in a few sentences: breaks, orders with their dates and costs, delays."""
        return sentence("pages/events/sentences/verdict.html", facts=self, currency=self.cluster.currency)

    @property
    def breaking(self) -> list[str]:
        return [entry.forecast.query for entry in self.answer.breaking] if self.answer else []

    @property
    def first(self) -> datetime | None:
        """When the first objective breaks."""
        breaking = self.answer.breaking if self.answer else []
        seen = breaking[0].forecast.first_mean if breaking else None
        return None if seen is None else self.at(seen.index)

    @property
    def risky(self) -> list[str]:
        """Queries that do not break as expected, and may."""
        entries = self.answer.queries if self.answer else ()
        return [entry.forecast.query for entry in entries if not entry.breaks and entry.first_index is not None]

    @property
    def blind(self) -> list[str]:
        """Queries of whose latency nobody knows, or only by stimulus time."""
        entries = self.answer.queries if self.answer else ()
        return [entry.forecast.query for entry in entries if entry.forecast.unknown or entry.forecast.is_for_person]

    @property
    def order_by(self) -> datetime | None:
        purchase = self.answer.purchase if self.answer else None
        return None if purchase is None else datetime.fromtimestamp(purchase.order_by_s, UTC)

    @property
    def is_late(self) -> bool:
        """Whether it is too late to order."""
        return self.order_by is not None and self.order_by < timezone.now()

    # -- rows

    @cached_property
    def queries(self) -> list[QueryRow]:
        """Objectives, those that break first."""
        answer = self.answer
        if answer is None:
            return []
        far = answer.buckets
        rows = sorted(
            answer.queries,
            key=lambda entry: (
                not entry.breaks,
                far if entry.first_index is None else entry.first_index,
                entry.forecast.query,
            ),
        )
        return [self._query(entry) for entry in rows]

    def _query(self, entry: EventQuery) -> QueryRow:
        found = entry.forecast
        band = found.first_band
        seen = found.first_mean or (found.violations[band] if band else None)
        first = None if seen is None else self.at(seen.index)
        note = ""
        if found.unknown:
            mark, note = state_mark("unknown"), found.unknown
        elif entry.breaks:
            mark = expected_mark("breached", "Breaks")
            note = (
                "never catches up"
                if seen and seen.never_catches_up
                else ""
                if seen and seen.confirmed
                else "not walked"
            )
        elif band:
            mark = state_mark("at_risk", "At risk")
            note = "at the upper end of loads" if band == "high" else "by random costs and arrivals"
        elif found.is_for_person:
            mark, note = state_mark("unknown"), str(found.lacking)
        else:
            mark = expected_mark("holds", "Holds")
        worst = found.worst_mean_s if seen is None else seen.estimate_s
        interval = "" if seen is None else str(seconds_range(seen.low_s, seen.high_s, apart_from=found.bound_s))
        return QueryRow(
            found.query,
            seconds(found.bound_s),
            entry.priority,
            mark,
            first,
            duration_words(entry.hours * 3600.0) if entry.hours else "–",
            str(seconds(worst, apart_from=found.bound_s)),
            interval,
            note,
        )

    @property
    def sources(self) -> list[tuple[EventSource, str, str, str]]:
        """(source, its factor, what that is, what its ordinary load rests on)."""
        answer = self.answer
        return [
            (entry, factor_span(entry), _FACTORS[entry.factor_of], _RESTS[entry.rests_on])
            for entry in (answer.sources if answer else ())
        ]

    @property
    def purchases(self) -> list[tuple[EventPurchase, datetime, str, bool]]:
        """(purchase, order until, cost, whether it is the one to make)."""
        answer = self.answer
        if answer is None:
            return []
        chosen = answer.purchase
        return [
            (
                entry,
                datetime.fromtimestamp(entry.order_by_s, UTC),
                str(money(entry.cost, self.cluster.currency)),
                entry is chosen,
            )
            for entry in answer.purchases
        ]

    @property
    def futures(self) -> list[tuple[EventFuture, str, str, str]]:
        """(future, in words, too many or too few, what breaks)."""
        return [self._future(entry) for entry in (self.answer.futures if self.answer else ())]

    def _future(self, entry: EventFuture) -> tuple[EventFuture, str, str, str]:
        times = "as planned" if entry.times == 1.0 else f"at {entry.times:g} times the plan"
        if entry.over is None:
            over = "more than any number looked at"
        elif entry.over > 0:
            price = "" if entry.over_cost is None else f", {money(entry.over_cost, self.cluster.currency)}"
            over = f"{counted(entry.over, 'node')} too many{price}"
        else:
            over = f"{counted(-entry.over, 'node')} too few" if entry.over else "right"
        if not entry.late:
            return entry, times, over, "nothing breaks"
        hours = duration_words(entry.hours * 3600.0)
        return entry, times, over, f"{listed(list(entry.late), _NAMED)}, {hours} in all"

    @property
    def checklist(self) -> list[CheckItem]:
        return checklist_of(self.event)

    @property
    def open_count(self) -> int:
        return sum(not item.done_at for item in self.checklist)

    @property
    def rest_body(self) -> dict[str, object]:
        return {"event": self.event.pk}

    @property
    def rest_path(self) -> str:
        return f"/api/v1/planned-events/{self.event.pk}"

    # -- side by side, and what came

    @cached_property
    def counts(self) -> NodeCounts:
        return node_counts(self.event)

    @cached_property
    def outcome(self) -> EventOutcome | None:
        """Outcome of the newest occurrence that is over."""
        found = event_outcome(self.event)
        return found if found.is_over else None

    @property
    def came(self) -> list[tuple[str, str, str, str]]:
        """(source, planned, came, judgement)."""
        rows = []
        for entry in self.outcome.factors if self.outcome else ():
            came = "not on record" if entry.came is None else f"{factor(entry.came)}, peak {factor(entry.came_peak)}"
            rows.append((entry.source, _factor_or_none(entry.planned), came, _judged(entry.planned, entry.came)))
        return rows

    @property
    def stated(self) -> Sequence[tuple[str, SafeString, SafeString, SafeString, str]]:
        """(query, expected, measured, estimated, the largest measured latency)."""
        if self.outcome is None:
            return []
        return [
            (row.query, _held(row.expected), _held(row.measured), _held(row.estimated), _worst(row.measured_worst_s))
            for row in self.outcome.objectives
        ]


def factor_span(entry: EventSource) -> str:
    """2 ×, or 2 to 3.1 ×."""
    if abs(entry.factor_peak - entry.factor_mean) < 0.005 * entry.factor_mean:
        return str(factor(entry.factor_mean))
    return f"{factor(entry.factor_mean)}, peak {factor(entry.factor_peak)}"


def _factor_or_none(value: float | None) -> str:
    return "nothing planned" if value is None else str(factor(value))


def _judged(planned: float | None, came: float | None) -> str:
    if planned is None or came is None:
        return "not known"
    ratio = came / planned
    return "as planned" if 0.9 <= ratio <= 1.1 else f"{100 * abs(ratio - 1):.0f}% {'more' if ratio > 1 else 'less'}"


_HELD = {"held": ("holds", "Held"), "missed": ("breached", "Missed"), "unknown": ("unknown", "Not known")}


def _held(word: str) -> SafeString:
    return state_mark(*_HELD[word])


def _worst(value: float | None) -> str:
    return "–" if value is None else str(seconds(value))
