"""Producers: programs that post records as one Arrow IPC stream, numbered by the sender."""

from __future__ import annotations

import time
from dataclasses import dataclass

import pyarrow as pa
from django.db import transaction

from agent.wire import MAX_BODY_BYTES, Frame, FrameKind, WireError, batch_bytes, encode_frame, table_of
from apps.core.errors import Conflict, Fault, Forbidden, Impossible, Malformed, TooLarge, TooMany
from apps.fleet.models import Cluster
from apps.fleet.validation import check_row
from apps.telemetry.choices import AgentKind, LiveState
from apps.telemetry.ingest.frames import frames_store, schema_differs
from apps.telemetry.live.pipelines import pipeline_by_digest, records_schema
from apps.telemetry.live.services import assignment_set
from apps.telemetry.models import Agent, LiveQuery
from engine.dataflow import Pipeline

__all__ = ["ProducerPost", "batch_take", "producer_of"]


@dataclass(frozen=True)
class ProducerPost:
    """Header of a producer's batch.

    `sequence` counts 1, 2, 3 … for each producer, query and `life`; `watermark_us` promises that no later record is
    older.
    """

    producer: str
    sequence: int
    watermark_us: int
    life: str = "0"


def batch_take(*, live: LiveQuery, operator: str, post: ProducerPost, body: bytes) -> dict[str, int]:
    """Take in one batch of a producer: its records enter at an operator of a live query.

    Raises
    ------
    Conflict
        The query is not live; a batch is missing before this one (`expected_sequence`).
    Impossible
        An operator that takes no records, or other columns than it takes.
    """
    if live.state == LiveState.STOPPED:
        raise Conflict(f"Query {live.query.name!r} is not live. Start it first.", code="not_live")
    if len(body) > MAX_BODY_BYTES - 1024:
        raise TooLarge(f"The batch has {len(body):,} bytes; at most {MAX_BODY_BYTES - 1024:,} are taken at once.")
    pipeline = pipeline_by_digest(live.plan)
    entry, table = _entry(pipeline, operator), _table(body)
    expected = records_schema(pipeline, entry)
    assert expected is not None
    if difference := schema_differs(table.schema, expected):
        raise Impossible(f"The records do not fit: {difference}.", [("body", difference)], code="wrong_columns")
    sender = producer_of(live=live, name=post.producer)
    return _stored(live, sender, entry, table, post)


def _entry(pipeline: Pipeline, operator: str) -> int:
    names = [operator.id for operator in pipeline.operators]
    if pipeline.other_stream is not None and pipeline.other_stream not in names:
        names.append(pipeline.other_stream)  # its records enter behind all operators
    allowed = [name for index, name in enumerate(names) if records_schema(pipeline, index) is not None]
    if operator not in allowed:
        message = f"operator is {operator!r}; allowed: {', '.join(allowed)}"
        raise Impossible(f"Records cannot enter there: {message}.", [("operator", message)])
    return names.index(operator)


def _table(body: bytes) -> pa.Table:
    try:
        table = table_of(body)
        table.validate(full=True)
    except WireError as error:
        raise Malformed(f"The batch cannot be read: {error}.", [("body", str(error))], code="corrupt") from None
    except pa.ArrowInvalid as error:
        raise Malformed(f"The batch is corrupt: {error}.", [("body", str(error))], code="corrupt") from None
    return table


def _stored(live: LiveQuery, sender: Agent, entry: int, table: pa.Table, post: ProducerPost) -> dict[str, int]:
    """A batch is two frames: its records, and the mark after them."""
    life = f"{live.pk}-{post.life}"  # a producer numbers each query by itself
    common = {
        "agent": str(sender.pk),
        "life": life,
        "query": live.key,
        "plan": live.plan,
        "epoch": time.time_ns() // 1000,
    }
    marks = {str(index): post.watermark_us for index in range(live.source_operators + 1)}
    extra = {"watermarks": marks, "closing_epoch_us": common["epoch"], "final": False}
    seq = 2 * post.sequence
    body = batch_bytes(table)
    if len(body) > MAX_BODY_BYTES:
        raise TooLarge(f"The batch has {len(body):,} bytes unpacked; at most {MAX_BODY_BYTES:,} are taken at once.")
    frames = [
        Frame(kind=FrameKind.RECORDS, seq=seq - 1, entry=entry, body=body, **common),
        Frame(kind=FrameKind.MARK, seq=seq, extra=extra, **common),
    ]
    encoded = [(frame, memoryview(encode_frame(frame))) for frame in frames]
    floor = sender.committed.get(life, 0)
    try:
        stored = frames_store(encoded, floor)
    except Conflict as error:
        expected = error.data["expected_seq"] // 2 + 1
        message = f"sequence is {post.sequence}; expected: {expected}"
        raise Conflict(
            f"Batches are missing: {message}.",
            [Fault("sequence", message)],
            code="gap",
            data={"expected_sequence": expected},
        ) from None
    except TooMany as error:
        raise TooMany(error.message, code="full", retry_after_s=error.retry_after_s) from None
    return {"accepted_sequence": stored["accepted_seq"] // 2, "duplicates": stored["duplicates"] // 2}


@transaction.atomic
def producer_of(*, live: LiveQuery, name: str) -> Agent:
    """The producer of a name, with a part in the query: both are made when it first posts.

    Raises
    ------
    Conflict
        An agent has this name, or the producer was taken off the query.
    Forbidden
        It is disabled.
    """
    cluster: Cluster = live.query.cluster
    agent = Agent.objects.filter(cluster=cluster, name=name).first()
    if agent is None:
        agent = Agent(cluster=cluster, name=name, kind=AgentKind.PRODUCER)
        check_row(agent)
        agent.save()
    elif agent.kind != AgentKind.PRODUCER:
        raise Conflict(
            f"{name!r} is the name of an agent. Give the producer another.", [("producer", "is an agent's name")]
        )
    if not agent.enabled:
        raise Forbidden(f"The producer {name!r} is disabled.", code="agent_disabled")
    part = live.assignments.filter(agent=agent).first()
    if part is None:
        assignment_set(live=live, agent=agent)
    elif not part.enabled:
        raise Conflict(f"The producer {name!r} was taken off {live.key}.", [("producer", "is not assigned")])
    return agent
