"""What is known of each operator, brought up to date from its subintervals."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import transaction

from apps.measurements.models import OperatorStatistic
from apps.measurements.places import Places
from apps.measurements.plans import PlanOperator
from apps.measurements.stream_looks import stream_disturbances
from apps.measurements.windows import (
    MOST_LOOKBACK,
    OperatorWindows,
    lookback_s,
    operator_windows,
    recent_windows,
)
from apps.queries.models import Query
from engine.measurement.blocks import block_s, blocks_of
from engine.measurement.places import samples_of, shares_of
from engine.measurement.ratios import Statistic, statistic
from engine.measurement.readiness import Readiness, evidence, readiness

__all__ = ["HALF_LIVES", "statistics_learn"]

HALF_LIVES = 4.0  # within the lookback: its oldest subinterval weighs 1/16
_RECENT = 12  # subintervals that shares are taken from: load factors may just have been changed


@transaction.atomic
def statistics_learn(
    *, query: Query, places: Places, operators: Sequence[PlanOperator], now: datetime
) -> dict[str, Statistic]:
    """Bring the statistics of a query's operators up to date; returns those with a sample, by fingerprint.

    An operator without events keeps what was known of it. `operators` are those of the plan that runs.
    """
    found: dict[str, Statistic] = {}
    known = {row.fingerprint: row for row in OperatorStatistic.objects.filter(query=query)}
    plan = {one.fingerprint: one for one in operators}
    slide_s = max((one.slide_s for one in operators if one.slide_s), default=None)
    stretches = _disturbed(now, slide_s)
    for fingerprint, windows in operator_windows(recent_windows(query, now, slide_s)).items():
        one = plan.get(fingerprint)
        samples = samples_of(windows.windows, places.capacity_cps, stateful=one is not None and one.merges)
        unit_s = windows.width_s
        if one is not None and one.slide_s is not None:
            unit_s = block_s(one.slide_s, windows.width_s)
            samples = blocks_of(samples, width_s=windows.width_s, block=unit_s, without=stretches)
        half_life_s = lookback_s(windows.width_s, slide_s) / HALF_LIVES
        measured = statistic(samples, reference_s=now.timestamp(), half_life_s=half_life_s)
        if measured.events <= 0.0:
            continue
        found[fingerprint] = measured
        row = known.get(fingerprint) or OperatorStatistic(query=query, fingerprint=fingerprint)
        _assign(row, windows, measured, unit_s, now)
        row.save()
    return found


def _disturbed(now: datetime, slide_s: float | None) -> list[tuple[float, float]]:
    """When the stream processor was not at work: windows that closed then were put out later."""
    if slide_s is None:
        return []
    rows = stream_disturbances(now - MOST_LOOKBACK, now)
    return [(row.begins_at.timestamp(), row.ends_at.timestamp()) for row in rows]


def _assign(row: OperatorStatistic, windows: OperatorWindows, found: Statistic, unit_s: float, now: datetime) -> None:
    times = sorted(windows.measured)
    seen = evidence(
        times,
        [windows.measured[at_s] for at_s in times],
        events=found.events,
        width_s=windows.width_s,
        now_s=now.timestamp(),
    )
    recent = set(times[-_RECENT:])
    judged = _judged(found, windows.width_s, unit_s, seen.span_s)
    fields: dict[str, Any] = {
        "operator": windows.operator,
        "selectivity": found.selectivity.value,
        "selectivity_error": found.selectivity.error,
        "cycles_per_event": found.cycles_per_event.value,
        "cycles_error": found.cycles_per_event.error,
        "events": seen.events,
        "batches": [{"events": one.events, "outputs": one.outputs, "cycles": one.cycles} for one in found.batches],
        "first_at": datetime.fromtimestamp(times[0], UTC),
        "last_at": datetime.fromtimestamp(times[-1], UTC) + timedelta(seconds=windows.width_s),
        "units": found.subintervals,
        "whole": seen.whole,
        "extrapolated": seen.extrapolated,
        "missing": seen.missing,
        "shares": shares_of([one for one in windows.windows if one.at_s in recent]),
        "ready": judged.ready,
        "reason": judged.reason,
        "more_events": judged.events,
        "more_s": judged.seconds,
        "lacking_since": None if judged.ready else row.lacking_since or now,
    }
    for name, value in fields.items():
        setattr(row, name, value)


def _judged(found: Statistic, width_s: float, unit_s: float, span_s: float) -> Readiness:
    if unit_s == width_s:
        return readiness(found, span_s=span_s, width_s=width_s)
    return readiness(found, span_s=max(1, found.subintervals) * unit_s, width_s=unit_s, unit=f"blocks of {unit_s:g} s")
