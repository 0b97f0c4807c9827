"""Receipts as lists and boards read them: which are listed, and how promises held by verdict, model and evidence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from django.db.models import Count, Q, QuerySet

from apps.admission.choices import ReceiptOutcome, ReceiptSpan, Verdict, WrongReason
from apps.admission.models import AdmissionRequest, Receipt
from apps.core.filters import (
    BooleanFilter,
    ChoiceFilter,
    ListFilter,
    PresenceFilter,
    TextFilter,
    TimeFilter,
    sort_paths,
)
from apps.fleet.choices import Evidence
from engine.records import Record, Words
from engine.words import counted

__all__ = [
    "PromiseBoard",
    "PromiseCounts",
    "ReceiptFilter",
    "promise_board",
    "receipts_listed",
    "receipts_of",
]


def receipts_listed() -> QuerySet[Receipt]:
    """Receipts that were written, newest first, with their promise but for its surroundings."""
    rows = Receipt.objects.exclude(outcome=ReceiptOutcome.DUE)
    return rows.select_related("promise__cluster", "reason_by").defer("promise__surroundings")


def receipts_of(request: AdmissionRequest) -> list[Receipt]:
    """Receipts of a request in the order of their time, those to come as well; empty before it is applied."""
    rows = Receipt.objects.filter(promise__request=request).order_by("due_at")
    return list(rows.select_related("promise__cluster", "reason_by").defer("promise__surroundings"))


class ReceiptFilter(ListFilter):
    """`?cluster=eu-1&query=checkout&span=hour&outcome=missed&verdict=admit&wrong=true&has_reason=false`."""

    cluster = TextFilter("promise__cluster__slug", label="Slug of the cluster")
    query = TextFilter("promise__query_name", label="Name of the query")
    span = ChoiceFilter(choices=ReceiptSpan.choices, label="Time after the decision")
    outcome = ChoiceFilter(choices=ReceiptOutcome.choices[1:], label="What became of the promise")
    verdict = ChoiceFilter("promise__verdict", choices=Verdict.choices, label="Verdict of the decision")
    model = TextFilter("promise__model", label="Model that promised")
    evidence = ChoiceFilter("promise__evidence", choices=Evidence.choices, label="Origin of the costs it rests on")
    wrong = BooleanFilter("is_wrong", label="Whether the verdict turned out wrong")
    reason = ChoiceFilter(choices=WrongReason.choices, label="Reason that a person gave")
    due_at = TimeFilter()
    decided_at = TimeFilter("promise__decided_at")
    interval_held = BooleanFilter(label="Whether the interval held")
    measured = PresenceFilter("measured_s", label="Whether anything was measured")
    sorts = sort_paths("due_at", "outcome", "measured_s", query="promise__query_name", decided_at="promise__decided_at")


@dataclass(frozen=True, kw_only=True)
class PromiseCounts(Record):
    """Receipts of one kind, by what became of the promise."""

    TITLE: ClassVar[str] = "counts of receipts"

    name: Annotated[str, Words("The verdict, model, evidence or span; empty for all.")] = ""
    receipts: int = 0
    held: Annotated[int, Words("Objective kept and the interval held, where there were any.")] = 0
    outside: Annotated[int, Words("Outside the interval, with the objective kept where there was one.")] = 0
    missed: int = 0
    not_known: Annotated[int, Words("Nothing was measured that they could be held against.")] = 0
    wrong: Annotated[int, Words("The verdict turned out wrong.")] = 0
    unexplained: Annotated[int, Words("Those of them without a reason of a person.")] = 0
    objectives: Annotated[int, Words("Promises with an objective that something was measured of.")] = 0
    kept: Annotated[int, Words("Those of them that kept it.")] = 0
    intervals: Annotated[int, Words("Promises with an interval that something was measured of.")] = 0
    intervals_held: int = 0

    @property
    def known(self) -> int:
        """Receipts with a measurement."""
        return self.receipts - self.not_known

    @property
    def kept_share(self) -> float | None:
        """Share of the objectives that were kept; None where there was none, or nothing is known."""
        return self.kept / self.objectives if self.objectives else None

    @property
    def kept_words(self) -> str:
        """`11 of 12 receipts kept the objective`, of those that had one."""
        if not self.objectives:
            return f"{counted(self.known, 'receipt')} had no objective"
        return f"{self.kept} of {counted(self.objectives, 'receipt')} kept the objective"

    @property
    def interval_share(self) -> float | None:
        """Share of the intervals that held; None where there was none."""
        return self.intervals_held / self.intervals if self.intervals else None


@dataclass(frozen=True)
class PromiseBoard(Record):
    """Board of promises: all, and by verdict, model, evidence and span. Those not yet due count nowhere."""

    TITLE: ClassVar[str] = "a board of promises"

    total: PromiseCounts
    verdicts: tuple[PromiseCounts, ...]
    models: tuple[PromiseCounts, ...]
    evidence: tuple[PromiseCounts, ...]
    spans: tuple[PromiseCounts, ...]


def promise_board(rows: QuerySet[Receipt]) -> PromiseBoard:
    """The board of some receipts."""
    written = rows.exclude(outcome=ReceiptOutcome.DUE).order_by()
    return PromiseBoard(
        total=PromiseCounts(**written.aggregate(**_COUNTS)),
        verdicts=_by(written, "promise__verdict", Verdict.values),
        models=_by(written, "promise__model"),
        evidence=_by(written, "promise__evidence", Evidence.values),
        spans=_by(written, "span", ReceiptSpan.values),
    )


_JUDGED = Q(promise__bound_s__isnull=False, measured_s__isnull=False)
_COUNTS = {
    "receipts": Count("pk"),
    **{outcome.value: Count("pk", Q(outcome=outcome)) for outcome in list(ReceiptOutcome)[1:]},
    "wrong": Count("pk", Q(is_wrong=True)),
    "unexplained": Count("pk", Q(is_wrong=True, reason="")),
    "objectives": Count("pk", _JUDGED),
    "kept": Count("pk", _JUDGED & ~Q(outcome=ReceiptOutcome.MISSED)),
    "intervals": Count("pk", Q(interval_held__isnull=False)),
    "intervals_held": Count("pk", Q(interval_held=True)),
}


def _by(rows: QuerySet[Receipt], column: str, order: list[str] | None = None) -> tuple[PromiseCounts, ...]:
    """Counts by a column, in the order of its choices or of its values."""
    found = {row.pop(column): row for row in rows.values(column).annotate(**_COUNTS)}
    names = [name for name in order if name in found] if order else sorted(found)
    return tuple(PromiseCounts(name=name, **found[name]) for name in names)
