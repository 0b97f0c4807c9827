"""Frames: of agents and producers authorised, checked and handed to Redis; of the stream processor to receivers."""

from __future__ import annotations

import hashlib
import re
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, make_dataclass
from typing import Any

import pyarrow as pa
from django.db import transaction

from agent.wire import (
    COUNTERS,
    MAX_BODY_BYTES,
    SWEEPS,
    Frame,
    FrameKind,
    WireError,
    batch_bytes,
    broker,
    decode_frames,
    encode_frame,
    mark_fault,
    table_of,
    variation_fault,
)
from apps.core.errors import Conflict, Fault, Forbidden, Impossible, Malformed, Missing, TooLarge, TooMany
from apps.fleet.models import Cluster
from apps.fleet.validation import check_row
from apps.telemetry.directory import AgentFacts, cluster_of, plans_of
from apps.telemetry.live_services import assignment_set
from apps.telemetry.models import Agent, AgentKind, LiveQuery, LiveState
from apps.telemetry.pipelines import partials_schema, pipeline_by_digest, records_schema
from apps.telemetry.streams import limits, redis_or_unavailable
from engine.dataflow import Pipeline

__all__ = ["ProducerPost", "batch_take", "frames_ingest", "frames_read", "frames_receive", "receiver"]

_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")


def plan_fault(agent: str, query: str, plan: str, path: str) -> Fault | None:
    """Fault unless the agent has, or had, an assignment of the query with this plan. New ones are looked up at once."""
    for again in (False, True):
        if plan in plans_of(agent, again=again).get(query, ()):
            return None
    plans = sorted(plans_of(agent))
    if query not in plans:
        message = f"query is {query[:140]!r}; allowed: {', '.join(plans) or 'none is assigned to this agent'}"
        return Fault(f"{path}.query", message)
    return Fault(f"{path}.plan", f"plan is {plan[:64]!r}, which {query!r} never had")


def counted_query_fault(frame: Frame, path: str) -> Fault | None:
    """Fault unless the agent is authorised for the query of each row of counters or sweeps."""
    try:
        named = table_of(frame.body).select(["query", "plan"])
        named.validate(full=True)
    except (WireError, pa.ArrowException) as error:
        return Fault(f"{path}.body", f"the body cannot be read: {str(error)[:200]}")
    for query, plan in dict.fromkeys(zip(*(column.to_pylist() for column in named.columns), strict=True)):
        if fault := plan_fault(frame.agent, query or "", plan or "", f"{path}.body"):
            return fault
    return None


def origin_fault(sender: AgentFacts, frame: Frame, path: str) -> Fault | None:
    """Whether the frame is of whom it says it is: only relays pass on what others counted.

    A relay may name any agent of its cluster, and one that is no more: what it holds of an agent that went elsewhere
    or was deleted is still to come, and refused, everything behind it would never come.
    """
    if "origin" not in frame.extra:
        return None
    origin = frame.extra["origin"]
    message = f"origin is {str(origin)[:64]!r}"
    if sender.kind != AgentKind.RELAY:
        return Fault(f"{path}.extra.origin", f"{message}; allowed: none, for {sender.name!r} is no relay")
    if not isinstance(origin, str) or not _ID.match(origin) or cluster_of(origin) not in (0, sender.cluster_id):
        return Fault(f"{path}.extra.origin", f"{message}; allowed: the id of an agent of the cluster {sender.cluster}")
    return None


CheckedFrames = Sequence[tuple[Frame, memoryview]]
_GENERATION = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
_COUNTED = {FrameKind.COUNTERS: COUNTERS, FrameKind.SWEEPS: SWEEPS}  # of all queries at once: their rows name them
_KINDS = (FrameKind.RECORDS, FrameKind.PARTIALS, FrameKind.CHECKPOINT, FrameKind.MARK, *_COUNTED)
_PARTIAL = (FrameKind.PARTIALS, FrameKind.CHECKPOINT)
_MAX_FAULTS = 20  # faults of one post
_MAX_SCHEMAS = 4096
_LEAD_BYTES = 8  # of an Arrow IPC message: a continuation mark and the length of its metadata
_known: set[tuple[str, str, int, bytes]] = set()  # plan, kind, entry and the schema's digest that were compared once


def frames_ingest(*, sender: AgentFacts, data: bytes) -> dict[str, int]:
    """Ingest a post of an agent: all of its frames are valid, or none is taken.

    Raises
    ------
    Malformed
        Bytes that are no frames, or none at all; the message counts them from 1.
    Impossible
        Frames of or for another agent, of queries it has no part in, with other columns than the entry takes: each
        named.
    Conflict
        Frames are missing before these: `expected_seq` says from which on to send.
    TooMany
        No room at present for more of this agent; what fitted was taken.
    Unavailable
        Redis does not take anything.
    """
    frames = frames_read(data)
    faults = _faults(sender, [frame for frame, _ in frames])
    if faults:
        raise Impossible(f"{faults[0].path}: {faults[0].message}.", faults, code="wrong_frames")
    first = frames[0][0]
    return frames_store(frames, sender.committed.get(first.life, 0))


def frames_read(data: bytes) -> list[tuple[Frame, memoryview]]:
    """All frames of a body."""
    if not data:
        raise Malformed("The body holds no frame.")
    try:
        return list(decode_frames(data))
    except WireError as error:
        raise Malformed(f"The frames cannot be read: {error}.", [("", str(error))], code="corrupt") from None


def frames_store(checked: CheckedFrames, floor: int) -> dict[str, int]:
    """Hand frames of one agent generation to Redis; returns their progress."""
    with redis_or_unavailable() as client:
        result = broker.accept_frames(client, checked, limits(), floor)
    if result.refused == "gap":
        raise Conflict(
            f"Frames are missing: the next one of this life is {result.expected}.",
            code="gap",
            data={"expected_seq": result.expected, "accepted_seq": result.accepted_seq, "committed_seq": floor},
        )
    if result.refused == "full":
        raise TooMany(
            "There is no room for more telemetry of this agent until the stream processor has caught up.",
            code="full",
            retry_after_s=result.retry_after_s,
            data={"accepted_seq": result.accepted_seq, "committed_seq": floor},
        )
    return {"accepted_seq": result.accepted_seq, "committed_seq": floor, "duplicates": result.duplicates}


def _faults(sender: AgentFacts, frames: Sequence[Frame]) -> list[Fault]:
    faults: list[Fault] = []
    for index, frame in enumerate(frames):
        path, before = f"frames[{index}]", frames[index - 1] if index else None
        if frame.agent != sender.id:
            message = f"agent is {frame.agent[:64]!r}; allowed: {sender.id!r}, whose secret this is"
            faults.append(Fault(f"{path}.agent", message))
        elif not _GENERATION.match(frame.life) or (before and frame.life != before.life):
            message = f"life is {frame.life[:70]!r}; allowed: 1 to 64 letters, digits, - and _, one life in a post"
            faults.append(Fault(f"{path}.life", message))
        elif before and frame.seq != before.seq + 1:
            faults.append(Fault(f"{path}.seq", f"seq is {frame.seq} after {before.seq}; allowed: no gaps in a post"))
        else:
            faults += _frame_faults(sender, frame, path)
        if len(faults) >= _MAX_FAULTS:
            break
    return faults


def _frame_faults(sender: AgentFacts, frame: Frame, path: str) -> list[Fault]:
    if frame.kind not in _KINDS:
        allowed = ", ".join(kind.value for kind in _KINDS)
        return [Fault(f"{path}.kind", f"kind is {frame.kind.value!r}; allowed: {allowed}")]
    if fault := origin_fault(sender, frame, path):
        return [fault]
    if frame.kind is FrameKind.COUNTERS and (faults := _extra_faults(variation_fault(frame.extra), path)):
        return faults
    if frame.kind in _COUNTED:
        fault = _body_fault(frame, path) or counted_query_fault(frame, path)
        return [fault] if fault else []
    if fault := plan_fault(frame.agent, frame.query, frame.plan, path):
        return [fault]
    if frame.kind is FrameKind.MARK:
        return _extra_faults(mark_fault(frame.extra), path)
    fault = _body_fault(frame, path)
    return [fault] if fault else []


def _extra_faults(fault: str, path: str) -> list[Fault]:
    return [Fault(f"{path}.extra.{fault.partition(' ')[0]}", fault)] if fault else []


def _body_fault(frame: Frame, path: str) -> Fault | None:
    """Fault unless the body has the columns of its entry. A schema compared once is not read again."""
    key = (frame.plan, frame.kind.value, frame.entry, _schema_digest(frame.body))
    if key in _known:
        return None
    expected = _COUNTED.get(frame.kind) or _entry_schema(frame)
    if expected is None:
        return Fault(
            f"{path}.entry", f"entry is {frame.entry}, where no {frame.kind.value} of {frame.query!r} may enter"
        )
    try:
        schema = pa.ipc.open_stream(pa.py_buffer(frame.body)).schema
    except (pa.ArrowException, OSError) as error:
        return Fault(f"{path}.body", f"the body is no Arrow IPC stream: {str(error)[:200]}")
    if difference := schema_differs(schema, expected):
        return Fault(f"{path}.body", difference)
    if len(_known) >= _MAX_SCHEMAS:
        _known.clear()
    _known.add(key)
    return None


def _schema_digest(body: bytes) -> bytes:
    """Digest of the first message of an Arrow IPC stream, its schema, which may be of any length."""
    schema = body[: _LEAD_BYTES + int.from_bytes(body[4:_LEAD_BYTES], "little")]
    return hashlib.blake2b(schema, digest_size=16).digest()


def _entry_schema(frame: Frame) -> pa.Schema | None:
    try:
        pipeline = pipeline_by_digest(frame.plan)
    except Missing:
        return None
    schema_of = partials_schema if frame.kind in _PARTIAL else records_schema
    return schema_of(pipeline, frame.entry)


def schema_differs(actual: pa.Schema, expected: pa.Schema) -> str:
    """Difference of two schemas as a text; empty if they have the same columns, in any order."""
    types = {field.name: field.type for field in actual}
    if len(actual) == len(expected) and types == {field.name: field.type for field in expected}:
        return ""
    for field in expected:
        if field.name not in types:
            return f"the column {field.name!r} is missing; allowed: {', '.join(expected.names)}"
        if types[field.name] != field.type:
            return f"the column {field.name!r} is {types[field.name]}; allowed: {field.type}"
    return f"the columns are {', '.join(actual.names)[:500]}; allowed: {', '.join(expected.names)}, each once"


def frame_rows(frame: Frame, schema: pa.Schema, what: str) -> list[Any]:
    """Rows of a frame of the stream processor, with the schema's columns as attributes.

    Raises
    ------
    Malformed
        A body that is no Arrow stream or has another schema.
    """
    try:
        table = table_of(frame.body)
    except WireError as error:
        raise Malformed(f"The {what} cannot be read: {error}.", [("body", str(error))]) from None
    if not table.schema.equals(schema):
        actual, allowed = (
            ", ".join(f"{field.name}: {field.type}" for field in each) for each in (table.schema, schema)
        )
        message = f"columns are {actual[:300]}; allowed: {allowed}"
        raise Malformed(f"The {what} have another schema.", [("body", message)])
    row_type = make_dataclass("FrameRow", schema.names)
    return [row_type(**row) for row in table.to_pylist()]


Receiver = Callable[[Sequence[Frame]], None]
_receivers: dict[FrameKind, Receiver] = {}
_RECEIVED_KINDS = (FrameKind.RESULT, FrameKind.STATISTICS, FrameKind.REFINED, FrameKind.WATERMARKS)


def receiver(kind: FrameKind) -> Callable[[Receiver], Receiver]:
    """Register a function for frames of a kind: `@receiver(FrameKind.RESULT)`.

    It is given all frames of that kind of one post, in order. It is idempotent: what was stored before an answer got
    lost comes again.
    """

    def register(function: Receiver) -> Receiver:
        _receivers[kind] = function
        return function

    return register


def frames_receive(frames: Sequence[Frame]) -> dict[str, int]:
    """Hand frames to their receivers; returns how many of each kind.

    Raises
    ------
    Malformed
        A kind that the stream processor does not send.
    Impossible
        A kind that nobody takes.
    """
    by_kind: dict[FrameKind, list[Frame]] = defaultdict(list)
    for number, frame in enumerate(frames):
        if frame.kind not in _RECEIVED_KINDS:
            message = f"kind is {frame.kind.value!r}; allowed: {', '.join(_RECEIVED_KINDS)}"
            raise Malformed(f"frames[{number}]: {message}.", [(f"frames[{number}].kind", message)])
        by_kind[frame.kind].append(frame)
    missing = sorted(kind.value for kind in by_kind if kind not in _receivers)
    if missing:
        raise Impossible(f"Nobody takes frames of the kind {', '.join(missing)} here.")
    _note_running({frame.query for frame in by_kind[FrameKind.RESULT]})
    for kind, frames_of_kind in by_kind.items():
        if frames_of_kind:
            _receivers[kind](frames_of_kind)
    return {kind.value: len(frames_of_kind) for kind, frames_of_kind in by_kind.items() if frames_of_kind}


def _note_running(keys: set[str]) -> None:
    """A query that has a result runs."""
    names: dict[str, list[str]] = defaultdict(list)
    for key in keys:
        cluster, _, query = key.partition("/")
        names[cluster].append(query)
    for cluster, queries in names.items():
        named = LiveQuery.objects.filter(query__cluster__slug=cluster, query__name__in=queries)
        if starting := list(named.filter(state=LiveState.STARTING).values_list("pk", flat=True)):
            LiveQuery.objects.filter(pk__in=starting, state=LiveState.STARTING).update(state=LiveState.RUNNING)


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
