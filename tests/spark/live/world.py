"""The stream processor between agents and a console."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis

from agent.wire import Frame, broker, encode_frame
from spark_jobs.console import ConsoleClient
from spark_jobs.driver import LiveLoop, settle_state
from spark_jobs.input.entries import SPANS, EntryReader
from spark_jobs.input.source import spans_of
from spark_jobs.outbox import Outbox, Quarantine
from spark_jobs.plans import Plans
from spark_jobs.report import family_cpu_ns
from spark_jobs.step import StepContext
from spark_jobs.store import StateStore
from tests.servers import PATIENCE_S, wait_until
from tests.spark.live.consoles import SmallConsole

LIMITS = broker.BrokerLimits(total_bytes=2**30)


@dataclass
class World:
    """The stream processor on a Redis, a console and a folder; every `drain` is a driver of its own."""

    spark: Any
    url: str
    console: SmallConsole
    folder: Path
    at_hand_bytes: int = 0
    by_sql: bool = False
    statistics_ms: int = 0
    refine_ms: int = 0
    family_cpu_ns: Callable[[], int] = family_cpu_ns
    loop: LiveLoop | None = None

    def send(self, *agents_frames: Sequence[Frame]) -> None:
        """Frames by way of the broker, agent by agent."""
        with redis.Redis.from_url(self.url) as client:
            for frames in agents_frames:
                found = broker.accept_frames(client, [(frame, encode_frame(frame)) for frame in frames], LIMITS)
                assert found.refused is None

    def put(self, frames: Sequence[Frame | bytes], like: Frame | None = None) -> None:
        """Frames straight into the streams: in any order, or bytes that are none in place of `like`."""
        with redis.Redis.from_url(self.url) as client:
            for item in frames:
                frame = item if isinstance(item, Frame) else like
                assert frame is not None
                data = encode_frame(item) if isinstance(item, Frame) else item
                names = {"a": frame.agent, "l": frame.life, "s": frame.seq, "k": frame.kind.value}
                fields = {"f": data, **names, "q": frame.query, "p": frame.plan, "e": frame.entry}
                number = broker.partition_of(frame.agent)
                given = client.xadd(f"sluice:frames:{number}", fields)
                client.xadd(f"sluice:sizes:{number}", {"a": frame.agent, "b": len(data)}, id=given)

    def drain(self, **options: int) -> LiveLoop:
        """A driver that works off what is there and ends, with what it had to say posted."""
        with self._driver() as loop:
            query = self.stream(loop, **options)
            try:
                assert query.awaitTermination(PATIENCE_S), "the stream did not come to its end"
            finally:
                query.stop()
        return loop

    def process(self) -> LiveLoop:
        """The same as one batch that Spark is handed: quicker, for what does not hang on a stream of Spark."""
        with self._driver() as loop, redis.Redis.from_url(self.url) as client:
            until = {str(number): last_id for number, last_id in broker.last_ids(client).items()}
            rows = [(int(name), loop.state.read_to.get(name, "0-0"), last_id) for name, last_id in until.items()]
            loop(self.spark.createDataFrame(rows, SPANS).coalesce(1), loop.state.batch + 1)
        return loop

    @contextmanager
    def _driver(self) -> Iterator[LiveLoop]:
        """One of its own, which goes on from what was committed; what it says is posted in the end."""
        with redis.Redis.from_url(self.url) as client:
            parts = self.parts(client)
            parts.plans.refresh()
            self.loop = LiveLoop(settle_state(parts.store, self.folder), parts)
            parts.outbox.start(self.loop.state.step)
            try:
                yield self.loop
                if self.console.status == 200:
                    wait_until(lambda: not parts.outbox.waiting, what="posting")
            finally:
                parts.outbox.stop()

    def stream(self, loop: LiveLoop, **options: int) -> Any:
        writer = spans_of(self.spark, self.url, **options).writeStream.foreachBatch(loop)
        writer = writer.option("checkpointLocation", str(self.folder / f"checkpoint-{loop.state.run}"))
        return writer.trigger(availableNow=True).start()

    def parts(self, client: redis.Redis) -> StepContext:
        console = ConsoleClient(self.console.url, "a-token")
        quarantine = Quarantine(self.folder / "quarantine")
        return StepContext(
            StateStore(self.folder / "states"),
            Plans(self.folder / "plans", console),
            Outbox(self.folder / "outbox", console, quarantine),
            quarantine,
            client,
            EntryReader(self.url).frames,
            at_hand_bytes=self.at_hand_bytes,
            by_sql=self.by_sql,
            statistics_ms=self.statistics_ms,
            refine_ms=self.refine_ms,
            family_cpu_ns=self.family_cpu_ns,
        )

    def quarantined(self) -> list[str]:
        """Reasons of quarantined frames."""
        files = sorted((self.folder / "quarantine").glob("*.json"))
        return [json.loads(path.read_bytes())["reason"] for path in files]
