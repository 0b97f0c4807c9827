"""A post of frames to a relay, checked as the console checks it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from agent.relay_http import Reply
from agent.relay_state import RelayState
from agent.wire import (
    COUNTERS,
    OLDER_COUNTERS,
    SWEEPS,
    Frame,
    FrameKind,
    WireError,
    decode_frames,
    mark_fault,
    table_of,
)
from engine.dataflow import Pipeline
from engine.dataflow.arrow import aggregate_kernel, partial_schema

__all__ = ["Taken", "read_post"]

_MOST_FAULTS = 20
_PARTIAL = (FrameKind.PARTIALS, FrameKind.CHECKPOINT)
_PASSED_ON = {FrameKind.COUNTERS: (COUNTERS, OLDER_COUNTERS), FrameKind.SWEEPS: (SWEEPS,)}  # of all queries at once
_TABLES = (FrameKind.RECORDS, *_PARTIAL, *_PASSED_ON)


@dataclass(frozen=True)
class Taken:
    """What is new in a post: frames in order, with the tables of those that have one."""

    life: str
    seq: int  #: of the last frame
    duplicates: int
    frames: Sequence[tuple[Frame, pa.Table | None]]


def read_post(child: str, data: bytes, pipelines: Mapping[str, Pipeline], state: RelayState) -> Taken | Reply:
    """The new frames of a post, or why it is not taken."""
    try:
        frames = [frame for frame, _ in decode_frames(data)]
    except WireError as error:
        return Reply(400, {"code": "corrupt", "message": f"The frames cannot be read: {error}."})
    if not frames:
        return Reply(400, {"code": "malformed", "message": "The body holds no frame."})
    faults = _order_faults(child, frames)
    life = frames[0].life
    accepted = state.accepted_seq(child, life)
    fresh = [frame for frame in frames if frame.seq > accepted]
    read: list[tuple[Frame, pa.Table | None]] = []
    for frame in fresh if not faults else ():
        try:
            read.append((frame, _table(frame, pipelines)))
        except (WireError, ValueError) as error:
            faults.append({"path": f"frames[{frames.index(frame)}]", "message": str(error)})
    if faults:
        first = f"{faults[0]['path']}: {faults[0]['message']}."
        return Reply(422, {"code": "wrong_frames", "message": first, "faults": faults[:_MOST_FAULTS]})
    if fresh and fresh[0].seq != accepted + 1:
        message = f"Frames are missing: the next one of this life is {accepted + 1}."
        says = {"code": "gap", "message": message, "expected_seq": accepted + 1}
        return Reply(409, says | {"accepted_seq": accepted, "committed_seq": accepted})
    return Taken(life, frames[-1].seq, len(frames) - len(fresh), read)


def _order_faults(child: str, frames: Sequence[Frame]) -> list[dict[str, str]]:
    faults = []
    for index, frame in enumerate(frames):
        path = f"frames[{index}]"
        if frame.agent != child or frame.life != frames[0].life:
            message = f"it is of {frame.agent}:{frame.life}; allowed: {child}, one life in a post"
            faults.append({"path": f"{path}.agent", "message": message})
        elif index and frame.seq != frames[index - 1].seq + 1:
            message = f"seq is {frame.seq} after {frames[index - 1].seq}; allowed: numbers without gaps"
            faults.append({"path": f"{path}.seq", "message": message})
    return faults


def _table(frame: Frame, pipelines: Mapping[str, Pipeline]) -> pa.Table | None:
    """The frame's table, of the columns that its place in the pipeline takes.

    Raises
    ------
    WireError, ValueError
        It is no table, another one, or of a kind that agents do not send.
    """
    if frame.kind == FrameKind.MARK:
        if fault := mark_fault(frame.extra):
            raise ValueError(f"extra.{fault}")
        return None
    if frame.kind not in _TABLES:
        raise ValueError(f"kind is {frame.kind.value!r}; allowed: mark, {', '.join(_TABLES)}")
    table = table_of(frame.body)
    table.validate(full=True)
    wanted = _PASSED_ON.get(frame.kind) or _wanted(frame, pipelines.get(frame.plan))
    if wanted and not any(table.schema.equals(schema) for schema in wanted):
        raise ValueError(
            f"its columns are {', '.join(table.column_names)}; allowed: {', '.join(wanted[0].names)}, by type"
        )
    if frame.kind in _PARTIAL and frame.plan in pipelines:
        fault = aggregate_kernel(pipelines[frame.plan]).partial_fault(table)
        if fault:
            raise ValueError(fault)
    return table


def _wanted(frame: Frame, pipeline: Pipeline | None) -> tuple[pa.Schema, ...]:
    """The columns that the entry takes; none for a plan that this relay does not know.

    It is the console's to judge such a plan: the child may know it earlier, or have had it before. Refused here, it
    would hold back everything that the child has behind it.
    """
    if pipeline is None:
        return ()
    if frame.kind in _PARTIAL:
        if pipeline.stream_join is not None:
            raise ValueError(f"kind is {frame.kind.value!r}; allowed of a query that joins streams: records")
        if frame.entry != pipeline.aggregate:
            allowed = f"{pipeline.aggregate}, the aggregate"
            raise ValueError(f"entry is {frame.entry}; allowed for {frame.kind.value}: {allowed}")
        return (partial_schema(pipeline),)
    if frame.entry == pipeline.other_entry:
        return (pipeline.other_schema,)
    if frame.entry >= len(pipeline.operators):
        raise ValueError(f"entry is {frame.entry}; allowed: 0 to {len(pipeline.operators) - 1}")
    return (pipeline.operators[frame.entry].input_schema,)
