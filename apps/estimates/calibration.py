"""Calibration of intervals: factors by group of scored runs, made anew with every run, and the scaling by them.

Groups are nested: a query's runs of one statistic and evidence; those of its kind (statistic, with windows or without)
in the cluster; those of its origin. A group with too few runs takes the factors of the next wider one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime, timedelta

import numpy as np
from django.db import transaction
from django.db.models import F, Q, QuerySet
from django.utils import timezone

from apps.estimates.answers import AppliedCalibration, StoredEstimate
from apps.estimates.choices import CalibrationScope, RunOrigin, TrustState
from apps.estimates.models import AccuracyObservation, IntervalCalibration, QueryEstimate
from apps.estimates.selectors import run_latest
from apps.fleet.models import Cluster
from apps.queries.choices import OperatorKind
from apps.queries.models import Query, QueryVersion
from apps.telemetry.configs import live_served
from engine.arrays import FloatArray
from engine.document.elements import Objective
from engine.document.policies import high_under_policies
from engine.estimation.noise.summary import RealisedStatistic
from engine.latency_state import objective_state
from engine.measurement.calibration import (
    AS_STATED,
    HALF_LIFE,
    MAX_AGE,
    IntervalFactors,
    ScoredRuns,
    interval_factors,
    interval_figures,
    scale_interval,
)
from engine.measurement.trust import UNJUDGED, EstimateTrust, QueryCalibration, judge_trust

__all__ = [
    "INTERVAL",
    "CalibrationGroup",
    "calibrated",
    "calibrations_in_force",
    "calibrations_purge",
    "calibrations_refresh",
    "group_applied",
    "group_of",
    "group_of_estimate",
    "in_force",
    "is_windowed",
    "queries_calibrated",
    "queries_untrusted",
    "query_calibrations",
    "run_figures",
    "scaled_estimate",
    "scored_runs",
]

INTERVAL = timedelta(seconds=30)  #: of measured latency, one scored run each
_MAX_POOLED = 2000  # runs that the factors of several queries are made of
_KEEP = timedelta(days=30)
_MOVED = math.log(1.05)  # on the logarithm: smaller moves of a factor are noise
_EVERY = timedelta(hours=1)  # a row of the history at least
_FACTOR, _PRIME = 7919, 10007  # scatter keys, so that a sample does not take the same queries every time


@dataclass(frozen=True)
class CalibrationGroup:
    """Runs that are calibrated together; what is left out does not matter to it."""

    cluster_id: int
    origin: str
    evidence: str
    statistic: str = ""
    windowed: bool | None = None
    query_id: int | None = None

    @property
    def scope(self) -> CalibrationScope:
        if self.query_id is not None:
            return CalibrationScope.QUERY
        return CalibrationScope.KIND if self.statistic else CalibrationScope.ORIGIN

    @property
    def wider(self) -> CalibrationGroup | None:
        """The group that answers where this one has too few runs."""
        if self.query_id is not None:
            kind = "quantile" if self.statistic.startswith("q") else self.statistic
            return replace(self, query_id=None, statistic=kind)
        return replace(self, statistic="", windowed=None) if self.statistic else None

    @property
    def chain(self) -> list[CalibrationGroup]:
        """The group and every wider one, the widest first."""
        return [*(self.wider.chain if self.wider else ()), self]

    def observations(self) -> QuerySet[AccuracyObservation]:
        """Its runs, newest first, with those that count for nothing."""
        rows = AccuracyObservation.objects.filter(
            cluster=self.cluster_id, origin=self.origin, evidence=self.evidence
        ).order_by("-starts_at", "-pk")
        if self.query_id is not None:
            return rows.filter(query=self.query_id, statistic=self.statistic, windowed=self.windowed)
        if not self.statistic:
            return rows
        rows = rows.filter(windowed=self.windowed)
        if self.statistic == "quantile":
            return rows.filter(statistic__startswith="q")
        return rows.filter(statistic=self.statistic)


_GROUP = tuple(field.name for field in fields(CalibrationGroup))


def group_of(row: AccuracyObservation) -> CalibrationGroup:
    """The narrowest group of a scored run."""
    return CalibrationGroup(row.cluster_id, row.origin, row.evidence, row.statistic, row.windowed, row.query_id)


def is_windowed(version: QueryVersion) -> bool:
    """Whether a version has an operator with a window."""
    return any(row.kind == OperatorKind.WINDOW or row.extra.get("window") for row in version.operators.all())


def calibrations_in_force(cluster: Cluster | int) -> Mapping[CalibrationGroup, IntervalCalibration]:
    """Newest factors of every group of a cluster."""
    rows = IntervalCalibration.objects.filter(cluster=cluster, until__isnull=True).order_by("pk")
    return {_group(row): row for row in rows}


def in_force(group: CalibrationGroup, rows: Mapping[CalibrationGroup, IntervalCalibration]) -> QueryCalibration:
    """Factors and trust for a group out of `calibrations_in_force`: its own, or of the next wider one that has any."""
    for candidate in reversed(group.chain):
        row = rows.get(candidate)
        if row is not None:
            return QueryCalibration(_factors(row), row.scope, _trust(row) if candidate == group else UNJUDGED)
    return QueryCalibration()


def calibrations_refresh(groups: Iterable[CalibrationGroup], *, now: datetime) -> int:
    """Make the factors of some queries' groups anew, and of every wider one; returns how many."""
    chains = {wider: None for group in groups for wider in group.chain}
    ordered = sorted(chains, key=lambda group: list(CalibrationScope).index(group.scope), reverse=True)
    made: dict[CalibrationGroup, IntervalCalibration] = {}
    for group in ordered:
        made[group] = _refresh(group, made.get(group.wider) if group.wider else None, now)
    return len(made)


def calibrations_purge(now: datetime | None = None) -> int:
    """Purge factors that were replaced, or whose group had its last run, more than 30 days ago; returns how many."""
    return IntervalCalibration.objects.filter(updated_at__lt=(now or timezone.now()) - _KEEP).delete()[0]


def _group(row: IntervalCalibration) -> CalibrationGroup:
    return CalibrationGroup(**{name: getattr(row, name) for name in _GROUP})


def _factors(row: IntervalCalibration) -> IntervalFactors:
    return IntervalFactors(row.lower, row.upper, row.runs, bool(row.scope))


def _trust(row: IntervalCalibration) -> EstimateTrust:
    return EstimateTrust(row.held or 0, row.judged or 0, row.trust) if row.trust else UNJUDGED


def _refresh(group: CalibrationGroup, wider: IntervalCalibration | None, now: datetime) -> IntervalCalibration:
    weighing = _weighing(group)
    counting = [row for row in weighing if row.counts][::-1]
    runs = scored_runs(counting)
    trust = judge_trust(bool(row.covered) for row in counting) if group.scope == CalibrationScope.QUERY else None
    factors = interval_factors(
        runs,
        now_s=now.timestamp(),
        half_life=trust.half_life if trust else HALF_LIFE,
        wider=_factors(wider) if wider else AS_STATED,
    )
    scope = str(group.scope)
    if not factors.is_concluded and wider is not None:
        factors, scope = _factors(wider), wider.scope
    figures, held = interval_figures(runs), {}
    if trust is not None:
        held = {"held": trust.held, "judged": trust.judged, "trust": trust.state}
    row = IntervalCalibration(
        **{name: getattr(group, name) for name in _GROUP},
        **{name: value for name, value in asdict(figures).items() if name != "runs"},
        **held,
        lower=factors.lower,
        upper=factors.upper,
        runs=factors.runs,
        scope=scope if factors.is_concluded else "",
        own_runs=figures.runs,
        left_out=len(weighing) - len(runs),
        first_at=weighing[-1].starts_at,
        last_at=weighing[0].starts_at,
        since=now,
        updated_at=now,
    )
    with transaction.atomic():
        return _store(group, row)


def run_figures(rows: QuerySet[AccuracyObservation]) -> QuerySet[AccuracyObservation]:
    """Runs with what `scored_runs` and judgements read alone."""
    return rows.select_related(None).only(
        "starts_at",
        "query_id",
        "expected_s",
        "stated_low_s",
        "stated_high_s",
        "low_s",
        "high_s",
        "observed_s",
        "covered",
        "disturbed",
        "set_aside",
    )


def _weighing(group: CalibrationGroup) -> list[AccuracyObservation]:
    """Runs that weigh in a group's factors, newest first; of a wide group a sample that takes from every instant."""
    rows = run_figures(group.observations())
    if group.scope == CalibrationScope.QUERY:
        return list(rows[:MAX_AGE])
    newest = rows[0].starts_at
    recent = rows.filter(starts_at__gt=newest - MAX_AGE * INTERVAL)
    count = recent.count()
    if count <= _MAX_POOLED:
        return list(rows[:_MAX_POOLED])
    sampled = recent.annotate(place=F("pk") * _FACTOR % _PRIME).filter(place__lt=_PRIME * _MAX_POOLED // count)
    return list(sampled[:_MAX_POOLED])


def scored_runs(rows: Sequence[AccuracyObservation]) -> ScoredRuns:
    """Runs, oldest first where order counts, as the engine takes them."""

    def column(name: str) -> FloatArray:
        return np.array([getattr(row, name) for row in rows], dtype=np.float64)

    return ScoredRuns(
        at_s=np.array([row.starts_at.timestamp() for row in rows], dtype=np.float64),
        query=np.array([row.query_id for row in rows], dtype=np.int64),
        estimate_s=column("expected_s"),
        low_s=column("stated_low_s"),
        high_s=column("stated_high_s"),
        shown_low_s=column("low_s"),
        shown_high_s=column("high_s"),
        realised_s=column("observed_s"),
    )


def _store(group: CalibrationGroup, row: IntervalCalibration) -> IntervalCalibration:
    """Keep a row of the history where something moved, else bring the one in force up to date."""
    names = {name: getattr(group, name) for name in _GROUP}
    standing = IntervalCalibration.objects.select_for_update().filter(until__isnull=True, **names)
    before = standing.order_by("-pk").first()
    if before is not None and not _has_moved(before, row):
        row.pk, row.since = before.pk, before.since
    row.save()
    standing.exclude(pk=row.pk).update(until=row.updated_at)
    return row


def _has_moved(before: IntervalCalibration, row: IntervalCalibration) -> bool:
    moves = (abs(math.log(getattr(row, side) / getattr(before, side))) for side in ("lower", "upper"))
    return (
        max(moves) > _MOVED
        or (before.scope, before.trust) != (row.scope, row.trust)
        or row.since - before.since >= _EVERY
    )


def calibrated(queries: Mapping[str, StoredEstimate], *, cluster: Cluster) -> dict[str, StoredEstimate]:
    """Estimates with the intervals of live queries scaled, and of those whose runs another engine reported."""
    calibrations = calibrations_in_force(cluster)
    origins = _reported_origins(calibrations)
    scaled = dict(queries)
    live = [name for name, answer in queries.items() if answer.live]
    running = Query.objects.filter(cluster=cluster, running_version__isnull=False)
    running = running.filter(Q(name__in=live) | Q(pk__in=[pk for pk in origins if pk is not None]))
    for query in running.select_related("running_version").prefetch_related("running_version__operators"):
        answer = scaled.get(query.name)
        origin = RunOrigin.LIVE if answer and answer.live else origins.get(query.pk)
        if answer is not None and origin is not None:
            scaled[query.name] = scaled_estimate(answer, group_of_estimate(answer, query, origin), calibrations)
    return scaled


def group_of_estimate(answer: StoredEstimate, query: Query, origin: str) -> CalibrationGroup:
    """The narrowest group of the runs of an estimate of what runs of a query."""
    return CalibrationGroup(
        cluster_id=query.cluster_id,
        origin=origin,
        evidence=answer.evidence,
        statistic=answer.statistic,
        windowed=is_windowed(query.running_version),
        query_id=query.pk,
    )


def queries_calibrated(cluster: Cluster) -> set[int]:
    """Running queries whose intervals may be scaled otherwise from one moment to the next, by their keys."""
    live = live_served().filter(query__cluster=cluster).values_list("query", flat=True)
    return {*live, *(pk for pk in _reported_origins(calibrations_in_force(cluster)) if pk is not None)}


def _reported_origins(calibrations: Mapping[CalibrationGroup, IntervalCalibration]) -> dict[int | None, str]:
    """By query the origin of what another engine reported, of the newest run; simulated runs scale nothing."""
    reported = [
        (row.last_at, group)
        for group, row in calibrations.items()
        if group.origin not in (RunOrigin.LIVE, RunOrigin.SIMULATED)
    ]
    return {group.query_id: group.origin for _, group in sorted(reported, key=lambda entry: entry[0])}


def scaled_estimate(
    answer: StoredEstimate, group: CalibrationGroup, rows: Mapping[CalibrationGroup, IntervalCalibration]
) -> StoredEstimate:
    """A query's estimate with its intervals scaled, and `calibration`, which says how.

    A run is a short part of the horizon. So there are two intervals: `low_s` to `high_s`, of the horizon, whose upper
    side runs may widen (of a mean they scale both); and `calibration.run`, of what a run shows, which they scale. The
    trust is what the runs give. Each realised statistic has factors of its own. "Under" is never lowered.
    """
    own = in_force(group, rows)
    realised = {
        name: _scaled(figures, in_force(replace(group, statistic=name), rows).factors.over_horizon(name))
        for name, figures in (answer.realised or {}).items()
    }
    low_s, high_s = answer.low_s, answer.high_s
    stated: tuple[float, float] | None = None
    run: tuple[float, float] | None = None
    if low_s is not None and high_s is not None:
        figures = RealisedStatistic(answer.estimate_s, low_s, high_s)
        shown, of_run = _scaled(figures, own.factors.over_horizon(answer.statistic)), _scaled(figures, own.factors)
        stated, run = (low_s, high_s), (of_run.low_s, of_run.high_s)
        low_s, high_s = shown.low_s, shown.high_s
    bound_s, under_s = answer.bound_s, answer.under_s
    objective = Objective("", answer.statistic, bound_s) if bound_s is not None else None
    if realised and under_s is not None:
        under_s = max(under_s, realised["worst"].high_s)
    high_by_policy_s = high_under_policies(high_s, answer.scheduling)
    return replace(
        answer,
        low_s=low_s,
        high_s=high_s,
        **objective_state(objective, answer.estimate_s, high_by_policy_s, answer.standing)._asdict(),
        realised=realised,
        under_s=under_s,
        calibration=AppliedCalibration(
            origin=group.origin,
            evidence=group.evidence,
            windowed=bool(group.windowed),
            lower=own.factors.lower,
            upper=own.factors.upper,
            runs=own.factors.runs,
            scope=own.scope,
            stated=stated,
            run=run,
            trust=own.trust,
        ),
    )


def group_applied(row: QueryEstimate) -> CalibrationGroup | None:
    """The group of runs that calibrated an estimate; None where none did."""
    applied = row.answer.calibration
    return None if applied is None else _applied_group(row.run.cluster_id, row.query_id, row.statistic, applied)


def _applied_group(cluster_id: int, query_id: int, statistic: str, applied: AppliedCalibration) -> CalibrationGroup:
    return CalibrationGroup(
        cluster_id, applied.origin, applied.evidence, statistic=statistic, windowed=applied.windowed, query_id=query_id
    )


def query_calibrations(cluster: Cluster) -> dict[str, QueryCalibration]:
    """Calibrations of the estimates of a cluster's running queries as they are by now, by the name of the query."""
    run = run_latest(cluster)
    if run is None:
        return {}
    calibrations = calibrations_in_force(cluster)
    rows = run.queries.exclude(trust="").order_by("query__name")
    applied = rows.values("query__name", "query_id", "statistic", "result__calibration")
    return {
        row["query__name"]: in_force(
            _applied_group(
                cluster.pk, row["query_id"], row["statistic"], AppliedCalibration.parse(row["result__calibration"])
            ),
            calibrations,
        )
        for row in applied
    }


def queries_untrusted(cluster: Cluster) -> list[str]:
    """Names of the running queries whose estimates have lost their trust."""
    if not IntervalCalibration.objects.filter(cluster=cluster, until__isnull=True, trust=TrustState.LOST).exists():
        return []
    return [name for name, known in query_calibrations(cluster).items() if known.trust.state == TrustState.LOST]


def _scaled(figures: RealisedStatistic, factors: IntervalFactors) -> RealisedStatistic:
    low_s, high_s = scale_interval(figures.estimate_s, figures.low_s, figures.high_s, factors)
    return replace(figures, low_s=low_s, high_s=high_s)
