"""Looks at threads: what a stack says that a source did, and whose thread it was."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.connectors.flink import read_flink
from engine.connectors.picture import EngineJob, ThreadLooks
from engine.connectors.thread_stacks import dump_paths, look_at_threads, read_dump, source_dump
from tests.engine.connectors.flink_answers import NOW_MS, cluster, vertex

TASK = "Source: bids[1] -> Calc[2]"
DUMP = "/taskmanagers/tm1/thread-dump"
SLEEPS = ("java.base@17/java.lang.Thread.sleep(Native Method)", "app//shop.Bids.run(Bids.java:9)")
CONTEXT = "org.apache.flink.streaming.api.operators.StreamSourceContexts$NonTimestampContext"
COLLECT = f"app//{CONTEXT}.collect(StreamSourceContexts.java:109)"
PUSH = "org.apache.flink.streaming.runtime.tasks.CopyingChainingOutput.pushToOperator(CopyingChainingOutput.java:75)"
PARKS = ("java.base@17/jdk.internal.misc.Unsafe.park(Native Method)", "shop.Price.eval(Price.java:3)")
WORKS = (*PARKS, "StreamExecCalc$7.processElement(Unknown Source)", PUSH, COLLECT, "app//shop.Bids.run(Bids.java:8)")
FULL = (
    "org.apache.flink.runtime.io.network.buffer.LocalBufferPool.requestMemorySegmentBlocking(LocalBufferPool.java:383)"
)
READS = ("java.base@17/sun.nio.ch.EPoll.wait(Native Method)", "app//shop.Client.poll(Client.java:5)")


def thread(
    *frames: str, state: str = "TIMED_WAITING", name: str = f"{TASK} (1/1)#0", cut: bool = False
) -> dict[str, str]:
    full = f"Legacy Source Thread - {name}"
    lines = [f'"{full}" Id=7 {state}', *(f"\tat {frame}" for frame in frames), *(["\t..."] if cut else []), "", ""]
    return {"threadName": full, "stringifiedThreadInfo": "\n".join(lines)}


def dump(*threads: dict[str, str]) -> dict[str, Any]:
    return {"threadInfos": [{"threadName": "main", "stringifiedThreadInfo": '"main" Id=1 RUNNABLE\n'}, *threads]}


def job(parallelism: int = 1) -> EngineJob:
    rows = [vertex("v1", TASK, parallelism=parallelism), vertex("v2", "count", ("v1", "HASH"))]
    return read_flink(cluster(*rows), NOW_MS / 1000).jobs[0]


def look(*threads: dict[str, str], **kinds: Any) -> ThreadLooks | None:
    return look_at_threads({DUMP: dump(*threads)}, job(**kinds), {"v1"})[0].get("v1")


def test_recorded_dumps_of_nexmark_tell_work_waits_and_a_full_output() -> None:
    """Forty looks of three queries: q1 and q5 under a light load, q15 held back by its aggregation."""
    recorded = json.loads(gzip.decompress(Path(__file__).with_name("thread_dumps.json.gz").read_bytes()))
    stacks = [stack for answer in recorded for stack in read_dump(answer) or ()]
    found = Counter((stack.name.partition("[")[2].partition("]")[0], stack.doing()) for stack in stacks)
    assert found == {
        ("1", "waiting"): 33,
        ("1", "working"): 7,
        ("6", "waiting"): 30,
        ("6", "working"): 10,
        ("58", "working"): 27,
        ("58", "blocked"): 13,
    }
    assert {stack.operator for stack in stacks if stack.doing() == "working"} == {3}


@pytest.mark.parametrize(
    ("frames", "state", "cut", "doing"),
    [
        (SLEEPS, "TIMED_WAITING", False, "waiting"),
        (READS, "RUNNABLE", False, "waiting"),
        (("app//shop.Bids.next(Bids.java:20)", "app//shop.Bids.run(Bids.java:7)"), "RUNNABLE", False, "working"),
        (WORKS, "TIMED_WAITING", False, "working"),
        ((READS[0], *WORKS), "RUNNABLE", False, "working"),
        ((PARKS[0], FULL, *WORKS[2:]), "WAITING", False, "blocked"),
        ((COLLECT, "app//shop.Bids.run(Bids.java:8)"), "BLOCKED", False, "undecided"),
        (("shop.Cache.get(Cache.java:4)", *WORKS[2:]), "BLOCKED", False, "working"),
        (WORKS[:4], "TIMED_WAITING", True, "working"),
        (PARKS, "TIMED_WAITING", True, "undecided"),
        ((), "RUNNABLE", False, "undecided"),
    ],
)
def test_stack_says_what_the_thread_did(frames: tuple[str, ...], state: str, cut: bool, doing: str) -> None:
    (_, stack) = read_dump(dump(thread(*frames, state=state, cut=cut))) or ()
    assert stack.doing() == doing


def test_every_subtask_is_looked_at_and_work_is_told_by_operator() -> None:
    second = thread(*WORKS, name=f"{TASK} (2/2)#3")
    found = look(thread(*SLEEPS, name=f"{TASK} (1/2)#3"), second, parallelism=2)
    assert found == ThreadLooks(working=1, waiting=1, blocked=0, undecided=0, by_operator=(0, 1))
    assert dump_paths(job(), {"v1", "v2"}).paths == (DUMP,) and not dump_paths(job(), {"v2"}).paths


@pytest.mark.parametrize(
    ("threads", "code"),
    [
        ([thread(*WORKS), thread(*SLEEPS, name=f"{TASK} (1/1)#1")], "threads_alike"),
        ([thread(*WORKS, name="Source: bids[1] -> Ca... (1/1)#0")], "threads_absent"),
        ([thread(*WORKS, name=f"{TASK} (1/2)#0")], "threads_absent"),
        ([], "threads_absent"),
    ],
)
def test_thread_that_may_be_anothers_is_not_looked_at(threads: list[dict[str, str]], code: str) -> None:
    looks, findings = look_at_threads({DUMP: dump(*threads)}, job(), {"v1"})
    assert looks == {} and [finding.code for finding in findings] == [code]


@pytest.mark.parametrize(
    "answer",
    [
        {"errors": ["Not found: /taskmanagers/tm1/thread-dump"]},
        {"errors": ["java.lang.IllegalStateException: no"]},
        "<html>",
        None,
        {"threadInfos": {}},
        [],
    ],
)
def test_answer_that_is_no_dump_is_a_finding(answer: object) -> None:
    looks, findings = look_at_threads({DUMP: answer}, job(), {"v1"})
    assert looks == {} and [finding.code for finding in findings] == ["threads_untold"]


@pytest.mark.parametrize("damage", [lambda row: None, lambda row: {**row, "threadName": 3}, lambda row: 7])
def test_row_that_is_no_thread_is_left_out(damage: Callable[[Any], Any]) -> None:
    assert look(damage(thread(*WORKS))) is None
    assert look(damage(thread(*WORKS)), thread(*WORKS)) is not None


def test_source_that_has_ended_has_no_thread_to_look_at() -> None:
    ended = read_flink(cluster(vertex("v1", TASK) | {"status": "FINISHED"}), NOW_MS / 1000).jobs[0]
    assert look_at_threads({DUMP: dump()}, ended, {"v1"}) == ({}, []) and not dump_paths(ended, {"v1"}).paths


def test_kept_dump_holds_the_threads_of_sources_alone() -> None:
    kept = source_dump(dump(thread(*WORKS)))
    assert kept == {"threadInfos": [thread(*WORKS)]} and source_dump("gone") == "gone"
