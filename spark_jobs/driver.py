"""The driver: prepares, runs one streaming query, posts what its batches said, and restarts it on failure.

It keeps nothing of the stream: that is in the state of Spark's operators, beneath the query's checkpoint.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import signal
import socketserver
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import redis

from engine.backoff import Backoff
from spark_jobs.checkpoint import Checkpoint, HadoopFolder, NewerCheckpoint
from spark_jobs.class_archive import ClassArchive
from spark_jobs.console import ConsoleClient, ProgressFeed
from spark_jobs.history.archive import Archive
from spark_jobs.outbox import Outbox, Quarantine
from spark_jobs.planner import Planner
from spark_jobs.plans import FlowKey
from spark_jobs.report import StateReader, StatusReport, stream_report
from spark_jobs.session import (
    INTERPRETED,
    JAVA_OPTIONS,
    NoJava,
    Options,
    WrongOptions,
    interpret_everywhere,
    interpreter,
    python_path,
    require_java,
    spark_session,
)
from spark_jobs.sink import Sink
from spark_jobs.stream import StreamSettings, stream_of
from spark_jobs.worker_forks import forking

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

__all__ = ["main"]


_NAME = "Sluice stream processor"
_NO_JVM = "the Java process of Spark has ended; started again, it goes on where it was"
_ASK_S = 1.0
_FIRST_PAUSE_S, _MAX_PAUSE_S = 2.0, 30.0
_FAILURES = 5  # of the query in a row, before a checkpoint that cannot be read is given up
_LAST_BATCH_S = 20.0
_ARCHIVE_AFTER_S = 120.0  # classes are laid down when a start and its first batches are over
_JVM_END_S = 5.0


def main() -> int:
    """Run until SIGTERM; 1 when Spark has ended or its state is of a newer release (after SIGTERM), 2 when the
    environment is incomplete.
    """
    try:
        options = Options.of(os.environ)
    except WrongOptions as wrong:
        for fault in str(wrong).splitlines():
            print(f"stream processor: {fault}", file=sys.stderr)
        return 2
    _say_no_traces()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    with _alone_in(options.folder):
        driver = Driver(options)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: driver.stop())
        return driver.run()


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder, which the kernel releases however its holder ends; another process stands by."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".driver.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("stream processor: another one has this folder; standing by", file=sys.stderr, flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


class Driver:
    """One stream processor and its folder."""

    def __init__(self, options: Options) -> None:
        self._options, self._stopping = options, threading.Event()
        self._redis = redis.Redis.from_url(options.redis_url, socket_timeout=10, socket_connect_timeout=3)
        folder, console = options.folder, ConsoleClient(options.url, options.token)
        self._quarantine = Quarantine(folder / "quarantine")
        self._outbox = Outbox(folder / "outbox", console, self._quarantine)
        self._archive = Archive.of(os.environ)
        self._planner = Planner(folder / "plans", console, self._redis, options.shards)
        self._progress = ProgressFeed(console, options.master, options.trigger_s, options.shuffle_partitions)
        self._report = StatusReport(self._redis, options, self._now_and_then)
        self._session = uuid.uuid4().hex
        self._wanted: set[FlowKey] = set()
        self._asked = threading.Event()
        self._sink: Sink | None = None
        self._reader: StateReader | None = None
        self._query: StreamingQuery | None = None

    def stop(self) -> None:
        """End after the batch that is in work."""
        self._stopping.set()
        self._asked.set()

    def run(self) -> int:
        """Everything from the first look for Redis to the last word."""
        self._report.more = self._facts
        self._report.start()
        try:
            return self._run()
        finally:
            self._outbox.stop()
            self._report.stop()

    def _run(self) -> int:
        with forking(self._options.folder, interpreter(), os.environ | {"PYTHONPATH": python_path()}) as variables:
            os.environ |= variables
            return self._run_spark()

    def _run_spark(self) -> int:
        if not (self._wait_for("Redis", self._redis_answers) and self._wait_for("the console", self._plan_is_here)):
            return 0
        self._report.say("warming")
        try:
            require_java()
            self._classes = ClassArchive(self._options.folder)
            spark = spark_session(
                _NAME,
                folder=self._options.folder / "spark",
                master=self._options.master,
                more=self._session_settings(),
            )
        except NoJava as none:
            self._report.say("failed", str(none))
            return 1
        try:
            interpret_everywhere(spark)
            try:
                self._go_on(spark)
            finally:
                self._classes.stop()
        except NewerCheckpoint as newer:
            self._report.say("failed", str(newer))
            spark.stop()
            self._stopping.wait()  # started again at once it would find the same
            return 1
        except Exception:
            if not _jvm_is_gone(spark):
                raise
            self._report.say("failed", _NO_JVM)
            return 1
        self._report.say("stopping")
        spark.stop()
        return 0

    def _session_settings(self) -> dict[str, str]:
        settings = INTERPRETED | {"spark.sql.shuffle.partitions": str(self._options.shuffle_partitions)}
        settings["spark.driver.extraJavaOptions"] = f"{JAVA_OPTIONS} {self._classes.java_options}"
        kafka = self._options.kafka
        return settings | ({"spark.jars": kafka.jars} if kafka is not None and kafka.jars else {})

    # -- the query

    def _go_on(self, spark: SparkSession) -> None:
        """Keep the query running."""
        opened = self._opened(spark)
        if opened is None:
            return
        checkpoint = opened
        self._outbox.start(checkpoint.last_step())
        threading.Thread(target=self._answer, name="answers", daemon=True).start()
        sink = self._sink = self._sink_of(checkpoint)
        self._reader = StateReader(spark, self._redis, lambda: checkpoint)
        failures, backoff = 0, Backoff(_FIRST_PAUSE_S, _MAX_PAUSE_S)
        while not self._stopping.is_set():
            before = checkpoint.last_step()
            fault = self._until_it_ends(spark, checkpoint, sink)
            fault = self._fault_of(checkpoint.note, sink.facts.step) or fault
            if fault is None:
                continue
            if checkpoint.last_step() > before:
                failures = 0
                backoff.reset()
            failures += 1
            self._report.say("failed", _in_short(fault))
            self._stopping.wait(backoff.next_s())
            if failures >= _FAILURES and checkpoint.is_broken_by(fault):
                checkpoint, failures = checkpoint.successor(sink.facts.step), 0
                print(f"stream processor: {checkpoint.message}", file=sys.stderr, flush=True)
                sink = self._sink = self._sink_of(checkpoint)
                self._planner.begin(checkpoint.last_plan())
                backoff.reset()

    def _opened(self, spark: SparkSession) -> Checkpoint | None:
        """The checkpoint to go on from, a full disk or a file system that is away being waited for; None when it is to
        stop.
        """
        backoff = Backoff(_FIRST_PAUSE_S, _MAX_PAUSE_S)
        while not self._stopping.is_set():
            try:
                root = HadoopFolder(spark, self._options.checkpoint)
                checkpoint = Checkpoint.open(root, self._options.folder)
                self._planner.begin(checkpoint.last_plan())
            except NewerCheckpoint:
                raise
            except Exception as error:  # of Java's file systems, ours, or Redis
                if _jvm_is_gone(spark, 0):
                    raise
                self._report.say("failed", _in_short(_causes(error)))
                self._stopping.wait(backoff.next_s())
                continue
            if checkpoint.message:
                print(f"stream processor: {checkpoint.message}", file=sys.stderr, flush=True)
            return checkpoint
        return None

    @staticmethod
    def _fault_of(note: Callable[[int], None], step: int) -> str | None:
        """Why a step could not be noted, such as a full disk."""
        try:
            note(step)
        except Exception as error:
            return _causes(error)
        return None

    def _sink_of(self, checkpoint: Checkpoint) -> Sink:
        feed = self._progress.batch_taken
        base = checkpoint.base
        return Sink(self._outbox, self._quarantine, self._redis, base, self._archive, feed, self._want)

    def _until_it_ends(self, spark: SparkSession, checkpoint: Checkpoint, sink: Sink) -> str | None:
        """Run the query until the process stops or its trigger is to change; the fault that ended it otherwise."""
        self._progress.trigger_s = self._progress.wanted_trigger_s
        settings = StreamSettings(
            self._options.redis_url,
            self._session,
            self._options.shuffle_partitions,
            refine_ms=round(self._options.refine_s * 1000),
            kafka=self._options.kafka,
        )
        try:
            query = self._query = (
                stream_of(spark, settings)
                .writeStream.foreachBatch(sink)
                .option("checkpointLocation", checkpoint.path)
                .outputMode("update")
                .trigger(processingTime=f"{round(self._progress.trigger_s * 1000)} milliseconds")
                .queryName("live")
                .start()
            )
        except Exception as error:  # Spark reports a failed start in many classes
            return _causes(error)
        began_s = time.monotonic()
        while query.isActive and not self._stopping.wait(_ASK_S / 4):
            if time.monotonic() - began_s > _ARCHIVE_AFTER_S:
                self._classes.look(spark)
            if (progress := query.lastProgress) is not None:
                self._report.say("ready")
                sink.committed(progress["batchId"])
                self._fault_of(checkpoint.committed, progress["batchId"])  # tried again with the next
            if self._progress.wanted_trigger_s != self._progress.trigger_s:
                break
        if self._stopping.is_set():
            self._report.say("stopping")
        fault = None if query.isActive else _causes(query.exception())
        _end(query)
        self._progress.look(query)
        sink.committed(checkpoint.last_batch())
        return fault

    def _want(self, flows: set[FlowKey]) -> None:
        """Frames wait for the plans of these flows."""
        self._wanted |= flows
        self._asked.set()

    def _answer(self) -> None:
        """Thread that asks the console what tasks want to know, beside the batches."""
        while not self._stopping.is_set():
            self._asked.wait()
            self._asked.clear()
            wanted, self._wanted = self._wanted, set()
            try:
                self._planner.answer(wanted)
            except (redis.RedisError, OSError):
                self._wanted |= wanted
                self._stopping.wait(_ASK_S)
                self._asked.set()

    # -- what it waits for and reports

    def _wait_for(self, what: str, there: Callable[[], str | None]) -> bool:
        """Ask until it is there; false when the process is to stop before."""
        while not self._stopping.is_set():
            fault = there()
            if fault is None:
                return True
            self._report.say("starting", f"waiting for {what}: {fault}")
            self._stopping.wait(_ASK_S)
        return False

    def _redis_answers(self) -> str | None:
        try:
            self._redis.ping()
        except redis.RedisError as error:
            return f"{self._options.redis_url.rpartition('@')[2]} does not answer ({error})"
        return None

    def _plan_is_here(self) -> str | None:
        """A plan of before does: the console may be away."""
        try:
            return None if self._planner.refresh() or self._planner.known else self._planner.fault
        except redis.RedisError as error:
            return str(error)

    def _now_and_then(self) -> None:
        if self._query is not None and self._sink is not None:
            self._planner.publish()
            self._planner.refresh()
            if self._query.isActive:
                self._progress.look(self._query)
        if self._reader is not None:
            self._reader.look()
        self._progress.post()

    def _facts(self) -> Mapping[str, Any]:
        faults = [fault for fault in (self._planner.fault, self._outbox.fault, self._archive.fault) if fault]
        if self._outbox.dropped:
            faults.append(f"{self._outbox.dropped} steps' results were dropped: the console was away too long")
        if self._outbox.quarantined:
            faults.append(f"{self._outbox.quarantined} frames are in quarantine: the console does not take them")
        faults += [self._progress.fault] if self._progress.fault else []
        facts: dict[str, Any] = {"faults": [*dict.fromkeys(faults), *self._quarantine.last_reasons]}
        facts["trigger_s"] = self._progress.trigger_s
        if self._sink is not None:
            facts |= stream_report(self._sink.facts, self._planner.live, self._redis)
            facts |= {"batch_s": round(self._sink.last_s, 3), "unposted": self._outbox.waiting}
            facts["progress"] = self._progress.figures.report()
        return facts


def _say_no_traces() -> None:
    """Silence the stack traces of Py4j and of Spark's servers when the Java process ends; one sentence of ours
    reports it.
    """
    logging.disable(logging.ERROR)  # py4j logs to the root logger; nothing here logs
    socketserver.BaseServer.handle_error = lambda *_: None  # type: ignore[method-assign]


def _jvm_is_gone(spark: SparkSession, patience_s: float = _JVM_END_S) -> bool:
    """Whether the exception comes from a Java process that has ended."""
    try:
        return spark.sparkContext._gateway.proc.wait(patience_s) is not None
    except subprocess.TimeoutExpired:
        return False


def _end(query: StreamingQuery) -> None:
    """Let the batch in work come to its end, then stop."""
    until = time.monotonic() + _LAST_BATCH_S
    while query.isActive and query.status["isTriggerActive"] and time.monotonic() < until:
        time.sleep(0.1)
    query.stop()


def _causes(error: object) -> str:
    """The message of an exception and each of its causes once, a line each; without stack traces."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines[1:] if line.startswith("Caused by:") or _MESSAGE.match(line)]
    return "\n".join(dict.fromkeys([lines[0] if lines else "the query ended", *told]))


_MESSAGE = re.compile(r"(: )?[\w.]*(Exception|Error): ")


def _in_short(causes: str) -> str:
    """The first line, and the last cause."""
    first, *more = causes.splitlines()
    return f"{first[:300]} {more[-1][:300] if more else ''}".strip()
