"""The frames of a batch as the driver takes them in, and what they say of the batch as a whole."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pyarrow as pa

from agent.wire import Frame, FrameKind, WireError, encode_frame
from spark_jobs.arrivals import WAITING, Arrival
from spark_jobs.entries import UNREADABLE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["collected", "frame_bytes", "last_ids", "moment_ms"]


def collected(frames: DataFrame, with_bodies: bool, only: list[str] | None = None) -> pa.Table:
    """The batch as a table; without the bodies of records where those stay with Spark."""
    from pyspark.sql import functions as sql

    named = frames.withColumn("id", sql.concat_ws("/", sql.col("partition").cast("string"), "id"))
    named = named.withColumn("size", sql.coalesce(sql.length("body"), sql.lit(0)).cast("bigint"))
    if only is not None:
        named = named.where(sql.col("id").isin(only))
    if with_bodies:
        named = named.coalesce(1)  # what the driver takes in is little: one task reads it for less than several
    else:
        stays = sql.col("kind") == FrameKind.RECORDS.value
        named = named.withColumn("body", sql.when(stays, sql.lit(None)).otherwise(sql.col("body")))
    return named.select(*(name for name in WAITING.names if name != "since")).toArrow()


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
