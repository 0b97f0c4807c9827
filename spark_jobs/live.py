"""One step of the live loop: state n is made of state n - 1 and batch n, and committed before anything of it shows."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import redis

from agent.wire import lives
from agent.wire.broker import publish_committed
from spark_jobs.refining import Refining
from spark_jobs.state import State
from spark_jobs.step import Parts, Step
from spark_jobs.stream_statistics import StreamStatistics
from spark_jobs.sweeping import Sweeping

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["LiveLoop", "StepFailed"]

_ATTEMPTS = 3  # at a batch, before what cannot be worked off is put aside
_WORDS = 300


class StepFailed(RuntimeError):
    """A step came to no end. Nothing of it remains, and its batch is tried again."""


class LiveLoop:
    """What Spark calls with every batch."""

    def __init__(self, state: State, parts: Parts) -> None:
        self.state, self._parts = state, parts
        self._few = parts.at_hand_bytes > 0
        refining = Refining(parts.refine_ms, parts.plans.windowed_entry)
        self._statistics = StreamStatistics(parts.statistics_ms, parts.family_cpu_ns, refining)
        self._sweeping = Sweeping(parts.refine_ms)
        self._failed: dict[int, int] = {}
        self._published: dict[tuple[str, str], int] = {}
        self.last_s = 0.0

    def __call__(self, spans: DataFrame, batch: int) -> None:
        """Work a batch off. A batch that was committed before changes nothing."""
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
        step = Step(self.state.successor(batch), self._parts, spans, give_up=self._failed[batch] > _ATTEMPTS)
        self._few = step.take_in(few=self._few)
        out = step.results()
        out += self._statistics.frames(spans.sparkSession, step.state, step.works, self._parts.plans)
        out += self._sweeping.frames(step.state, self._parts.plans.live())
        self._commit(step.state, out)
        self._failed.clear()

    def publish(self) -> None:
        """Tell agents what is behind the checkpoint: everything up to the state before the batch in work."""
        changed = {key: seq for key, seq in self.state.positions.items() if self._published.get(key) != seq}
        try:
            publish_committed(self._parts.redis, changed)
        except redis.RedisError:
            return  # said again with the next batch
        self._published |= changed

    def _forget_outlived(self) -> None:
        """Drop the numbers of lives that the console has named, unless frames of theirs wait for their plan."""
        waiting = {one.stretch for one in self.state.waiting}
        try:
            gone = lives.forget(self._parts.redis, lives.named(self._parts.redis) - waiting)
        except redis.RedisError:
            return  # still named at the next batch
        if gone:  # a new mapping: the reports' thread may be reading the present one
            self.state.positions = {key: seq for key, seq in self.state.positions.items() if key not in gone}
            self._published = {key: seq for key, seq in self._published.items() if key not in gone}

    def _commit(self, state: State, out: list[bytes]) -> None:
        self._parts.outbox.put(state.step, out)
        self._parts.store.save(state)
        self.state = state
        self._parts.outbox.release(state.step)
