"""Calibration of intervals: factors by group of scored runs, made anew with every run, and those in force for a query.

Groups are nested: a query's runs of one statistic and evidence; those of its kind (statistic, with windows or without)
in the cluster; those of its origin. A group with too few runs takes the factors of the next wider one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime, timedelta
from typing import Any

import numpy as np
from django.db import transaction
from django.db.models import F, QuerySet
from django.utils import timezone

from apps.estimates.choices import CalibrationScope
from apps.estimates.models import AccuracyObservation, IntervalCalibration
from apps.fleet.choices import Evidence
from apps.fleet.models import Cluster
from apps.queries.choices import OperatorKind
from apps.queries.models import QueryVersion
from engine.arrays import FloatArray
from engine.measurement.calibration import (
    AS_STATED,
    HALF_LIFE,
    MAX_AGE,
    IntervalFactors,
    ScoredRuns,
    interval_factors,
    interval_figures,
)
from engine.measurement.trust import UNJUDGED, EstimateTrust, QueryCalibration, judge_trust

__all__ = [
    "INTERVAL",
    "RUN_FIELDS",
    "CalibrationGroup",
    "calibrations_in_force",
    "calibrations_purge",
    "calibrations_refresh",
    "evidence_of",
    "group_of",
    "in_force",
    "is_windowed",
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


def evidence_of(result: Mapping[str, Any]) -> str:
    """Origin of an estimate: measured where no input lacks a sample and, of a live query, batches were timed."""
    live = result.get("live") or {}
    is_assumed = result.get("uncovered") or live.get("evidence") == Evidence.ASSUMED
    return Evidence.ASSUMED if is_assumed else Evidence.MEASURED


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


@transaction.atomic
def _refresh(group: CalibrationGroup, wider: IntervalCalibration | None, now: datetime) -> IntervalCalibration:
    weighing = _weighing(group)
    counting = [row for row in weighing if _counts(row)][::-1]
    runs = scored_runs(counting)
    trust = judge_trust(row["covered"] for row in counting) if group.scope == CalibrationScope.QUERY else None
    factors = interval_factors(
        runs,
        now_s=now.timestamp(),
        half_life=trust.half_life if trust else HALF_LIFE,
        wider=_factors(wider) if wider else AS_STATED,
    )
    scope = str(group.scope)
    if not factors.is_concluded and wider is not None:
        factors, scope = _factors(wider), wider.scope
    return _store(group, now=now, **_of_factors(factors, scope), **_of_runs(runs, weighing), **_of_trust(trust))


def _of_factors(factors: IntervalFactors, scope: str) -> dict[str, Any]:
    return {
        "lower": factors.lower,
        "upper": factors.upper,
        "runs": factors.runs,
        "scope": scope if factors.is_concluded else "",
    }


def _of_runs(runs: ScoredRuns, weighing: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    figures = asdict(interval_figures(runs))
    return figures | {
        "own_runs": figures.pop("runs"),
        "left_out": len(weighing) - len(runs),
        "first_at": weighing[-1]["starts_at"],
        "last_at": weighing[0]["starts_at"],
    }


def _of_trust(trust: EstimateTrust | None) -> dict[str, Any]:
    return {"held": trust.held, "judged": trust.judged, "trust": trust.state} if trust else {}


RUN_FIELDS = ("starts_at", "query_id", "expected_s", "stated_low_s", "stated_high_s", "low_s", "high_s", "observed_s")


def _weighing(group: CalibrationGroup) -> list[dict[str, Any]]:
    """Runs that weigh in a group's factors, newest first; of a wide group a sample that takes from every instant."""
    rows = group.observations().values(*RUN_FIELDS, "covered", "disturbed")
    if group.scope == CalibrationScope.QUERY:
        return list(rows[:MAX_AGE])
    newest = rows[0]["starts_at"]
    recent = rows.filter(starts_at__gt=newest - MAX_AGE * INTERVAL)
    count = recent.count()
    if count <= _MAX_POOLED:
        return list(rows[:_MAX_POOLED])
    sampled = recent.annotate(place=F("pk") * _FACTOR % _PRIME).filter(place__lt=_PRIME * _MAX_POOLED // count)
    return list(sampled[:_MAX_POOLED])


def _counts(row: Mapping[str, Any]) -> bool:
    return not row["disturbed"] and row["stated_low_s"] is not None and row["stated_high_s"] is not None


def scored_runs(rows: Sequence[Mapping[str, Any]]) -> ScoredRuns:
    """Values of `RUN_FIELDS`, oldest first where order counts, as the engine takes them."""

    def column(name: str) -> FloatArray:
        return np.array([row[name] for row in rows], dtype=np.float64)

    return ScoredRuns(
        at_s=np.array([row["starts_at"].timestamp() for row in rows], dtype=np.float64),
        query=np.array([row["query_id"] for row in rows], dtype=np.int64),
        estimate_s=column("expected_s"),
        low_s=column("stated_low_s"),
        high_s=column("stated_high_s"),
        shown_low_s=column("low_s"),
        shown_high_s=column("high_s"),
        realised_s=column("observed_s"),
    )


def _store(group: CalibrationGroup, *, now: datetime, **values: Any) -> IntervalCalibration:
    """Keep a row of the history where something moved, else bring the one in force up to date."""
    names = {name: getattr(group, name) for name in _GROUP}
    standing = IntervalCalibration.objects.select_for_update().filter(until__isnull=True, **names)
    row = IntervalCalibration(**names, **values, since=now, updated_at=now)
    before = standing.order_by("-pk").first()
    if before is not None and not _has_moved(before, row):
        row.pk, row.since = before.pk, before.since
    row.save()
    standing.exclude(pk=row.pk).update(until=now)
    return row


def _has_moved(before: IntervalCalibration, row: IntervalCalibration) -> bool:
    moves = (abs(math.log(getattr(row, side) / getattr(before, side))) for side in ("lower", "upper"))
    return (
        max(moves) > _MOVED
        or (before.scope, before.trust) != (row.scope, row.trust)
        or row.since - before.since >= _EVERY
    )
