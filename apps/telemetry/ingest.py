"""Frames of agents: checked cheaply, then handed to Redis. On the usual way nothing asks the database."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

import pyarrow as pa

from agent.wire import (
    COUNTERS,
    OLDER_COUNTERS,
    SWEEPS,
    Frame,
    FrameKind,
    WireError,
    broker,
    decode_frames,
    mark_fault,
)
from apps.core.errors import Conflict, Fault, Forbidden, Impossible, Malformed, Missing, TooMany
from apps.telemetry.directory import AgentFacts
from apps.telemetry.pipelines import partials_schema, pipeline_by_digest, records_schema
from apps.telemetry.speaking import counted_fault, origin_fault, plan_fault
from apps.telemetry.streams import limits, redis_or_unavailable

__all__ = ["frames_ingest", "frames_read", "frames_store", "schema_differs"]

Given = Sequence[tuple[Frame, memoryview]]
_LIFE = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
_COUNTED = {FrameKind.COUNTERS: COUNTERS, FrameKind.SWEEPS: SWEEPS}  # of all queries at once: their rows name them
_KINDS = (FrameKind.RECORDS, FrameKind.PARTIALS, FrameKind.CHECKPOINT, FrameKind.MARK, *_COUNTED)
_PARTIAL = (FrameKind.PARTIALS, FrameKind.CHECKPOINT)
_MOST_TOLD = 20  # faults of one post
_MOST_KNOWN = 4096
_LEAD_BYTES = 8  # of an Arrow IPC message: a continuation mark and the length of its metadata
_known: set[tuple[str, str, int, bytes]] = set()  # plan, kind, entry and the schema's digest that were compared once


def frames_ingest(*, sender: AgentFacts, data: bytes) -> dict[str, int]:
    """Take in a post of an agent: all of its frames are right, or none is taken.

    Raises
    ------
    Malformed
        Bytes that are no frames, or none at all; the message counts them from 1.
    Forbidden
        The agent is disabled.
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
    if not sender.enabled:
        raise Forbidden(f"The agent {sender.name!r} is disabled.", code="agent_disabled")
    given = frames_read(data)
    faults = _faults(sender, [frame for frame, _ in given])
    if faults:
        raise Impossible(f"{faults[0].path}: {faults[0].message}.", faults, code="wrong_frames")
    first = given[0][0]
    return frames_store(given, sender.committed.get(first.life, 0))


def frames_read(data: bytes) -> list[tuple[Frame, memoryview]]:
    """All frames of a body."""
    if not data:
        raise Malformed("The body holds no frame.")
    try:
        return list(decode_frames(data))
    except WireError as error:
        raise Malformed(f"The frames cannot be read: {error}.", [("", str(error))], code="corrupt") from None


def frames_store(given: Given, floor: int) -> dict[str, int]:
    """Hand frames of one agent and life to Redis; says how far they have come."""
    with redis_or_unavailable() as client:
        result = broker.accept(client, given, limits(), floor)
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
        elif not _LIFE.match(frame.life) or (before and frame.life != before.life):
            message = f"life is {frame.life[:70]!r}; allowed: 1 to 64 letters, digits, - and _, one life in a post"
            faults.append(Fault(f"{path}.life", message))
        elif before and frame.seq != before.seq + 1:
            faults.append(Fault(f"{path}.seq", f"seq is {frame.seq} after {before.seq}; allowed: no gaps in a post"))
        else:
            faults += _frame_faults(sender, frame, path)
        if len(faults) >= _MOST_TOLD:
            break
    return faults


def _frame_faults(sender: AgentFacts, frame: Frame, path: str) -> list[Fault]:
    if frame.kind not in _KINDS:
        allowed = ", ".join(kind.value for kind in _KINDS)
        return [Fault(f"{path}.kind", f"kind is {frame.kind.value!r}; allowed: {allowed}")]
    if fault := origin_fault(sender, frame, path):
        return [fault]
    if frame.kind in _COUNTED:
        fault = _body_fault(frame, path) or counted_fault(frame, path)
        return [fault] if fault else []
    if fault := plan_fault(frame.agent, frame.query, frame.plan, path):
        return [fault]
    if frame.kind is FrameKind.MARK:
        return _mark_faults(frame, path)
    fault = _body_fault(frame, path)
    return [fault] if fault else []


def _mark_faults(frame: Frame, path: str) -> list[Fault]:
    fault = mark_fault(frame.extra)
    return [Fault(f"{path}.extra.{fault.partition(' ')[0]}", fault)] if fault else []


def _body_fault(frame: Frame, path: str) -> Fault | None:
    """Whether the body has the columns its entry takes. Bytes of a schema that was compared once are not read again."""
    key = (frame.plan, frame.kind.value, frame.entry, _schema_digest(frame.body))
    if key in _known:
        return None
    wanted = _COUNTED.get(frame.kind) or _entry_schema(frame)
    if wanted is None:
        return Fault(
            f"{path}.entry", f"entry is {frame.entry}, where no {frame.kind.value} of {frame.query!r} may enter"
        )
    try:
        found = pa.ipc.open_stream(pa.py_buffer(frame.body)).schema
    except (pa.ArrowException, OSError) as error:
        return Fault(f"{path}.body", f"the body is no Arrow IPC stream: {str(error)[:200]}")
    if (told := schema_differs(found, wanted)) and not (wanted is COUNTERS and found.equals(OLDER_COUNTERS)):
        return Fault(f"{path}.body", told)
    if len(_known) >= _MOST_KNOWN:
        _known.clear()
    _known.add(key)
    return None


def _schema_digest(body: bytes) -> bytes:
    """Of the first message of an Arrow IPC stream, which is its schema and as long as its sender likes."""
    schema = body[: _LEAD_BYTES + int.from_bytes(body[4:_LEAD_BYTES], "little")]
    return hashlib.blake2b(schema, digest_size=16).digest()


def _entry_schema(frame: Frame) -> pa.Schema | None:
    try:
        pipeline = pipeline_by_digest(frame.plan)
    except Missing:
        return None
    schema_of = partials_schema if frame.kind in _PARTIAL else records_schema
    return schema_of(pipeline, frame.entry)


def schema_differs(found: pa.Schema, wanted: pa.Schema) -> str:
    """In which column two schemas differ, in words; empty where the same columns stand, in whatever order."""
    given = {field.name: field.type for field in found}
    if len(found) == len(wanted) and given == {field.name: field.type for field in wanted}:
        return ""
    for field in wanted:
        if field.name not in given:
            return f"the column {field.name!r} is missing; allowed: {', '.join(wanted.names)}"
        if given[field.name] != field.type:
            return f"the column {field.name!r} is {given[field.name]}; allowed: {field.type}"
    return f"the columns are {', '.join(found.names)[:500]}; allowed: {', '.join(wanted.names)}, each once"
