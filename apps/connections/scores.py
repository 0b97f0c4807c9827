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

from apps.connections.choices import ConnectionEngine
from apps.connections.models import Connection, ImportedJob
from apps.connections.rounds import EngineLook, ask
from apps.connections.transport import EngineAway, EngineClient, EngineRefused
from apps.core.errors import SluiceError
from apps.estimates.accuracy import accuracy_report
from apps.estimates.selectors import query_estimate_latest
from apps.queries.choices import QueryState
from engine.connectors.answers import number_of
from engine.connectors.document import SERVER_CPS
from engine.connectors.flink_metrics import is_marker, metric_paths
from engine.connectors.picture import CounterPoll, EngineJob, Finding
from engine.connectors.spark import spark_latencies
from engine.words import seconds_words

__all__ = ["STRETCH_S", "add_batch_latencies", "ask_metric", "latency_findings", "latency_score"]

STRETCH_S = 60.0  # of one score
_STALE_S = 300.0  # samples that lie so far apart are of no one stretch
_MIN_SAMPLES = 3


def ask_metric(connection: Connection, client: EngineClient, look: EngineLook) -> None:
    """Add to a look the latency that an operator metric of each job tells now.

    What cannot be asked or read is a finding; the look holds without it.
    """
    if not connection.latency_metric:
        return
    for job in look.picture.jobs:
        try:
            value = _metric_latency(client, job, connection.latency_metric)
        except (EngineAway, EngineRefused) as error:
            message = f"The latency of {job.name} cannot be asked: {error}."
            look.add((), [Finding("warning", "latency_missing", job.name, message)])
            continue
        if value is not None:
            look.latencies[job.id] = [(timezone.now().timestamp(), value)]
        else:
            message = f"No metric of the sinks of {job.name} ends in {connection.latency_metric}; nothing is scored."
            look.add((), [Finding("missing", "latency_missing", job.name, message)])


def _metric_latency(client: EngineClient, job: EngineJob, suffix: str) -> float | None:
    """The largest value over subtasks and sinks of the operator metric whose name ends so, in seconds."""
    values = []
    for vertex in job.sinks:
        names = ask(client, f"/jobs/{job.id}/vertices/{vertex.id}/subtasks/metrics")
        known = [item for item in names if not is_marker(str(item.get("id", "")))] if _is_list(names) else []
        for path in metric_paths(job.id, vertex.id, known, [suffix]).paths:
            answer = ask(client, path)
            values += [number_of(item.get("max")) for item in answer] if _is_list(answer) else []
    told = [value for value in values if value is not None and value >= 0.0]
    return max(told, default=None)


def _is_list(answer: object) -> bool:
    return isinstance(answer, list) and all(isinstance(item, dict) for item in answer)


def add_batch_latencies(connection: Connection, look: EngineLook) -> None:
    """Add to a look of Spark the latency that rows of its micro-batches had, by the statistic of each objective."""
    if connection.engine != ConnectionEngine.SPARK:
        return
    rows = connection.jobs.values_list("name", "query__objective_statistic")
    asked = {name: statistic for name, statistic in rows if statistic}
    for job in look.picture.jobs:
        samples = spark_latencies(job, look.answers, asked.get(job.name, "worst"))
        if samples and job.id not in look.latencies:
            look.latencies[job.id] = samples


def latency_findings(look: EngineLook) -> list[Finding]:
    """The newest measured latency of each job, for who has just named what measures it."""
    names = {job.id: job.name for job in look.picture.jobs}
    return [
        Finding("found", "latency_measured", names[id_], f"The latency of {names[id_]} is {_seconds(samples)} now.")
        for id_, samples in look.latencies.items()
    ]


def _seconds(samples: Sequence[tuple[float, float]]) -> str:
    return seconds_words(samples[-1][1])[0]


def latency_score(connection: Connection, look: EngineLook, jobs: Iterable[ImportedJob]) -> int:
    """Keep the measured latencies of running jobs, and score each stretch that is over; returns how many were scored.

    What cannot be scored is left out.
    """
    return sum(
        _sampled(connection, row, look.latencies[row.engine_id])
        for row in jobs
        if row.engine_id in look.latencies and row.query.state == QueryState.RUNNING
    )


def _sampled(connection: Connection, row: ImportedJob, fresh: Sequence[tuple[float, float]]) -> bool:
    """Keep samples that are new, and score the stretch if it is over."""
    with transaction.atomic():
        job = ImportedJob.objects.select_for_update(of=("self",)).select_related("query__cluster").get(pk=row.pk)
        known_s = job.latencies[-1][0] if job.latencies else 0.0
        samples = [sample for sample in job.latencies if fresh[-1][0] - sample[0] < _STALE_S]
        samples += [list(sample) for sample in fresh if sample[0] > known_s]
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
