"""Flame graphs of chains: which operator threads were at work in, asked of few vertices in turn."""

from __future__ import annotations

from typing import Any

from engine.connectors.flame_graphs import flame_paths, with_flames
from engine.connectors.flink import read_flink
from engine.connectors.picture import CounterPoll, EngineJob
from engine.connectors.statistics import sample_job
from tests.engine.connectors.flink_answers import JOB, NOW_MS, cluster, poll, vertex

CHAIN = "GroupAggregate[3] -> Calc[4] -> revenue[5]: Writer"
LOOP = "org.apache.flink.streaming.runtime.tasks.mailbox.MailboxProcessor.runMailboxLoop:229"
INPUT = "org.apache.flink.streaming.runtime.tasks.StreamTask.processInput:638"
IDLE = "org.apache.flink.streaming.runtime.tasks.mailbox.TaskMailboxImpl.take:149"
AGGREGATE = "org.apache.flink.streaming.api.operators.KeyedProcessOperator.processElement:83"
PUSH = "org.apache.flink.streaming.runtime.tasks.CopyingChainingOutput.pushToOperator:75"
FULL = "org.apache.flink.runtime.io.network.buffer.LocalBufferPool.requestMemorySegmentBlocking:394"


def node(name: str, value: int, *children: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "value": value, "children": list(children)}


#: 60 samples that wait for input, 10 in the first operator, 26 in the second, 4 blocked by its output.
GRAPH = node(
    "root",
    100,
    node(
        LOOP,
        100,
        node(IDLE, 60),
        node(INPUT, 40, node(AGGREGATE, 38, node(PUSH, 30, node("Calc$5.processElement:12", 30, node(FULL, 4))))),
    ),
)


def rows(second: float = 0.0) -> list[dict[str, Any]]:
    read = 100.0 * second
    source = vertex("v1", "Source: clicks", written=read, busy=0.1 * read, idle=990.0 * second)
    return [source, vertex("v2", CHAIN, "v1", read=read, busy=4.0 * read, idle=600.0 * second)]


def job() -> EngineJob:
    return read_flink(cluster(*rows()), NOW_MS / 1000).jobs[0]


def flamed(made: CounterPoll, answer: object) -> tuple[CounterPoll, list[str]]:
    (path,) = flame_paths(job(), made).paths
    found, findings = with_flames(made, job(), {path: answer})
    return found, [finding.code for finding in findings]


def test_samples_at_work_are_of_the_operator_on_the_stack() -> None:
    found, findings = flamed(poll(10.0, *rows(10.0)), {"endTimestamp": 5000, "data": GRAPH})
    looks = found.flames["v2"].looks
    assert (looks.working, looks.waiting, looks.blocked, looks.by_operator) == (36, 60, 4, (10, 26)) and not findings


def test_busy_time_of_a_chain_is_divided_and_a_graph_counts_once() -> None:
    polls = [poll(5.0 * i, *rows(5.0 * i)) for i in range(13)]
    seen = [flamed(made, {"endTimestamp": 5000, "data": GRAPH})[0] if i > 6 else made for i, made in enumerate(polls)]
    (found,) = (finding for finding in sample_job(job(), seen).findings if finding.code == "chain_parts")
    words = str(found.message)
    assert "Of 36 samples" in words and "Calc[4] 72% (59% to 83%)" in words and "GroupAggregate[3] 28%" in words


def test_answer_without_samples_yet_or_switched_off_is_no_number() -> None:
    made = poll(10.0, *rows(10.0))
    assert flamed(made, {"endTimestamp": -3}) == (made, [])
    assert flamed(made, {"endTimestamp": -2}) == (made, ["flames_off"])
    assert flamed(made, {"errors": ["not found"]}) == (made, [])
    assert flamed(made, {"endTimestamp": 5000, "data": {"name": "root", "value": "many", "children": 3}})[1] == []


def test_few_chains_are_asked_at_a_time_and_each_has_its_turn() -> None:
    many = [vertex(f"v{i}", CHAIN, *([f"v{i - 1}"] if i else []), read=9.0, busy=9.0, idle=9.0) for i in range(10)]
    shown = read_flink(cluster(*many), NOW_MS / 1000).jobs[0]
    asked = [flame_paths(shown, poll(60.0 * minute, *many)).paths for minute in range(12)]
    assert all(0 < len(paths) <= 3 for paths in asked)
    assert {path.split("/")[4] for paths in asked for path in paths} == {f"v{i}" for i in range(10)}
    assert asked[0] == asked[1] != asked[3] and JOB in asked[0][0]


def test_chain_without_busy_time_or_with_branches_is_not_asked() -> None:
    untold = [
        vertex("v1", CHAIN, read=9.0, busy="NaN"),
        vertex("v2", "a -> (b, c)", "v1", read=9.0, busy=9.0, idle=1.0),
    ]
    shown = read_flink(cluster(*untold), NOW_MS / 1000).jobs[0]
    assert not flame_paths(shown, poll(0.0, *untold)).paths
