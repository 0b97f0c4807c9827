"""Questions to the Prometheus of a connection: counters from before, arrivals by the broker, measured latency."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from django.db.models import Max

from apps.connections.choices import ConnectionEngine
from apps.connections.models import Connection
from apps.connections.rounds import EngineLook, ask, client_of
from apps.connections.transport import EngineAway, EngineClient, EngineRefused
from engine.connectors.flink_series import continue_attempt, flink_series_paths, read_flink_series
from engine.connectors.picture import EngineJob, Finding, Vertex
from engine.connectors.prometheus import RangeWindow, read_counts, read_latency
from engine.errors import DocumentError
from engine.words import counted

__all__ = ["ask_prometheus"]

_HISTORY_S, _HISTORY_STEP_S = 3600.0, 10.0  # of Flink's counters; with what follows within `MAX_POLLS`
_MIN_HISTORY_S = 60.0  # a shorter gap between polls is no loss
_OFFSETS_S = 900.0  # of the broker's counts that are asked for
_LATENCY_S, _LATENCY_STEP_S = 60.0, 5.0


def ask_prometheus(connection: Connection, client: EngineClient, look: EngineLook) -> None:
    """Add to a look whatever the connection's Prometheus tells: polls from before, arrivals, latencies.

    What cannot be asked or read is a finding; the look holds without it.
    """
    if not (connection.prometheus_url or connection.lag_query or connection.latency_query):
        return
    try:
        with _client(connection, client) as prometheus:
            for job in look.picture.jobs:
                _ask(connection, prometheus, look, job)
    except (EngineAway, EngineRefused) as error:
        message = f"The connection's Prometheus cannot be asked: {error}."
        look.add((), [Finding("warning", "prometheus_away", "", message)])


@contextmanager
def _client(connection: Connection, client: EngineClient) -> Iterator[EngineClient]:
    """Client of the Prometheus, which is the engine itself where no other is named."""
    if connection.prometheus_url in {"", connection.url}:
        yield client
    else:
        with client_of(connection, connection.prometheus_url) as prometheus:
            yield prometheus


def _ask(connection: Connection, prometheus: EngineClient, look: EngineLook, job: EngineJob) -> None:
    if connection.engine == ConnectionEngine.FLINK and connection.prometheus_url:
        _ask_history(connection, prometheus, look, job)
    if connection.lag_query:
        for vertex in job.vertices:
            if vertex.is_source:
                _ask_offsets(connection, prometheus, look, job, vertex)
    if connection.latency_query:
        _ask_latency(connection, prometheus, look, job)


def _ask_history(connection: Connection, prometheus: EngineClient, look: EngineLook, job: EngineJob) -> None:
    """Counters of the time before the look that no poll tells of, as polls in front of its own."""
    polls = look.polls.get(job.id, [])
    end_s = polls[0].at_s if polls else look.picture.at_s
    newest = connection.jobs.filter(engine_id=job.id).aggregate(newest=Max("polls__at"))["newest"]
    begin_s = max(end_s - _HISTORY_S, job.started_at_s, newest.timestamp() if newest else 0.0)
    if end_s - begin_s < _MIN_HISTORY_S:
        return
    window = RangeWindow.of(begin_s, end_s, _HISTORY_STEP_S)
    answers = {path: ask(prometheus, path) for path in flink_series_paths(window, job).paths}
    try:
        series = read_flink_series(answers, window, job, look.picture.places)
    except DocumentError as error:
        message = f"The counters of {job.name} cannot be read from Prometheus: {_words(error)}."
        look.add((), [Finding("warning", "history_missing", job.name, message)])
        return
    before = series.polls if not polls else continue_attempt(series.polls, polls[0])
    if before:
        words = f"Prometheus tells {counted(len(before), 'poll')} of {job.name} from before this one."
        look.add((), [Finding("found", "history_read", job.name, words), *series.findings])
        look.polls[job.id] = [*before, *polls]
    else:
        message = f"Prometheus has no counters of {job.name}: it does not scrape Flink's reporter, or has just begun."
        look.add((), [Finding("missing", "history_missing", job.name, message)])


def _ask_offsets(
    connection: Connection, prometheus: EngineClient, look: EngineLook, job: EngineJob, vertex: Vertex
) -> None:
    """Counts of events that came to a source; `$topic` in the query stands for what it reads."""
    subject, now_s = f"{job.name}/{vertex.label}", time.time()
    window = RangeWindow.of(now_s - _OFFSETS_S, now_s, max(1.0, connection.poll_interval_s))
    query = connection.lag_query.replace("$topic", vertex.stream or vertex.label)
    path = window.path(query)
    try:
        counts, findings = read_counts({path: ask(prometheus, path)}, path, vertex.id)
    except DocumentError as error:
        message = f"What comes to {vertex.label} cannot be asked of Prometheus: {_words(error)}."
        look.add((), [Finding("warning", "offsets_missing", subject, message)])
        return
    look.add((), findings)
    if counts is None:
        message = f"Prometheus has nothing for {query}; what {vertex.label} reads counts in its place."
        look.add((), [Finding("missing", "offsets_missing", subject, message)])
    else:
        look.offsets.setdefault(job.id, {})[vertex.id] = counts


def _ask_latency(connection: Connection, prometheus: EngineClient, look: EngineLook, job: EngineJob) -> None:
    """Latencies of the last minute; `$job` in the query stands for the id of the job."""
    now_s = time.time()
    window = RangeWindow.of(now_s - _LATENCY_S, now_s, _LATENCY_STEP_S)
    query = connection.latency_query.replace("$job", job.id)
    path = window.path(query)
    try:
        samples, findings = read_latency({path: ask(prometheus, path)}, path)
    except DocumentError as error:
        message = f"The latency of {job.name} cannot be asked of Prometheus: {_words(error)}."
        look.add((), [Finding("warning", "latency_missing", job.name, message)])
        return
    look.add((), findings)
    if samples:
        look.latencies[job.id] = list(samples)
    else:
        message = f"Prometheus has nothing for {query} in the last minute; nothing is scored."
        look.add((), [Finding("missing", "latency_missing", job.name, message)])


def _words(error: DocumentError) -> str:
    return "; ".join(fault.message for fault in error.faults)
