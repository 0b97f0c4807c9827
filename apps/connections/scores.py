"""Estimates of imported queries held against the latency that is measured where they run.

Latency markers of Flink are no such measurement: they overtake what waits in buffers, so they are a lower bound, and
nothing is scored by them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from django.db import transaction
from django.utils import timezone

from apps.connections.models import Connection, ImportedJob
from apps.connections.rounds import ask, client_of
from apps.connections.transport import EngineAway, EngineClient, EngineRefused, PathMissing
from apps.core.errors import SluiceError
from apps.estimates.accuracy import accuracy_report
from apps.estimates.selectors import query_estimate_latest
from apps.queries.choices import QueryState
from engine.connectors.answers import number_of
from engine.connectors.document import SERVER_CPS
from engine.connectors.flink import metric_paths
from engine.connectors.picture import CounterPoll, EngineJob, EnginePicture

__all__ = ["STRETCH_S", "latency_score"]

STRETCH_S = 60.0  # of one score
_STALE_S = 300.0  # samples that lie so far apart are of no one stretch
_MIN_SAMPLES = 3
_MARKERS = "latency.source_id."


def latency_score(
    connection: Connection, client: EngineClient, picture: EnginePicture, jobs: Iterable[ImportedJob]
) -> int:
    """Read the measured latency of running jobs, and score each stretch that is over; returns how many were scored.

    What cannot be read or scored is left out; the next round tries again.
    """
    by_id = {job.id: job for job in picture.jobs}
    scored = 0
    for row in jobs:
        job = by_id.get(row.engine_id)
        if job is None or row.query.state != QueryState.RUNNING:
            continue
        try:
            value = _latency_s(connection, client, job)
        except (EngineAway, EngineRefused, PathMissing):
            continue
        if value is not None:
            scored += _sampled(connection, row, value)
    return scored


def _latency_s(connection: Connection, client: EngineClient, job: EngineJob) -> float | None:
    if connection.latency_query:
        return _prometheus_latency(connection, client, job)
    return _metric_latency(client, job, connection.latency_metric)


def _metric_latency(client: EngineClient, job: EngineJob, suffix: str) -> float | None:
    """The largest value over subtasks and sinks of the operator metric whose name ends so, in seconds."""
    read = {exchange.upstream for vertex in job.vertices for exchange in vertex.inputs}
    values = []
    for vertex in job.vertices:
        if vertex.id in read:
            continue
        names = ask(client, f"/jobs/{job.id}/vertices/{vertex.id}/subtasks/metrics")
        known = [item for item in names if not str(item.get("id", "")).startswith(_MARKERS)] if _is_list(names) else []
        for path in metric_paths(job.id, vertex.id, known, [suffix]).paths:
            answer = ask(client, path)
            values += [number_of(item.get("max")) for item in answer] if _is_list(answer) else []
    told = [value for value in values if value is not None and value >= 0.0]
    return max(told, default=None)


def _is_list(answer: object) -> bool:
    return isinstance(answer, list) and all(isinstance(item, dict) for item in answer)


def _prometheus_latency(connection: Connection, client: EngineClient, job: EngineJob) -> float | None:
    """The largest value of the connection's PromQL now; `$job` in it stands for the id of the job."""
    params = {"query": connection.latency_query.replace("$job", job.id)}
    if connection.prometheus_url and connection.prometheus_url != connection.url:
        with client_of(connection, connection.prometheus_url) as other:
            answer = other.get_json("/api/v1/query", params)
    else:
        answer = client.get_json("/api/v1/query", params)
    data = answer.get("data") if isinstance(answer, dict) else None
    rows = data.get("result") if isinstance(data, dict) else None
    values = [number_of(row["value"][1]) for row in rows or () if _has_value(row)]
    told = [value for value in values if value is not None and value >= 0.0]
    return max(told, default=None)


def _has_value(row: object) -> bool:
    return isinstance(row, dict) and isinstance(row.get("value"), list) and len(row["value"]) == 2


def _sampled(connection: Connection, row: ImportedJob, value: float) -> bool:
    """Keep a sample, and score the stretch if it is over."""
    now = timezone.now()
    with transaction.atomic():
        job = ImportedJob.objects.select_for_update(of=("self",)).select_related("query__cluster").get(pk=row.pk)
        samples = [sample for sample in job.latencies if now.timestamp() - sample[0] < _STALE_S]
        samples.append([now.timestamp(), value])
        is_over = samples[-1][0] - samples[0][0] >= STRETCH_S and len(samples) >= _MIN_SAMPLES
        job.latencies = [samples[-1]] if is_over else samples
        job.save(update_fields=["latencies"])
    return is_over and _scored(connection, job, samples)


def _scored(connection: Connection, job: ImportedJob, samples: Sequence[Sequence[float]]) -> bool:
    """Score a stretch: a mean by the mean of its samples, the others by the largest.

    The quantile of a stretch is not told by those of its parts; it is the largest of them at most.
    """
    estimate = query_estimate_latest(job.query)
    if estimate is None:
        return False
    begin_s, end_s = samples[0][0], samples[-1][0]
    values = [value for _, value in samples[1:]]
    observed_s = math.fsum(values) / len(values) if estimate.statistic == "mean" else max(values)
    try:
        accuracy_report(
            query=job.query,
            origin=connection.engine,
            latency_s=observed_s,
            statistic=estimate.statistic,
            ends_at=datetime.fromtimestamp(end_s, UTC),
            duration_s=end_s - begin_s,
            windows=len(values),
            version=job.version.number if job.version else None,
            work=_work_cps(job, begin_s, end_s),
        )
    except SluiceError:  # no estimate was in force when it began, or it was reported by hand
        return False
    ImportedJob.objects.filter(pk=job.pk).update(scored_at=datetime.fromtimestamp(end_s, UTC))
    return True


def _work_cps(job: ImportedJob, begin_s: float, end_s: float) -> dict[str, float]:
    """Work of operators between the first and the last poll of a stretch, in cycles/s: nanoseconds of busy time.

    Of those that tell their busy time; of none where the job began anew.
    """
    moments = [datetime.fromtimestamp(at_s, UTC) for at_s in (begin_s, end_s)]
    polls = [CounterPoll.parse(row.data) for row in job.polls.filter(received_at__range=moments).order_by("at")]
    if len(polls) < 2 or polls[0].attempt != polls[-1].attempt:
        return {}
    span_s = polls[-1].at_s - polls[0].at_s
    work: dict[str, float] = {}
    for operator, vertex in job.vertices.items():
        first, last = (poll.vertices.get(vertex) for poll in (polls[0], polls[-1]))
        if first and last and first.busy_s is not None and last.busy_s is not None and last.busy_s >= first.busy_s:
            work[operator] = (last.busy_s - first.busy_s) / span_s * SERVER_CPS
    return work
