"""Latencies measured of queries: of live ones from their results, of others from what their engine reported."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from apps.estimates.choices import RunOrigin
from apps.estimates.models import AccuracyObservation
from apps.measurements.models import StreamStretch
from apps.measurements.stream_processor import stream_disturbances
from apps.queries.models import Query
from apps.results.models import ResultWindow
from apps.telemetry.models import LiveQuery
from engine.measurement.objectives import MAX_PERIOD_S, LatencyResult, MeasuredLatency, measure_latency

__all__ = ["STATISTIC", "latencies_measured", "latency_results"]

STATISTIC = "worst"  #: of a query without an objective
_MAX_WINDOWS = 4000  # of a query that are looked at: an hour of windows of a second


def latencies_measured(queries: Iterable[Query], now: datetime) -> dict[int, MeasuredLatency]:
    """The latency of each query over the recent past, by the statistic of its objective.

    Of a live query from its windows in their first revision, of one that another engine runs from what that reported.
    """
    named = {query.pk: query for query in queries}
    live = set(LiveQuery.objects.filter(query__in=named).values_list("query_id", flat=True))
    stretches = stream_disturbances(now - timedelta(seconds=2.0 * MAX_PERIOD_S), now) if live else []
    reports = _reports([pk for pk in named if pk not in live], now)
    measured = {}
    for pk, query in named.items():
        statistic = query.objective_statistic or STATISTIC
        results = _windows(pk, stretches) if pk in live else reports.get((pk, statistic), [])
        measured[pk] = measure_latency(results, statistic, now.timestamp())
    return measured


def _windows(query_id: int, stretches: Sequence[StreamStretch]) -> list[LatencyResult]:
    rows = ResultWindow.objects.filter(query_id=query_id, revision=0, latency_s__gte=0.0).order_by("-window_us")
    return [
        LatencyResult(at.timestamp(), latency_s, disturbed=_is_disturbed(at, latency_s, stretches))
        for at, latency_s in rows.values_list("emitted_at", "latency_s")[:_MAX_WINDOWS]
    ]


def _is_disturbed(emitted_at: datetime, latency_s: float, stretches: Sequence[StreamStretch]) -> bool:
    begun_at = emitted_at - timedelta(seconds=latency_s)
    return any(row.begins_at < emitted_at and row.ends_at > begun_at for row in stretches)


def _reports(query_ids: list[int], now: datetime) -> dict[tuple[int, str], list[LatencyResult]]:
    """Reports of other engines by query and statistic. A quantile is reported as such: several are one by their mean,
    since the quantile of all results is not known.
    """
    rows = AccuracyObservation.objects.filter(
        query__in=query_ids, ends_at__gt=now - timedelta(seconds=MAX_PERIOD_S), ends_at__lte=now
    ).exclude(origin=RunOrigin.LIVE)
    reports: dict[tuple[int, str], list[LatencyResult]] = {}
    for query_id, statistic, ends_at, observed_s, windows in rows.values_list(
        "query_id", "statistic", "ends_at", "observed_s", "windows"
    ):
        reports.setdefault((query_id, statistic), []).append(LatencyResult(ends_at.timestamp(), observed_s, windows))
    for (_, statistic), results in reports.items():
        if statistic.startswith("q"):
            total = sum(result.results for result in results)
            mean_s = sum(result.latency_s * result.results for result in results) / total
            results[:] = [result._replace(latency_s=mean_s) for result in results]
    return reports


def latency_results(query: Query, since: datetime, now: datetime) -> list[LatencyResult]:
    """Every latency measured of a query in a stretch of time, oldest first, at most the newest 4,000."""
    if LiveQuery.objects.filter(query=query).exists():
        results = _windows(query.pk, stream_disturbances(since, now))
    else:
        rows = AccuracyObservation.objects.filter(query=query, ends_at__gte=since).exclude(origin=RunOrigin.LIVE)
        rows = rows.filter(statistic=query.objective_statistic or STATISTIC).order_by("-ends_at")
        columns = rows.values_list("ends_at", "observed_s", "windows")[:_MAX_WINDOWS]
        results = [LatencyResult(ends_at.timestamp(), observed_s, windows) for ends_at, observed_s, windows in columns]
    return sorted(result for result in results if since.timestamp() <= result.at_s <= now.timestamp())
