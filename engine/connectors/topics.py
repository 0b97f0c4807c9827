"""Topics of Kafka: the partitions that a source of Flink reads, and what is produced to them, by their ends.

A source under back pressure reads less than is produced, so that what it read is no rate of arrivals. The end offset of
a partition moves with each record that is appended, whoever reads it (Kafka's ``ListOffsets``, latest); a commit of a
transaction appends one marker for each partition, which counts as a record.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from engine.connectors.answers import number_of
from engine.connectors.arrivals import spread_counts
from engine.connectors.picture import ArrivalCounts

__all__ = ["Partition", "TopicEnds", "metric_topic", "produced_counts", "read_partitions", "read_topic_ends"]

Partition = tuple[str, int]  #: topic and number

_PARTITION = re.compile(r"(?:^|\.)KafkaSourceReader\.topic\.(.+)\.partition\.(\d+)\.")


@dataclass(frozen=True, slots=True)
class TopicEnds:
    """Ends of partitions at a moment of the console's clock, in records, by topic and number of the partition."""

    at_s: float
    ends: Mapping[Partition, float]


def read_partitions(names: Any) -> frozenset[Partition]:
    """Partitions that a source reads, given the names of its vertex's metrics; topics as metrics spell them.

    Examples
    --------
    >>> read_partitions([{"id": "Source__orders.KafkaSourceReader.topic.orders_v2.partition.3.currentOffset"}])
    frozenset({('orders_v2', 3)})
    """
    rows = names if isinstance(names, list) else []
    ids = (str(row.get("id", "")) for row in rows if isinstance(row, Mapping))
    return frozenset((found[1], int(found[2])) for id_ in ids if (found := _PARTITION.search(id_)))


def metric_topic(topic: str) -> str:
    """A topic as the names of Flink's metrics spell it, which have no dots of their own.

    Examples
    --------
    >>> metric_topic("shop.orders")
    'shop_orders'
    """
    return re.sub(r"[ .:,]", "_", topic)


def read_topic_ends(document: Any) -> TopicEnds | None:
    """Ends from what a broker answered; None where it tells none, as Burrow and a table of lag."""
    topics = document.get("topics") if isinstance(document, Mapping) else None
    at_s = number_of(document.get("at_s")) if isinstance(topics, Mapping) else None
    if at_s is None or not isinstance(topics, Mapping):
        return None
    ends = {
        (str(topic), int(partition)): value
        for topic, rows in topics.items()
        if isinstance(rows, Mapping)
        for partition, end in rows.items()
        if str(partition).isdecimal() and (value := number_of(end)) is not None and value >= 0.0
    }
    return TopicEnds(at_s, ends)


def produced_counts(vertex: str, looks: Sequence[TopicEnds], partitions: Collection[Partition]) -> ArrivalCounts | None:
    """Arrivals of a source: how far the ends of its partitions moved between looks; None where no two looks tell.

    A stretch in which one partition is not told, joins, or begins anew has no count: what came to the others alone
    would be too little. So may it be where topics have partitions that are not among these: a source that names some
    of them, as an engine that has not gathered all of its metrics does, may read the others as well.

    Examples
    --------
    >>> looks = [TopicEnds(10.0 * i, {("t", 0): 50.0 * i, ("t", 1): 20.0 * i}) for i in range(3)]
    >>> produced_counts("v", looks, [("t", 0), ("t", 1)]).events
    140.0
    """
    stretches = [
        (before.at_s, after.at_s, events)
        for before, after in itertools.pairwise(sorted(looks, key=lambda look: look.at_s))
        if after.at_s > before.at_s and (events := _growth(before, after, sorted(partitions))) is not None
    ]
    counts = spread_counts(vertex, stretches, "offsets")
    topics = {topic for topic, _ in partitions}
    others = {place for look in looks for place in look.ends if place[0] in topics and place not in partitions}
    return None if counts is None else replace(counts, is_whole=not others)


def _growth(before: TopicEnds, after: TopicEnds, partitions: Sequence[Partition]) -> float | None:
    """Sum over partitions of end(after) - end(before); None where one of them is not known."""
    total = 0.0
    for partition in partitions:
        first, last = before.ends.get(partition), after.ends.get(partition)
        if first is None or last is None or last < first:
            return None
        total += last - first
    return total
