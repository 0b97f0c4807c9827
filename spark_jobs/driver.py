"""The driver: prepares, runs one streaming query and restarts it on failure; each batch commits the next state."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import redis

from agent.wire import generations
from agent.wire.broker import publish_committed
from engine.backoff import Backoff
from spark_jobs.console import ConsoleClient
from spark_jobs.input.entries import EntryReader
from spark_jobs.input.source import spans_of
from spark_jobs.outbox import Outbox, Quarantine
from spark_jobs.plans import Plans
from spark_jobs.progress import ProgressFeed
from spark_jobs.report import StatusReport, state_report
from spark_jobs.session import NoJava, Options, WrongOptions, spark_session
from spark_jobs.state import StreamState
from spark_jobs.statistics.refinement import RefinementReport
from spark_jobs.statistics.subintervals import StatisticsReport
from spark_jobs.statistics.sweep_report import SweepReport
from spark_jobs.step import BatchStep, StepContext
from spark_jobs.store import StateStore
from spark_jobs.warmup import warm_up

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

__all__ = ["Driver", "LiveLoop", "StepFailed", "main", "settle_state"]


_ATTEMPTS = 3  # at a batch, before frames that cannot be processed go to quarantine
_WORDS = 300
_NAME = "Sluice stream processor"
_NO_JVM = "the Java process of Spark has ended; started again, it goes on where it was"
_ASK_S = 1.0
_FIRST_PAUSE_S, _MAX_PAUSE_S = 2.0, 30.0
_FAILURES = 5  # of the query in a row, before its checkpoint is taken to be broken
_LAST_BATCH_S = 20.0
_JVM_END_S = 5.0


class StepFailed(RuntimeError):
    """A step came to no end. Nothing of it remains, and its batch is tried again."""


class LiveLoop:
    """The live loop, called by Spark with every batch."""

    def __init__(self, state: StreamState, parts: StepContext, progress: ProgressFeed | None = None) -> None:
        self.state, self._parts, self._progress = state, parts, progress
        self._few = parts.at_hand_bytes > 0
        refining = RefinementReport(parts.refine_ms, parts.plans.windowed_entry)
        self._statistics = StatisticsReport(parts.statistics_ms, parts.family_cpu_ns, refining)
        self._sweeping = SweepReport(parts.refine_ms)
        self._failed: dict[int, int] = {}
        self._published: dict[tuple[str, str], int] = {}
        self.last_s = 0.0

    def __call__(self, spans: DataFrame, batch: int) -> None:
        """Process a batch. A batch that was committed before changes nothing."""
        began_s = time.perf_counter()
        self.publish()
        self._forget_outlived()
        if batch <= self.state.batch:
            return
        try:
            self._step(spans, batch)
        except Exception as error:
            # Spark searches an error's text by a regular expression that does not bear long ones
            raise StepFailed(f"batch {batch}: {type(error).__name__}: {str(error)[:_WORDS]}") from None
        self.last_s = time.perf_counter() - began_s

    def _step(self, spans: DataFrame, batch: int) -> None:
        self._failed[batch] = self._failed.get(batch, 0) + 1
        step = BatchStep(self.state.successor(batch), self._parts, spans, give_up=self._failed[batch] > _ATTEMPTS)
        self._few = step.take_in(few=self._few)
        if self._progress is not None:
            self._progress.batch_taken(batch, sum(work.records_entered for _, work in step.works.values()))
        out = step.results()
        out += self._statistics.frames(step.state, step.works, self._parts.plans)
        out += self._sweeping.frames(step.state, self._parts.plans.live())
        self._commit(step.state, out)
        self._failed.clear()

    def publish(self) -> None:
        """Publish the committed positions: everything up to the state before the batch in work."""
        changed = {key: seq for key, seq in self.state.positions.items() if self._published.get(key) != seq}
        try:
            publish_committed(self._parts.redis, changed)
        except redis.RedisError:
            return  # published again with the next batch
        self._published |= changed

    def _forget_outlived(self) -> None:
        """Drop sequence numbers of generations that the console has named, unless their frames wait for a plan."""
        waiting = {arrival.sender for arrival in self.state.waiting}
        try:
            gone = generations.forget_generations(
                self._parts.redis, generations.expired_names(self._parts.redis) - waiting
            )
        except redis.RedisError:
            return  # still named at the next batch
        if gone:  # a new mapping: the reports' thread may be reading the present one
            self.state.positions = {key: seq for key, seq in self.state.positions.items() if key not in gone}
            self._published = {key: seq for key, seq in self._published.items() if key not in gone}

    def _commit(self, state: StreamState, out: list[bytes]) -> None:
        self._parts.outbox.put(state.step, out)
        self._parts.store.save(state)
        self.state = state
        self._parts.outbox.release(state.step)


def main() -> int:
    """Run until SIGTERM; 1 when Spark has ended, 2 when the environment is incomplete."""
    try:
        driver = Driver(Options.of(os.environ))
    except WrongOptions as wrong:
        for fault in str(wrong).splitlines():
            print(f"stream processor: {fault}", file=sys.stderr)
        return 2
    _say_no_traces()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: driver.stop())
    return driver.run()


class Driver:
    """One stream processor and its folder."""

    def __init__(self, options: Options) -> None:
        self._options, self._stopping = options, threading.Event()
        self._redis = redis.Redis.from_url(options.redis_url, socket_timeout=10, socket_connect_timeout=3)
        folder, console = options.folder, ConsoleClient(options.url, options.token)
        quarantine = Quarantine(folder / "quarantine")
        self._plans = Plans(folder / "plans", console)
        self._parts = StepContext(
            store=StateStore(folder / "states"),
            plans=self._plans,
            outbox=Outbox(folder / "outbox", console, quarantine),
            quarantine=quarantine,
            redis=self._redis,
            read=EntryReader(options.redis_url).frames,
            at_hand_bytes=options.at_hand_bytes,
            refine_ms=round(options.refine_s * 1000),
            by_sql=options.by_sql,
        )
        self._progress = ProgressFeed(console, options.master, options.trigger_s)
        self._report = StatusReport(self._redis, options, self._now_and_then)
        self._loop: LiveLoop | None = None
        self._query: StreamingQuery | None = None

    def stop(self) -> None:
        """End after the batch that is in work."""
        self._stopping.set()

    def run(self) -> int:
        """Everything from the first look for Redis to the last word."""
        self._report.more = self._facts
        self._report.start()
        try:
            return self._run()
        finally:
            self._parts.outbox.stop()
            self._report.stop()

    def _run(self) -> int:
        if not (self._wait_for("Redis", self._redis_answers) and self._wait_for("the console", self._plan_is_here)):
            return 0
        self._report.say("warming")
        try:
            spark = spark_session(_NAME, folder=self._options.folder / "spark", master=self._options.master)
        except NoJava as none:
            self._report.say("failed", str(none))
            return 1
        try:
            warm_up(spark, self._options.folder / "warmup")
            self._go_on(spark)
        except Exception:
            if not _jvm_is_gone(spark):
                raise
            self._report.say("failed", _NO_JVM)
            return 1
        self._report.say("stopping")
        spark.stop()
        return 0

    # -- the query

    def _go_on(self, spark: SparkSession) -> None:
        """Keep the query running."""
        loop = LiveLoop(settle_state(self._parts.store, self._options.folder), self._parts, self._progress)
        self._loop = loop
        self._parts.outbox.start(loop.state.step)
        failures, backoff = 0, Backoff(_FIRST_PAUSE_S, _MAX_PAUSE_S)
        while not self._stopping.is_set():
            before = loop.state.step
            fault = self._until_it_ends(spark, loop)
            if fault is None:
                continue
            if loop.state.step > before:
                failures = 0
                backoff.reset()
            failures += 1
            self._report.say("failed", fault)
            self._stopping.wait(backoff.next_s())
            if failures >= _FAILURES:
                loop.state, failures = _restart(loop.state), 0
                backoff.reset()

    def _until_it_ends(self, spark: SparkSession, loop: LiveLoop) -> str | None:
        """Run the query until the process stops or its trigger is to change; the fault that ended it otherwise."""
        self._progress.trigger_s = self._progress.wanted_trigger_s
        checkpoint = _checkpoint(self._options.folder, loop.state)
        writer = spans_of(spark, self._options.redis_url).writeStream.foreachBatch(loop)
        try:
            query = self._query = (
                writer.option("checkpointLocation", str(checkpoint))
                .trigger(processingTime=f"{round(self._progress.trigger_s * 1000)} milliseconds")
                .queryName("live")
                .start()
            )
        except Exception as error:  # Spark reports a failed start in many classes
            return _first_line(error)
        while query.isActive and not self._stopping.wait(_ASK_S / 4):
            if query.lastProgress is not None or loop.state.batch >= 0:
                self._report.say("ready")
            if self._progress.wanted_trigger_s != self._progress.trigger_s:
                break
        if self._stopping.is_set():
            self._report.say("stopping")
        fault = None if query.isActive else _first_line(query.exception())
        _end(query)
        self._progress.look(query)
        return fault

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
        return None if self._plans.refresh() or self._plans.known else self._plans.fault

    def _now_and_then(self) -> None:
        self._plans.refresh()
        if self._loop is not None and self._query is not None and self._query.isActive:
            progress: Mapping[str, Any] | None = self._query.lastProgress
            if progress is not None and progress["batchId"] >= self._loop.state.batch:
                self._loop.publish()
            self._progress.look(self._query)
        self._progress.post()

    def _facts(self) -> Mapping[str, Any]:
        faults = [fault for fault in (self._plans.fault, self._parts.outbox.fault) if fault]
        if self._parts.outbox.dropped:
            faults.append(f"{self._parts.outbox.dropped} steps' results were dropped: the console was away too long")
        if self._parts.outbox.quarantined:
            faults.append(f"{self._parts.outbox.quarantined} frames are in quarantine: the console does not take them")
        faults += [self._progress.fault] if self._progress.fault else []
        facts: dict[str, Any] = {"faults": [*dict.fromkeys(faults), *self._parts.quarantine.last_reasons]}
        facts["trigger_s"] = self._progress.trigger_s
        if self._loop is not None:
            facts |= state_report(self._loop.state, self._redis)
            facts |= {"batch_s": round(self._loop.last_s, 3), "unposted": self._parts.outbox.waiting}
        return facts


def settle_state(store: StateStore, folder: Path) -> StreamState:
    """The state to go on from, and a checkpoint of Spark that belongs to it.

    Where Spark is ahead of the state, or has lost its checkpoint, a new checkpoint begins at the oldest frames that
    Redis holds: numbers of frames say which of them were processed before.
    """
    state = store.load() or StreamState()
    checkpoint = _checkpoint(folder, state)
    if _last_commit(checkpoint) > state.batch or (state.batch >= 0 and not checkpoint.is_dir()):
        state = _restart(state)
    for other in folder.glob("checkpoint-*"):
        if other != _checkpoint(folder, state):
            shutil.rmtree(other, ignore_errors=True)
    return state


def _restart(state: StreamState) -> StreamState:
    return replace(state, run=state.run + 1, batch=-1)


def _checkpoint(folder: Path, state: StreamState) -> Path:
    return folder / f"checkpoint-{state.run}"


def _last_commit(checkpoint: Path) -> int:
    return max((int(path.name) for path in checkpoint.glob("commits/*") if path.name.isdigit()), default=-1)


def _say_no_traces() -> None:
    """Silence the stack traces of Py4j and of Spark's servers when the Java process ends; one sentence of ours
    reports it.
    """
    logging.disable(logging.ERROR)  # py4j logs to the root logger; nothing here logs
    socketserver.BaseServer.handle_error = lambda *_: None  # type: ignore[method-assign]


def _jvm_is_gone(spark: SparkSession) -> bool:
    """Whether the exception comes from a Java process that has ended."""
    try:
        return spark.sparkContext._gateway.proc.wait(_JVM_END_S) is not None
    except subprocess.TimeoutExpired:
        return False


def _end(query: StreamingQuery) -> None:
    """Let the batch in work come to its end, then stop."""
    until = time.monotonic() + _LAST_BATCH_S
    while query.isActive and query.status["isTriggerActive"] and time.monotonic() < until:
        time.sleep(0.1)
    query.stop()


def _first_line(error: object) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else "the query ended")[:500]
