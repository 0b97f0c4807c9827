"""Events that are produced to topics, by ends of partitions, and the partitions that a source of Flink names."""

from __future__ import annotations

from typing import Any

import pytest

from engine.connectors.topics import TopicEnds, metric_topic, produced_counts, read_partitions, read_topic_ends

PARTITIONS = [("orders", 0), ("orders", 1)]


def looks(*ends: tuple[float | None, float | None], every_s: float = 10.0) -> list[TopicEnds]:
    return [
        TopicEnds(every_s * i, {p: end for p, end in zip(PARTITIONS, row, strict=True) if end is not None})
        for i, row in enumerate(ends)
    ]


def events(rows: list[TopicEnds]) -> list[float | None]:
    """Events by stretch between looks."""
    counts = produced_counts("v", rows, PARTITIONS)
    assert counts is not None and counts.origin == "offsets"
    width = round(10.0 / counts.step_s)
    parts = [counts.counts[i : i + width] for i in range(0, len(counts.counts), width)]
    return [None if None in part else sum(count or 0.0 for count in part) for part in parts]


def test_growth_of_all_partitions_is_what_is_produced() -> None:
    assert events(looks((100, 40), (160, 40), (200, 90), (200, 90))) == pytest.approx([60, 90, 0])


@pytest.mark.parametrize(
    "hole", [(None, 60), (120, None), (20, 60)], ids=["first not told", "second not told", "begun anew"]
)
def test_stretch_of_which_one_partition_is_not_known_has_no_count(hole: tuple[float | None, float | None]) -> None:
    rows = looks((100, 40), (110, 50), hole, (130, 70), (140, 80), (150, 90))
    assert events(rows)[0] == pytest.approx(20) and None in events(rows)


def test_one_look_and_unknown_partitions_tell_nothing() -> None:
    assert produced_counts("v", looks((100, 40)), PARTITIONS) is None
    assert produced_counts("v", looks((100, 40), (110, 50)), [("clicks", 0)]) is None


def test_counts_of_some_partitions_of_a_topic_are_not_whole() -> None:
    """An engine that names one of two may read both: then what it reads says more than what is produced to one."""
    rows = looks((100, 40), (160, 40), (200, 90))
    whole, part = produced_counts("v", rows, PARTITIONS), produced_counts("v", rows, PARTITIONS[:1])
    assert whole is not None and part is not None
    assert (whole.is_whole, part.is_whole) == (True, False)


def test_partitions_are_those_that_the_metrics_of_a_source_name() -> None:
    names = [
        {"id": "Source__shop_orders[1].KafkaSourceReader.topic.shop_orders.partition.0.currentOffset"},
        {"id": "Source__shop_orders[1].KafkaSourceReader.topic.shop_orders.partition.11.committedOffset"},
        {"id": "Source__shop_orders[1].KafkaSourceReader.commitsSucceeded"},
        {"id": 7},
        None,
    ]
    assert read_partitions(names) == {("shop_orders", 0), ("shop_orders", 11)}
    assert metric_topic("shop.orders") == "shop_orders"
    assert read_partitions("none") == frozenset()


@pytest.mark.parametrize(
    "document",
    [None, [], {}, {"topics": {"t": {"0": 1}}}, {"at_s": 1.0, "topics": [1]}, {"at_s": "x", "topics": {}}],
)
def test_answer_without_ends_tells_none(document: Any) -> None:
    assert read_topic_ends(document) is None


def test_ends_that_are_no_numbers_are_left_out() -> None:
    document = {"at_s": 5.0, "topics": {"t": {"0": 7, "1": -1, "2": "x", "y": 3}, "u": None}}
    assert read_topic_ends(document) == TopicEnds(5.0, {("t", 0): 7.0})
