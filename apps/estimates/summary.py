"""Summary of accuracy: coverage, bias and error of observations, by origin, query and kind of operator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from django.db.models import QuerySet
from pydantic import WithJsonSchema, computed_field

from apps.estimates.calibration import run_figures, scored_runs
from apps.estimates.choices import RunOrigin
from apps.estimates.models import AccuracyObservation, IntervalCalibration, UnscoredInterval
from apps.fleet.models import Cluster
from apps.measurements.models import StreamWork
from apps.queries.models import Query
from engine.measurement.calibration import MIN_INSTANTS, IntervalFigures, interval_figures
from engine.measurement.trust import EstimateTrust, JudgedPrediction, PredictionOutcome, judge_predictions
from engine.measurement.work_bias import NO_BIAS, WorkBias, work_bias
from engine.records import Record

__all__ = [
    "MAX_ROWS",
    "AccuracySummary",
    "KindAccuracy",
    "OriginAccuracy",
    "QueryAccuracy",
    "accuracy_listed",
    "accuracy_origins",
    "accuracy_summary",
    "calibrations_listed",
    "measured_alone",
    "unscored_listed",
    "work_biases",
]

MAX_ROWS = 5000  # observations a summary is made of: 40 hours of one query


@dataclass(frozen=True)
class QueryAccuracy:
    """Figures of a query's runs of one origin, and the calibration of the newest; None before there were any."""

    query: Query
    origin: RunOrigin
    judged: JudgedPrediction
    calibration: IntervalCalibration | None

    @property
    def trust_score(self) -> float | None:
        """Trust from 0 to 1 by the last intervals; None before enough were judged."""
        row = self.calibration
        return EstimateTrust(row.held or 0, row.judged or 0, row.trust).score if row and row.trust else None


@dataclass(frozen=True)
class KindAccuracy(Record):
    """Work of all operators of a kind, in cycles per second: estimated and measured. Sums, so large ones count more.

    `learned` is the same as a ratio, with its uncertainty and what it proves; it moves no estimate.
    """

    kind: str
    expected_cps: float
    measured_cps: float
    learned: WorkBias = NO_BIAS

    @computed_field  # type: ignore[prop-decorator]
    @property
    def bias(self) -> float | None:
        """Share by which the estimate was too high."""
        return (self.expected_cps - self.measured_cps) / self.measured_cps if self.measured_cps > 0.0 else None


@dataclass(frozen=True)
class OriginAccuracy(Record):
    """Figures of the runs of one origin, and of their intervals as stated (before) and as shown (after).

    `instants` are moments with runs that have an interval, of the newest `MAX_ROWS`; factors exist from
    `instants_needed` on. Widths are medians, as a share of the estimate.
    """

    origin: Annotated[RunOrigin, WithJsonSchema({"type": "string", "enum": RunOrigin.values})]
    judged: JudgedPrediction
    intervals: IntervalFigures
    instants: int
    instants_needed: int
    queries: int
    last_at: datetime


@dataclass(frozen=True)
class AccuracySummary:
    """Figures of observations; `rows` are those they were made of, newest first, `more` were left out as older.

    `disturbed` says how many were left out because of what the stream processor did instead of its work, `set_aside`
    how many because a person said so, `without_interval` how many count for bias and error but not for coverage,
    `windows_left_out` how many windows of scored intervals do not count.
    `calibrations` are those in force of the groups that the observations belong to, the narrowest of each query apart.
    """

    rows: Sequence[AccuracyObservation]
    more: int
    disturbed: Mapping[StreamWork, int]
    set_aside: int
    without_interval: int
    windows_left_out: int
    judged: JudgedPrediction
    queries: Sequence[QueryAccuracy]
    kinds: Sequence[KindAccuracy]
    calibrations: Sequence[IntervalCalibration]
    origins: Sequence[OriginAccuracy] = ()


def accuracy_listed() -> QuerySet[AccuracyObservation]:
    """Observations, newest first, with cluster and query."""
    return AccuracyObservation.objects.select_related("cluster", "query")


def unscored_listed() -> QuerySet[UnscoredInterval]:
    """Intervals that were not scored, newest first, with cluster and query."""
    return UnscoredInterval.objects.select_related("cluster", "query")


def calibrations_listed() -> QuerySet[IntervalCalibration]:
    """Calibrations, newest first, with cluster and query; those of the past are the history."""
    return IntervalCalibration.objects.select_related("cluster", "query")


def measured_alone(rows: QuerySet[AccuracyObservation]) -> QuerySet[AccuracyObservation]:
    """Observations without simulated ones, which are no measurements."""
    return rows.exclude(origin=RunOrigin.SIMULATED)


def accuracy_origins(rows: QuerySet[AccuracyObservation]) -> list[OriginAccuracy]:
    """Figures of every origin of some observations apart, of the newest `MAX_ROWS` of each."""
    present = set(rows.order_by().values_list("origin", flat=True).distinct())
    return [_of_origin(origin, rows.filter(origin=origin)) for origin in RunOrigin if origin in present]


def _of_origin(origin: RunOrigin, rows: QuerySet[AccuracyObservation]) -> OriginAccuracy:
    newest = list(run_figures(rows.order_by("-starts_at", "-pk"))[:MAX_ROWS])
    stated = [row for row in newest if row.counts]
    return OriginAccuracy(
        origin=origin,
        judged=judge_predictions(_outcomes(row for row in newest if row.is_judged)),
        intervals=interval_figures(scored_runs(stated)),
        instants=len({row.starts_at for row in stated}),
        instants_needed=int(MIN_INSTANTS) + 1,
        queries=len({row.query_id for row in newest}),
        last_at=newest[0].starts_at,
    )


def accuracy_summary(rows: QuerySet[AccuracyObservation]) -> AccuracySummary:
    """Figures of the newest `MAX_ROWS` of some observations."""
    ordered = rows.order_by("-starts_at", "query__name")
    newest = list(ordered[:MAX_ROWS])
    more = ordered.count() - len(newest) if len(newest) == MAX_ROWS else 0
    kept = [row for row in newest if row.is_judged]
    by_query: dict[tuple[int, str], list[AccuracyObservation]] = {}
    for row in kept:
        by_query.setdefault((row.query_id, row.origin), []).append(row)
    calibrations = _in_force(kept)
    own = {(row.query_id, row.origin): row for row in calibrations if row.query_id is not None}
    queries = [
        QueryAccuracy(listed[0].query, RunOrigin(key[1]), judge_predictions(_outcomes(listed)), own.get(key))
        for key, listed in by_query.items()
    ]
    return AccuracySummary(
        rows=kept,
        more=more,
        disturbed=Counter(StreamWork(row.disturbed) for row in newest if row.disturbed),
        set_aside=sum(row.set_aside for row in newest),
        without_interval=sum(row.covered is None for row in kept),
        windows_left_out=sum(row.left_out for row in kept),
        judged=judge_predictions(_outcomes(kept)),
        queries=sorted(queries, key=lambda query: (query.query.name, query.origin)),
        kinds=_by_kind(kept),
        calibrations=[row for row in calibrations if row.query_id is None],
    )


def work_biases(cluster: Cluster) -> Mapping[str, tuple[float, float]]:
    """Measured over estimated work of operators by kind, as far as it is proven to be off: the ends of 95 % intervals.

    Of a kind that was measured by several origins from the least end to the largest.
    """
    rows = measured_alone(
        AccuracyObservation.objects.filter(cluster=cluster, disturbed="", set_aside=False).exclude(kinds={})
    )
    newest = rows.only("starts_at", "kinds", "origin").order_by("-starts_at")[:MAX_ROWS]
    by_origin: dict[str, list[AccuracyObservation]] = {}
    for row in newest:
        by_origin.setdefault(row.origin, []).append(row)
    found: dict[str, tuple[float, float]] = {}
    for listed in by_origin.values():
        for kind, bias in ((entry.kind, entry.learned) for entry in _by_kind(listed)):
            if bias.is_proven and bias.low is not None and bias.high is not None:
                low, high = found.get(kind, (bias.low, bias.high))
                found[kind] = min(low, bias.low), max(high, bias.high)
    return found


def _outcomes(rows: Iterable[AccuracyObservation]) -> list[PredictionOutcome]:
    return [PredictionOutcome(row.expected_s, row.observed_s, row.covered) for row in rows]


def _in_force(rows: Sequence[AccuracyObservation]) -> list[IntervalCalibration]:
    """Calibrations of the clusters and origins of some observations; of a query that of its newest runs comes last."""
    present = IntervalCalibration.objects.filter(
        cluster__in={row.cluster_id for row in rows}, origin__in={row.origin for row in rows}, until__isnull=True
    )
    return list(present.order_by("last_at", "pk"))


def _by_kind(rows: Sequence[AccuracyObservation]) -> list[KindAccuracy]:
    runs: dict[str, list[tuple[float, float, float]]] = {}
    for row in rows:
        for kind, (expected, measured) in row.kinds.items():
            runs.setdefault(kind, []).append((row.starts_at.timestamp(), expected, measured))
    count = max(1, len({row.starts_at for row in rows if row.kinds}))
    return [_of_kind(kind, listed, count) for kind, listed in sorted(runs.items())]


def _of_kind(kind: str, runs: Sequence[tuple[float, float, float]], count: int) -> KindAccuracy:
    at_s, expected, measured = zip(*runs, strict=True)
    return KindAccuracy(kind, sum(expected) / count, sum(measured) / count, work_bias(at_s, expected, measured))
