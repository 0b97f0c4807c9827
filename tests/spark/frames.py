"""Frames as agents send them, put into Redis as the console does, and the batches that a stream of them brings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import redis

from agent.wire import Frame, FrameKind, batch_bytes, broker, encode_frame
from spark_jobs.input.entries import EntryReader
from spark_jobs.input.source import spans_of
from tests.servers import PATIENCE_S

LIMITS = broker.BrokerLimits(total_bytes=2**30)
COLUMNS = (
    "partition int, id string, agent string, life string, seq bigint, kind string, query string, plan string, "
    "entry int, epoch bigint, extra string, body binary"
)
COMPUTE = {"agent": "string", "life": "string", "seq": "long", "records": "long", "total": "long"}


def records_frame(agent: str, seq: int, records: int = 5, life: str = "l1") -> Frame:
    """A frame of `records` numbers that are unlike those of any other frame."""
    numbers = pa.table({"n": pa.array(range(seq * 10_000, seq * 10_000 + records), pa.int64())})
    return Frame(FrameKind.RECORDS, agent, life, seq, "here/q", "p1", 1, 1_000 * seq, body=batch_bytes(numbers))


def send(url: str, frames: Iterable[Frame]) -> list[broker.Acceptance]:
    """Accept frames one by one."""
    with redis.Redis.from_url(url) as client:
        return [broker.accept_frames(client, [(frame, encode_frame(frame))], LIMITS) for frame in frames]


def waiting(url: str) -> int:
    """Entries in the streams."""
    with redis.Redis.from_url(url) as client:
        return sum(len(broker.read_entries(client, number, count=100_000)) for number in range(broker.PARTITIONS))


def numbers_of(batches: Any) -> Any:
    """Every row's agent, life, number and the count and sum of its records, unpacked on the workers."""
    from agent.wire import table_of

    for batch in batches:
        tables = [table_of(body.as_py()) if body.is_valid else None for body in batch["body"]]
        yield pa.RecordBatch.from_arrays(
            [
                batch["agent"],
                batch["life"],
                batch["seq"],
                pa.array([table.num_rows for table in tables], pa.int64()),
                pa.array([sum(table["n"].to_pylist()) for table in tables], pa.int64()),
            ],
            names=list(COMPUTE),
        )


@dataclass
class Collected:
    """A streaming query that keeps what every batch brought; a batch that runs twice replaces itself."""

    spark: Any
    url: str
    checkpoint: Path
    batches: dict[int, list[Any]] = field(default_factory=dict)
    runs: Counter[int] = field(default_factory=Counter)

    def start(self, available_now: bool = True, fail_at: int | None = None, **options: int | float) -> Any:
        """Start it; `fail_at` is a batch that fails once it is computed, before its checkpoint."""

        def keep(frame: Any, number: int) -> None:
            self.runs[number] += 1
            self.batches[number] = frame.mapInArrow(numbers_of, _ddl()).collect()
            if number == fail_at:
                raise RuntimeError("the sink fails")

        spans = spans_of(self.spark, self.url, **options)
        writer = spans.mapInArrow(read_spans(self.url), COLUMNS).writeStream.foreachBatch(keep)
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        return (
            writer.trigger(availableNow=True) if available_now else writer.trigger(processingTime="0 seconds")
        ).start()

    def drain(self, **options: int | float) -> None:
        """Run until all that was there at the start is read."""
        query = self.start(**options)
        try:
            assert query.awaitTermination(PATIENCE_S), "the stream did not come to its end"
        finally:
            query.stop()

    def numbers(self, agent: str, life: str = "l1") -> list[int]:
        """Numbers of the frames that came of an agent, in the order they came."""
        rows = [row for number in sorted(self.batches) for row in self.batches[number]]
        return [row.seq for row in rows if (row.agent, row.life) == (agent, life)]


def read_spans(url: str) -> Any:
    """The function of a task that reads spans' entries."""

    def read(batches: Any) -> Any:
        for span in (row for batch in batches for row in batch.to_pylist()):
            yield from EntryReader(url).frames(span["partition"], span["after_id"], span["until_id"])

    return read


def _ddl() -> str:
    return ", ".join(f"{name} {kind}" for name, kind in COMPUTE.items())
