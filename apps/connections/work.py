"""Work of connections' jobs and of the schedule: ask an engine, read its answers, store what they show."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime

from celery import current_app
from django.conf import settings
from django.db import transaction
from django.db.models import Q

from apps.connections.choices import ConnectionEngine, ConnectionOrigin, ConnectionState
from apps.connections.executions import executions_observe
from apps.connections.imports import look_samples, look_store
from apps.connections.job_import import ImportOutcome
from apps.connections.looks import RoundCost, look_of
from apps.connections.models import Connection, KeptAnswers
from apps.connections.readers import reader_of
from apps.connections.rounds import (
    Answers,
    EngineLook,
    ask,
    ask_ends,
    ask_flames,
    ask_picture,
    ask_polls,
    ask_prometheus,
    ask_threads,
    ask_waiting,
    client_of,
    look_at_upload,
    read_picture,
    read_polls,
)
from apps.connections.scores import add_batch_latencies, ask_metric, latency_findings, latency_score
from apps.connections.selectors import connections_due
from apps.connections.services import state_change
from apps.connections.topics import add_produced, with_rounds_before
from apps.connections.transport import EngineAway, EngineClient, EngineRefused
from apps.core.clock import shared_now
from apps.core.errors import Impossible, Malformed, Missing, SluiceError
from apps.jobs.runner import JobOutcome, JobReporter
from engine.connectors.document import import_picture
from engine.connectors.flink_metrics import has_markers, marker_paths
from engine.connectors.picture import Finding
from engine.errors import EngineError
from engine.words import counted

__all__ = [
    "IMPORT_POLLS",
    "POLL_TASK",
    "check_connection",
    "connection_poll",
    "connection_poll_due",
    "connections_poll",
    "import_connection",
    "refresh_connection",
]

POLL_TASK = "workers.poll_connection"
CHECK_POLLS, IMPORT_POLLS = 2, 12
PAUSE_S = 2.0  # between polls of a check or an import
LOOK_S = 4.0  # of a round, in which threads are looked at where they tell no busy time

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Asked:
    """A look with the answers behind it, and what a round of questions costs the engine."""

    look: EngineLook
    answers: Answers | None
    cost: RoundCost | None


# -- jobs


def check_connection(report: JobReporter) -> JobOutcome:
    """The work of a check: what was found, is missing, is assumed, and what asking costs. Nothing is imported."""
    connection = _connection(report)
    asked = _look(connection, report, CHECK_POLLS, connection.job_names)
    report(0.9, "Reading the answers")
    look = asked.look
    reader = reader_of(connection)
    samples = {
        job.id: reader.sample(job, look.picture, look.answers, look.polls.get(job.id, []), look.offsets.get(job.id, {}))
        for job in look.picture.jobs
    }
    pool = import_picture(look.picture, samples)
    findings = [*look.all_findings, *pool.findings]
    for query in pool.queries:
        findings += query.findings
    for sample in samples.values():
        findings += [*sample.findings, *(f for operator in sample.operators.values() for f in operator.findings)]
    if connection.runs_jobs and not look.picture.jobs:
        findings.append(Finding("missing", "jobs_missing", "", "No job runs there, so there is nothing to import."))
    findings += _cost_findings(connection, asked.cost)
    unique = list(dict.fromkeys(findings))
    shown = look_of(
        look.picture,
        {id_: sample.operators.values() for id_, sample in samples.items()},
        {id_: len(polls) for id_, polls in look.polls.items()},
        look.markers,
        look.partitions,
    )
    with transaction.atomic():
        row = _answered(connection, asked)
        row.findings, row.look = [finding.to_dict() for finding in unique], shown.to_dict()
        row.engine_version, row.checked_at = look.picture.version[:40], shared_now()
        row.save(update_fields=["findings", "look", "engine_version", "checked_at"])
    counts = {"places": len(look.picture.places), "jobs": len(look.picture.jobs), "findings": len(unique)}
    return JobOutcome(counts | (asked.cost.to_dict() if asked.cost else {}), *_addresses(connection))


def import_connection(report: JobReporter) -> JobOutcome:
    """The work of an import: jobs become running queries with measured statistics, all of them or none."""
    connection = _connection(report)
    params = report.job.params
    jobs = connection.job_names if params.get("jobs") is None else params["jobs"]
    asked = _look(connection, report, IMPORT_POLLS, jobs)
    report(0.9, "Storing nodes, queries and statistics")
    sampled = look_samples(connection, asked.look)
    with transaction.atomic():
        row = _answered(connection, asked)
        if row.job_names != jobs:
            row.job_names = list(jobs)
            row.save(update_fields=["job_names"])
        outcome = look_store(
            connection=row,
            look=asked.look,
            sampled=sampled,
            objectives=params.get("objectives") or {},
            ended={} if asked.answers is None else reader_of(row).ended(asked.answers),
            user=report.job.requested_by,
        )
        _keep(row, asked.answers, outcome)
    return JobOutcome(outcome.as_dict(), *_addresses(connection))


def refresh_connection(report: JobReporter) -> JobOutcome:
    """The work of a refresh that somebody asked for: one round, outside the schedule."""
    connection = _connection(report)
    report(0.1, "Asking the engine")
    outcome = connection_poll(connection)
    return JobOutcome(outcome.as_dict(), *_addresses(connection))


def _addresses(connection: Connection) -> tuple[str, str]:
    return f"/c/{connection.cluster.slug}/connections/{connection.pk}/", f"/api/v1/connections/{connection.pk}"


def _connection(report: JobReporter) -> Connection:
    pk = report.job.params["connection"]
    row = Connection.objects.select_related("cluster").filter(pk=pk).first()
    if row is None:
        raise Missing("The connection was deleted meanwhile.")
    return row


def _look(connection: Connection, report: JobReporter, polls: int, jobs: Sequence[str]) -> _Asked:
    """A picture and polls, two seconds apart; of an upload, what was uploaded."""
    with engine_faults(connection):
        if connection.origin == ConnectionOrigin.UPLOAD:
            report(0.3, "Reading the uploaded answers")
            return _Asked(_chosen(connection, look_at_upload(connection), jobs), None, None)
        with client_of(connection) as client:
            step = "Asking what runs there"
            report(0.02, step)
            wanted = jobs or None
            asked = ask_picture(connection, client, jobs=wanted, report=lambda share: report(0.02 + 0.2 * share, step))
            look = _chosen(connection, EngineLook(asked.picture, asked.answers), jobs)
            cost = _cost(client)
            counts = bool(reader_of(connection).poll_paths(look.picture, None))
            for i in range(polls if counts and look.picture.jobs else 0):
                if i:
                    _wait(connection, client, look)
                report(0.25 + 0.6 * i / polls, f"Counting events and busy time, {i + 1} of {polls}")
                answers, cost = _measured(client, lambda: _poll(connection, client, look))
                asked.answers.update(answers)
            _ask_beside(connection, client, look)
            return _Asked(look, asked.answers, cost)


def _wait(connection: Connection, client: EngineClient, look: EngineLook) -> None:
    """Wait between two polls, with looks at threads meanwhile."""
    end_s = time.monotonic() + PAUSE_S
    ask_threads(connection, client, look, PAUSE_S)
    time.sleep(max(0.0, end_s - time.monotonic()))


def _ask_beside(connection: Connection, client: EngineClient, look: EngineLook) -> None:
    """Add what the connection names besides the engine's own counters: a Prometheus, a metric of latency."""
    ask_prometheus(connection, client, look)
    ask_metric(connection, client, look)
    add_batch_latencies(connection, look)
    _ask_markers(client, look)
    if connection.engine == ConnectionEngine.FLINK:
        ask_flames(connection, client, look)
        ask_waiting(client, look)
        add_produced(connection, look)
    look.add((), latency_findings(look))


def _poll(connection: Connection, client: EngineClient, look: EngineLook) -> Answers:
    answers, polls, findings = ask_polls(connection, client, look.picture)
    look.add(polls, findings)
    return answers


def _measured(client: EngineClient, ask: Callable[[], Answers]) -> tuple[Answers, RoundCost]:
    """Answers, and what they cost."""
    before = _cost(client)
    return ask(), _cost(client).since(before)


def _cost(client: EngineClient) -> RoundCost:
    """Requests, bytes and seconds of a client so far."""
    return RoundCost(client.requests, client.bytes, round(client.seconds, 3))


def _chosen(connection: Connection, look: EngineLook, jobs: Sequence[str]) -> EngineLook:
    """The look without jobs that are not wanted; a wanted one that is not there is a finding."""
    if not jobs or not connection.runs_jobs:
        return look
    kept = tuple(job for job in look.picture.jobs if job.id in jobs or job.name in jobs)
    known = {word for job in kept for word in (job.id, job.name)}
    missing = [
        Finding("missing", "job_missing", name, f"No job {name!r} runs there.") for name in jobs if name not in known
    ]
    picture = replace(look.picture, jobs=kept, findings=(*look.picture.findings, *missing))
    polls = {job.id: look.polls[job.id] for job in kept if job.id in look.polls}
    return replace(look, picture=picture, polls=polls)


def _cost_findings(connection: Connection, cost: RoundCost | None) -> Iterator[Finding]:
    if cost is None:
        return
    words = f"{counted(cost.requests, 'request')} and {cost.bytes / 1000:,.1f} kB in {cost.seconds:.2f} s"
    message = f"A round asks the engine {words}, every {connection.poll_interval_s:g} s."
    yield Finding("found", "cost_of_asking", "", message)


def _answered(connection: Connection, asked: _Asked) -> Connection:
    """The connection, locked, with what was asked of it; its state is connected unless it is paused."""
    row = Connection.objects.select_for_update(of=("self",)).select_related("cluster").filter(pk=connection.pk).first()
    if row is None:
        raise Missing(f"The connection {connection.name!r} was deleted meanwhile; nothing was stored.")
    row.answered_at = row.asked_at = shared_now()
    row.cost = asked.cost.to_dict() if asked.cost else row.cost
    row.save(update_fields=["answered_at", "asked_at", "cost"])
    return row if row.state == ConnectionState.PAUSED else state_change(row, ConnectionState.CONNECTED, "")


def _keep(connection: Connection, answers: Answers | None, outcome: ImportOutcome) -> None:
    """Keep the answers of a picture for the next round, without those of jobs that are not imported.

    Of a broker those before are kept as well.
    """
    if answers is None:
        return
    reader, ids = reader_of(connection), [job.engine_id for job in outcome.jobs]
    unknown = set(reader.ended(answers)) - set(ids)
    kept = {path: a for path, a in answers.items() if not any(reader.is_of_job(path, job) for job in unknown)}
    rounds = with_rounds_before(connection, kept)
    KeptAnswers.objects.update_or_create(connection=connection, defaults={"answers": rounds, "rounds": len(rounds)})


@contextmanager
def engine_faults(connection: Connection) -> Iterator[None]:
    """Faults of an engine's answers become the connection's state, and a refusal in the same words."""
    try:
        yield
    except EngineAway as error:
        _failed(connection, ConnectionState.AWAY, str(error))
        raise Impossible(f"The engine is away: {_ended(error)}", [("url", str(error))], code="engine_away") from None
    except EngineRefused as error:
        _failed(connection, ConnectionState.REFUSED, str(error))
        raise Impossible(
            f"The engine cannot be asked: {_ended(error)}", [("url", str(error))], code="engine_refused"
        ) from None
    except Malformed as error:
        _failed(connection, ConnectionState.REFUSED, error.message)
        raise


def _ended(error: Exception) -> str:
    """The words of a fault with an end of a sentence."""
    words = str(error)
    return words if words.endswith((".", "?", "!")) else f"{words}."


def _failed(connection: Connection, state: ConnectionState, words: str) -> None:
    with transaction.atomic():
        row = Connection.objects.select_for_update(of=("self",)).select_related("cluster")
        current = row.filter(pk=connection.pk).first()
        if current is not None and current.state != ConnectionState.PAUSED:
            current.asked_at = shared_now()
            current.save(update_fields=["asked_at"])
            state_change(current, state, words)


# -- the schedule


def connections_poll(now: datetime | None = None) -> int:
    """Send a task for each connection whose round is due; returns how many. Each is claimed once.

    A round that comes late is a gap in what was counted, so that it does not wait behind what takes long; one that
    may wait for an answer in vain does.
    """
    present, sent = now or shared_now(), 0
    for connection in connections_due(present):
        before = connection.asked_at
        unchanged = Q(asked_at=before) if before is not None else Q(asked_at__isnull=True)
        if Connection.objects.filter(unchanged, pk=connection.pk).update(asked_at=present):
            answers = connection.state == ConnectionState.CONNECTED
            queue = settings.INTERACTIVE_QUEUE if answers else settings.BACKGROUND_QUEUE
            sending = {"expires": 2.0 * connection.poll_interval_s, "priority": settings.SCHEDULED_PRIORITY}
            current_app.send_task(POLL_TASK, args=[connection.pk], queue=queue, retry=False, **sending)
            sent += 1
    return sent


def connection_poll_due(pk: int) -> bool:
    """Ask one connection, as the schedule does; what is wrong is its state and no failure of the task."""
    connection = Connection.objects.select_related("cluster").filter(pk=pk).first()
    if connection is None or connection.state == ConnectionState.PAUSED:
        return False
    try:
        connection_poll(connection)
    except (SluiceError, EngineError) as error:
        _log.warning("the connection %s could not be refreshed: %s", connection, error)
        return False
    return True


def connection_poll(connection: Connection) -> ImportOutcome:
    """One round: ask for what changes, recognise what was deployed, restarted or lost, and store it.

    Raises
    ------
    Impossible, Malformed
        The engine is away or answers with something else, which its state says from now on.
    """
    with engine_faults(connection), client_of(connection) as client:
        asked = _round(connection, client)
        ended = ask_ends(connection, client, reader_of(connection).ended(asked.answers or {}))
        sampled = look_samples(connection, asked.look)
        with transaction.atomic():
            row = _answered(connection, asked)
            outcome = look_store(connection=row, look=asked.look, sampled=sampled, ended=ended)
            _keep(row, asked.answers, outcome)
        latency_score(connection, asked.look, outcome.jobs)
        executions_observe(asked.look.picture, outcome.jobs, sampled.samples)
    return outcome


def _round(connection: Connection, client: EngineClient) -> _Asked:
    """Counters of the jobs that are known, then whatever the picture lacks: new jobs, runs and places."""
    kept = KeptAnswers.objects.filter(connection=connection).first()
    known: Answers = dict(kept.answers[0]) if kept is not None and kept.answers else {}
    reader = reader_of(connection)
    before = read_picture(connection, known) if known else None
    cost_before = _cost(client)
    # An empty list is one of metrics that the engine had not gathered yet.
    fresh = {path: answer for path, answer in known.items() if not reader.volatile(path) and answer != []}
    polled: Answers = {}
    if before is not None:
        polled = ask_polls(connection, client, before)[0]
        attempts = dict(connection.jobs.values_list("engine_id", "attempt"))
        told = {poll.job: poll.attempt for poll in read_polls(connection, polled, before, time.time())[0]}
        anew = {job.id for job in before.jobs if told.get(job.id) != attempts.get(job.id)}  # or not at all
        for id_ in anew | set(before.left_out):
            fresh = {path: answer for path, answer in fresh.items() if not reader.is_of_job(path, id_)}
        fresh |= polled
    asked = ask_picture(connection, client, known=fresh, jobs=connection.job_names or None)
    look = _chosen(connection, EngineLook(asked.picture, asked.answers), connection.job_names)
    look.add(*read_polls(connection, asked.answers, look.picture, asked.picture.at_s))
    ask_threads(connection, client, look, LOOK_S)
    _ask_beside(connection, client, look)
    return _Asked(look, asked.answers, _cost(client).since(cost_before))


def _ask_markers(client: EngineClient, look: EngineLook) -> None:
    """Add to a look the latency of each job's markers, where the engine has them; what cannot be asked is left out."""
    for job in look.picture.jobs:
        if not has_markers(job.settings):
            continue
        answers: Answers = {}
        try:
            for vertex in job.sinks:
                names = ask(client, f"/jobs/{job.id}/vertices/{vertex.id}/subtasks/metrics")
                answers |= {path: ask(client, path) for path in marker_paths(job.id, vertex.id, names)}
        except (EngineAway, EngineRefused):
            continue
        look.add_markers(job.id, answers)
