"""Summary of accuracy: coverage, bias and error of observations, by query, by kind of operator, and calibrations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from django.db.models import QuerySet

from apps.estimates.models import AccuracyObservation, IntervalCalibration, UnscoredInterval
from apps.measurements.models import StreamWork
from apps.queries.models import Query
from engine.measurement.trust import EstimateTrust, JudgedPrediction, PredictionOutcome, judge_predictions

__all__ = [
    "MAX_ROWS",
    "AccuracySummary",
    "KindAccuracy",
    "QueryAccuracy",
    "accuracy_listed",
    "accuracy_summary",
    "calibrations_listed",
    "unscored_listed",
]

MAX_ROWS = 5000  # observations a summary is made of: 40 hours of one query


@dataclass(frozen=True)
class QueryAccuracy:
    """A query's figures, and the calibration of its newest runs; None before there were any."""

    query: Query
    judged: JudgedPrediction
    calibration: IntervalCalibration | None

    @property
    def trust_score(self) -> float | None:
        """Trust from 0 to 1 by the last intervals; None before enough were judged."""
        row = self.calibration
        return EstimateTrust(row.held or 0, row.judged or 0, row.trust).score if row and row.trust else None


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

    `disturbed` says how many were left out because of what the stream processor did instead of its work,
    `without_interval` how many count for bias and error but not for coverage, `windows_left_out` how many windows of
    scored intervals do not count.
    `calibrations` are those in force of the groups that the observations belong to, the narrowest of each query apart.
    """

    rows: Sequence[AccuracyObservation]
    more: int
    disturbed: Mapping[StreamWork, int]
    without_interval: int
    windows_left_out: int
    judged: JudgedPrediction
    queries: Sequence[QueryAccuracy]
    kinds: Sequence[KindAccuracy]
    calibrations: Sequence[IntervalCalibration]


def accuracy_listed() -> QuerySet[AccuracyObservation]:
    """Observations, newest first, with cluster and query."""
    return AccuracyObservation.objects.select_related("cluster", "query")


def unscored_listed() -> QuerySet[UnscoredInterval]:
    """Intervals that were not scored, newest first, with cluster and query."""
    return UnscoredInterval.objects.select_related("cluster", "query")


def calibrations_listed() -> QuerySet[IntervalCalibration]:
    """Calibrations, newest first, with cluster and query; those of the past are the history."""
    return IntervalCalibration.objects.select_related("cluster", "query")


def accuracy_summary(rows: QuerySet[AccuracyObservation]) -> AccuracySummary:
    """Figures of the newest `MAX_ROWS` of some observations."""
    ordered = rows.order_by("-starts_at", "query__name")
    newest = list(ordered[:MAX_ROWS])
    more = ordered.count() - len(newest) if len(newest) == MAX_ROWS else 0
    kept = [row for row in newest if not row.disturbed]
    by_query: dict[int, list[AccuracyObservation]] = {}
    for row in kept:
        by_query.setdefault(row.query_id, []).append(row)
    calibrations = _in_force(kept)
    own = {row.query_id: row for row in calibrations if row.query_id is not None}
    queries = [
        QueryAccuracy(listed[0].query, judge_predictions(_outcomes(listed)), own.get(pk))
        for pk, listed in by_query.items()
    ]
    return AccuracySummary(
        rows=kept,
        more=more,
        disturbed=Counter(StreamWork(row.disturbed) for row in newest if row.disturbed),
        without_interval=sum(row.covered is None for row in kept),
        windows_left_out=sum(row.left_out for row in kept),
        judged=judge_predictions(_outcomes(kept)),
        queries=sorted(queries, key=lambda query: query.query.name),
        kinds=_by_kind(kept),
        calibrations=[row for row in calibrations if row.query_id is None],
    )


def _outcomes(rows: Iterable[AccuracyObservation]) -> list[PredictionOutcome]:
    return [PredictionOutcome(row.expected_s, row.observed_s, row.covered) for row in rows]


def _in_force(rows: Sequence[AccuracyObservation]) -> list[IntervalCalibration]:
    """Calibrations of the clusters of some observations; of a query that of its newest runs, which comes last."""
    clusters = {row.cluster_id for row in rows}
    return list(IntervalCalibration.objects.filter(cluster__in=clusters, until__isnull=True).order_by("last_at", "pk"))


def _by_kind(rows: Sequence[AccuracyObservation]) -> list[KindAccuracy]:
    sums: dict[str, list[float]] = {}
    for row in rows:
        for kind, (expected, measured) in row.kinds.items():
            total = sums.setdefault(kind, [0.0, 0.0])
            total[0] += expected
            total[1] += measured
    count = max(1, len({row.starts_at for row in rows if row.kinds}))
    return [KindAccuracy(kind, a / count, b / count) for kind, (a, b) in sorted(sums.items())]
