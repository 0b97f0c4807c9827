"""Recorded arrivals that backtests replay: how far they reach, and their rates in segments of a period."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np
from django.db.models import Max, Min, Q

from apps.fleet.models import Cluster
from apps.measurements.models import StatisticsHour, StatisticsWindow
from apps.measurements.selectors import plan_operators
from apps.measurements.subintervals import arrivals_by_subinterval
from apps.planning.load_histories import history_values
from apps.planning.models import LoadHistory
from apps.queries.models import ArrivalSeries
from apps.telemetry.models import LiveQuery
from engine.arrays import FloatArray
from engine.backtest.period import SourceRecord
from engine.measurement.places import STREAM

__all__ = [
    "Buckets",
    "RecordedReach",
    "SegmentGrid",
    "recorded_reaches",
    "segment_grid",
    "source_records",
    "spread_buckets",
]

_WIDTHS_S = (60.0, 300.0, 900.0, 3600.0, 10_800.0, 21_600.0, 86_400.0, 604_800.0)
MAX_SEGMENTS = 336  # two weeks of hours
_HOUR_S = 3600.0
_MIN_KNOWN_SHARE = 0.5  # of a segment, for its rate to count as recorded


@dataclass(frozen=True)
class RecordedReach:
    """Time span of a source's recorded arrivals, and their resolution."""

    source: str
    kind: str  # measured or history
    first: datetime
    last: datetime
    width_s: float


@dataclass(frozen=True)
class SegmentGrid:
    """Segments of a period."""

    since_s: float
    width_s: float
    segments: int
    is_coarser: bool

    @property
    def until_s(self) -> float:
        return self.since_s + self.segments * self.width_s


@dataclass(frozen=True)
class Buckets:
    """Events in buckets of one width, each known for a part of it or not at all (NaN)."""

    starts_s: FloatArray
    width_s: float
    events: FloatArray


def recorded_reaches(cluster: Cluster) -> list[RecordedReach]:
    """Recorded spans of the cluster's sources: telemetry first, then load histories."""
    reaches = []
    for source, readers in _readers(cluster).items():
        bounds = {"first": Min("starts_at"), "last": Max("starts_at"), "width": Max("width_s")}
        recent = _rows(StatisticsWindow, cluster, readers).aggregate(**bounds)
        hours = _rows(StatisticsHour, cluster, readers).aggregate(**bounds)
        if hours["first"]:
            last = hours["last"] + timedelta(hours=1)
            reaches.append(RecordedReach(source, "measured", hours["first"], last, _HOUR_S))
        if recent["first"]:
            last = recent["last"] + timedelta(seconds=recent["width"])
            reaches.append(RecordedReach(source, "measured", recent["first"], last, recent["width"]))
    histories = LoadHistory.objects.filter(cluster=cluster).defer("data")
    return reaches + [
        RecordedReach(row.source_id, "history", row.starts_at, row.ends_at, float(row.bucket_s)) for row in histories
    ]


def segment_grid(reaches: Sequence[RecordedReach], since: datetime, until: datetime) -> SegmentGrid | None:
    """Segments of the part of a period that records reach; None where they do not reach it at all.

    A segment is as wide as the finest record, and wider where there would be too many.
    """
    near = [reach for reach in reaches if reach.first < until and reach.last > since]
    if not near:
        return None
    first_s = max(since, min(reach.first for reach in near)).timestamp()
    last_s = min(until, max(reach.last for reach in near)).timestamp()
    finest_s = min(reach.width_s for reach in near)
    fine = [width_s for width_s in _WIDTHS_S if width_s >= finest_s] or [_WIDTHS_S[-1]]
    width_s = next((w for w in fine if (last_s - first_s) / w <= MAX_SEGMENTS), fine[-1])
    start_s = first_s // width_s * width_s
    segments = max(1, min(MAX_SEGMENTS, round((last_s - start_s) / width_s)))
    return SegmentGrid(start_s, width_s, segments, width_s > fine[0])


def source_records(cluster: Cluster, grid: SegmentGrid) -> dict[str, SourceRecord]:
    """By source, the rates in every segment: measured where telemetry exists, else of the load history."""
    stretches = {
        row.source_id: row.mean_eps for row in ArrivalSeries.objects.filter(cluster=cluster).defer("data", "spec")
    }
    measured = {source: _measured(cluster, readers, grid) for source, readers in _readers(cluster).items()}
    histories = {row.source_id: _history(row, grid) for row in LoadHistory.objects.filter(cluster=cluster)}
    records = {}
    nothing = np.full(grid.segments, np.nan)
    for source in sorted(measured.keys() | histories.keys()):
        rates_measured = measured.get(source, nothing)
        rates = np.where(np.isfinite(rates_measured), rates_measured, histories.get(source, nothing))
        records[source] = SourceRecord(rates, int(np.isfinite(rates_measured).sum()), stretches.get(source, 0.0))
    return records


def _readers(cluster: Cluster) -> dict[str, list[tuple[int, str]]]:
    """By source, (query, first operator) of the queries that read it live, or did."""
    readers: dict[str, list[tuple[int, str]]] = {}
    for live in LiveQuery.objects.filter(query__cluster=cluster).select_related("source"):
        operators = plan_operators(live)
        if operators:
            readers.setdefault(live.source.source_id, []).append((live.query_id, operators[0].name))
    return readers


def _rows(model: type, cluster: Cluster, readers: list[tuple[int, str]]):  # type: ignore[no-untyped-def]
    of_readers = Q()
    for query, operator in readers:
        of_readers |= Q(query=query, operator=operator)
    return model.objects.filter(of_readers, cluster=cluster).exclude(place=STREAM).order_by()


def _measured(cluster: Cluster, readers: list[tuple[int, str]], grid: SegmentGrid) -> FloatArray:
    since, until = (datetime.fromtimestamp(at_s).astimezone() for at_s in (grid.since_s - _HOUR_S, grid.until_s))
    parts = []
    recent = _rows(StatisticsWindow, cluster, readers).filter(starts_at__gte=since, starts_at__lt=until)
    for width_s in recent.values_list("width_s", flat=True).distinct():
        rows = recent.filter(width_s=width_s).values_list("query_id", "place", "starts_at", "records_in")
        parts.append(_buckets(arrivals_by_subinterval(rows.iterator()), width_s))
    hours = _rows(StatisticsHour, cluster, readers).filter(starts_at__gte=since, starts_at__lt=until)
    sums = hours.values_list("query_id", "place", "starts_at", "records_in", "windows", "width_s")
    # Of an hour with gaps only the mean rate of what was told is known.
    rated = [
        (query, place, at, events * _HOUR_S / max(1.0, min(_HOUR_S, windows * width_s)))
        for query, place, at, events, windows, width_s in sums.iterator()
    ]
    parts.append(_buckets(arrivals_by_subinterval(rated), _HOUR_S))
    return spread_buckets(parts, grid)


def _buckets(totals: dict[float, float], width_s: float) -> Buckets:
    starts = np.array(sorted(totals))
    return Buckets(starts, width_s, np.array([totals[at] for at in starts.tolist()]))


def _history(row: LoadHistory, grid: SegmentGrid) -> FloatArray:
    starts = row.starts_at.timestamp() + row.bucket_s * np.arange(row.buckets)
    return spread_buckets([Buckets(starts, float(row.bucket_s), history_values(row))], grid)


def spread_buckets(parts: Sequence[Buckets], grid: SegmentGrid) -> FloatArray:
    """Events per second in every segment; NaN where less than half of it is known."""
    edges = grid.since_s + grid.width_s * np.arange(grid.segments + 1)
    events, known_s = np.zeros(grid.segments), np.zeros(grid.segments)
    for part in parts:
        if not len(part.starts_s):
            continue
        is_known = np.isfinite(part.events)
        knots = np.stack([part.starts_s, part.starts_s + part.width_s], axis=1).ravel()
        for into, amounts in (
            (events, np.where(is_known, part.events, 0.0)),
            (known_s, np.where(is_known, part.width_s, 0.0)),
        ):
            total = np.cumsum(amounts)
            into += np.diff(np.interp(edges, knots, np.stack([total - amounts, total], axis=1).ravel()))
    enough = known_s >= _MIN_KNOWN_SHARE * grid.width_s
    return np.where(enough, events / np.where(enough, known_s, 1.0), np.nan)
