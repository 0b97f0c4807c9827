"""Rounds of questions to an engine: what runs there, and counters of it, from a URL or from uploaded answers alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from apps.connections.choices import ConnectionEngine, ConnectionOrigin
from apps.connections.models import Connection
from apps.connections.readers import TEXT_PATHS, reader_of
from apps.connections.services import TOKEN_PURPOSE
from apps.connections.transport import EngineClient, EngineRefused, PathMissing
from apps.connections.uploads import LINES
from apps.core.errors import Impossible, from_engine
from apps.core.secrets import SecretLost, unseal_secret
from engine.connectors.answers import normal_path
from engine.connectors.markers import MarkerLatency, read_markers
from engine.connectors.pending_records import read_pending
from engine.connectors.picture import ArrivalCounts, CounterPoll, EnginePicture, Finding
from engine.connectors.spark import PROGRESS
from engine.errors import DocumentError

__all__ = [
    "Answers",
    "EngineLook",
    "PictureAsked",
    "ask",
    "ask_picture",
    "ask_polls",
    "client_of",
    "look_at_upload",
]

Answers = dict[str, Any]
_MAX_STEPS = 8  # from nothing to a whole picture; three are usual
_MAX_REQUESTS = 20_000  # of one picture


@dataclass
class EngineLook:
    """A picture of an engine with the answers behind it, and polls of its counters by id of the job, oldest first.

    `offsets` are counts of the broker by job and vertex, `latencies` measured ones by job as (time, seconds), where the
    connection asks for them; `markers` the latency of markers by job, where the engine has them, `waiting`
    events before its sources by job and vertex.
    """

    picture: EnginePicture
    answers: Mapping[str, Any] = field(default_factory=dict)
    polls: dict[str, list[CounterPoll]] = field(default_factory=dict)
    offsets: dict[str, dict[str, ArrivalCounts]] = field(default_factory=dict)
    latencies: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    markers: dict[str, MarkerLatency] = field(default_factory=dict)
    waiting: dict[str, dict[str, float]] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def add(self, polls: Sequence[CounterPoll], findings: Sequence[Finding] = ()) -> None:
        """Take in a round of polls; a finding that is known already is not repeated."""
        for poll in polls:
            self.polls.setdefault(poll.job, []).append(poll)
        self.findings += [finding for finding in findings if finding not in self.findings]

    def add_markers(self, job: str, answers: Mapping[str, Any]) -> None:
        """Take in what answers tell of a job's markers."""
        if (latency := read_markers(answers, job)) is not None:
            self.markers[job] = latency

    def add_waiting(self, job: str, answers: Mapping[str, Any]) -> None:
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
    return EngineClient(url or connection.url, token=token, verify_tls=connection.verify_tls, ca_pem=connection.ca_pem)


def ask_picture(
    connection: Connection,
    client: EngineClient,
    *,
    known: Mapping[str, Any] | None = None,
    jobs: Collection[str] | None = None,
    report: Callable[[float], None] = lambda share: None,
) -> PictureAsked:
    """Ask until the reader lacks nothing, and read it.

    Parameters
    ----------
    known : mapping, optional
        Answers of before that need not be asked again.
    jobs : collection of str, optional
        Names or ids; every job that runs unless given.

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


def read_picture(connection: Connection, answers: Mapping[str, Any]) -> EnginePicture:
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
    connection: Connection, answers: Mapping[str, Any], picture: EnginePicture, at_s: float
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
        look.add(*read_polls(connection, part, look.picture, look.picture.at_s - len(rounds) + i))
    return look
