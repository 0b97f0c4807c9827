"""What is known of each operator, brought up to date from its subintervals."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import transaction

from apps.measurements.models import OperatorStatistic
from apps.measurements.places import Places
from apps.measurements.windows import OperatorWindows, lookback_s, operator_windows, recent_windows
from apps.queries.models import Query
from engine.measurement.places import samples_of, shares_of
from engine.measurement.ratios import Statistic, statistic
from engine.measurement.readiness import evidence, readiness

__all__ = ["HALF_LIVES", "statistics_learn"]

HALF_LIVES = 4.0  # within the lookback: its oldest subinterval weighs 1/16
_RECENT = 12  # subintervals that shares are taken from: load factors may just have been changed


@transaction.atomic
def statistics_learn(*, query: Query, places: Places, aggregates: set[str], now: datetime) -> dict[str, Statistic]:
    """Bring the statistics of a query's operators up to date; returns those with a sample, by fingerprint.

    An operator without events keeps what was known of it.

    Parameters
    ----------
    aggregates : set of str
        Fingerprints of operators whose output at agents is partial aggregates.
    """
    found: dict[str, Statistic] = {}
    known = {row.fingerprint: row for row in OperatorStatistic.objects.filter(query=query)}
    for fingerprint, windows in operator_windows(recent_windows(query, now)).items():
        samples = samples_of(windows.windows, places.capacity_cps, stateful=fingerprint in aggregates)
        half_life_s = lookback_s(windows.width_s) / HALF_LIVES
        measured = statistic(samples, reference_s=now.timestamp(), half_life_s=half_life_s)
        if measured.events <= 0.0:
            continue
        found[fingerprint] = measured
        row = known.get(fingerprint) or OperatorStatistic(query=query, fingerprint=fingerprint)
        _assign(row, windows, measured, now)
        row.save()
    return found


def _assign(row: OperatorStatistic, windows: OperatorWindows, found: Statistic, now: datetime) -> None:
    times = sorted(windows.measured)
    seen = evidence(
        times,
        [windows.measured[at_s] for at_s in times],
        events=found.events,
        width_s=windows.width_s,
        now_s=now.timestamp(),
    )
    recent = set(times[-_RECENT:])
    judged = readiness(found, span_s=seen.span_s, width_s=windows.width_s)
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
