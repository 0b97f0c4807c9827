"""Rounds of questions to an engine: what runs there, and counters of it, from a URL or from uploaded answers alike."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db.models import Max

from apps.connections.broker_addresses import is_broker_url
from apps.connections.choices import ConnectionEngine, ConnectionOrigin
from apps.connections.models import TOKEN_PURPOSE, Connection
from apps.connections.readers import TEXT_PATHS, reader_of
from apps.connections.transport import EngineAway, EngineClient, EngineRefused, PathMissing
from apps.connections.uploads import LINES
from apps.core.errors import Impossible, from_engine
from apps.core.secrets import SecretLost, unseal_secret
from apps.fleet.models import Cluster
from apps.queries.backlogs import backlogs_measure
from apps.queries.choices import QueryState
from apps.queries.models import OperatorInput, Query
from engine.connectors.answers import normal_path
from engine.connectors.flink_metrics import MarkerLatency, pending_paths, read_markers, read_pending
from engine.connectors.flink_polls import continue_attempt, flink_series_paths, read_flink_series
from engine.connectors.flink_state import is_stopped
from engine.connectors.kafka import GroupLag
from engine.connectors.picture import ArrivalCounts, CounterPoll, EngineJob, EnginePicture, Finding, Vertex
from engine.connectors.prometheus import RangeWindow, read_counts, read_latency
from engine.connectors.spark import PROGRESS
from engine.connectors.thread_stacks import look_pause_s
from engine.connectors.topics import read_partitions
from engine.errors import DocumentError
from engine.words import counted, listed

__all__ = [
    "Answers",
    "EngineLook",
    "PictureAsked",
    "ask",
    "ask_ends",
    "ask_flames",
    "ask_picture",
    "ask_polls",
    "ask_prometheus",
    "ask_threads",
    "ask_waiting",
    "client_of",
    "lags_store",
    "look_at_upload",
]


#: Decoded answers of an engine by the path asked; readers look at each before they take it.
Answers = dict[str, object]
_MAX_STEPS = 8  # from nothing to a whole picture; three are usual
_MAX_REQUESTS = 20_000  # of one picture
_STOPPED = "stopped with a savepoint"


@dataclass
class EngineLook:
    """A picture of an engine with the answers behind it, and polls of its counters by id of the job, oldest first.

    `offsets` are counts of the broker by job and vertex, `latencies` measured ones by job as (time, seconds), where the
    connection asks for them; `markers` the latency of markers by job, where the engine has them, `waiting`
    events before its sources by job and vertex, and `partitions` those of Kafka that they read.
    """

    picture: EnginePicture
    answers: Mapping[str, object] = field(default_factory=dict)
    polls: dict[str, list[CounterPoll]] = field(default_factory=dict)
    offsets: dict[str, dict[str, ArrivalCounts]] = field(default_factory=dict)
    latencies: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    markers: dict[str, MarkerLatency] = field(default_factory=dict)
    waiting: dict[str, dict[str, float]] = field(default_factory=dict)
    partitions: dict[str, dict[str, frozenset[tuple[str, int]]]] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def add(self, polls: Sequence[CounterPoll], findings: Sequence[Finding] = ()) -> None:
        """Take in a round of polls; a finding that is known already is not repeated."""
        for poll in polls:
            self.polls.setdefault(poll.job, []).append(poll)
        self.findings += [finding for finding in findings if finding not in self.findings]

    def add_markers(self, job: str, answers: Mapping[str, object]) -> None:
        """Take in what answers tell of a job's markers."""
        if (latency := read_markers(answers, job)) is not None:
            self.markers[job] = latency

    def add_waiting(self, job: str, answers: Mapping[str, object]) -> None:
        """Take in what answers tell of events that wait before a job's sources."""
        if events := read_pending(answers, job):
            self.waiting[job] = events

    @property
    def all_findings(self) -> list[Finding]:
        """Those of the picture and of the polls."""
        return [*self.picture.findings, *self.findings]


@dataclass(frozen=True)
class PictureAsked:
    """A picture with the answers it was read from."""

    picture: EnginePicture
    answers: Answers


def client_of(connection: Connection, url: str = "") -> EngineClient:
    """Client of a connection, or of the Prometheus beside it, with its token.

    Raises
    ------
    EngineRefused
        The token cannot be read any more.
    """
    try:
        token = unseal_secret(connection.sealed_token, TOKEN_PURPOSE)
    except SecretLost as error:
        raise EngineRefused("token_lost", f"the token cannot be read: {error}; give it again") from None
    if url and url != connection.url:
        token = ""  # of the engine, for nobody else
    address, tls = url or connection.url, {"verify_tls": connection.verify_tls, "ca_pem": connection.ca_pem}
    if is_broker_url(address):
        from apps.connections.brokers import BrokerClient  # its library takes a third of a second to import

        return BrokerClient(address, token=token, groups=connection.job_names, **tls)
    return EngineClient(address, token=token, **tls)


def ask_picture(
    connection: Connection,
    client: EngineClient,
    *,
    known: Mapping[str, object] | None = None,
    jobs: Collection[str] | None = None,
    report: Callable[[float], None] = lambda share: None,
) -> PictureAsked:
    """Ask until the reader lacks nothing, and read it.

    `known`: answers of before that need not be asked again. `jobs`: names or ids; every job that runs unless given.

    Raises
    ------
    EngineAway, EngineRefused
        The engine does not answer, or with something else.
    Malformed
        Its answers cannot be read, with every fault.
    """
    reader, answers = reader_of(connection), dict(known or {})
    asked = 0
    for _ in range(_MAX_STEPS):
        paths = reader.next_paths(answers, jobs)
        if not paths or asked > _MAX_REQUESTS:
            break
        for path in paths:
            answers[path] = ask(client, path)
            asked += 1
            report(asked / (asked + len(paths)))
    return PictureAsked(read_picture(connection, answers), answers)


def read_picture(connection: Connection, answers: Mapping[str, object]) -> EnginePicture:
    """Picture of an engine from answers. Raises `Malformed` with every fault."""
    try:
        return reader_of(connection).read(answers, time.time())
    except DocumentError as error:
        raise from_engine(error) from None


def ask(client: EngineClient, path: str) -> Any:
    """The answer to one path; of an unknown one, the words of the engine.

    A driver of Spark answers with a page of its web UI where it has no progress: that is none.
    """
    try:
        return client.get_text(path) if path in TEXT_PATHS else client.get_json(path)
    except PathMissing as missing:
        return missing.answer
    except EngineRefused as refused:
        if path == PROGRESS and refused.code == "html":
            return None
        raise


def ask_polls(
    connection: Connection, client: EngineClient, picture: EnginePicture
) -> tuple[Answers, list[CounterPoll], list[Finding]]:
    """Answers and counters of one poll; a job that is gone by now is a finding, and the others count."""
    answers = {path: ask(client, path) for path in reader_of(connection).poll_paths(picture, None)}
    return answers, *read_polls(connection, answers, picture, time.time())


def read_polls(
    connection: Connection, answers: Mapping[str, object], picture: EnginePicture, at_s: float
) -> tuple[list[CounterPoll], list[Finding]]:
    """Counters of the picture's jobs that answers tell of, and a finding for each job that the engine knows no more.

    Only what a poll asks for is read, so that two polls differ in nothing but their counters, whatever else is known.
    """
    reader = reader_of(connection)
    wanted = {normal_path(path) for path in reader.poll_paths(picture, None)}
    told = {path: answer for path, answer in answers.items() if normal_path(path) in wanted}
    polls, findings = [], []
    for job in picture.jobs:
        if not reader.tells_of(told, job.id):
            continue
        try:
            polls.append(reader.poll(told, job.id, at_s))
        except DocumentError as error:
            findings.append(Finding("missing", "poll_missing", job.name, f"Its counters cannot be read: {error}."))
    return polls, findings


def ask_threads(connection: Connection, client: EngineClient, look: EngineLook, span_s: float) -> None:
    """Look at the threads of what tells no busy time, at random moments of the next seconds, and add it to a look.

    Looks are counted with each job's newest poll. Asking takes a third of the time at most, so that a slow engine is
    looked at less often; what it refuses is a finding and is not asked again.
    """
    reader, end_s = reader_of(connection), time.monotonic() + span_s
    newest = {job.id: look.polls[job.id][-1] for job in look.picture.jobs if look.polls.get(job.id)}
    jobs = {job.id: job for job in look.picture.jobs if job.id in newest}
    paths = {path for id_, job in jobs.items() for path in reader.thread_paths(job, newest[id_])}
    pause_s = look_pause_s(0.0)
    while paths and (left_s := end_s - time.monotonic()) > 0.0:
        time.sleep(min(left_s, random.uniform(0.0, 2.0 * pause_s)))
        began_s = time.monotonic()
        if began_s >= end_s:
            break
        try:
            answers = {path: ask(client, path) for path in sorted(paths)}
        except (EngineAway, EngineRefused) as error:
            look.add((), [Finding.of("missing", "threads_untold", "", place="the engine", reason=str(error))])
            break
        for id_, job in jobs.items():
            look.polls[id_][-1], findings = reader.with_look(look.polls[id_][-1], job, answers)
            look.add((), findings)
            if any(finding.code == "threads_untold" for finding in findings):
                paths = set()
        pause_s = look_pause_s(time.monotonic() - began_s)


def ask_flames(connection: Connection, client: EngineClient, look: EngineLook) -> None:
    """Add to a look the flame graphs of a few chains of each job; what the engine refuses is asked no more."""
    reader = reader_of(connection)
    for job in look.picture.jobs:
        polls = look.polls.get(job.id)
        if not polls:
            continue
        try:
            answers = {path: ask(client, path) for path in reader.flame_paths(job, polls[-1])}
        except (EngineAway, EngineRefused):
            return
        polls[-1], findings = reader.with_flames(polls[-1], job, answers)
        look.add((), findings)


def look_at_upload(connection: Connection) -> EngineLook:
    """Picture and polls from uploaded answers: the newest answer of each path, and each round as a poll.

    Raises
    ------
    Impossible
        Nothing was uploaded.
    Malformed
        The answers cannot be read, with every fault.
    """
    kept = getattr(connection, "kept_answers", None)
    if connection.origin != ConnectionOrigin.UPLOAD or kept is None:
        message = f"nothing was uploaded to {connection.name!r} yet"
        raise Impossible(f"There are no answers to read: {message}.", [("file", message)])
    rounds: list[Answers] = kept.answers
    answers: Answers = {}
    for part in rounds:
        answers |= part
    if texts := [part[LINES] for part in rounds if LINES in part]:
        answers.pop(LINES)
        answers[PROGRESS if connection.engine == ConnectionEngine.SPARK else LINES] = "\n".join(texts)
    look = EngineLook(read_picture(connection, answers), answers)
    for job in look.picture.jobs:
        look.add_markers(job.id, answers)
        look.add_waiting(job.id, answers)
    for i, part in enumerate(rounds):
        polls, findings = read_polls(connection, part, look.picture, look.picture.at_s - len(rounds) + i)
        for poll in polls:
            looked, missing = _uploaded_look(connection, look, poll, part)
            look.add([looked], missing)
        look.add((), findings)
    return look


def _uploaded_look(
    connection: Connection, look: EngineLook, poll: CounterPoll, part: Answers
) -> tuple[CounterPoll, Sequence[Finding]]:
    """The poll with a look at threads, where the answers of its round have one."""
    reader = reader_of(connection)
    job = next(job for job in look.picture.jobs if job.id == poll.job)
    paths = reader.thread_paths(job, poll)
    given = {normal_path(path) for path in part}
    return reader.with_look(poll, job, part) if paths and given.issuperset(map(normal_path, paths)) else (poll, ())


def ask_waiting(client: EngineClient, look: EngineLook) -> None:
    """Add to a look what sources read, and what waits before them; what cannot be asked is left out."""
    for job in look.picture.jobs:
        answers: Answers = {}
        try:
            for vertex in job.vertices:
                if vertex.is_source:
                    names = ask(client, f"/jobs/{job.id}/vertices/{vertex.id}/subtasks/metrics")
                    look.partitions.setdefault(job.id, {})[vertex.id] = read_partitions(names)
                    answers |= {path: ask(client, path) for path in pending_paths(job.id, vertex.id, names)}
        except (EngineAway, EngineRefused):
            continue
        look.add_waiting(job.id, answers)


def ask_ends(connection: Connection, client: EngineClient, ended: Mapping[str, str]) -> dict[str, str]:
    """States of jobs that are over; one that somebody stopped with a savepoint has not finished by itself."""
    told = dict(ended)
    finished = [id_ for id_, state in ended.items() if state == "finished"]
    rows = connection.jobs.filter(engine_id__in=finished, query__state=QueryState.RUNNING)
    for id_ in rows.values_list("engine_id", flat=True):
        with suppress(EngineAway, EngineRefused):
            if is_stopped(ask(client, f"/jobs/{id_}/checkpoints")):
                told[id_] = _STOPPED
    return told


def lags_store(cluster: Cluster, lags: Iterable[GroupLag], read_at: datetime) -> list[Finding]:
    """Store lag of consumer groups as the backlog of the queries that read their topics; returns what was found.

    A group is a query's where it has the query's name, or where only one running query reads the topic.
    """
    readers = _readers(cluster)
    findings, events = [], dict[int, dict[str, float]]()
    for lag in lags:
        for topic in lag.topics:
            count, queries = lag.events_of(topic), readers.get(topic, {})
            named = [query for query in queries.values() if query.name == lag.group]
            chosen = named or list(queries.values())
            if count is not None and len(chosen) == 1:
                events.setdefault(chosen[0].pk, {})[topic] = count
                least = "" if lag.is_whole(topic) else "At least "
                message = f"{least}{count:,.0f} events of {topic} wait for {chosen[0].name}, by the lag of {lag.group}."
                findings.append(Finding("found", "backlog", lag.group, message))
            elif count is not None and len(chosen) > 1:
                names = listed(sorted(query.name for query in chosen))
                message = (
                    f"{names} read {topic}, and none is called {lag.group}: for whom its events wait is not known. "
                    "A query with the name of the group would be."
                )
                findings.append(Finding("missing", "backlog_unassigned", lag.group, message))
    by_key = {query.pk: query for queries in readers.values() for query in queries.values()}
    for key, counts in events.items():
        backlogs_measure(query=by_key[key], events=counts, read_at=read_at)
    return findings


def _readers(cluster: Cluster) -> Mapping[str, dict[int, Query]]:
    """Running queries by the sources that they read."""
    rows = OperatorInput.objects.filter(
        operator__version__running_as__cluster=cluster, operator__version__running_as__state=QueryState.RUNNING
    ).exclude(source_id="")
    readers: dict[str, dict[int, Query]] = {}
    for row in rows.select_related("operator__version__query"):
        query = row.operator.version.query
        readers.setdefault(row.source_id, {})[query.pk] = query
    return readers


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
        with _prometheus_client(connection, client) as prometheus:
            for job in look.picture.jobs:
                _ask_job(connection, prometheus, look, job)
    except (EngineAway, EngineRefused) as error:
        message = f"The connection's Prometheus cannot be asked: {error}."
        look.add((), [Finding("warning", "prometheus_away", "", message)])


@contextmanager
def _prometheus_client(connection: Connection, client: EngineClient) -> Iterator[EngineClient]:
    """Client of the Prometheus, which is the engine itself where no other is named."""
    if connection.prometheus_url in {"", connection.url}:
        yield client
    else:
        with client_of(connection, connection.prometheus_url) as prometheus:
            yield prometheus


def _ask_job(connection: Connection, prometheus: EngineClient, look: EngineLook, job: EngineJob) -> None:
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
