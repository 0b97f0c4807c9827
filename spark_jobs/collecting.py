"""The frames of a batch as the driver takes them in, and what they say of the batch as a whole."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pyarrow as pa

from agent.wire import Frame, FrameKind, WireError, encode_frame
from spark_jobs.arrivals import GIVEN, Arrival
from spark_jobs.entries import UNREADABLE, given_of
from spark_jobs.reading import Read, span_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["collected", "fetched", "frame_bytes", "last_ids", "listed", "moment_ms"]


def collected(spans: DataFrame, read: Read) -> pa.Table:
    """The frames of a batch, read by the driver: one small job brings the spans."""
    return _read(spans.coalesce(1).toArrow().to_batches(), read)


def fetched(ids: Iterable[str], read: Read) -> pa.Table:
    """Single frames of a batch by their ids (partition/entry)."""
    pairs = [one.partition("/") for one in ids]
    spans = [span_of(int(partition), entry_id) for partition, _, entry_id in pairs]
    return _read([pa.RecordBatch.from_pylist(spans)], read)


def listed(frames: DataFrame) -> pa.Table:
    """Frames that are rows of Spark, without the bodies of records: those stay there."""
    from pyspark.sql import functions as sql

    named = frames.withColumn("id", sql.concat_ws("/", sql.col("partition").cast("string"), "id"))
    named = named.withColumn("size", sql.coalesce(sql.length("body"), sql.lit(0)).cast("bigint"))
    stays = sql.col("kind") == FrameKind.RECORDS.value
    named = named.withColumn("body", sql.when(stays, sql.lit(None)).otherwise(sql.col("body")))
    return named.select(*GIVEN.names).toArrow()


def _read(spans: Iterable[pa.RecordBatch], read: Read) -> pa.Table:
    batches = [given_of(batch, [False] * batch.num_rows) for batch in read(spans)]
    return pa.Table.from_batches(batches, schema=GIVEN)


def last_ids(arrivals: Iterable[Arrival]) -> dict[str, str]:
    """The last entry of every partition in a batch."""
    last = {}
    for one in sorted(arrivals, key=lambda one: one.place):
        last[one.partition] = one.id.partition("/")[2]
    return last


def moment_ms(arrivals: Iterable[Arrival]) -> int:
    """Until when everybody's frames are here: a partition that lags behind makes nobody silent."""
    last: dict[str, int] = {}
    for one in arrivals:
        last[one.partition] = max(one.arrived_ms, last.get(one.partition, 0))
    return min(last.values(), default=0)


def frame_bytes(one: Arrival) -> bytes:
    """What to keep of a frame that is put aside: the frame, or what stood in its place."""
    body = one.body or b""
    if one.kind == UNREADABLE:
        return body
    named = {name: getattr(one, name) for name in ("agent", "life", "seq", "query", "plan", "entry", "epoch")}
    try:
        return encode_frame(Frame(FrameKind(one.kind), **named, extra=one.says, body=body))
    except WireError:
        return body
