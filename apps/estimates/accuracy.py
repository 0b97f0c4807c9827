"""Estimates held against what was measured: one observation for each interval of each live query."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone

from apps.core.errors import SluiceError
from apps.core.events import announce
from apps.estimates.models import AccuracyObservation, QueryEstimate
from apps.estimates.trust import evidence_of
from apps.measurements.stream_processor import stream_disturbances
from apps.measurements.subintervals import work_by_operator
from apps.queries.models import Query
from apps.results.models import ResultWindow
from apps.telemetry.models import LiveQuery

__all__ = ["INTERVAL", "KEEP", "accuracy_observe", "accuracy_observe_all", "accuracy_purge"]

INTERVAL = timedelta(seconds=30)
KEEP = timedelta(days=30)
_SETTLE = timedelta(seconds=10)  # results of an interval have arrived by then
_BACK = timedelta(hours=1)  # what was missed while no worker ran
_log = logging.getLogger(__name__)


def accuracy_observe_all(now: datetime | None = None) -> int:
    """Judge every interval that is over; returns how many."""
    present = now or timezone.now()
    since = present - _BACK
    observations = 0
    queries = Query.objects.filter(live__in=LiveQuery.objects.all(), estimates__run__created_at__lte=present)
    for query in queries.select_related("cluster").distinct():
        try:
            observations += accuracy_observe(query=query, since=since, now=present)
        except SluiceError as error:
            _log.warning("estimates of %s cannot be observed now: %s", query, error)
    return observations


@transaction.atomic
def accuracy_observe(*, query: Query, since: datetime, now: datetime) -> int:
    """Join the intervals of a query that are over since the last observation with the estimates in force.

    An interval without a measured window, or before the first estimate, has no observation.
    """
    last = AccuracyObservation.objects.filter(query=query).order_by("-starts_at").first()
    begin = max(since, last.ends_at) if last else since
    rows = [
        row
        for starts_at, windows in _by_interval(query, begin, now)
        if (row := _observation(query, starts_at, windows)) is not None
    ]
    # two workers at once: the one that comes second changes nothing
    AccuracyObservation.objects.bulk_create(rows, ignore_conflicts=True)
    if rows:
        announce(f"accuracy:{query.cluster.slug}")
    return len(rows)


def accuracy_purge(now: datetime | None = None) -> int:
    """Purge observations older than `KEEP`; returns how many."""
    return AccuracyObservation.objects.filter(starts_at__lt=(now or timezone.now()) - KEEP).delete()[0]


def _by_interval(query: Query, begin: datetime, now: datetime) -> Iterable[tuple[datetime, list[ResultWindow]]]:
    """Windows by the interval in which their results came, of intervals that are over."""
    first, end = _floor(begin), _floor(now - _SETTLE)
    first = first if first >= begin else first + INTERVAL
    rows = ResultWindow.objects.filter(query=query, emitted_at__gte=first, emitted_at__lt=end)
    windows: dict[datetime, list[ResultWindow]] = {}
    for row in rows.defer("body").order_by("emitted_at"):
        windows.setdefault(_floor(row.emitted_at), []).append(row)
    return windows.items()


def _floor(moment: datetime) -> datetime:
    width = INTERVAL.total_seconds()
    return datetime.fromtimestamp(moment.timestamp() // width * width, moment.tzinfo)


def _observation(query: Query, starts_at: datetime, windows: list[ResultWindow]) -> AccuracyObservation | None:
    """The observation of one interval; None where no window can be judged or no estimate was in force."""
    kept = [window for window in windows if _is_usable(window)]
    usable = [window.latency_s or 0.0 for window in kept]
    rows = QueryEstimate.objects.filter(query=query, run__created_at__lte=starts_at).select_related("run", "version")
    estimate = rows.order_by("-run__created_at", "-run_id").first()
    if not kept or estimate is None:
        return None
    observed = _statistic(usable, estimate.statistic)
    trust = estimate.result.get("trust") or {}
    disturbed = _disturbed(kept)
    low_s, high_s = estimate.low_s, estimate.high_s
    return AccuracyObservation(
        cluster=query.cluster,
        query=query,
        estimate=estimate,
        version=estimate.version.number,
        estimated_at=estimate.run.created_at,
        starts_at=starts_at,
        ends_at=starts_at + INTERVAL,
        statistic=estimate.statistic,
        evidence=evidence_of(estimate.result),
        expected_s=estimate.estimate_s,
        low_s=estimate.low_s,
        high_s=estimate.high_s,
        half_s=trust.get("half_s") if trust else (None if low_s is None or high_s is None else (high_s - low_s) / 2),
        factor=trust.get("factor", 1.0),
        observed_s=observed,
        windows=len(usable),
        left_out=len(windows) - len(usable),
        disturbed=disturbed,
        covered=None if low_s is None or high_s is None or disturbed else low_s <= observed <= high_s,
        parts=_parts(estimate),
        kinds=_kinds(query, estimate, starts_at),
    )


def _is_usable(window: ResultWindow) -> bool:
    """Whether a window was complete in its first revision. A negative latency comes from clock skew."""
    return window.complete and window.revision == 0 and window.latency_s is not None and window.latency_s >= 0.0


def _disturbed(windows: list[ResultWindow]) -> str:
    """Activity of the stream processor while the records of some windows were under way; empty: nothing but its
    work.
    """
    spans = [(window.emitted_at - timedelta(seconds=window.latency_s or 0.0), window.emitted_at) for window in windows]
    stretches = stream_disturbances(min(since for since, _ in spans), max(until for _, until in spans))
    for row in stretches:
        if any(row.begins_at < until and row.ends_at > since for since, until in spans):
            return str(row.work)
    return ""


def _parts(estimate: QueryEstimate) -> dict[str, float] | None:
    live = estimate.result.get("live")
    return live and {name: value for name, value in live.items() if name.endswith("_s")}


def _statistic(values: list[float], statistic: str) -> float:
    """The objective's statistic of the windows of an interval; quantiles by nearest rank."""
    if statistic == "mean":
        return math.fsum(values) / len(values)
    level = float(statistic[1:]) if statistic.startswith("q") else 1.0
    return sorted(values)[max(1, math.ceil(level * len(values) - 1e-9)) - 1]


def _kinds(query: Query, estimate: QueryEstimate, starts_at: datetime) -> dict[str, Any]:
    """Work by operator kind, in cycles per second: as estimated, and as measured in the interval."""
    expected = estimate.result.get("operators", {})
    measured = work_by_operator(query, starts_at, starts_at + INTERVAL)
    kinds = dict(estimate.version.operators.values_list("name", "kind"))
    totals: dict[str, list[float]] = {}
    for name, cps in measured.items():
        if name in expected and name in kinds:
            sums = totals.setdefault(kinds[name], [0.0, 0.0])
            sums[0] += expected[name]["load_mean_cps"]
            sums[1] += cps
    return {kind: [round(value, 3) for value in sums] for kind, sums in totals.items()}
