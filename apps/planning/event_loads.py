"""Loads of an event's hours: the ordinary ones by forecast or record, those of the last time, and those that came."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property

import numpy as np

from apps.fleet.models import Cluster
from apps.planning.backtest_records import SegmentGrid, recorded_reaches, source_records
from apps.planning.choices import FactorOf
from apps.planning.event_factors import EventFactor, LoadOwners
from apps.planning.event_times import Occurrence, last_time
from apps.planning.forecast_findings import forecast_latest, forecast_series
from apps.planning.models import Forecast, PlannedEvent
from apps.queries.arrivals.times import zone_of
from apps.queries.models import ArrivalSeries
from engine.arrays import FloatArray
from engine.document.deployment import Deployment
from engine.events.answer import FORECAST, TYPICAL_WEEK
from engine.events.question import EventLoads, note_last_time, note_unread, note_without_queries
from engine.records import Fact

__all__ = ["CameFactor", "OrdinaryLoad", "came_factors", "event_loads"]

BUCKET_S = 3600.0
_WEEKS = 4  # of which the median is the ordinary load
_MAX_BACK = 520  # weeks
_MIN_KNOWN = 0.5  # share of an occurrence's hours that must be on record for it to say anything
_RANGE = (0.01, 1000.0)  # factors that a record may have


def _hours(occurrence: Occurrence) -> int:
    return max(1, math.ceil(occurrence.length.total_seconds() / BUCKET_S))


class OrdinaryLoad:
    """Ordinary events per second of each source in the hours of an occurrence, by records from before it."""

    def __init__(self, cluster: Cluster, occurrence: Occurrence, time_zone: str) -> None:
        self.cluster, self.occurrence, self.zone = cluster, occurrence, zone_of(time_zone)
        self.hours = _hours(occurrence)

    def rates(self, starts_at: datetime) -> dict[str, FloatArray]:
        """Recorded events per second in as many hours from a moment on; NaN where nothing is known."""
        grid = SegmentGrid(starts_at.timestamp(), BUCKET_S, self.hours, False)
        return {name: record.rates_eps for name, record in source_records(self.cluster, grid).items()}

    def back(self, weeks: int) -> datetime:
        """The beginning, so many weeks before on the wall clock."""
        local = self.occurrence.starts_at.astimezone(self.zone).replace(tzinfo=None) - timedelta(weeks=weeks)
        return local.replace(tzinfo=self.zone).astimezone(UTC)

    @cached_property
    def typical(self) -> dict[str, FloatArray]:
        """The median of the same hours of the newest weeks on record before it; without a source, nothing is known."""
        reaches = recorded_reaches(self.cluster)
        if not reaches:
            return {}
        last, length = max(reach.last for reach in reaches), self.occurrence.length
        nearest = max(1, math.ceil(length / timedelta(weeks=1)))
        while nearest < _MAX_BACK and self.back(nearest) + length > last:
            nearest += 1
        weeks = [self.rates(self.back(nearest + k)) for k in range(_WEEKS)]
        found = {}
        for name in weeks[0]:
            table = np.stack([week.get(name, np.full(self.hours, np.nan)) for week in weeks])
            known = np.isfinite(table)
            if known.any() and (mean := float(table[known].mean())) > 0.0:
                found[name] = _median_or(table, mean)
        return found


def _median_or(table: FloatArray, mean: float) -> FloatArray:
    """The median of each column, and the mean of all where nothing is known of one."""
    known = np.isfinite(table).any(axis=0)
    medians = np.full(table.shape[1], mean)
    medians[known] = np.nanmedian(table[:, known], axis=0)
    return medians


def _factor(came: FloatArray, ordinary: FloatArray) -> FloatArray | None:
    """Recorded over ordinary rate by hour, the mean where an hour is not known; None where too little is."""
    known = np.isfinite(came) & (ordinary > 0.0)
    if known.mean() < _MIN_KNOWN:
        return None
    mean = float(came[known].sum() / ordinary[known].sum())
    factors = np.full(len(came), mean)
    factors[known] = came[known] / ordinary[known]
    return np.clip(factors, *_RANGE)


@dataclass(frozen=True, eq=False)
class CameFactor:
    """Factor at which a source came, by what was recorded: its mean, its busiest hour, and the share of hours known."""

    source: str
    mean: float
    peak: float
    known_share: float


def came_factors(cluster: Cluster, occurrence: Occurrence, time_zone: str) -> dict[str, CameFactor]:
    """By source, what came in an occurrence over the ordinary load of the weeks before; sources of which too little is
    recorded are left out.
    """
    load = OrdinaryLoad(cluster, occurrence, time_zone)
    came = load.rates(occurrence.starts_at)
    found = {}
    for name, ordinary in load.typical.items():
        factors = _factor(came.get(name, np.full(load.hours, np.nan)), ordinary)
        if factors is not None:
            known = np.isfinite(came[name])
            mean = float(came[name][known].sum() / ordinary[known].sum())
            found[name] = CameFactor(name, mean, float(factors[known].max()), float(known.mean()))
    return found


def event_loads(
    event: PlannedEvent, factors: Sequence[EventFactor], occurrence: Occurrence, deployment: Deployment
) -> tuple[EventLoads, list[Fact]]:
    """Loads of an occurrence as multiples of the arrivals of what runs, and what they rest on besides."""
    cluster = event.cluster
    load = OrdinaryLoad(cluster, occurrence, event.time_zone)
    means = {row.source_id: row.mean_eps for row in ArrivalSeries.objects.filter(cluster=cluster).defer("data", "spec")}
    ordinary, high, rests_on = _ordinary(load, means)
    notes: list[Fact] = []
    traces: dict[str, FloatArray] = {}
    if event.follows_trace:
        traces, note = _traces(event, occurrence, {factor.name for factor in factors if factor.of == FactorOf.SOURCE})
        notes.append(note)
    read = {source.id.partition("@")[0] for source in deployment.sources}
    given = {factor.name: factor.by for factor in factors if factor.of == FactorOf.SOURCE}
    if idle := tuple(name for name in given if name not in read):
        notes.append(note_unread(idle))
    queries, idle = _own_factors(cluster, factors, deployment)
    if idle:
        notes.append(note_without_queries(idle))
    loads = EventLoads(
        occurrence.starts_at.timestamp(),
        BUCKET_S,
        load.hours,
        ordinary,
        high,
        rests_on,
        traces,
        {name: by for name, by in given.items() if name in read},
        queries,
        next((factor.by for factor in factors if factor.of == FactorOf.REST), 1.0),
    )
    return loads, notes


def _ordinary(
    load: OrdinaryLoad, means: Mapping[str, float]
) -> tuple[dict[str, FloatArray], dict[str, FloatArray], dict[str, str]]:
    """Ordinary load over arrivals by source: as expected, at the upper end of its band, and what it rests on."""
    ordinary, high, rests_on = {}, {}, {}
    for name, rates in load.typical.items():
        if means.get(name, 0.0) > 0.0:
            ordinary[name], rests_on[name] = rates / means[name], TYPICAL_WEEK
    forecast = forecast_latest(load.cluster)
    if forecast is not None and _covers(forecast, load.occurrence):
        at = np.array([load.occurrence.starts_at.timestamp() + BUCKET_S * i for i in range(load.hours)])
        index = np.minimum(
            ((at - forecast.starts_at.timestamp()) // forecast.bucket_s).astype(int), forecast.horizon - 1
        )
        for name, curves in forecast_series(forecast).get("sources", {}).items():
            if means.get(name, 0.0) > 0.0:
                ordinary[name] = np.asarray(curves["mean"])[index] / means[name]
                high[name], rests_on[name] = np.asarray(curves["high"])[index] / means[name], FORECAST
    return ordinary, high, rests_on


def _covers(forecast: Forecast, occurrence: Occurrence) -> bool:
    return forecast.starts_at <= occurrence.starts_at and occurrence.ends_at <= forecast.ends_at


def _traces(event: PlannedEvent, occurrence: Occurrence, given: set[str]) -> tuple[dict[str, FloatArray], Fact]:
    """Factors by hour of the last time, of sources without one of their own."""
    before = last_time(event, occurrence)
    load = OrdinaryLoad(event.cluster, before, event.time_zone)
    came, found = load.rates(before.starts_at), {}
    for name, ordinary in load.typical.items():
        factors = _factor(came.get(name, np.full(load.hours, np.nan)), ordinary) if name not in given else None
        if factors is not None:
            found[name] = factors
    since = f"{before.starts_at.astimezone(zone_of(event.time_zone)):%d %B %Y, %H:%M}"
    return found, note_last_time(tuple(found), since)


def _own_factors(
    cluster: Cluster, factors: Sequence[EventFactor], deployment: Deployment
) -> tuple[dict[str, float], tuple[str, ...]]:
    """Factors of single queries, the larger of team and class; and the teams and classes that no query reads for."""
    owners, sources = LoadOwners(cluster), {source.id for source in deployment.sources}
    readers = {op.query for op in deployment.operators if any(entry.source in sources for entry in op.inputs)}
    own: dict[str, float] = {}
    idle = []
    for factor in factors:
        if factor.of not in (FactorOf.TEAM, FactorOf.CLASS):
            continue
        names = [name for name in owners.queries_of(factor) if name in readers]
        own |= {name: max(factor.by, own.get(name, 0.0)) for name in names}
        idle += [] if names else [f"{factor.of} {factor.name}"]
    return own, tuple(idle)
