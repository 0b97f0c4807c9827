"""Frames of spans, read from Redis by whoever works them off: a task, or the driver."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import TypeVar

import pyarrow as pa
import redis

from agent.wire import broker
from spark_jobs.entries import batch_of

__all__ = ["SPANS", "Read", "Reading", "RedisAway", "patiently", "span_of"]

#: A row for each span, as Spark says it: a partition's entries after `after_id` up to and with `until_id`.
SPANS = "partition int, after_id string, until_id string"

#: From batches of `SPANS` to batches of `entries.BATCH`.
Read = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]

_CHUNK_BYTES = 4 * 2**20
_FIRST_CHUNK_ENTRIES = 64
_MOST_CHUNK_ENTRIES = 4_000
_PATIENCE_S = 60.0  # a batch that could not be read is read again after the query's restart
_ANSWER_S = 10.0
_LAST_COUNT = 2**64 - 1  # of the entries of one millisecond
_Found = TypeVar("_Found")


class RedisAway(RuntimeError):
    """Redis gave no answer for as long as it may be waited for."""


@dataclass(frozen=True)
class Reading:
    """Where frames are read; it is sent to tasks, so it holds no connection."""

    redis_url: str
    patience_s: float = _PATIENCE_S

    def frames(self, spans: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Entries of the spans, a few megabytes at a time.

        Fewer than planned come when Redis lost some: their agents send those again.

        Raises
        ------
        RedisAway
        """
        for batch in spans:
            for span in batch.to_pylist():
                yield from self._entries(**span)

    def _entries(self, partition: int, after_id: str, until_id: str) -> Iterator[pa.RecordBatch]:
        count = _FIRST_CHUNK_ENTRIES
        while True:
            ask = partial(broker.read, partition=partition, after_id=after_id, count=count, until_id=until_id)
            entries = patiently(self.redis_url, ask, self.patience_s)
            if entries:
                yield batch_of(partition, entries)
            if len(entries) < count:
                return
            after_id, count = entries[-1].id, _next_count(entries)


def patiently(redis_url: str, ask: Callable[[redis.Redis], _Found], patience_s: float) -> _Found:
    """Redis's answer; asked again with growing pauses until `patience_s` have passed.

    Raises
    ------
    RedisAway
    """
    until, pause_s = time.monotonic() + patience_s, 0.05
    while True:
        try:
            return ask(_client(redis_url))
        except (redis.ConnectionError, redis.TimeoutError) as error:  # one that still loads its file is the former
            if time.monotonic() + pause_s > until:
                raise RedisAway(f"Redis has given no answer for {patience_s:g} s ({error})") from error
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, 2.0)


def span_of(partition: int, entry_id: str) -> dict[str, int | str]:
    """The span that holds one entry alone."""
    moment, _, count = entry_id.partition("-")
    before = f"{moment}-{int(count) - 1}" if int(count or 0) else f"{int(moment) - 1}-{_LAST_COUNT}"
    return {"partition": partition, "after_id": before, "until_id": entry_id}


@cache
def _client(url: str) -> redis.Redis:
    """This process's connection: Python workers live on from batch to batch."""
    return redis.Redis.from_url(url, socket_timeout=_ANSWER_S, socket_connect_timeout=_ANSWER_S)


def _next_count(entries: Sequence[broker.Entry]) -> int:
    """As many entries as come in one answer of a good size, judged by those before."""
    size = sum(len(entry.data) for entry in entries)
    return min(max(_CHUNK_BYTES * len(entries) // max(size, 1), 1), _MOST_CHUNK_ENTRIES)
