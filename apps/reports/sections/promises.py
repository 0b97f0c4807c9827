"""Promises of a report: how decisions that came back in its time held, and those that did not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from django.db.models import Q

from apps.admission.boards import PromiseCounts, promise_board, receipts_listed
from apps.admission.choices import ReceiptOutcome, Verdict
from apps.fleet.models import Cluster
from apps.reports.blocks import Block, ReportColumn, ReportHeading, ReportTable, ReportText, local_time
from apps.ui.numbers import MISSING, seconds, seconds_range
from engine.records import Moment, Record
from engine.words import counted

__all__ = ["ReportPromise", "ReportPromises", "promise_blocks", "promise_facts"]

_FIRST = timedelta(days=7)  # that a first report looks back
_MAX_LISTED = 100


@dataclass(frozen=True, kw_only=True)
class ReportPromise(Record):
    """A decision that did not hold as it was promised."""

    query: str
    version: int
    verdict: str
    span: str
    at: Moment
    outcome: str
    promised_s: float | None
    low_s: float | None
    high_s: float | None
    bound_s: float | None
    measured_s: float | None
    reason: str


@dataclass(frozen=True)
class ReportPromises(Record):
    """Receipts of a report's time, counted: all, by verdict, and those that did not hold."""

    total: PromiseCounts
    verdicts: list[PromiseCounts]
    failed: list[ReportPromise]


def promise_facts(cluster: Cluster, since: datetime | None, until: datetime) -> ReportPromises:
    """Receipts that were due in a stretch of time; of a first report in the week before."""
    rows = receipts_listed().filter(promise__cluster=cluster, due_at__gt=since or until - _FIRST, due_at__lte=until)
    board = promise_board(rows)
    failed = rows.filter(Q(outcome__in=[ReceiptOutcome.MISSED, ReceiptOutcome.OUTSIDE]) | Q(is_wrong=True))
    return ReportPromises(
        board.total,
        list(board.verdicts),
        [
            ReportPromise(
                query=row.promise.query_name,
                version=row.promise.version,
                verdict=row.promise.verdict,
                span=row.get_span_display().lower(),
                at=row.due_at,
                outcome=row.get_outcome_display(),
                promised_s=row.promise.promised_s,
                low_s=row.promise.low_s,
                high_s=row.promise.high_s,
                bound_s=row.promise.bound_s,
                measured_s=row.measured_s,
                reason=row.get_reason_display() if row.reason else "",
            )
            for row in failed.order_by("due_at")[:_MAX_LISTED]
        ],
    )


def promise_blocks(promises: ReportPromises, zone: ZoneInfo) -> Iterator[Block]:
    """The section."""
    yield ReportHeading("promises", "Promises", "What was decided, an hour, a day and a week later")
    yield ReportText(_finding(promises.total))
    if promises.verdicts:
        yield ReportTable("promises", "Receipts by verdict", _COUNTS, promises.verdicts)
    if promises.failed:
        yield ReportTable("failed_promises", "Not as promised", _columns(zone), promises.failed, limit=30)


def _finding(total: PromiseCounts) -> str:
    if not total.receipts:
        return "No decision came back: none was applied long enough ago."
    if not total.known:
        return f"{counted(total.receipts, 'receipt')}, of which nothing is known: nothing was measured."
    intervals = f", {total.intervals_held} of {counted(total.intervals, 'interval')} held" if total.intervals else ""
    unknown = f"; of {total.not_known} more nothing is known" if total.not_known else ""
    wrong = f" {counted(total.wrong, 'verdict')} turned out wrong." if total.wrong else ""
    return f"{total.kept_words}{intervals}{unknown}.{wrong}"


_COUNTS: Sequence[ReportColumn[PromiseCounts]] = (
    ReportColumn("Verdict", "verdict", "name", write=lambda name: Verdict(name).label, strong=True, width=1.8),
    ReportColumn("Receipts", "receipts", num=True),
    ReportColumn("Held", "held", num=True),
    ReportColumn("Outside", "outside", num=True),
    ReportColumn("Missed", "missed", num=True),
    ReportColumn("Not known", "not_known", num=True),
    ReportColumn(
        "Intervals held", "intervals_held", show=lambda row: f"{row.intervals_held} of {row.intervals}", num=True
    ),
)


def _columns(zone: ZoneInfo) -> list[ReportColumn[ReportPromise]]:
    return [
        ReportColumn("Query", "query", show=lambda row: f"{row.query} v{row.version}", strong=True, width=1.8),
        ReportColumn("After", "span", width=0.8),
        ReportColumn("At", "at", write=lambda at: local_time(at, zone), width=1.5),
        ReportColumn("Promised", "promised_s", show=_promised, num=True, width=1.8),
        ReportColumn("Measured", "measured_s", show=_measured, num=True),
        ReportColumn("Objective", "bound_s", write=lambda bound_s: seconds(bound_s) if bound_s else MISSING, num=True),
        ReportColumn("Outcome", "outcome", width=1.5),
        ReportColumn("Why", "reason", write=lambda reason: reason or MISSING, width=1.5),
    ]


def _promised(row: ReportPromise) -> object:
    promised = seconds(row.promised_s, apart_from=row.bound_s)
    if row.low_s is None or row.high_s is None:
        return promised
    return f"{promised} ({seconds_range(row.low_s, row.high_s, apart_from=row.bound_s)})"


def _measured(row: ReportPromise) -> object:
    return seconds(row.measured_s, apart_from=row.bound_s)
