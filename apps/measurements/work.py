"""Measured work of a query's operators over a stretch of time."""

from __future__ import annotations

from datetime import datetime

from apps.measurements.models import StatisticsWindow
from apps.measurements.places import places_of
from apps.queries.models import Query
from engine.measurement.places import PlaceWindow, samples_of
from engine.measurement.ratios import statistic
from engine.measurement.sums import Sums

__all__ = ["work_by_operator"]


def work_by_operator(query: Query, since: datetime, until: datetime) -> dict[str, float]:
    """Cycles per second by operator, over the subintervals that began in a stretch and have a place with a capacity."""
    rows = StatisticsWindow.objects.filter(query=query, starts_at__gte=since, starts_at__lt=until)
    columns = ("operator", "place", "starts_at", "width_s", "events", "cpu_s", "measured")
    windows: dict[str, list[PlaceWindow]] = {}
    width_s = 0.0
    for operator, place, starts_at, width, events, cpu_s, measured in rows.values_list(*columns):
        sums = Sums(events=events, cpu_s=cpu_s)
        windows.setdefault(operator, []).append(PlaceWindow(place, starts_at.timestamp(), sums, measured))
        width_s = max(width_s, width)
    if not windows:
        return {}
    capacity = places_of(query.cluster).capacity_cps
    found = {}
    for operator, listed in windows.items():
        if samples := samples_of(listed, capacity):
            whole = statistic(samples, reference_s=0.0)
            cycles = whole.cycles_per_event.value * whole.events
            found[operator] = cycles / (width_s * len({one.at_s for one in listed}))
    return found
