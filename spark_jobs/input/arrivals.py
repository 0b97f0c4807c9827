"""Frames of a batch at the driver, in the order of their senders: each once, none before its predecessor."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from agent.wire import Frame, FrameKind, WireError, encode_frame
from spark_jobs.input.entries import ARRIVAL_SCHEMA, UNREADABLE, WAITING_SCHEMA, Read, arrival_rows, single_span

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = [
    "Arrival",
    "Ordered",
    "arrivals_of",
    "collect_frames",
    "fetch_frames",
    "frame_bytes",
    "last_ids",
    "list_frames",
    "moment_ms",
    "order_frames",
    "table_of_waiting",
]


_PATIENCE_STEPS = 30
_MAX_WAITING_BYTES = 64 * 2**20


@dataclass(frozen=True)
class Arrival:
    """A frame as it came out of the broker; `body` is None where it stayed with Spark."""

    id: str  #: partition/id of its entry
    agent: str
    life: str
    seq: int
    kind: str
    query: str
    plan: str
    entry: int
    epoch: int
    extra: str
    body: bytes | None
    size: int
    since: int = 0  #: the step at which it began to wait

    @property
    def sender(self) -> tuple[str, str]:
        """Agent and generation that number it."""
        return self.agent, self.life

    @property
    def flow(self) -> tuple[str, str]:
        return self.query, self.plan

    @property
    def reporter(self) -> str:
        """The agent of which it tells, whose frame a relay may have passed on."""
        return str(self.says.get("origin") or self.agent)

    @property
    def arrived_ms(self) -> int:
        """Arrival in Redis."""
        return self.place[0]

    @property
    def place(self) -> tuple[int, int]:
        """Its place in its partition."""
        moment, _, count = self.id.partition("/")[2].partition("-")
        return int(moment), int(count or 0)

    @property
    def partition(self) -> str:
        return self.id.partition("/")[0]

    @cached_property
    def says(self) -> Mapping[str, Any]:
        return json.loads(self.extra) if self.extra else {}


@dataclass
class Ordered:
    """Frames of a batch that are due now, and those that wait."""

    due: list[Arrival] = field(default_factory=list)
    early: list[Arrival] = field(default_factory=list)  #: their predecessors are not here yet
    positions: dict[tuple[str, str], int] = field(default_factory=dict)
    duplicates: int = 0
    lost: list[str] = field(default_factory=list)  #: gaps that are not waited for any longer, in words


def arrivals_of(rows: pa.Table) -> list[Arrival]:
    """Rows of `GIVEN`, whose `id` names partition and entry."""
    return [Arrival(**row) for row in rows.to_pylist()]


def table_of_waiting(waiting: Iterable[Arrival]) -> pa.Table:
    """Waiting frames as a table of `WAITING_SCHEMA`."""
    rows = [{name: getattr(arrival, name) for name in WAITING_SCHEMA.names} for arrival in waiting]
    return pa.Table.from_pylist(rows, schema=WAITING_SCHEMA)


def order_frames(arrivals: Iterable[Arrival], positions: Mapping[tuple[str, str], int], step: int) -> Ordered:
    """Frames that follow on what was processed before, in the order of their numbers.

    A number seen before is a duplicate. What stands behind a gap waits for `_PATIENCE_STEPS` steps: the broker closes
    every gap it can, because agents keep what is not committed, so what is not there by then is lost and said to be.
    """
    by_sender: dict[tuple[str, str], dict[int, Arrival]] = defaultdict(dict)
    ordered = Ordered(positions=dict(positions))
    for arrival in arrivals:
        by_seq = by_sender[arrival.sender]
        if arrival.seq <= positions.get(arrival.sender, 0) or arrival.seq in by_seq:
            ordered.duplicates += 1
        else:
            by_seq[arrival.seq] = arrival
    for sender, by_seq in by_sender.items():
        _advance(ordered, sender, by_seq, step)
    return ordered


def _advance(ordered: Ordered, sender: tuple[str, str], by_seq: dict[int, Arrival], step: int) -> None:
    position = ordered.positions.get(sender, 0)
    while by_seq:
        while (arrival := by_seq.pop(position + 1, None)) is not None:
            ordered.due.append(arrival)
            position += 1
        if not by_seq or not _lost(by_seq, step):
            break
        first = min(by_seq)
        ordered.lost.append(f"frames {position + 1} to {first - 1} of agent {sender[0]} never came")
        position = first - 1
    if position:
        ordered.positions[sender] = position
    ordered.early += [arrival if arrival.since else replace(arrival, since=step) for arrival in by_seq.values()]


def _lost(by_seq: Mapping[int, Arrival], step: int) -> bool:
    """Whether frames behind a gap have waited long enough, or are too many to wait on."""
    waited = max((step - arrival.since for arrival in by_seq.values() if arrival.since), default=0)
    return waited >= _PATIENCE_STEPS or sum(arrival.size for arrival in by_seq.values()) > _MAX_WAITING_BYTES


def collect_frames(spans: DataFrame, read: Read) -> pa.Table:
    """The frames of a batch, read by the driver: one small job brings the spans."""
    return _read(spans.coalesce(1).toArrow().to_batches(), read)


def fetch_frames(ids: Iterable[str], read: Read) -> pa.Table:
    """Single frames of a batch by their ids (partition/entry)."""
    pairs = [frame_id.partition("/") for frame_id in ids]
    spans = [single_span(int(partition), entry_id) for partition, _, entry_id in pairs]
    return _read([pa.RecordBatch.from_pylist(spans)], read)


def list_frames(frames: DataFrame) -> pa.Table:
    """Frames that are rows of Spark, without the bodies of records: those stay there."""
    from pyspark.sql import functions as sql

    named = frames.withColumn("id", sql.concat_ws("/", sql.col("partition").cast("string"), "id"))
    named = named.withColumn("size", sql.coalesce(sql.length("body"), sql.lit(0)).cast("bigint"))
    stays = sql.col("kind") == FrameKind.RECORDS.value
    named = named.withColumn("body", sql.when(stays, sql.lit(None)).otherwise(sql.col("body")))
    return named.select(*ARRIVAL_SCHEMA.names).toArrow()


def _read(spans: Iterable[pa.RecordBatch], read: Read) -> pa.Table:
    batches = [arrival_rows(batch, [False] * batch.num_rows) for batch in read(spans)]
    return pa.Table.from_batches(batches, schema=ARRIVAL_SCHEMA)


def last_ids(arrivals: Iterable[Arrival]) -> dict[str, str]:
    """The last entry of every partition in a batch."""
    last = {}
    for arrival in sorted(arrivals, key=lambda row: row.place):
        last[arrival.partition] = arrival.id.partition("/")[2]
    return last


def moment_ms(arrivals: Iterable[Arrival]) -> int:
    """Time up to which all frames have arrived: a partition that lags behind makes no agent silent."""
    last: dict[str, int] = {}
    for arrival in arrivals:
        last[arrival.partition] = max(arrival.arrived_ms, last.get(arrival.partition, 0))
    return min(last.values(), default=0)


def frame_bytes(arrival: Arrival) -> bytes:
    """Bytes to keep of a quarantined frame: the frame, or the entry that was none."""
    body = arrival.body or b""
    if arrival.kind == UNREADABLE:
        return body
    named = {name: getattr(arrival, name) for name in ("agent", "life", "seq", "query", "plan", "entry", "epoch")}
    try:
        return encode_frame(Frame(FrameKind(arrival.kind), **named, extra=arrival.says, body=body))
    except WireError:
        return body
