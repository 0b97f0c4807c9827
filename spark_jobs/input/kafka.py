"""Frames out of a Kafka topic, beside those of the broker: Spark's own connector, where its jars are given.

A message holds one or more frames as they are on the wire (`agent.wire.frames`). Whoever writes them keeps the frames
of an agent in one partition, in the order of their numbers: by the agent's id as the key. Kafka keeps what was read,
so nothing is trimmed; offsets are in Spark's checkpoint.

The connector knows no plan of Sluice's. A batch goes by the newest one when its task begins, and may go by a newer one
where it runs again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.wire import decode_frames
from agent.wire.broker import StreamEntry

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["FIRST_PARTITION", "KafkaTopic", "message_entries", "spans_of_messages", "spans_of_topic"]

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
