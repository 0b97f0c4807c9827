"""Trust in estimates by earlier observations: coverage, bias and width by query and by kind of operator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet

from apps.estimates.models import AccuracyObservation
from apps.estimates.selectors import query_estimate_latest
from apps.fleet.choices import Evidence
from apps.measurements.models import StreamWork
from apps.queries.models import Query
from engine.measurement.trust import (
    MIN_OUTCOMES,
    RECENT,
    EstimateTrust,
    JudgedPrediction,
    PredictionOutcome,
    judge_predictions,
    judge_trust,
)

__all__ = [
    "MAX_ROWS",
    "AccuracySummary",
    "KindAccuracy",
    "QueryAccuracy",
    "accuracy_listed",
    "accuracy_summary",
    "evidence_of",
    "outcome_of",
    "outcomes_of",
    "trust_of",
]


def outcome_of(row: AccuracyObservation) -> PredictionOutcome:
    """A row as the engine judges it."""
    return PredictionOutcome(row.expected_s, row.observed_s, row.half_s, row.covered)


def outcomes_of(rows: Iterable[AccuracyObservation]) -> list[PredictionOutcome]:
    """Outcomes, oldest first, of rows that come newest first."""
    return [outcome_of(row) for row in rows][::-1]


def evidence_of(result: Mapping[str, Any]) -> str:
    """Origin of an estimate: measured where no input lacks a sample and, of a live query, batches were timed."""
    live = result.get("live") or {}
    is_assumed = result.get("uncovered") or live.get("evidence") == Evidence.ASSUMED
    return Evidence.ASSUMED if is_assumed else Evidence.MEASURED


def trust_of(query: Query, statistic: str, evidence: str) -> tuple[EstimateTrust, str]:
    """Trust in new estimates of a query, and by whose past: its own, or with fewer than 20 of those its cluster's.

    Outcomes of estimates of another statistic, or of other evidence, say nothing of this one, nor do those of intervals
    in which the stream processor was not at work. Those of a cluster are
    put together in units of their half widths; absolute errors of other queries are not taken over, because queries
    differ in size.
    """
    rows = AccuracyObservation.objects.filter(statistic=statistic, evidence=evidence, disturbed="").only(
        "expected_s", "observed_s", "half_s", "covered", "starts_at"
    )
    own = judge_trust(outcomes_of(rows.filter(query=query).order_by("-starts_at")[:RECENT]))
    if own.outcomes >= MIN_OUTCOMES:
        return own, "query"
    others = judge_trust(outcomes_of(rows.filter(cluster=query.cluster_id).order_by("-starts_at")[:RECENT]))
    if others.concluded:
        return EstimateTrust(others.factor, others.score, others.outcomes, None, True), "cluster"
    return own, "query"


MAX_ROWS = 5000  # observations a summary is made of: 40 hours of one query


@dataclass(frozen=True)
class QueryAccuracy:
    """A query's figures, and how far its next estimate is trusted: by its own past or its cluster's (`trust_of`)."""

    query: Query
    judged: JudgedPrediction
    trust: EstimateTrust
    trust_of: str


@dataclass(frozen=True)
class KindAccuracy:
    """Work of all operators of a kind, in cycles per second: estimated and measured. Sums, so large ones count more."""

    kind: str
    expected_cps: float
    measured_cps: float

    @property
    def bias(self) -> float | None:
        """Share by which the estimate was too high."""
        return (self.expected_cps - self.measured_cps) / self.measured_cps if self.measured_cps > 0.0 else None


@dataclass(frozen=True)
class AccuracySummary:
    """Figures of observations; `rows` are those they were made of, newest first, `more` were left out as older.

    `disturbed` says how many were left out because of what the stream processor did instead of its work.
    """

    rows: Sequence[AccuracyObservation]
    more: int
    disturbed: Mapping[StreamWork, int]
    judged: JudgedPrediction
    queries: Sequence[QueryAccuracy]
    kinds: Sequence[KindAccuracy]


def accuracy_listed() -> QuerySet[AccuracyObservation]:
    """Observations, newest first, with cluster and query."""
    return AccuracyObservation.objects.select_related("cluster", "query")


def accuracy_summary(rows: QuerySet[AccuracyObservation]) -> AccuracySummary:
    """Figures of the newest `MAX_ROWS` of some observations."""
    ordered = rows.order_by("-starts_at", "query__name")
    newest = list(ordered[:MAX_ROWS])
    more = ordered.count() - len(newest) if len(newest) == MAX_ROWS else 0
    kept = [row for row in newest if not row.disturbed]
    by_query: dict[int, list[AccuracyObservation]] = {}
    for row in kept:
        by_query.setdefault(row.query_id, []).append(row)
    queries = [_of_query(listed) for listed in by_query.values()]
    return AccuracySummary(
        rows=kept,
        more=more,
        disturbed=Counter(StreamWork(row.disturbed) for row in newest if row.disturbed),
        judged=judge_predictions(outcomes_of(kept)),
        queries=sorted(queries, key=lambda query: query.query.name),
        kinds=_by_kind(kept),
    )


def _of_query(rows: list[AccuracyObservation]) -> QueryAccuracy:
    """Trust is that of the query's next estimate, which need not be of the same statistic as all of its past."""
    query, newest = rows[0].query, query_estimate_latest(rows[0].query)
    statistic = newest.statistic if newest else rows[0].statistic
    evidence = evidence_of(newest.result) if newest else rows[0].evidence
    trusted, scope = trust_of(query, statistic, evidence)
    return QueryAccuracy(query, judge_predictions(outcomes_of(rows)), trusted, scope)


def _by_kind(rows: Sequence[AccuracyObservation]) -> list[KindAccuracy]:
    sums: dict[str, list[float]] = {}
    for row in rows:
        for kind, (expected, measured) in row.kinds.items():
            total = sums.setdefault(kind, [0.0, 0.0])
            total[0] += expected
            total[1] += measured
    count = max(1, len({row.starts_at for row in rows if row.kinds}))
    return [KindAccuracy(kind, a / count, b / count) for kind, (a, b) in sorted(sums.items())]
