"""The telemetry streams as a streaming data source of Spark.

An offset is a flat object: the id of the last entry of each partition of the broker that belongs to the batch, and the
number of the plan that it goes by. Batches are planned from the broker's sizes alone, and rows are spans: frames are
read from Redis by the task that works them off, and never come into the JVM. So all spans of a batch are one input
partition: they are a few numbers, and a task costs more than they do. A change of the plan is a batch of its own right:
it visits every partition.

A message holds one or more frames as they are on the wire (`agent.wire.frames`). Whoever writes them keeps the frames
of an agent in one partition, in the order of their numbers: by the agent's id as the key. Kafka keeps what was read,
so nothing is trimmed; offsets are in Spark's checkpoint.

The connector knows no plan of Sluice's. A batch goes by the newest one when its task begins, and may go by a newer one
where it runs again.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import redis
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from agent.wire import broker
from spark_jobs.input.entries import SPANS, RedisAway, ask_redis
from spark_jobs.plans import PLAN_NUMBER

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.wire import decode_frames
from agent.wire.broker import StreamEntry

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "FIRST_PARTITION",
    "PLAN_CHANGES",
    "KafkaTopic",
    "SpansReader",
    "message_entries",
    "spans_of",
    "spans_of_messages",
    "spans_of_topic",
]

FORMAT = "sluice-frames"
PLAN_CHANGES = -1  #: number of the partition whose spans are changes of the plan: from one version to another
_PLAN = "plan"
_BEGIN = "0-0"
MAX_ENTRIES, _MAX_BYTES = 4_000, 64 * 2**20  #: of a batch, unless told otherwise
_UNBOUNDED = 2**31
_TARGET_PATIENCE_S = 60.0  # of a query that ends when what is there is read
_PLANNING_PATIENCE_S = 3.0  # a trigger without an answer brings no data, and the next one asks again


SpanRow = tuple[int, str, str, int, int, int, None]  #: of `SPANS`


class BatchSpans(InputPartition):
    """Spans of a batch: each the entries of a partition after an id up to and with another.

    With the plan of the batch, the time up to which all frames have arrived, and that of the last one: the same in
    every span, so that a partition that lags behind makes no agent silent.
    """

    def __init__(self, rows: Sequence[SpanRow]) -> None:
        super().__init__(0)
        self.rows = tuple(rows)


class FramesSource(DataSource):
    """``spark.readStream.format("sluice-frames")`` with the options `redis_url`, `max_entries` and `max_bytes`.

    `max_entries` and `max_bytes` bound one batch; an entry that is larger than all of it is a batch of its own.
    """

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return SPANS

    def streamReader(self, schema: Any) -> SpansReader:
        return SpansReader(
            self.options["redis_url"],
            int(self.options.get("max_entries", MAX_ENTRIES)),
            int(self.options.get("max_bytes", _MAX_BYTES)),
        )


class SpansReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batches beside the driver; it is sent to tasks, so it holds no connection."""

    def __init__(self, redis_url: str, max_entries: int, max_bytes: int) -> None:
        self._url = redis_url
        self._max_entries, self._max_bytes = max_entries, max_bytes
        self._target: dict[str, str] | None = None

    def initialOffset(self) -> dict[str, str]:
        return {str(number): _BEGIN for number in range(broker.PARTITIONS)} | {_PLAN: "0"}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._max_entries)

    def prepareForTriggerAvailableNow(self) -> None:
        last_ids = ask_redis(self._url, broker.last_ids, _TARGET_PATIENCE_S)
        self._target = {str(number): last_id for number, last_id in last_ids.items()}

    def latestOffset(self, start: dict[str, str], limit: ReadLimit) -> dict[str, str]:
        """The end of the next batch; `start` itself when there is nothing new or Redis does not answer."""
        entries, size = self._max_entries, self._max_bytes
        if isinstance(limit, ReadAllAvailable):
            entries = size = _UNBOUNDED
        patience_s = _PLANNING_PATIENCE_S if self._target is None else _TARGET_PATIENCE_S
        try:
            ends = partial(self._ends, start=start, max_entries=entries, max_bytes=size)
            return ask_redis(self._url, ends, patience_s)
        except RedisAway as away:
            _say(f"{away}; no new batch until it does")
            return start

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> Sequence[InputPartition]:
        plan, before = int(end.get(_PLAN, 0)), int(start.get(_PLAN, 0))
        until = {name: entry_id for name, entry_id in end.items() if name != _PLAN}
        moved = {name for name, entry_id in until.items() if entry_id != start.get(name, _BEGIN)}
        arrived_ms = max(id_number(entry_id)[0] for entry_id in until.values())
        now_ms = min((id_number(until[name])[0] for name in moved), default=arrived_ms)
        spans: list[SpanRow] = [
            (int(name), _after(start.get(name, _BEGIN), entry_id), entry_id, plan, now_ms, arrived_ms, None)
            for name, entry_id in until.items()
            if name in moved or plan != before
        ]
        if plan != before:
            spans.append((PLAN_CHANGES, str(before), str(plan), plan, now_ms, arrived_ms, None))
        return [BatchSpans(spans)] if spans else []

    def read(self, partition: InputPartition) -> Iterator[SpanRow]:
        assert isinstance(partition, BatchSpans)
        yield from partition.rows

    def commit(self, end: dict[str, str]) -> None:
        """Drop entries behind the checkpoint. Without Redis the next commit drops them too."""
        try:
            ask_redis(self._url, partial(_trim, end), _PLANNING_PATIENCE_S)
        except RedisAway as away:
            _say(f"{away}; trimmed later")

    def _ends(self, client: redis.Redis, start: dict[str, str], max_entries: int, max_bytes: int) -> dict[str, str]:
        """Range of the next batch: an equal share for each partition, then the unused rest for the others."""
        last = {str(number): last_id for number, last_id in broker.last_ids(client).items()}
        if self._target is not None:
            last = {name: min(last_id, self._target[name], key=id_number) for name, last_id in last.items()}
        ends = {name: start.get(name, _BEGIN) for name in last}
        known = int(start.get(_PLAN, 0))
        plan = {_PLAN: str(max(known, int(client.get(PLAN_NUMBER) or 0)))}  # type: ignore[arg-type]
        hungry = [name for name in last if last[name] != ends[name]]
        for turn in range(2):
            share = max_entries // max(len(hungry), 1), max_bytes // max(len(hungry), 1)
            for name in hungry:
                reach = broker.read_reach(client, int(name), _after(ends[name], last[name]), max(share[0], 1), share[1])
                if not reach.entries or (turn and (reach.entries > share[0] or reach.held_bytes > share[1])):
                    continue
                ends[name] = min(reach.last_id, last[name], key=id_number)
                max_entries, max_bytes = max_entries - reach.entries, max_bytes - reach.held_bytes
            hungry = [name for name in hungry if id_number(ends[name]) < id_number(last[name])]
        return ends | plan


def spans_of(spark: SparkSession, redis_url: str, **options: int | float) -> DataFrame:
    """The telemetry streams as a streaming data frame; `options` are those of `FramesSource`."""
    spark.dataSource.register(FramesSource)
    reader = spark.readStream.format(FORMAT).option("redis_url", redis_url)
    return reader.options(**{name: str(value) for name, value in options.items()}).load()


def _trim(end: dict[str, str], client: redis.Redis) -> None:
    """Drop entries up to `end`; a stream that lost its tail has nothing behind the checkpoint, at any id."""
    last = broker.last_ids(client)
    done = {number: end[str(number)] for number in last if str(number) in end}
    broker.trim_streams(
        client, {number: upto for number, upto in done.items() if id_number(upto) <= id_number(last[number])}
    )


def _after(start: str, until: str) -> str:
    """Start of reading: the beginning of a stream that ends before `start`.

    Such a stream lost its tail, or all, and gave out lower ids since. What is read twice has its agent's number.
    """
    return start if id_number(start) <= id_number(until) else _BEGIN


def id_number(entry_id: str) -> tuple[int, int]:
    """Milliseconds and count of an entry's id, by which ids are in order."""
    moment, _, count = entry_id.partition("-")
    return int(moment), int(count or 0)


def _say(text: str) -> None:
    print(f"telemetry source: {text}", file=sys.stderr, flush=True)


FIRST_PARTITION = 1_000_000  #: number of a topic's partition 0 among the partitions of the broker


@dataclass(frozen=True)
class KafkaTopic:
    """A topic, and the jars of Spark's connector."""

    servers: str  #: host:port, with commas
    topic: str
    jars: str = ""  #: of `spark-sql-kafka`, with commas; nothing where the cluster has them


def spans_of_topic(spark: SparkSession, source: KafkaTopic, max_messages: int) -> DataFrame:
    """The topic as a streaming data frame of `spark_jobs.input.entries.SPANS`, from its earliest message on."""
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", source.servers)
    options = {"subscribe": source.topic, "startingOffsets": "earliest", "failOnDataLoss": "false"}
    return spans_of_messages(reader.options(**options, maxOffsetsPerTrigger=str(max_messages)).load())


def spans_of_messages(messages: DataFrame) -> DataFrame:
    """Rows of the connector, a message each, as spans that hold their frames."""
    return messages.selectExpr(
        f"partition + {FIRST_PARTITION} as partition",
        "'' as after_id",
        "concat_ws('-', cast(unix_millis(timestamp) as string), cast(offset as string)) as until_id",
        "0L as plan",
        "unix_millis(timestamp) as now_ms",
        "unix_millis(timestamp) as arrived_ms",
        "value as frames",
    )


def message_entries(until_id: str, data: bytes) -> list[StreamEntry]:
    """The frames of a message as entries of the broker.

    Raises
    ------
    WireError
        The bytes are no frames.
    """
    return [
        StreamEntry(
            until_id,
            frame.agent,
            frame.life,
            frame.seq,
            frame.kind.value,
            frame.query,
            frame.plan,
            frame.entry,
            bytes(view),
        )
        for frame, view in decode_frames(data)
    ]
