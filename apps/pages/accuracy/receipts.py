"""Receipts in words and numbers: of one decision, and of Sluice's own promises on their board."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property

from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.admission.boards import PromiseBoard, PromiseCounts, promise_board, receipts_listed
from apps.admission.choices import SET_ASIDE, ReceiptOutcome, ReceiptSpan, Verdict, WrongReason
from apps.admission.models import Receipt
from apps.admission.receipts import FLOW
from apps.fleet.choices import Evidence
from apps.fleet.models import Cluster
from apps.pages.overview.findings import Stat
from apps.ui.marks import evidence_mark, state_mark
from apps.ui.numbers import MISSING, Quantity, count, percent, seconds, seconds_range
from apps.ui.tables import Column, Table
from apps.ui.times import time_tag
from engine.words import counted, statistic_words

__all__ = ["REASONS", "BoardFacts", "ErrorPart", "PromiseTable", "ReceiptLine", "model_label", "receipts_table"]

_SPANS = {
    "7d": ("Last 7 days", timedelta(days=7)),
    "30d": ("Last 30 days", timedelta(days=30)),
    "90d": ("Last 90 days", timedelta(days=90)),
    "all": ("All that is kept", timedelta(days=4000)),
}
_DEFAULT_SPAN = "30d"
_MIN_JUDGED = 20  # receipts below which a share says little


def model_label(model: str) -> str:
    """Name of the model that promised."""
    return "Flow" if model == FLOW else model[:1].upper() + model[1:]


@dataclass(frozen=True)
class ErrorPart:
    """A part of an error: what made it, by how much."""

    label: str
    value: str


@dataclass(frozen=True)
class ReceiptLine:
    """One receipt as pages tell it."""

    receipt: Receipt

    @property
    def text_anchor(self) -> str:
        """Of the field with a reason's words."""
        return f"text-{self.receipt.span}"

    @property
    def is_due(self) -> bool:
        """Whether it is still to come."""
        return self.receipt.outcome == ReceiptOutcome.DUE

    @property
    def promised(self) -> str:
        """0.32 s (0.2 to 0.9 s)."""
        promise = self.receipt.promise
        if promise.promised_s is None:
            return "no latency"
        text = str(seconds(promise.promised_s, apart_from=promise.bound_s))
        if promise.low_s is None or promise.high_s is None:
            return text
        return f"{text} ({seconds_range(promise.low_s, promise.high_s, apart_from=promise.bound_s)})"

    @property
    def promise_words(self) -> str:
        """Promised 0.32 s (0.2 to 0.9 s); objective: worst case at most 1 s."""
        promise = self.receipt.promise
        if not promise.bound_s:
            return f"Promised {self.promised}; no objective"
        objective = f"{statistic_words(promise.statistic)} at most {seconds(promise.bound_s)}"
        return f"Promised {self.promised}; objective: {objective}"

    @property
    def measured(self) -> str:
        """0.41 s; a dash where nothing was measured."""
        promise = self.receipt.promise
        if self.receipt.measured_s is None:
            return MISSING
        return str(seconds(self.receipt.measured_s, apart_from=promise.bound_s))

    @property
    def results(self) -> str:
        """Of 120 results; empty without any."""
        return f"of {counted(self.receipt.results, 'result')}" if self.receipt.results else ""

    @property
    def mark(self) -> SafeString:
        """Mark of its outcome."""
        return state_mark(self.receipt.outcome)

    @property
    def why_unknown(self) -> str:
        """Why nothing is known."""
        return self.receipt.get_lacking_display() if self.receipt.lacking else ""

    @property
    def changes(self) -> list[str]:
        """Changes on the servers of the query since."""
        return [str(change.text) for change in self.receipt.changes_told]

    @property
    def around(self) -> str:
        """3 other requests were applied since; why nothing more is known."""
        receipt = self.receipt
        decisions = receipt.decisions or 0
        parts = [f"{counted(decisions, 'other request')} applied to the cluster since"] if decisions else []
        if receipt.error_lack:
            parts.append(f"what changed on its servers is not known: {_begun(receipt.get_error_lack_display())}")
        elif not receipt.changes:
            parts.append("nothing changed on its servers")
        text = "; ".join(parts)
        return f"{text[:1].upper()}{text[1:]}." if text else ""

    @cached_property
    def error(self) -> list[ErrorPart]:
        """The error and its parts; empty where they are not known."""
        error, promise, measured_s = self.receipt.error_parts, self.receipt.promise, self.receipt.measured_s
        if error is None or measured_s is None or promise.promised_s is None:
            return []
        of = f"{error.sources_measured} of {counted(error.sources, 'source')} measured"
        costs = f"{error.operators_measured} of {counted(error.operators, 'operator')} measured"
        rest = "the model" if error.is_of_model else "the model, and what was not measured"
        return [
            ErrorPart("Measured less promised", _signed(measured_s - promise.promised_s)),
            ErrorPart(f"by load ({of})", _signed(error.load_s)),
            ErrorPart(f"by costs ({costs})", _signed(error.costs_s)),
            ErrorPart("by what was changed", _signed(error.changes_s)),
            ErrorPart(f"by {rest}", _signed(error.rest_s)),
        ]

    @property
    def reason(self) -> str:
        """Why the verdict was wrong, as a person said; empty while nobody has."""
        receipt = self.receipt
        if not receipt.reason:
            return ""
        by = f", {receipt.reason_by.username}" if receipt.reason_by else ""
        text = f": {receipt.reason_text}" if receipt.reason_text else ""
        return f"{receipt.get_reason_display()}{text}{by}"

    @property
    def effect_words(self) -> str:
        """Effect of the reason on calibration."""
        if self.receipt.reason in SET_ASIDE:
            return "What was measured then is set aside: it counts in no interval."
        return "What was measured then counts in the intervals of estimates."


def _begun(text: str) -> str:
    return text[:1].lower() + text[1:]


def _signed(value: float | None) -> str:
    """+0.09 s; not known."""
    if value is None:
        return "not known"
    sign = "+" if value > 0 else "\u2212" if value < 0 else ""
    return f"{sign}{seconds(abs(value))}"


#: Reasons of the form: with what each does to calibration.
REASONS: Sequence[tuple[str, str]] = [
    (reason.value, f"{reason.label} (measurement set aside)" if reason in SET_ASIDE else reason.label)
    for reason in WrongReason
]


@dataclass(frozen=True)
class PromiseTable:
    """Counts of receipts by one thing."""

    key: str
    title: str
    note: str
    rows: Sequence[tuple[str, PromiseCounts]]

    @property
    def anchor(self) -> str:
        return f"t-{self.key}"


class BoardFacts:
    """The receipts that the address chooses, and how their promises held."""

    spans = [(key, label) for key, (label, _) in _SPANS.items()]
    afters = [("", "Hour, day and week"), *((span.value, span.label) for span in ReceiptSpan)]
    outcomes = [("", "All outcomes"), *((outcome.value, outcome.label) for outcome in list(ReceiptOutcome)[1:])]

    def __init__(self, cluster: Cluster, given: Mapping[str, str]) -> None:
        self.cluster = cluster
        self.span = given.get("span", "") if given.get("span", "") in _SPANS else _DEFAULT_SPAN
        self.after = given.get("after", "") if given.get("after", "") in ReceiptSpan.values else ""
        self.outcome = given.get("outcome", "") if given.get("outcome", "") in ReceiptOutcome.values[1:] else ""

    @cached_property
    def _chosen(self) -> QuerySet[Receipt]:
        since = timezone.now() - _SPANS[self.span][1]
        rows = receipts_listed().filter(promise__cluster=self.cluster, due_at__gte=since)
        return rows.filter(span=self.after) if self.after else rows

    @property
    def rows(self) -> QuerySet[Receipt]:
        """Those listed: of one outcome, where one is chosen."""
        return self._chosen.filter(outcome=self.outcome) if self.outcome else self._chosen

    @cached_property
    def board(self) -> PromiseBoard:
        return promise_board(self._chosen)

    @cached_property
    def total(self) -> PromiseCounts:
        return self.board.total

    @cached_property
    def to_come(self) -> int:
        """Receipts not yet due."""
        return Receipt.objects.filter(promise__cluster=self.cluster, outcome=ReceiptOutcome.DUE).count()

    @property
    def sentence(self) -> str:
        """11 of 12 promises kept their objective, 10 of 12 intervals held; of 3 nothing is known."""
        total = self.total
        if not total.receipts:
            return "No decision came back in this time."
        if not total.known:
            return f"Of {counted(total.receipts, 'receipt')} nothing is known: nothing was measured."
        text = total.kept_words
        if total.intervals:
            text += f", {total.intervals_held} of {counted(total.intervals, 'interval')} held"
        unknown = f"; of {total.not_known} more nothing is known" if total.not_known else ""
        return f"{text}{unknown}."

    @property
    def stats(self) -> list[Stat]:
        total = self.total
        few = f"too few to say; {_MIN_JUDGED} are the least"
        of_kept = few if total.objectives < _MIN_JUDGED else f"of {total.objectives} with a measurement"
        of_intervals = few if total.intervals < _MIN_JUDGED else "of 90% intervals; 90% is right"
        return [
            Stat("Objective kept", percent(total.kept_share), of_kept),
            Stat("Intervals held", percent(total.interval_share), of_intervals),
            Stat("Verdicts wrong", Quantity(count(total.wrong)), f"{total.unexplained} without a reason", _tone(total)),
            Stat("Not known", Quantity(count(total.not_known)), "nothing was measured"),
        ]

    @property
    def tables(self) -> Iterator[PromiseTable]:
        """By verdict, model and evidence."""
        board = self.board
        labels = dict(Verdict.choices)
        yield PromiseTable(
            "verdict", "By verdict", "As it was when applied", [(labels[row.name], row) for row in board.verdicts]
        )
        yield PromiseTable(
            "model", "By model", "What estimated the promise", [(model_label(row.name), row) for row in board.models]
        )
        kinds = dict(Evidence.choices)
        yield PromiseTable(
            "evidence",
            "By origin of costs",
            "The weakest that the promise rests on",
            [(kinds[row.name], row) for row in board.evidence],
        )

    @property
    def api_path(self) -> str:
        return f"/api/v1/receipts?cluster={self.cluster.slug}"


def _tone(total: PromiseCounts) -> str:
    return "bad" if total.unexplained else ""


def receipts_table(request: HttpRequest, facts: BoardFacts) -> Table:
    """The receipts chosen, newest first."""
    return Table(
        request,
        _columns(facts.cluster.slug),
        facts.rows,
        caption="Receipts",
        default_sort="-due",
        page_size=25,
        file_name=f"receipts-{facts.cluster.slug}",
        empty={"icon": "accuracy", "title": "No receipt", "text": "No receipt of what is chosen was written."},
    )


def _columns(slug: str) -> list[Column]:
    return [
        Column("query", "Query", lambda row: _query(slug, row), sort="promise__query_name", csv=_name),
        Column("verdict", "Verdict", _verdict, sort="promise__verdict", csv=lambda row: row.promise.verdict),
        Column("due", "Held against", _due, sort="due_at", csv=lambda row: row.due_at, full=True, high_first=True),
        Column("promised", "Promised", _promised, csv=lambda row: row.promise.promised_s, num=True, full=True),
        Column(
            "measured",
            "Measured",
            lambda row: ReceiptLine(row).measured,
            sort="measured_s",
            csv=lambda row: row.measured_s,
            num=True,
        ),
        Column("outcome", "Outcome", _outcome, sort="outcome", csv=lambda row: row.outcome, full=True),
        Column("model", "Model", lambda row: model_label(row.promise.model), csv=lambda row: row.promise.model),
        Column(
            "evidence",
            "Costs",
            lambda row: evidence_mark(row.promise.evidence),
            csv=lambda row: row.promise.evidence,
        ),
        Column("reason", "Why it was wrong", _why, csv=lambda row: row.reason),
    ]


def _name(row: Receipt) -> str:
    return f"{row.promise.query_name} v{row.promise.version}"


def _query(slug: str, row: Receipt) -> SafeString:
    """The decision; of a query that was deleted the name alone."""
    if row.promise.request_id is None:
        return format_html('<span class="name">{}</span> <small class="muted">deleted</small>', _name(row))
    url = reverse("pages:admission", args=[slug, row.promise.request_id])
    return format_html('<a class="name" href="{}#receipts">{}</a>', url, _name(row))


def _verdict(row: Receipt) -> str:
    label = row.promise.get_verdict_display()
    return f"{label}, overridden" if row.promise.overridden else label


def _due(row: Receipt) -> SafeString:
    return format_html(
        '{} <small class="muted">after {}</small>', time_tag(row.due_at, relative=False), row.get_span_display().lower()
    )


def _promised(row: Receipt) -> str:
    return ReceiptLine(row).promised


def _outcome(row: Receipt) -> SafeString:
    line = ReceiptLine(row)
    if not line.why_unknown:
        return line.mark
    return format_html('{} <small class="muted">{}</small>', line.mark, _begun(line.why_unknown))


def _why(row: Receipt) -> str:
    if not row.is_wrong:
        return MISSING
    return row.get_reason_display() if row.reason else "not said yet"
