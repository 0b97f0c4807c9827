"""Entries of the telemetry streams as Arrow batches: a row for each frame, its body left as it came."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from agent.wire import Frame, FrameKind, WireError, decode_frames
from agent.wire.broker import Entry
from spark_jobs.arrivals import GIVEN

__all__ = ["BATCH", "COLUMNS", "UNREADABLE", "batch_of", "given_of"]

#: Kind of a row whose entry is no frame: `body` is the entry's data, `extra` says what is wrong with it.
UNREADABLE = "unreadable"

#: As Spark says it; `id` is the entry's in its partition, `extra` is JSON.
COLUMNS = (
    "partition int, id string, agent string, life string, seq bigint, kind string, query string, plan string, "
    "entry int, epoch bigint, extra string, body binary"
)

BATCH = pa.schema(
    [
        ("partition", pa.int32()),
        ("id", pa.string()),
        ("agent", pa.string()),
        ("life", pa.string()),
        ("seq", pa.int64()),
        ("kind", pa.string()),
        ("query", pa.string()),
        ("plan", pa.string()),
        ("entry", pa.int32()),
        ("epoch", pa.int64()),
        ("extra", pa.string()),
        ("body", pa.binary()),
    ]
)


def batch_of(partition: int, entries: Sequence[Entry]) -> pa.RecordBatch:
    """The entries of a partition as one batch of `BATCH`, in their order."""
    rows = [(partition, entry.id, *_row(entry)) for entry in entries]
    columns = [pa.array(values, field.type) for values, field in zip(zip(*rows, strict=True), BATCH, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=BATCH)


def given_of(batch: pa.RecordBatch, lacking: Sequence[bool]) -> pa.RecordBatch:
    """A batch of `BATCH` as rows of `arrivals.GIVEN`, those that are `lacking` without their bodies."""
    bodies = batch.column("body")
    made = {
        "id": pc.binary_join_element_wise(batch.column("partition").cast(pa.string()), batch.column("id"), "/"),
        "body": pc.if_else(pa.array(lacking, pa.bool_()), pa.scalar(None, pa.binary()), bodies),
        "size": pc.fill_null(pc.binary_length(bodies), 0).cast(pa.int64()),
    }
    arrays = [made[name] if name in made else batch.column(name) for name in GIVEN.names]
    return pa.RecordBatch.from_arrays(arrays, schema=GIVEN)


def _row(entry: Entry) -> tuple[Any, ...]:
    try:
        frame = _frame(entry)
    except WireError as error:
        fault = json.dumps({"fault": str(error), "kind": entry.kind})
        named = (entry.agent, entry.life, entry.seq, UNREADABLE, entry.query, entry.plan, entry.entry)
        return (*named, 0, fault, entry.data)
    named = (frame.agent, frame.life, frame.seq, frame.kind.value, frame.query, frame.plan, frame.entry)
    return (*named, frame.epoch, json.dumps(frame.extra, separators=(",", ":")), frame.body)


def _frame(entry: Entry) -> Frame:
    """The one frame of an entry.

    Raises
    ------
    WireError
        It is none, several, or another one than the entry says.
    """
    frames = [frame for frame, _ in decode_frames(entry.data)]
    if len(frames) != 1:
        raise WireError(f"an entry holds one frame, this one {len(frames)}")
    if (frames[0].agent, frames[0].life, frames[0].seq) != (entry.agent, entry.life, entry.seq):
        raise WireError(f"the frame says agent {frames[0].agent}, life {frames[0].life}, number {frames[0].seq}")
    if frames[0].kind not in _FROM_AGENTS:
        raise WireError(f"agents send no frame of kind {frames[0].kind.value}")
    return frames[0]


_FROM_AGENTS = frozenset(
    {
        FrameKind.RECORDS,
        FrameKind.PARTIALS,
        FrameKind.CHECKPOINT,
        FrameKind.MARK,
        FrameKind.COUNTERS,
        FrameKind.SWEEPS,
    }
)
