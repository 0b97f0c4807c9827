"""Retention of measured sums: subintervals one by one, then by the hour, then not at all."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Case, Count, IntegerField, Max, Min, Sum, Value, When
from django.db.models.functions import TruncHour
from django.utils import timezone

from agent.wire import SUM_NAMES
from apps.measurements.models import StatisticsHour, StatisticsWindow

__all__ = ["KEEP_HOURS", "KEEP_WINDOWS", "MAX_WINDOWS", "kept_from", "statistics_purge", "statistics_roll_up"]

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
