"""Executions of imported jobs, observed by their engines' counters, beside the predictions that were made of them."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from django.core.cache import cache
from django.utils import timezone

from apps.connections.models import ImportedJob
from apps.core.errors import SluiceError
from apps.predictions.choices import ExecutionOrigin
from apps.predictions.executions import OBSERVED_S, ObservedCosts, execution_report, is_observed_lately
from apps.queries.choices import QueryState
from engine.connectors.executions import CountedCosts, counted_costs
from engine.connectors.picture import ArrivalCounts, CounterPoll, EngineJob, EnginePicture, JobSample

__all__ = ["executions_observe"]

_PAUSE_S = 3600  # until a job is asked about again, whether it could be predicted or not
_MIN_SAMPLES = 3  # of a latency, for a mean
_log = logging.getLogger(__name__)


def executions_observe(
    picture: EnginePicture, jobs: Iterable[ImportedJob], samples: Mapping[str, JobSample] | None = None
) -> int:
    """Observe the newest stretch of each running job that has none of the last hour; returns how many were stored.

    What cannot be predicted where it runs is left out. No transaction may be open: predicting takes a tenth of a
    second. `samples`: statistics by id of a job, with what came to its sources.
    """
    shown = {job.id: job for job in picture.jobs}
    known = samples or {}
    return sum(
        _observed(row, shown[row.engine_id], known[row.engine_id].arrivals if row.engine_id in known else {})
        for row in jobs
        if row.engine_id in shown
    )


def _observed(row: ImportedJob, job: EngineJob, arrivals: Mapping[str, ArrivalCounts]) -> bool:
    now = timezone.now()
    if row.version is None or row.query.state != QueryState.RUNNING or is_observed_lately(row.query, now):
        return False
    kept = row.polls.filter(received_at__gte=now - timedelta(seconds=OBSERVED_S)).order_by("at")
    costs = counted_costs(job, [CounterPoll.parse(poll.data) for poll in kept], arrivals)
    if costs is None or costs.span_s < OBSERVED_S / 2.0:
        return False
    if not cache.add(f"execution-observed:{row.pk}", True, timeout=_PAUSE_S):
        return False
    latency_s = _mean_latency(row, job, now)
    try:
        execution_report(
            version=row.version,
            costs=ObservedCosts(costs.throughput_eps, None, latency_s, costs.backpressure, costs.success),
            duration_s=costs.span_s,
            origin=ExecutionOrigin.LIVE,
            rates=_source_rates(row, costs),
            now=now,
        )
    except SluiceError as error:
        _log.info("the execution of %s is not observed now: %s", row, error)
        return False
    return True


def _source_rates(row: ImportedJob, costs: CountedCosts) -> dict[str, float]:
    """Events/s that came to sources of the cluster, by their names: those that the query's own operators read."""
    assert row.version is not None
    inputs = row.version.operators.values_list("name", "inputs__source_id")
    told = [(source, costs.rates_eps.get(row.vertices.get(name, ""))) for name, source in inputs if source]
    return {source: rate for source, rate in told if rate is not None}


def _mean_latency(row: ImportedJob, job: EngineJob, now: datetime) -> float | None:
    """Mean of the newest measured latencies of a job without windows, whose metric is of the mean; None without three.

    From which moment on a metric counts the events of a window, nobody says.
    """
    if row.query.objective_statistic != "mean" or any(vertex.window for vertex in job.vertices):
        return None
    row.refresh_from_db(fields=["latencies"])
    values = [value for at_s, value in row.latencies if now.timestamp() - at_s < OBSERVED_S]
    return math.fsum(values) / len(values) if len(values) >= _MIN_SAMPLES else None
