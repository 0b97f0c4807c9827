"""Structured Streaming queries as users write them, fed with files: their progress and the latency of every file.

A file arrives every 100 ms. Spark's log of the file source tells which batch took it; its rows' latency is from its
arrival to the end of that batch. What a file holds is made beforehand, so that sending costs next to nothing.
"""

from __future__ import annotations

import itertools
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.streaming import StreamingQuery

from engine.arrays import FloatArray, IntArray
from engine.microbatch.progress import read_progress
from launcher.java import java_environment

__all__ = ["QUERIES", "FedQuery", "FileFeed", "file_batches", "spark_session"]

FILE_S = 0.1
_KEYS = 5_000
_ROUNDS = 8  # of hashing a row: some ten microseconds of work
_WINDOW, _DELAY = "5 seconds", "5 seconds"
_DISTINCT_ROWS = 1 << 14


def _digested(rows: DataFrame) -> DataFrame:
    digest = "CAST(value AS STRING)"
    for _ in range(_ROUNDS):
        digest = f"sha2({digest}, 256)"
    return rows.selectExpr("key", "arrived", f"xxhash64({digest}) AS digest").where("digest != 0")


def _enrich(rows: DataFrame) -> DataFrame:
    table = rows.sparkSession.range(_KEYS).selectExpr("id AS key", "id % 7 AS kind")
    return _digested(rows).join(functions.broadcast(table), "key").where("kind < 4")


def _count(rows: DataFrame) -> DataFrame:
    return _digested(rows).groupBy("key").count()


def _windows(rows: DataFrame) -> DataFrame:
    late = _digested(rows).withWatermark("arrived", _DELAY)
    return late.groupBy(functions.window("arrived", _WINDOW), "key").agg(functions.count("*"), functions.max("digest"))


#: Without state, with state for good, with state of windows.
QUERIES: Mapping[str, Callable[[DataFrame], DataFrame]] = {"enrich": _enrich, "count": _count, "windows": _windows}


@contextmanager
def spark_session(folder: Path) -> Iterator[SparkSession]:
    """A Spark with one task at a time: the second core of a small machine is the driver's and the sender's."""
    os.environ |= java_environment()
    builder = SparkSession.builder.master("local[1]").appName("bench-spark")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.streaming.numRecentProgressUpdates": "10000",
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")  # a query that is stopped complains; one that fails is asked (`progress`)
    try:
        yield spark
    finally:
        spark.stop()


@dataclass
class FileFeed:
    """Files at even intervals, each there at once; `rate` (rows/s) may change while it runs."""

    folder: Path
    rate: float
    arrived_s: list[float] = field(default_factory=list)  #: of each file, on the clock
    rows: list[int] = field(default_factory=list)  #: of each file

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True)
        random = np.random.default_rng(1)
        keys = random.integers(_KEYS, size=_DISTINCT_ROWS)
        lines = [f"{key},{number}\n".encode() for number, key in enumerate(keys)]
        self._text = b"".join(lines)
        self._ends = np.cumsum([len(line) for line in lines])
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._send, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _content(self, rows: int) -> Iterator[bytes]:
        whole, rest = divmod(rows, _DISTINCT_ROWS)
        yield from itertools.repeat(self._text, whole)
        yield self._text[: self._ends[rest - 1]] if rest else b""

    def _send(self) -> None:
        due_s, part = time.time(), self.folder.with_name("next.csv")
        for number in itertools.count():
            if self._stop.is_set():
                return
            due_s += FILE_S
            time.sleep(max(0.0, due_s - time.time()))
            rows = max(1, round(self.rate * FILE_S))
            with part.open("wb") as file:
                file.writelines(self._content(rows))
            self.rows.append(rows)
            self.arrived_s.append(time.time())
            part.rename(self.folder / f"{number:06}.csv")


class FedQuery:
    """A query that runs on what a feed sends, from entering to leaving."""

    def __init__(
        self, spark: SparkSession, name: str, feed: FileFeed, *, trigger_s: float, shuffle_partitions: int = 1
    ) -> None:
        self.feed, self._checkpoint = feed, feed.folder.with_name(f"{feed.folder.name}-checkpoint")
        spark.conf.set("spark.sql.shuffle.partitions", str(shuffle_partitions))
        # Of the file's arrival: a row needs no stamp of its own.
        rows = spark.readStream.schema("key BIGINT, value BIGINT").csv(str(feed.folder))
        rows = rows.selectExpr("*", "_metadata.file_modification_time AS arrived")
        writer = QUERIES[name](rows).writeStream.outputMode("append" if name == "enrich" else "update").format("noop")
        writer = writer.option("checkpointLocation", str(self._checkpoint))
        self._writer = writer.trigger(processingTime=f"{round(1000 * trigger_s)} milliseconds")
        self._query: StreamingQuery | None = None

    def __enter__(self) -> Self:
        self._query = self._writer.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._query is not None:
            self._query.stop()

    def progress(self) -> list[dict[str, Any]]:
        """Progress of its batches so far, as Spark tells it. Raises what stopped the query."""
        assert self._query is not None, "the query has been entered"
        if error := self._query.exception():
            raise RuntimeError(f"the query stopped: {error}")
        return [json.loads(progress.json) for progress in self._query.recentProgress]

    def latencies(self) -> tuple[FloatArray, IntArray]:
        """Seconds from each file's arrival to the end of its batch, NaN where it has none yet; and its rows."""
        documents = self.progress()
        batches = read_progress(documents).batches if documents else ()
        ends_s = {batch.batch: batch.begins_at.timestamp() + batch.duration_s for batch in batches}
        count = len(self.feed.arrived_s)
        latency_s, arrived_s = np.full(count, np.nan), np.array(self.feed.arrived_s[:count])
        for number, batch in file_batches(self._checkpoint):
            if batch in ends_s and number < count:
                latency_s[number] = ends_s[batch] - arrived_s[number]
        return latency_s, np.array(self.feed.rows[:count])


def file_batches(checkpoint: Path) -> Iterator[tuple[int, int]]:
    """Number of every file and of the batch that took it, from the log of a query's source; one may come twice."""
    for log in (checkpoint / "sources" / "0").glob("[0-9]*"):
        for line in log.read_text().splitlines()[1:]:  # after the version
            entry = json.loads(line)
            yield int(Path(entry["path"]).stem), entry["batchId"]
