"""The stream processor between agents and a console."""

from __future__ import annotations

import json
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis
from pyspark.sql.streaming.datasource import ReadAllAvailable

from agent.wire import Frame, broker, encode_frame
from spark_jobs.checkpoint import Checkpoint, HadoopFolder
from spark_jobs.console import ConsoleClient
from spark_jobs.flows import FlowsRow, rows_of_key
from spark_jobs.generations import GenerationsStep, KeyedRow, Span, spans_of_rows
from spark_jobs.input.arrivals import Arrival
from spark_jobs.input.source import SpansReader
from spark_jobs.outbox import Outbox, Quarantine
from spark_jobs.planner import Planner
from spark_jobs.sink import Sink
from spark_jobs.state import FlowState
from spark_jobs.statistics.history import StatisticsState
from spark_jobs.stream import StreamSettings, stream_of
from spark_jobs.variables import FlowVariables, GenerationsVariables, StatisticsVariables
from tests.servers import PATIENCE_S, wait_until
from tests.spark.live.consoles import SmallConsole
from tests.spark.live.variables import MemoryState

LIMITS = broker.BrokerLimits(total_bytes=2**30)


@dataclass
class World:
    """The stream processor on a Redis, a console and a folder.

    Every `drain` is a driver of its own with a query of Spark; `process` hands the same steps a batch without Spark,
    which is quicker. The two know nothing of each other's state.
    """

    url: str
    console: SmallConsole
    folder: Path
    session: Callable[[], Any] = lambda: None  #: Spark's, for `drain`
    statistics_ms: int = 0
    refine_ms: int = 0
    shards: int = 1
    partitions: MemoryState = field(default_factory=MemoryState)
    flows: MemoryState = field(default_factory=MemoryState)
    offset: dict[str, str] = field(default_factory=dict)
    batches: int = 0
    messages: list[Any] = field(default_factory=list)  #: rows of Kafka's source for the next `process`
    query: Any = None  #: the last one of `drain`

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

    # -- with Spark

    def drain(self, **options: int) -> Sink:
        """A driver that works off what is there and ends, with what it had to say posted."""
        with redis.Redis.from_url(self.url) as client:
            checkpoint = Checkpoint.open(HadoopFolder(self.session(), str(self.folder / "keyed")), self.folder)
            with self._driver(client, checkpoint.base, checkpoint.last_step()) as (planner, sink):
                planner.begin()
                self._run(checkpoint, sink, **options)
                while sink.asked:  # frames wait for plans: the answer is a plan of another number
                    planner.answer(sink.asked)
                    sink.asked.clear()
                    before = checkpoint.last_batch()
                    self._run(checkpoint, sink, **options)
                    if checkpoint.last_batch() == before:
                        break
            checkpoint.note(sink.facts.step)
        return sink

    def _run(self, checkpoint: Checkpoint, sink: Sink, **options: int) -> None:
        query = self.query = self.stream(checkpoint, sink, **options)
        try:
            assert query.awaitTermination(PATIENCE_S), "the stream did not come to its end"
        finally:
            query.stop()
            sink.committed(checkpoint.last_batch())

    def stream(self, checkpoint: Checkpoint, sink: Sink, **options: int) -> Any:
        settings = StreamSettings(self.url, uuid.uuid4().hex, 1, self.statistics_ms, self.refine_ms)
        writer = stream_of(self.session(), settings, **options).writeStream.foreachBatch(sink).outputMode("update")
        return writer.option("checkpointLocation", checkpoint.path).trigger(availableNow=True).start()

    @contextmanager
    def _driver(self, client: redis.Redis, base: int, last_step: int) -> Iterator[tuple[Planner, _AskingSink]]:
        """One of its own, which goes on from what was committed; what it says is posted in the end."""
        console = ConsoleClient(self.console.url, "a-token")
        quarantine = Quarantine(self.folder / "quarantine")
        outbox = Outbox(self.folder / "outbox", console, quarantine)
        planner = Planner(self.folder / "plans", console, client, self.shards)
        planner.refresh()
        outbox.start(last_step)
        try:
            yield planner, _AskingSink(outbox, quarantine, client, base)
            if self.console.status == 200:
                wait_until(lambda: not outbox.waiting, what="posting")
        finally:
            outbox.stop()

    # -- without Spark

    def process(self) -> Sink:
        """All that is there as one batch, and another one where that asked for plans."""
        with (
            redis.Redis.from_url(self.url) as client,
            self._driver(client, 0, self.batches) as (planner, sink),
        ):
            planner.begin()
            self._batch(sink)
            while sink.asked:
                planner.answer(sink.asked)
                sink.asked.clear()
                if not self._batch(sink):
                    break
        return sink

    def _batch(self, sink: Sink) -> bool:
        reader = SpansReader(self.url, 10**6, 2**40)
        start = self.offset or reader.initialOffset()
        end = reader.latestOffset(start, ReadAllAvailable())
        if end == start:
            return False
        rows_of = [row for part in reader.partitions(start, end) for row in reader.read(part)] + self.messages
        self.messages = []
        spans: dict[int, list[Span]] = defaultdict(list)
        for span in spans_of_rows(rows_of):
            spans[span.partition].append(span)
        settings = StreamSettings(self.url, "tests", 1, self.statistics_ms, self.refine_ms)
        rows: dict[str, list[KeyedRow]] = defaultdict(list)
        for number, some in spans.items():
            for row in GenerationsStep(
                GenerationsVariables(self.partitions[str(number)]), settings.generations(), some
            ).rows():
                rows[row.key].append(row)
        told: list[FlowsRow] = []
        for key, given in rows.items():
            handle = self.flows[key]
            told += rows_of_key(key, given, FlowVariables(handle), StatisticsVariables(handle), settings.flows())
        sink.take(told, self.batches)
        sink.committed(self.batches)
        self.offset, self.batches = end, self.batches + 1
        return True

    def flow(self, query: str, plan: str, shard: int = 0) -> FlowState:
        """The flow as `process` left it."""
        found = FlowVariables(self.flows[f"{query}|{plan}|{shard}"]).load(query, plan)
        assert found is not None
        return found

    def statistics(self) -> StatisticsState:
        """Sums and histories as `process` left them."""
        variables = StatisticsVariables(self.flows["#0"])
        state, _ = variables.load_clock()
        tables: Callable[..., dict[str, Any]] = variables._stored
        state.sums = tables("", "sums").get("sums")
        state.swept = type(state.swept)(state.swept.step, state.swept.told_ms, **tables("swept_", "rings", "sent"))
        return state

    def positions(self) -> dict[tuple[str, str], int]:
        """Positions of all generations as `process` left them."""
        return {
            name: seq
            for number, handle in self.partitions.items()
            if int(number) >= 0
            for name, seq in GenerationsVariables(handle).positions().items()
        }

    def waiting(self) -> list[Arrival]:
        """Frames that wait after `process`."""
        partitions = [handle for number, handle in self.partitions.items() if int(number) >= 0]
        return [arrival for handle in partitions for arrival in GenerationsVariables(handle).waiting()]

    def quarantined(self) -> list[str]:
        """Reasons of quarantined frames."""
        files = sorted((self.folder / "quarantine").glob("*.json"))
        return [json.loads(path.read_bytes())["reason"] for path in files]


class _AskingSink(Sink):
    """A sink that keeps what tasks ask for."""

    def __init__(self, outbox: Outbox, quarantine: Quarantine, client: redis.Redis, base: int) -> None:
        self.asked: set[tuple[str, str]] = set()
        super().__init__(outbox, quarantine, client, base, wanted=self.asked.update)
