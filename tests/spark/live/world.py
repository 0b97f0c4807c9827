"""Agents that send what real ones would, a console that takes results, and the stream processor between them."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import redis

from agent.wire import (
    COUNTERS,
    STATISTICS,
    Frame,
    FrameKind,
    batch_bytes,
    broker,
    decode_frames,
    encode_frame,
    table_of,
)
from engine.dataflow.arrow import aggregate_kernel, row_kernel, whole
from engine.dataflow.pipeline import Pipeline
from spark_jobs.console import Console
from spark_jobs.live import LiveLoop
from spark_jobs.main import settled
from spark_jobs.outbox import Outbox
from spark_jobs.plans import Plans
from spark_jobs.quarantine import Quarantine
from spark_jobs.reading import Reading
from spark_jobs.source import spans_of
from spark_jobs.state import StateStore
from spark_jobs.step import Parts
from tests.servers import PATIENCE_S, wait_until

SECOND = 1_000_000
START_US = 1_700_000_000 * SECOND
LIMITS = broker.Limits(total_bytes=2**30)
PROBES = {"ts": "timestamp", "src": "string", "dst": "string", "rtt": "int64", "loss": "float64", "err": "int64"}
PAIRS = {
    "source": {"id": "probes", "time": "ts", "columns": PROBES},
    "tables": {
        "racks": {"columns": {"host": "string", "rack": "string"}, "rows": [[f"h{i}", f"r{i % 3}"] for i in range(6)]}
    },
    "operators": [
        {"id": "window", "expression": {"op": "window", "size_s": 5}},
        {"id": "answered", "expression": {"op": "filter", "where": "err = 0"}},
        {
            "id": "rack",
            "expression": {
                "op": "join", "table": "racks", "on": {"src": "host"}, "take": {"rack": "rack"}, "how": "left",
            },
        },
        {"id": "slow", "expression": {"op": "map", "set": {"ms": "rtt / 1000"}}},
        {
            "id": "pairs",
            "expression": {
                "op": "aggregate",
                "by": ["rack", "dst"],
                "compute": {
                    "n": "count(*)", "mean": "avg(rtt)", "most": "max(ms)", "half": "quantile(rtt, 0.5)",
                    "loss": "sum(loss)",
                },
            },
        },
        {"id": "enough", "expression": {"op": "filter", "where": "n > 1"}},
    ],
}  # fmt: skip
SLIDING = {
    "source": {"id": "probes", "time": "ts", "columns": PROBES},
    "operators": [
        {"id": "window", "expression": {"op": "window", "size_s": 6, "slide_s": 2}},
        {"id": "hosts", "expression": {"op": "aggregate", "by": ["src"], "compute": {"n": "count(*)"}}},
        {"id": "all", "expression": {"op": "aggregate", "by": [], "compute": {"hosts": "count(*)", "n": "sum(n)"}}},
    ],
}


@dataclass
class SmallConsole:
    """An HTTP server with the stream processor's part of the REST API."""

    queries: list[dict[str, Any]] = field(default_factory=list)
    pipelines: dict[str, Any] = field(default_factory=dict)
    results: list[Frame] = field(default_factory=list)
    statistics: list[Frame] = field(default_factory=list)
    status: int = 200  #: what it answers everything with, other than 200
    well: bool = True  #: whether it says so, whatever it answers
    fails_at: set[int] = field(default_factory=set)  #: numbers of frames at which it answers 500
    posts: int = 0
    failures: int = 0
    url: str = ""

    def add(self, query: str, pipeline: Pipeline, agents: Sequence[str], **more: Any) -> None:
        item = {"query": query, "version": 1, "plan": pipeline.digest, "pipeline": dict(pipeline.document)}
        self.queries.append(
            item | {"agents": list(agents), "subinterval_s": 60, "retain_s": 900, "idle_after_s": 30} | more
        )

    def latest(self, query: str) -> dict[int, Frame]:
        """The last revision of each window; two frames of one revision must not differ."""
        found: dict[int, Frame] = {}
        for frame in [one for one in self.results if one.query == query]:
            begin, revision = frame.extra["window_us"], frame.extra["revision"]
            known = found.get(begin)
            if known is not None and known.extra["revision"] == revision:
                assert known.body == frame.body, f"two results of window {begin}, revision {revision}"
            if known is None or known.extra["revision"] <= revision:
                found[begin] = frame
        return found

    def rows(self, query: str) -> list[dict[str, Any]]:
        return in_order([row for frame in self.latest(query).values() for row in table_of(frame.body).to_pylist()])

    def take(self, body: bytes) -> None:
        self.posts += 1
        for frame, _ in decode_frames(body):
            if frame.kind == FrameKind.STATISTICS:
                assert table_of(frame.body).schema.equals(STATISTICS)
            (self.results if frame.kind == FrameKind.RESULT else self.statistics).append(frame)


@contextmanager
def small_console(console: SmallConsole | None = None, port: int = 0) -> Iterator[SmallConsole]:
    """The console, listening."""
    console = console or SmallConsole()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/healthz":
                self.answer(200 if console.well else 503, b"{}")
                return
            plan = json.dumps({"version": len(console.queries), "queries": console.queries}).encode()
            digest = self.path.rpartition("/")[2]
            if self.path.endswith("/plan"):
                tag = f'"{hash(plan)}"'
                same = self.headers.get("If-None-Match") == tag
                self.answer(304 if same else 200, b"" if same else plan, tag)
            elif digest in console.pipelines:
                self.answer(200, json.dumps(console.pipelines[digest]).encode())
            else:
                self.answer(404, b'{"code": "missing"}')

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            numbers = {frame.seq for frame, _ in decode_frames(body)}
            fails = bool(numbers & console.fails_at)
            if console.status == 200 and not fails:
                console.take(body)
            console.failures += fails
            self.answer(500 if fails else 200, b"{}")

        def answer(self, status: int, body: bytes, tag: str = "") -> None:
            self.send_response(status if console.status == 200 else console.status)
            self.send_header("Content-Length", str(len(body)))
            if tag:
                self.send_header("ETag", tag)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    console.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield console
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@dataclass
class SmallAgent:
    """Sends epochs of random records of one query, cut by random load factors at every proxy."""

    name: str
    query: str
    pipeline: Pipeline
    seed: int = 0
    life: str = "l1"
    seq: int = 0
    epoch: int = 0
    records: list[pa.Table] = field(default_factory=list)  #: everything it ever saw
    sent: list[Frame] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = random.Random(f"{self.seed}-{self.name}")
        assert self.pipeline.aggregate is not None
        self._aggregate = self.pipeline.aggregate

    def run(self, epochs: int, count: int = 40, factor: float | None = None, final: bool = False) -> list[Frame]:
        """Frames of the next epochs; load factors are drawn anew for each unless `factor` gives them all."""
        return [frame for i in range(epochs) for frame in self.step(count, factor, final and i == epochs - 1)]

    def step(self, count: int = 40, factor: float | None = None, final: bool = False) -> list[Frame]:
        begin_us = START_US + self.epoch * SECOND
        self.epoch += 1
        seen = self._rows(begin_us, count)
        self.records.append(seen)
        frames = [*self._proxies(seen, factor, begin_us), self._mark(begin_us, final)]
        self.sent += frames
        return frames

    def counters(self, rows: list[dict[str, Any]]) -> Frame:
        """A COUNTERS frame; what a row leaves out is 0."""
        empty = {one.name: "" if one.type == pa.string() else 0 for one in COUNTERS}
        table = pa.Table.from_pylist([empty | row for row in rows], schema=COUNTERS)
        frame = self._frame(FrameKind.COUNTERS, 0, 0, body=batch_bytes(table))
        self.sent.append(frame)
        return frame

    def _rows(self, begin_us: int, count: int) -> pa.Table:
        draw = self._random
        rows = [
            {
                "ts": begin_us + draw.randrange(SECOND),
                "src": f"h{draw.randrange(8)}",
                "dst": draw.choice(["d1", "d2", None]),
                "rtt": draw.randrange(50, 50_000),
                "loss": draw.randrange(1000) / 1000,
                "err": draw.choice([0, 0, 0, 1]),
            }
            for _ in range(count)
        ]
        columns = {name: pa.array([row[name] for row in rows]) for name in self.pipeline.source.schema.names}
        return pa.table(columns).cast(self.pipeline.source.schema)

    def _proxies(self, rows: pa.Table, factor: float | None, epoch: int) -> Iterator[Frame]:
        for index in range(self._aggregate + 1):
            share = self._random.choice([0.0, 0.3, 0.7, 1.0]) if factor is None else factor
            kept = pa.array([self._random.random() < share for _ in range(rows.num_rows)], pa.bool_())
            drained = rows.filter(pa.compute.invert(kept))
            for begin in range(0, drained.num_rows, 25):
                yield self._frame(
                    FrameKind.RECORDS, index, epoch, body=batch_bytes(drained.slice(begin, 25).combine_chunks())
                )
            rows = rows.filter(kept)
            if index < self._aggregate:
                rows = row_kernel(self.pipeline, index).run(rows)
        if rows.num_rows:
            partial = aggregate_kernel(self.pipeline).partial(rows)
            yield self._frame(FrameKind.PARTIALS, self._aggregate, epoch, body=batch_bytes(partial.combine_chunks()))

    def _mark(self, epoch: int, final: bool = False) -> Frame:
        paths = {str(k): epoch + SECOND for k in range(self._aggregate + 2)}
        extra = {"watermarks": paths, "closing_epoch_us": epoch, "final": final}
        return self._frame(FrameKind.MARK, 0, epoch, extra=extra)

    def _frame(self, kind: FrameKind, entry: int, epoch: int, **more: Any) -> Frame:
        self.seq += 1
        return Frame(kind, self.name, self.life, self.seq, self.query, self.pipeline.digest, entry, epoch, **more)


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
    loop: LiveLoop | None = None

    def send(self, *agents_frames: Sequence[Frame]) -> None:
        """Frames by way of the broker, agent by agent."""
        with redis.Redis.from_url(self.url) as client:
            for frames in agents_frames:
                found = broker.accept(client, [(frame, encode_frame(frame)) for frame in frames], LIMITS)
                assert found.refused is None

    def put(self, frames: Sequence[Frame | bytes], like: Frame | None = None) -> None:
        """Frames straight into the streams: in any order, or bytes that are none in place of `like`."""
        with redis.Redis.from_url(self.url) as client:
            for one in frames:
                frame = one if isinstance(one, Frame) else like
                assert frame is not None
                data = encode_frame(one) if isinstance(one, Frame) else one
                names = {"a": frame.agent, "l": frame.life, "s": frame.seq, "k": frame.kind.value}
                fields = {"f": data, **names, "q": frame.query, "p": frame.plan, "e": frame.entry}
                number = broker.partition_of(frame.agent)
                given = client.xadd(f"sluice:frames:{number}", fields)
                client.xadd(f"sluice:sizes:{number}", {"a": frame.agent, "b": len(data)}, id=given)

    def drain(self, **options: int) -> LiveLoop:
        """A driver that works off what is there and ends, with what it had to say posted."""
        with redis.Redis.from_url(self.url) as client:
            parts = self.parts(client)
            parts.plans.refresh()
            self.loop = LiveLoop(settled(parts.store, self.folder), parts)
            parts.outbox.start(self.loop.state.step)
            query = self.stream(self.loop, **options)
            try:
                assert query.awaitTermination(PATIENCE_S), "the stream did not come to its end"
                if self.console.status == 200:
                    wait_until(lambda: not parts.outbox.waiting, what="posting")
            finally:
                query.stop()
                parts.outbox.stop()
        return self.loop

    def stream(self, loop: LiveLoop, **options: int) -> Any:
        writer = spans_of(self.spark, self.url, **options).writeStream.foreachBatch(loop)
        writer = writer.option("checkpointLocation", str(self.folder / f"checkpoint-{loop.state.run}"))
        return writer.trigger(availableNow=True).start()

    def parts(self, client: redis.Redis) -> Parts:
        console = Console(self.console.url, "a-token")
        quarantine = Quarantine(self.folder / "quarantine")
        return Parts(
            StateStore(self.folder / "states"),
            Plans(self.folder / "plans", console),
            Outbox(self.folder / "outbox", console, quarantine),
            quarantine,
            client,
            Reading(self.url).frames,
            at_hand_bytes=self.at_hand_bytes,
            by_sql=self.by_sql,
            statistics_ms=self.statistics_ms,
        )

    def quarantined(self) -> list[str]:
        """Why frames were put aside."""
        files = sorted((self.folder / "quarantine").glob("*.json"))
        return [json.loads(path.read_bytes())["reason"] for path in files]


def expected(pipeline: Pipeline, agents: Sequence[SmallAgent], before_us: int | None = None) -> list[dict[str, Any]]:
    """What the query run whole over the records of all agents gives, for windows that end by `before_us`."""
    assert pipeline.window is not None
    rows = whole(pipeline, pa.concat_tables([table for one in agents for table in one.records])).to_pylist()
    size = pipeline.window.size_us
    return in_order([row for row in rows if before_us is None or _micros(row["window_start"]) + size <= before_us])


def in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows sorted by what they are grouped by, sums of floats rounded: their order of adding differs."""
    plain = [
        {name: round(value, 6) if isinstance(value, float) else value for name, value in row.items()} for row in rows
    ]
    return sorted(plain, key=lambda row: repr([row[name] for name in sorted(row)]))


def _micros(moment: Any) -> int:
    return round(moment.timestamp() * SECOND)
