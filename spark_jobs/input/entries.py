"""Entries of the telemetry streams as Arrow batches, read from Redis by tasks."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, TypeVar

import pyarrow as pa
import redis

from agent.wire import Frame, FrameKind, WireError, broker, decode_frames
from agent.wire.broker import StreamEntry
from engine.backoff import Backoff

__all__ = ["SPANS", "UNREADABLE", "WAITING_SCHEMA", "EntryReader", "RedisAway", "ask_redis", "entry_batch"]


#: Frames that wait, as they stand in a state: for the number before them, or (where `due`) for their plan.
WAITING_SCHEMA = pa.schema(
    [
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
        ("size", pa.int64()),
        ("since", pa.int64()),
        ("due", pa.bool_()),
    ]
)

#: Kind of a row whose entry is no frame: `body` is the entry's data, `extra` has the fault.
UNREADABLE = "unreadable"

ENTRY_SCHEMA = pa.schema(
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
#: A row for each span, in Spark's terms: a partition's entries after `after_id` up to and with `until_id`; the plan
#: that the batch goes by, 0 for the newest; the time up to which all frames have arrived, and that of the last one; the
#: frames themselves, where they are not in the broker.
SPANS = "partition int, after_id string, until_id string, plan bigint, now_ms bigint, arrived_ms bigint, frames binary"
_CHUNK_BYTES = 4 * 2**20
_FIRST_CHUNK_ENTRIES = 64
_MAX_CHUNK_ENTRIES = 4_000
_PATIENCE_S = 60.0  # a batch that could not be read is read again after the query's restart
_ANSWER_S = 10.0


def entry_batch(partition: int, entries: Sequence[StreamEntry]) -> pa.RecordBatch:
    """The entries of a partition as one batch of `ENTRY_SCHEMA`, in their order."""
    rows = [(partition, entry.id, *_row(entry)) for entry in entries]
    columns = [
        pa.array(values, field.type) for values, field in zip(zip(*rows, strict=True), ENTRY_SCHEMA, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=ENTRY_SCHEMA)


def _row(entry: StreamEntry) -> tuple[Any, ...]:
    try:
        frame = _frame(entry)
    except WireError as error:
        fault = json.dumps({"fault": str(error), "kind": entry.kind})
        named = (entry.agent, entry.life, entry.seq, UNREADABLE, entry.query, entry.plan, entry.entry)
        return (*named, 0, fault, entry.data)
    named = (frame.agent, frame.life, frame.seq, frame.kind.value, frame.query, frame.plan, frame.entry)
    return (*named, frame.epoch, json.dumps(frame.extra, separators=(",", ":")), frame.body)


def _frame(entry: StreamEntry) -> Frame:
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


_Found = TypeVar("_Found")


class RedisAway(RuntimeError):
    """Redis gave no answer for as long as it may be waited for."""


@dataclass(frozen=True)
class EntryReader:
    """Reader of frames; it is sent to tasks, so it holds no connection."""

    redis_url: str
    patience_s: float = _PATIENCE_S

    def frames(self, partition: int, after_id: str, until_id: str) -> Iterator[pa.RecordBatch]:
        """Entries of a span as batches of `ENTRY_SCHEMA`, a few megabytes at a time.

        Fewer than planned come when Redis lost some: their agents send those again.

        Raises
        ------
        RedisAway
        """
        if after_id == until_id:
            return
        count = _FIRST_CHUNK_ENTRIES
        while True:
            ask = partial(broker.read_entries, partition=partition, after_id=after_id, count=count, until_id=until_id)
            entries = ask_redis(self.redis_url, ask, self.patience_s)
            if entries:
                yield entry_batch(partition, entries)
            if len(entries) < count:
                return
            after_id, count = entries[-1].id, _next_count(entries)


def ask_redis(redis_url: str, ask: Callable[[redis.Redis], _Found], patience_s: float) -> _Found:
    """Redis's answer; asked again with growing pauses until `patience_s` have passed.

    Raises
    ------
    RedisAway
    """
    until, backoff = time.monotonic() + patience_s, Backoff(0.05, 2.0)
    while True:
        try:
            return ask(_client(redis_url))
        except (redis.ConnectionError, redis.TimeoutError) as error:  # one that still loads its file is the former
            pause_s = backoff.next_s()
            if time.monotonic() + pause_s > until:
                raise RedisAway(f"Redis has given no answer for {patience_s:g} s ({error})") from error
        time.sleep(pause_s)


@cache
def _client(url: str) -> redis.Redis:
    """This process's connection: Python workers are kept from batch to batch."""
    return redis.Redis.from_url(url, socket_timeout=_ANSWER_S, socket_connect_timeout=_ANSWER_S)


def _next_count(entries: Sequence[broker.StreamEntry]) -> int:
    """As many entries as come in one answer of a good size, judged by those before."""
    size = sum(len(entry.data) for entry in entries)
    return min(max(_CHUNK_BYTES * len(entries) // max(size, 1), 1), _MAX_CHUNK_ENTRIES)
