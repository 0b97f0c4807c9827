"""Consumer lag in each of its forms: what is not committed is left out, and states are said."""

from __future__ import annotations

from typing import Any

import pytest

from engine.connectors.kafka import (
    GroupLag,
    broker_findings,
    read_broker_lags,
    read_burrow_lag,
    read_cli_lag,
    read_confluent_lag,
)
from engine.errors import DocumentError


def codes(lag: GroupLag) -> list[str]:
    return [finding.code for finding in lag.findings]


def burrow(**status: Any) -> dict[str, Any]:
    partition = {"topic": "t", "partition": 0, "status": "OK", "end": {"offset": 30, "lag": 15}, "current_lag": 15}
    fields = {"group": "g", "status": "WARN", "complete": 1.0, "partitions": [partition], "totallag": 45}
    return {"error": False, "message": "consumer status returned", "status": fields | status}


def test_burrow_tells_total_partitions_and_a_state_that_is_said() -> None:
    lag = read_burrow_lag(burrow())
    assert (lag.group, lag.events, lag.state) == ("g", 45.0, "WARN")
    assert lag.partitions[0].end_offset == 45.0
    assert codes(lag) == ["consumer_state"]
    assert codes(read_burrow_lag(burrow(status="OK"))) == []


def test_too_few_samples_of_burrow_are_said() -> None:
    lag = read_burrow_lag(burrow(status="OK", complete=0.4))
    assert lag.complete == 0.4 and codes(lag) == ["lag_incomplete"]


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"error": True, "message": "cluster or consumer not found"}, "cluster or consumer not found"),
        ({"error": False, "status": {"group": "g", "status": "OK"}}, "totallag is missing"),
        ("<html>", "a JSON object"),
        ([], "a JSON object"),
    ],
)
def test_faults_of_burrow_are_said(document: Any, words: str) -> None:
    with pytest.raises(DocumentError, match=words):
        read_burrow_lag(document)


def test_confluent_tells_the_total_and_the_worst_partition() -> None:
    summary = {
        "consumer_group_id": "g",
        "max_lag": 30,
        "max_lag_topic_name": "t",
        "max_lag_partition_id": 2,
        "total_lag": 42,
    }
    lag = read_confluent_lag(summary)
    assert (lag.group, lag.events, lag.partitions[0].partition, lag.topics) == ("g", 42.0, 2, ("t",))
    assert codes(lag) == []
    rows = [
        {"consumer_group_id": "g", "topic_name": "t", "partition_id": i, "lag": i, "log_end_offset": 9} for i in (1, 2)
    ]
    assert read_confluent_lag({"data": rows}).events == 3.0


def test_faults_of_confluent_are_said() -> None:
    with pytest.raises(DocumentError, match="40403"):
        read_confluent_lag({"error_code": 40403, "message": "not found"})
    with pytest.raises(DocumentError, match="total_lag is missing"):
        read_confluent_lag({"consumer_group_id": "g"})


CLI = """
Consumer group 'late' has no active members.

GROUP TOPIC   PARTITION  CURRENT-OFFSET  LOG-END-OFFSET  LAG  CONSUMER-ID     HOST        CLIENT-ID
late  orders  0          10              25              15   -               -           -
late  orders  1          -               7               -    -               -           -
g     clicks  0          4               4               0    consumer-1-abc  /10.0.0.1   consumer-1
"""


def test_the_text_of_the_command_line_is_read_by_its_columns() -> None:
    late, lag = read_cli_lag(CLI)
    assert (late.group, late.events, late.complete) == ("late", 15.0, 0.5)
    assert set(codes(late)) == {"offsets_missing", "consumer_state"}
    assert (lag.group, lag.events, codes(lag)) == ("g", 0.0, [])
    assert late.partitions[1].end_offset == 7.0


def test_a_text_of_another_command_is_refused() -> None:
    with pytest.raises(DocumentError, match="no line names the columns"):
        read_cli_lag("Error: Executing consumer group command failed")
    with pytest.raises(DocumentError, match="line 2: it has 3 columns"):
        read_cli_lag("GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG CONSUMER-ID\ng t 0")


def broker(*partitions: dict[str, Any], **group: Any) -> GroupLag:
    rows = [{"topic": "t", "partition": number} | row for number, row in enumerate(partitions)]
    (lag,) = read_broker_lags({"consumer_groups": [{"group": "g", "state": "Stable", "partitions": rows} | group]})
    return lag


def test_broker_tells_lag_as_end_less_commit() -> None:
    lag = broker({"committed": 4, "end": 10}, {"committed": 7, "end": 7})
    assert (lag.events, lag.is_whole("t"), codes(lag)) == (6.0, True, [])


def test_partition_without_a_commit_lags_nothing_only_where_it_is_empty() -> None:
    lag = broker({"committed": None, "begin": 5, "end": 5}, {"committed": -1, "begin": 0, "end": 5}, {"end": 5})
    assert [partition.lag for partition in lag.partitions] == [0.0, None, None]
    assert not lag.is_whole("t") and codes(lag) == ["offsets_missing"]


def test_commit_beyond_the_end_is_no_lag() -> None:
    lag = broker({"committed": 500, "end": 1}, {"committed": 0, "end": 3})
    assert (lag.events, lag.is_whole("t")) == (3.0, False)
    assert codes(lag) == ["ends_unread", "offsets_missing"]
    assert "500 are committed and its end is 1" in lag.findings[0].to_dict()["message"]


def test_end_that_a_broker_does_not_tell_has_its_reason_once() -> None:
    away = {"committed": 1, "end": None, "error": "leader not available"}
    lag = broker(away, away, {"committed": 1})
    assert lag.events is None
    assert codes(lag) == ["ends_unread", "ends_unread", "offsets_missing"]
    assert "2 partitions is not known, t/0 and t/1: leader not available" in lag.findings[0].to_dict()["message"]


def test_refused_and_empty_groups_are_said() -> None:
    assert codes(broker(error="group authorization failed")) == ["group_refused", "lag_missing"]
    assert codes(broker({"committed": 1, "end": 1}, state="Empty")) == ["consumer_state"]


def test_groups_that_are_not_there_or_not_asked_about_are_said() -> None:
    (lag,) = read_broker_lags({"consumer_groups": [], "unknown": ["late"]})
    assert (lag.group, lag.events, codes(lag)) == ("late", None, ["consumer_state"])
    assert [f.code for f in broker_findings({"consumer_groups": [], "unknown": []})] == ["groups_missing"]
    assert [f.code for f in broker_findings({"consumer_groups": [{}], "left_out": 3})] == ["groups_left_out"]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"partitions": [{"topic": "t", "partition": -1}]}, "partition"),
        ({"partitions": [{"partition": 0}]}, "topic is missing"),
        ({"partitions": 7}, "partitions"),
    ],
)
def test_faults_of_a_broker_are_said(row: dict[str, Any], words: str) -> None:
    with pytest.raises(DocumentError, match=words):
        read_broker_lags({"consumer_groups": [{"group": "g"} | row]})
