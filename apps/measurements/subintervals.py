"""Measured subintervals of a query: sums by operator, arrivals, work over a span, and retention."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Case, Count, IntegerField, Max, Min, QuerySet, Sum, Value, When
from django.db.models.functions import TruncHour
from django.utils import timezone

from agent.wire import ARRIVAL_SUMS, COST_SUMS, EPOCH_SUMS, SUM_NAMES
from apps.measurements.models import StatisticsHour, StatisticsWindow
from apps.measurements.selectors import places_of
from apps.queries.models import Query
from engine.measurement.places import PlaceWindow, block_s, merge_places
from engine.measurement.statistics import estimate_statistic
from engine.measurement.variation import CountSums, RunSums, step_counts

__all__ = [
    "KEEP_HOURS",
    "KEEP_WINDOWS",
    "MAX_LOOKBACK",
    "MAX_WINDOWS",
    "OperatorWindows",
    "arrivals_by_subinterval",
    "arrivals_variation",
    "kept_from",
    "lookback_s",
    "operator_windows",
    "recent_windows",
    "settled_before",
    "statistics_purge",
    "statistics_roll_up",
    "work_by_operator",
]

MIN_LOOKBACK_S, MAX_LOOKBACK_S = 600.0, 3600.0
_SUBINTERVALS = 180
_BLOCKS, _MAX_BLOCKS_S = 12, 14_400.0
MAX_LOOKBACK = timedelta(seconds=_MAX_BLOCKS_S)
_LISTED = ("records_processed", "records_out", "cpu_ns", "run_records", "run_cpu_s")
_SETTLE_S = 5.0  # agents report a subinterval within a few epochs of its end


@dataclass
class OperatorWindows:
    """Subintervals of one operator, whatever plan it was part of."""

    operator: str
    width_s: float
    windows: list[PlaceWindow] = field(default_factory=list)
    places: dict[str, RunSums] = field(default_factory=dict)  # of each, in all
    measured: dict[float, bool] = field(default_factory=dict)  # by subinterval: whether some place took its CPU time


def lookback_s(width_s: float, slide_s: float | None = None) -> float:
    """Reach of a sample: 180 subintervals, between ten minutes and an hour; at least 12 blocks of an operator that
    puts out once per window, but no more than four hours.
    """
    usual_s = min(MAX_LOOKBACK_S, max(MIN_LOOKBACK_S, _SUBINTERVALS * width_s))
    if not slide_s or not width_s:
        return usual_s
    return max(usual_s, min(_MAX_BLOCKS_S, _BLOCKS * block_s(slide_s, width_s)))


def settled_before(now: datetime, width_s: float) -> datetime:
    """Subintervals that began before this are reported by all agents; later ones may still grow."""
    return now - timedelta(seconds=width_s + max(_SETTLE_S, 2 * width_s))


def recent_windows(query: Query, now: datetime, slide_s: float | None = None) -> QuerySet[StatisticsWindow]:
    """Settled subintervals of a query within the lookback."""
    newest = StatisticsWindow.objects.filter(query=query).order_by("-starts_at").values_list("width_s", flat=True)
    width_s = newest.first() or 0.0
    since = now - timedelta(seconds=lookback_s(width_s, slide_s))
    return StatisticsWindow.objects.filter(
        query=query, width_s=width_s, starts_at__gte=since, starts_at__lt=settled_before(now, width_s)
    )


def operator_windows(rows: QuerySet[StatisticsWindow]) -> dict[str, OperatorWindows]:
    """Subintervals by the operator's fingerprint."""
    windows: dict[str, OperatorWindows] = {}
    columns = ("fingerprint", "operator", "place", "starts_at", "width_s", "measured", *_LISTED)
    for fingerprint, operator, place, starts_at, width_s, measured, *values in _listed(rows, columns):
        window = PlaceWindow(place, starts_at.timestamp(), *values, measured=measured)
        windows_of_operator = windows.setdefault(fingerprint, OperatorWindows(operator, width_s))
        windows_of_operator.operator = operator  # in order of time: the newest name stays
        windows_of_operator.windows.append(window)
        windows_of_operator.measured[window.at_s] = windows_of_operator.measured.get(window.at_s, False) or (
            measured and window.records_processed > 0.0
        )
    for (fingerprint, place), sums in _totals(rows, ("fingerprint", "place"), (*COST_SUMS, *EPOCH_SUMS)).items():
        runs, epochs = ([sums[name] for name in names] for names in (COST_SUMS, EPOCH_SUMS))
        windows[fingerprint].places[place] = RunSums.of_values(runs, epochs)
    return windows


def arrivals_by_subinterval(rows: Iterable[tuple[str, str, datetime, float]]) -> dict[float, float]:
    """Events of a source by subinterval, from (query, agent, subinterval, records in) of first operators.

    Several queries that read the source at one agent count the same records: the most that any of them saw is taken.
    """
    seen: dict[tuple[float, str], float] = {}
    for _, place, starts_at, records in rows:
        key = (starts_at.timestamp(), place)
        seen[key] = max(seen.get(key, 0.0), records)
    totals: dict[float, float] = defaultdict(float)
    for (at_s, _), records in seen.items():
        totals[at_s] += records
    return dict(totals)


def arrivals_variation(rows: QuerySet[StatisticsWindow]) -> dict[str, list[CountSums]]:
    """Sums over steps of a source by place, from rows of first operators.

    Several queries that read the source at one place have the same sums: those with the most pairs are taken.
    """
    places: dict[str, list[CountSums]] = {}
    for (_, place), sums in _totals(rows, ("query_id", "place"), ARRIVAL_SUMS).items():
        counts = step_counts([sums[name] for name in ARRIVAL_SUMS])
        if place not in places or counts[0].pairs > places[place][0].pairs:
            places[place] = counts
    return places


def _totals(
    rows: QuerySet[StatisticsWindow], keys: tuple[str, ...], names: tuple[str, ...]
) -> dict[tuple[Any, ...], dict[str, float]]:
    """Some sums by some keys, in all."""
    totals = rows.order_by().values(*keys).annotate(**{f"{name}_": Sum(name) for name in names})
    return {tuple(row[key] for key in keys): {name: row[f"{name}_"] for name in names} for row in totals}


def _listed(rows: QuerySet[StatisticsWindow], columns: tuple[str, ...]) -> Iterable[tuple]:
    return rows.order_by("starts_at").values_list(*columns).iterator(chunk_size=5000)


def work_by_operator(query: Query, since: datetime, until: datetime) -> dict[str, float]:
    """Cycles per second by operator, over the subintervals that began in a span and have a place with a capacity."""
    rows = StatisticsWindow.objects.filter(query=query, starts_at__gte=since, starts_at__lt=until)
    columns = ("operator", "place", "starts_at", "width_s", "records_processed", "cpu_ns", "measured")
    windows: dict[str, list[PlaceWindow]] = {}
    width_s = 0.0
    for operator, place, starts_at, width, processed, cpu_ns, measured in rows.values_list(*columns):
        window = PlaceWindow(place, starts_at.timestamp(), processed, cpu_ns=cpu_ns, measured=measured)
        windows.setdefault(operator, []).append(window)
        width_s = max(width_s, width)
    if not windows:
        return {}
    capacity = places_of(query.cluster).capacity_cps
    work = {}
    for operator, listed in windows.items():
        if samples := merge_places(listed, capacity):
            whole = estimate_statistic(samples, reference_s=0.0)
            cycles = whole.cycles_per_event.value * whole.events
            work[operator] = cycles / (width_s * len({window.at_s for window in listed}))
    return work


KEEP_WINDOWS = timedelta(days=1)
MAX_WINDOWS = 8640  # subintervals; a day of 10 s ones, 2.4 hours of 1 s ones
KEEP_HOURS = timedelta(days=90)
_AT_ONCE = 24  # hours summed up in one run; what is left waits for the next
_GROUP = ("cluster_id", "query_id", "plan", "operator", "fingerprint", "place")


def kept_from(width: timedelta, now: datetime | None = None) -> datetime:
    """The beginning of the oldest whole hour whose subintervals of this width are kept one by one."""
    since = (now or timezone.now()) - min(KEEP_WINDOWS, MAX_WINDOWS * width)
    return since.replace(minute=0, second=0, microsecond=0)


def statistics_roll_up(now: datetime | None = None) -> int:
    """Add up subintervals that are too old by the hour; returns how many rows became part of a sum."""
    present = now or timezone.now()
    rolled = 0
    widths = StatisticsWindow.objects.order_by().values_list("width_s", flat=True).distinct()
    for width_s in widths:
        until = kept_from(timedelta(seconds=width_s), present)
        rolled += _roll_up(width_s, until)
    return rolled


def statistics_purge(now: datetime | None = None) -> int:
    """Roll up, and forget hours older than `KEEP_HOURS`; returns how many rows are gone."""
    rolled = statistics_roll_up(now)
    before = (now or timezone.now()) - KEEP_HOURS
    return rolled + StatisticsHour.objects.filter(starts_at__lt=before).delete()[0]


@transaction.atomic
def _roll_up(width_s: float, until: datetime) -> int:
    old = StatisticsWindow.objects.filter(width_s=width_s, starts_at__lt=until)
    first = old.aggregate(first=Min("starts_at"))["first"]
    if first is None:
        return 0
    until = min(until, first.replace(minute=0, second=0, microsecond=0) + timedelta(hours=_AT_ONCE))
    old = old.filter(starts_at__lt=until)
    sums = {f"{name}_": Sum(name) for name in SUM_NAMES}
    counted = Case(When(measured=True, then=Value(1)), default=Value(0), output_field=IntegerField())
    groups = (
        old.order_by()
        .annotate(hour=TruncHour("starts_at", tzinfo=until.tzinfo))
        .values(*_GROUP, "hour")
        .annotate(**sums, count_=Count("pk"), measured_=Sum(counted), width_=Max("width_s"))
    )
    rows = [
        StatisticsHour(
            **{name: group[name] for name in _GROUP},
            starts_at=group["hour"],
            width_s=group["width_"],
            windows=group["count_"],
            measured_windows=group["measured_"],
            **{name: group[f"{name}_"] for name in SUM_NAMES},
        )
        for group in groups.iterator()
    ]
    # An hour that was summed up before has no subintervals left: `receiving` refuses what comes for it later.
    StatisticsHour.objects.bulk_create(rows, batch_size=500, ignore_conflicts=True)
    return old.delete()[0]
