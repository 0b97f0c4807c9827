"""The telemetry streams as a streaming data source of Spark.

Every partition of the broker is an input partition. An offset is a flat object: the id of the last entry of each
partition that belongs to the batch. Batches are planned from the broker's sizes alone; frames are read where the task
runs, and handed on as Arrow batches whose bodies nobody has unpacked.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
import redis
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from agent.wire import broker
from spark_jobs.entries import COLUMNS, batch_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["FORMAT", "FramesReader", "FramesSource", "RedisAway", "Span", "frames_of"]

FORMAT = "sluice-frames"
_BEGIN = "0-0"
_MOST_ENTRIES, _MOST_BYTES = 4_000, 64 * 2**20
_UNBOUNDED = 2**31
_CHUNK_BYTES = 4 * 2**20
_FIRST_CHUNK_ENTRIES = 64
_PATIENCE_S = 60.0  # for a task; a batch that could not be read is read again after the query's restart
_PLANNING_PATIENCE_S = 3.0  # a trigger without an answer brings no data, and the next one asks again
_ANSWER_S = 10.0
_Found = TypeVar("_Found")


class RedisAway(RuntimeError):
    """Redis gave no answer for as long as a task may wait."""


class Span(InputPartition):
    """What one task reads: a partition's entries after `after_id` up to and with `until_id`."""

    def __init__(self, partition: int, after_id: str, until_id: str) -> None:
        super().__init__(partition)
        self.partition, self.after_id, self.until_id = partition, after_id, until_id


class FramesSource(DataSource):
    """``spark.readStream.format("sluice-frames")`` with the options `redis_url`, `max_entries` and `max_bytes`.

    `max_entries` and `max_bytes` bound one batch; an entry that is larger than all of it is a batch of its own.
    """

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return COLUMNS

    def streamReader(self, schema: Any) -> FramesReader:
        return FramesReader(
            self.options["redis_url"],
            int(self.options.get("max_entries", _MOST_ENTRIES)),
            int(self.options.get("max_bytes", _MOST_BYTES)),
            float(self.options.get("patience_s", _PATIENCE_S)),
        )


class FramesReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batches beside the driver and reads them in tasks; it is sent there, so it holds no connection."""

    def __init__(self, redis_url: str, max_entries: int, max_bytes: int, patience_s: float) -> None:
        self._url, self._patience_s = redis_url, patience_s
        self._max_entries, self._max_bytes = max_entries, max_bytes
        self._target: dict[str, str] | None = None

    def initialOffset(self) -> dict[str, str]:
        return {str(number): _BEGIN for number in range(broker.PARTITIONS)}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._max_entries)

    def prepareForTriggerAvailableNow(self) -> None:
        last_ids = self._patiently(broker.last_ids, self._patience_s)
        self._target = {str(number): last_id for number, last_id in last_ids.items()}

    def latestOffset(self, start: dict[str, str], limit: ReadLimit) -> dict[str, str]:
        """The end of the next batch; `start` itself when there is nothing new or Redis does not answer."""
        entries, size = self._max_entries, self._max_bytes
        if isinstance(limit, ReadAllAvailable):
            entries = size = _UNBOUNDED
        try:
            return self._patiently(lambda client: self._ends(client, start, entries, size), _PLANNING_PATIENCE_S)
        except RedisAway as away:
            _say(f"{away}; no new batch until it does")
            return start

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> Sequence[InputPartition]:
        moved = {name: until for name, until in end.items() if until != start.get(name, _BEGIN)}
        return [Span(int(name), _after(start.get(name, _BEGIN), until), until) for name, until in moved.items()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The partition's entries. Fewer than planned come when Redis lost some: their agents send those again."""
        assert isinstance(partition, Span)
        after, count = partition.after_id, _FIRST_CHUNK_ENTRIES
        while True:
            ask = partial(_chunk, partition, after, count)
            entries = self._patiently(ask, self._patience_s)
            if entries:
                yield batch_of(partition.partition, entries)
            if len(entries) < count:
                return
            after, count = entries[-1].id, _next_count(entries)

    def commit(self, end: dict[str, str]) -> None:
        """Drop what lies behind the checkpoint. Without Redis the next commit drops it too."""
        try:
            self._patiently(partial(_trim, end), _PLANNING_PATIENCE_S)
        except RedisAway as away:
            _say(f"{away}; trimmed later")

    def _ends(self, client: redis.Redis, start: dict[str, str], max_entries: int, max_bytes: int) -> dict[str, str]:
        """How far the next batch goes: an equal share for each partition, then what some left over for the others."""
        last = {str(number): last_id for number, last_id in broker.last_ids(client).items()}
        if self._target is not None:
            last = {name: min(last_id, self._target[name], key=_number) for name, last_id in last.items()}
        ends = {name: start.get(name, _BEGIN) for name in last}
        hungry = [name for name in last if last[name] != ends[name]]
        for turn in range(2):
            share = max_entries // max(len(hungry), 1), max_bytes // max(len(hungry), 1)
            for name in hungry:
                found = broker.reach(client, int(name), _after(ends[name], last[name]), max(share[0], 1), share[1])
                if not found.entries or (turn and (found.entries > share[0] or found.held_bytes > share[1])):
                    continue
                ends[name] = min(found.last_id, last[name], key=_number)
                max_entries, max_bytes = max_entries - found.entries, max_bytes - found.held_bytes
            hungry = [name for name in hungry if _number(ends[name]) < _number(last[name])]
        return ends

    def _patiently(self, ask: Callable[[redis.Redis], _Found], patience_s: float) -> _Found:
        """Redis's answer; asked again with growing pauses until `patience_s` have passed."""
        until, pause_s = time.monotonic() + patience_s, 0.05
        while True:
            try:
                return ask(_client(self._url))
            except (redis.ConnectionError, redis.TimeoutError) as error:  # one that still loads its file is the former
                if time.monotonic() + pause_s > until:
                    raise RedisAway(f"Redis has given no answer for {patience_s:g} s ({error})") from error
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, 2.0)


def frames_of(spark: SparkSession, redis_url: str, **options: int | float) -> DataFrame:
    """The telemetry streams as a streaming data frame; `options` are those of `FramesSource`."""
    spark.dataSource.register(FramesSource)
    reader = spark.readStream.format(FORMAT).option("redis_url", redis_url)
    return reader.options(**{name: str(value) for name, value in options.items()}).load()


@cache
def _client(url: str) -> redis.Redis:
    """This process's connection: Python workers live on from batch to batch."""
    return redis.Redis.from_url(url, socket_timeout=_ANSWER_S, socket_connect_timeout=_ANSWER_S)


def _trim(end: dict[str, str], client: redis.Redis) -> None:
    """Drop entries up to `end`; a stream that lost its tail has nothing behind the checkpoint, whatever its ids."""
    last = broker.last_ids(client)
    done = {number: end[str(number)] for number in last if str(number) in end}
    broker.trim(client, {number: upto for number, upto in done.items() if _number(upto) <= _number(last[number])})


def _chunk(span: Span, after_id: str, count: int, client: redis.Redis) -> list[broker.Entry]:
    return broker.read(client, span.partition, after_id, count, span.until_id)


def _next_count(entries: Sequence[broker.Entry]) -> int:
    """As many entries as come in one answer of a good size, judged by those before."""
    size = sum(len(entry.data) for entry in entries)
    return min(max(_CHUNK_BYTES * len(entries) // max(size, 1), 1), _MOST_ENTRIES)


def _after(start: str, until: str) -> str:
    """Where reading begins: at the beginning of a stream that ends before `start`.

    Such a stream lost its tail, or all, and gave out lower ids since. What is read twice has its agent's number.
    """
    return start if _number(start) <= _number(until) else _BEGIN


def _number(entry_id: str) -> tuple[int, int]:
    moment, _, count = entry_id.partition("-")
    return int(moment), int(count or 0)


def _say(text: str) -> None:
    print(f"telemetry source: {text}", file=sys.stderr, flush=True)
