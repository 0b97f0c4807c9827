"""Readers of each engine in one shape, so that asking and importing do not know which it is."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from apps.connections.choices import ConnectionEngine
from apps.connections.models import Connection
from engine.connectors.answers import Answers as KnownAnswers
from engine.connectors.answers import normal_path
from engine.connectors.flame_graphs import flame_paths, with_flames
from engine.connectors.flink import next_paths, read_flink
from engine.connectors.flink_checkpoints import is_checkpoint_path
from engine.connectors.flink_polls import poll_flink, poll_paths
from engine.connectors.kafka import (
    GroupLag,
    broker_findings,
    is_broker_answer,
    read_broker_lags,
    read_burrow_lag,
    read_cli_lag,
    read_confluent_lag,
)
from engine.connectors.mapped_operators import MappedOperator, mapped_paths, read_mapped
from engine.connectors.picture import (
    ArrivalCounts,
    CounterPoll,
    EngineJob,
    EnginePicture,
    Finding,
    JobSample,
    Place,
    Subtask,
)
from engine.connectors.prometheus import RangeWindow
from engine.connectors.spark import PROGRESS, next_spark_paths, read_spark, sample_spark
from engine.connectors.statistics import sample_job
from engine.connectors.thread_stacks import dump_paths, with_look
from engine.errors import DocumentError, Fault

__all__ = ["TEXT_PATHS", "EngineReader", "consumer_lags", "mapped_operators", "reader_of"]

Answers = Mapping[str, object]
Offsets = Mapping[str, ArrivalCounts]

#: Paths whose answers are text: lines of progress, and whatever stands at an address of Kafka's lag.
TEXT_PATHS = frozenset({PROGRESS, ""})
_RANGE_S = 900.0
_LAG = "answer about consumer lag"
_NO_LAG = "it is no lag of a consumer group; allowed: Burrow, Confluent's REST, kafka-consumer-groups.sh"
_CONFLUENT_FIELDS = frozenset({"consumer_group_id", "data", "error_code"})
_WINDOW = re.compile(r"start=([\d.]+)&end=([\d.]+)&step=([\d.]+)")


@dataclass(frozen=True)
class EngineReader:
    """Functions that read one engine's answers."""

    #: paths that a picture lacks, given the answers so far and the jobs that are wanted; empty when it is whole
    next_paths: Callable[[Answers, Collection[str] | None], Sequence[str]]
    read: Callable[[Answers, float], EnginePicture]  #: the picture from answers and the time of asking
    #: statistics of a job from the answers of its picture, the polls that are known, and what the broker counted of
    #: its sources, by vertex
    sample: Callable[[EngineJob, EnginePicture, Answers, Sequence[CounterPoll], Offsets], JobSample]
    #: paths of one poll of counters of a picture's jobs, or some of them
    poll_paths: Callable[[EnginePicture, Collection[str] | None], Sequence[str]]
    poll: Callable[[Answers, str, float], CounterPoll]  #: counters of a job from answers
    #: paths that show the threads of a job's vertices that tell no busy time by its newest poll
    thread_paths: Callable[[EngineJob, CounterPoll], Sequence[str]]
    #: the poll with one more look at those threads, from answers of one moment, and why others were not looked at
    with_look: Callable[[CounterPoll, EngineJob, Answers], tuple[CounterPoll, Sequence[Finding]]]
    #: paths of flame graphs of a job's chains whose turn it is at the time of its newest poll
    flame_paths: Callable[[EngineJob, CounterPoll], Sequence[str]]
    #: the poll with the flame graphs of answers, and why there are none
    with_flames: Callable[[CounterPoll, EngineJob, Answers], tuple[CounterPoll, Sequence[Finding]]]
    tells_of: Callable[[Answers, str], bool]  #: whether answers hold counters of a job
    ended: Callable[[Answers], Mapping[str, str]]  #: jobs that are over, and their states in the engine's word, by id
    #: whether a path is about a job, so that its answer is void once that runs anew
    is_of_job: Callable[[str, str], bool]
    #: whether the answer to a path changes while nothing is deployed, so that a refresh asks for it again
    volatile: Callable[[str], bool]


_FLINK_LISTS = frozenset({"/jobs/overview", "/taskmanagers", "/overview"})
_FLINK_ENDED = frozenset({"FINISHED", "CANCELED", "FAILED", "SUSPENDED"})


def _flink_ended(answers: Answers) -> dict[str, str]:
    """By id, the state of each job that has ended for good."""
    listing = next((answer for path, answer in answers.items() if normal_path(path) == "/jobs/overview"), None)
    rows = listing.get("jobs") if isinstance(listing, Mapping) else None
    return {
        str(row.get("jid")): str(row["state"]).lower()
        for row in (rows if isinstance(rows, list) else ())
        if isinstance(row, Mapping) and row.get("state") in _FLINK_ENDED
    }


def _is_alone(job: EngineJob, picture: EnginePicture) -> bool:
    """Whether no other job runs on the places of one, as far as all of them are read."""
    places = {subtask.place for vertex in job.vertices for subtask in vertex.subtasks}
    others = (other for other in picture.jobs if other.id != job.id)
    beside = (subtask.place for other in others for vertex in other.vertices for subtask in vertex.subtasks)
    return not picture.left_out and not any(place in places for place in beside)


def _flink(connection: Connection) -> EngineReader:
    return EngineReader(
        next_paths=lambda answers, jobs: next_paths(answers, jobs=jobs).paths,
        read=read_flink,
        sample=lambda job, picture, answers, polls, offsets: sample_job(
            job, polls, offsets=offsets, places=picture.places, is_alone=_is_alone(job, picture)
        ),
        poll_paths=lambda picture, jobs: poll_paths(picture, jobs).paths,
        poll=poll_flink,
        thread_paths=lambda job, poll: dump_paths(job, poll.untold).paths,
        with_look=with_look,
        flame_paths=lambda job, poll: flame_paths(job, poll).paths,
        with_flames=with_flames,
        tells_of=lambda answers, job: any(normal_path(path) == f"/jobs/{job}" for path in answers),
        ended=_flink_ended,
        is_of_job=lambda path, job: normal_path(path).startswith(f"/jobs/{job}"),
        volatile=lambda path: normal_path(path) in _FLINK_LISTS or is_checkpoint_path(normal_path(path)),
    )


def _spark(connection: Connection) -> EngineReader:
    """Progress holds every batch with its time, so there are no polls: a look at the newest progress is enough."""

    def missing(answers: Answers, jobs: Collection[str] | None) -> Sequence[str]:
        progress = () if PROGRESS in answers else (PROGRESS,)
        return (*progress, *next_spark_paths(answers, jobs=jobs).paths)

    def picture(answers: Answers, at_s: float) -> EnginePicture:
        found = read_spark(answers, at_s)
        if found.places or not found.jobs:
            return found
        place = Place("server", f"{connection.name}-server", cores=1.0, slots=1)  # as its finding says
        return replace(found, places=(place,), jobs=tuple(_on(job, place) for job in found.jobs))

    return _without_polls(
        next_paths=missing, read=picture, sample=lambda job, _, answers, *__: sample_spark(job, answers)
    )


def _on(job: EngineJob, place: Place) -> EngineJob:
    vertices = tuple(replace(vertex, subtasks=(Subtask(0, place.id),)) for vertex in job.vertices)
    return replace(job, vertices=vertices)


def _prometheus(connection: Connection) -> EngineReader:
    """Operators that the connection maps to PromQL, over the last quarter of an hour."""
    operators = mapped_operators(connection)

    def missing(answers: Answers, jobs: Collection[str] | None) -> Sequence[str]:
        return [path for path in mapped_paths(operators, window_of(answers)).paths if path not in answers]

    def read(answers: Answers) -> tuple[EnginePicture, Sequence[CounterPoll]]:
        if not operators:
            message = (
                "a Prometheus does not know what reads what; allowed: at least one operator with its PromQL. "
                "Of a Flink that it watches, connect the Flink, and name this as its prometheus_url"
            )
            raise DocumentError([Fault("operators", message)], "connection to a Prometheus")
        return read_mapped(connection.name, operators, answers, window_of(answers))

    def window_of(answers: Answers) -> RangeWindow:
        """That of the answers, where there are some: they are read as they were asked."""
        asked = next((found for path in answers if (found := _WINDOW.search(path))), None)
        if asked is not None:
            return RangeWindow(float(asked[1]), float(asked[2]), float(asked[3]))
        return now_window

    now_s = float(int(time.time()))
    now_window = RangeWindow.of(now_s - _RANGE_S, now_s, max(1.0, min(15.0, connection.poll_interval_s)))
    return _without_polls(
        next_paths=missing,
        read=lambda answers, at_s: read(answers)[0],
        sample=lambda job, picture, answers, *_: sample_job(job, read(answers)[1], places=picture.places),
    )


def mapped_operators(connection: Connection) -> list[MappedOperator]:
    """Operators that a connection maps to PromQL; one without a place runs in one of its own."""
    return [MappedOperator.parse({"place": connection.name, **row}) for row in connection.operators]


def _without_polls(
    *,
    next_paths: Callable[[Answers, Collection[str] | None], Sequence[str]],
    read: Callable[[Answers, float], EnginePicture],
    sample: Callable[[EngineJob, EnginePicture, Answers, Sequence[CounterPoll], Offsets], JobSample],
) -> EngineReader:
    """Reader of an engine whose answers hold their own history."""

    def no_poll(answers: Answers, job: str, at_s: float) -> CounterPoll:
        raise NotImplementedError(job)

    return EngineReader(
        next_paths=next_paths,
        read=read,
        sample=sample,
        poll_paths=lambda picture, jobs: (),
        poll=no_poll,
        thread_paths=lambda job, poll: (),
        with_look=lambda poll, job, answers: (poll, ()),
        flame_paths=lambda job, poll: (),
        with_flames=lambda poll, job, answers: (poll, ()),
        tells_of=lambda answers, job: False,
        ended=lambda answers: {},
        is_of_job=lambda path, job: False,
        volatile=lambda path: True,
    )


def _kafka(connection: Connection) -> EngineReader:
    """Lag of consumer groups. Kafka runs no jobs: what it says are findings."""

    def read(answers: Answers, at_s: float) -> EnginePicture:
        lags = consumer_lags(answers)
        findings = [finding for lag in lags for finding in _lag_findings(lag)]
        findings += [finding for answer in _broker_answers(answers) for finding in broker_findings(answer)]
        return EnginePicture("kafka", "", at_s, (), (), tuple(findings))

    return _without_polls(
        next_paths=lambda answers, jobs: () if answers else ("",),
        read=read,
        sample=lambda job, *_: JobSample(job.id, {}, {}),
    )


def consumer_lags(answers: Answers) -> list[GroupLag]:
    """Lag of every consumer group that answers tell of. Raises `DocumentError` where they tell of none."""
    lags = [lag for path, answer in answers.items() for lag in _lags(path, answer)]
    if not lags and not _broker_answers(answers):
        raise DocumentError([Fault("", _NO_LAG)], _LAG)
    return lags


def _broker_answers(answers: Answers) -> list[Any]:
    """Answers of brokers themselves, which may have no group."""
    read = [_decoded(answer) for answer in answers.values()]
    return [answer for answer in read if is_broker_answer(answer)]


def _decoded(answer: Any) -> Any:
    if isinstance(answer, str):
        with suppress(ValueError):
            return json.loads(answer)
    return answer


def _lags(path: str, answer: Any) -> Sequence[GroupLag]:
    answer = _decoded(answer)
    if isinstance(answer, str):
        return read_cli_lag(answer)
    if is_broker_answer(answer):
        return read_broker_lags(answer)
    if isinstance(answer, Mapping) and isinstance(answer.get("error"), bool):
        return [read_burrow_lag(answer)]
    if isinstance(answer, Mapping) and answer.keys() & _CONFLUENT_FIELDS:
        return [read_confluent_lag(answer)]
    refusal = KnownAnswers({path: answer}, _LAG).refusal(path)
    raise DocumentError([Fault(path, f"it answered with an error: {refusal}" if refusal else _NO_LAG)], _LAG)


def _lag_findings(lag: GroupLag) -> Sequence[Finding]:
    least = "" if all(lag.is_whole(topic) for topic in lag.topics) else "at least "
    total = "an unknown number of" if lag.events is None else f"{least}{lag.events:,.0f}"
    words = f"The group {lag.group} is {total} events behind."
    return [Finding("found", "lag", lag.group, words), *lag.findings]


_BY_ENGINE: dict[str, Callable[[Connection], EngineReader]] = {
    ConnectionEngine.FLINK: _flink,
    ConnectionEngine.SPARK: _spark,
    ConnectionEngine.PROMETHEUS: _prometheus,
    ConnectionEngine.KAFKA: _kafka,
}


def reader_of(connection: Connection) -> EngineReader:
    """Reader of a connection's engine."""
    return _BY_ENGINE[connection.engine](connection)
