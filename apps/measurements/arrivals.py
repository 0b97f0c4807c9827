"""Arrivals of sources, as agents counted them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
from django.db.models import Q

from apps.fleet.choices import Evidence
from apps.fleet.models import Cluster
from apps.measurements.models import StatisticsWindow
from apps.measurements.subintervals import arrivals_by_subinterval, arrivals_variation, settled_before
from apps.queries.arrivals import series
from apps.queries.arrivals.grid import EventCounts, resample
from apps.queries.arrivals.services import arrivals_replace
from apps.queries.choices import ArrivalOrigin
from apps.queries.models import ArrivalSeries
from engine.arrays import FloatArray
from engine.estimation.noise.dispersion import MEASURED_FINELY
from engine.measurement.changes import MeasuredChange, arrivals_differ, arrivals_moved, dispersion_differs
from engine.measurement.places import STREAM
from engine.measurement.statistics import MIN_SUBINTERVALS
from engine.measurement.variation import ScaleDispersion, measure_arrivals

__all__ = ["ArrivalsNews", "arrivals_compared", "arrivals_news", "arrivals_store", "without_gaps"]


@dataclass(frozen=True)
class ArrivalsNews:
    """Arrivals of a source over its cluster's horizon that differ from the stored ones.

    `known_step_s` is the width that counts are known by, where they were spread from wider ones.
    """

    source_id: str
    values: FloatArray
    trace: EventCounts
    missing: int
    description: str
    news: MeasuredChange
    scatter: ScaleDispersion | None = None
    known_step_s: float | None = None


def arrivals_news(
    *, cluster: Cluster, firsts: Mapping[str, list[tuple[int, str]]], now: datetime
) -> list[ArrivalsNews]:
    """The arrivals of each source where they differ from what is stored.

    Parameters
    ----------
    firsts : mapping
        By source, the (query, first operator) that read it live.
    """
    news = (_differing(cluster, source, readers, now) for source, readers in firsts.items())
    return [source_news for source_news in news if source_news is not None]


def _differing(cluster: Cluster, source_id: str, readers: list[tuple[int, str]], now: datetime) -> ArrivalsNews | None:
    found = _trace(cluster, readers, now)
    if found is None:
        return None
    return arrivals_compared(cluster, source_id, *found, now=now)


def arrivals_compared(
    cluster: Cluster,
    source_id: str,
    trace: EventCounts,
    missing: int,
    scatter: ScaleDispersion | None,
    *,
    now: datetime,
    known_step_s: float | None = None,
) -> ArrivalsNews | None:
    """Counts of a source, repeated up to the horizon, where they differ from what is stored of it; otherwise None.

    `missing` is how many of the counts were filled in; `known_step_s` tells that they were spread from wider ones.
    """
    stored = ArrivalSeries.objects.filter(cluster=cluster, source_id=source_id).first()
    values = resample(trace, start_s=trace.start_s, slice_s=cluster.slice_s, slices=cluster.slices, fill="repeat")
    is_measured = stored is not None and stored.origin == ArrivalOrigin.TELEMETRY
    age_s = (now - stored.updated_at).total_seconds() if is_measured else None
    before = series.unpack(stored.data) if stored else None
    known = stored.dispersion if stored is not None and is_measured else None
    scatters = dispersion_differs(scatter.value if scatter else None, known)
    if not scatters and not arrivals_differ(values, before, age_s=age_s):
        return None
    moved = 0.0 if before is None else arrivals_moved(values, before)
    news = MeasuredChange(first=not is_measured or (scatters and known is None), moved=moved)
    return ArrivalsNews(
        source_id, values, trace, missing, stored.description if stored else "", news, scatter, known_step_s
    )


def arrivals_store(*, cluster: Cluster, news: ArrivalsNews) -> None:
    """Keep them."""
    trace, scatter = news.trace, news.scatter
    measured_s = min(trace.end_s - trace.start_s, cluster.horizon_s)
    arrivals_replace(
        cluster=cluster,
        source_id=news.source_id,
        values=news.values,
        origin=ArrivalOrigin.TELEMETRY,
        evidence=Evidence.MEASURED,
        spec={
            "measured_s": round(measured_s, 3),
            "extrapolated_s": round(cluster.horizon_s - measured_s, 3),
            "fill": "repeat",
            "width_s": float(trace.widths_s[0]),
            "missing": news.missing,
            **({"dispersion_pairs": round(scatter.count)} if scatter else {}),
        },
        description=news.description,
        starts_at=datetime.fromtimestamp(trace.start_s, UTC),
        step_s=max(float(trace.widths_s[0]), news.known_step_s or 0.0),
        dispersion=scatter.value if scatter else None,
        dispersion_step_s=scatter.scale if scatter else None,
    )


def _trace(
    cluster: Cluster, readers: list[tuple[int, str]], now: datetime
) -> tuple[EventCounts, int, ScaleDispersion | None] | None:
    """Counts of the newest horizon, how many of them are filled in, and how they scatter inside subintervals; None
    with fewer than three subintervals.

    A missing subinterval within the span is taken to be like the mean of the others: a gap of the
    measurement is no pause of the source.
    """
    of_readers = Q()
    for query, operator in readers:
        of_readers |= Q(query=query, operator=operator)
    since = now - timedelta(seconds=cluster.horizon_s)
    rows = StatisticsWindow.objects.filter(of_readers, cluster=cluster, starts_at__gte=since).exclude(place=STREAM)
    width_s = rows.order_by("-starts_at").values_list("width_s", flat=True).first()
    if width_s is None:
        return None
    rows = rows.filter(width_s=width_s, starts_at__lt=settled_before(now, width_s)).order_by("starts_at")
    totals = arrivals_by_subinterval(rows.values_list("query_id", "place", "starts_at", "records_in").iterator())
    if len(totals) < MIN_SUBINTERVALS:
        return None
    starts = np.array(sorted(totals))
    trace = without_gaps(starts, np.array([totals[at] for at in starts.tolist()]), width_s)
    scatter = measure_arrivals(arrivals_variation(rows), max(cluster.slice_s, width_s * MEASURED_FINELY))
    return trace, len(trace.starts_s) - len(starts), scatter


def without_gaps(starts: FloatArray, counts: FloatArray, width_s: float) -> EventCounts:
    """Counts of steps that begin at `starts`; steps between them that nobody counted get the mean of the others."""
    places = np.rint((starts - starts[0]) / width_s).astype(np.int64)
    filled = np.full(int(places[-1]) + 1, counts.mean())
    filled[places] = counts
    grid = starts[0] + width_s * np.arange(len(filled))
    return EventCounts(grid, np.full(len(filled), width_s), filled)
