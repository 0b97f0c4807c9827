"""A console that takes results."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from agent.wire import REFINEMENTS, STATISTICS, WATERMARKS, Frame, FrameKind, decode_frames, table_of
from engine.dataflow.pipeline import Pipeline
from tests.spark.live.rows import in_order

_SCHEMAS = {FrameKind.STATISTICS: STATISTICS, FrameKind.REFINED: REFINEMENTS, FrameKind.WATERMARKS: WATERMARKS}


@dataclass
class SmallConsole:
    """An HTTP server with the stream processor's part of the REST API."""

    queries: list[dict[str, Any]] = field(default_factory=list)
    pipelines: dict[str, Any] = field(default_factory=dict)
    results: list[Frame] = field(default_factory=list)
    statistics: list[Frame] = field(default_factory=list)
    refined: list[Frame] = field(default_factory=list)
    watermarks: list[Frame] = field(default_factory=list)
    status: int = 200  #: what it answers everything with, other than 200
    well: bool = True  #: whether it says so, whatever it answers
    fails_at: set[int] = field(default_factory=set)  #: numbers of frames at which it answers 500
    posts: int = 0
    failures: int = 0
    progress: list[dict[str, Any]] = field(default_factory=list)  #: of the streaming query, as posted
    wanted_trigger_s: float | None = None  #: what it asks the streaming query for
    url: str = ""

    def add(self, query: str, pipeline: Pipeline, agents: Sequence[str], **more: Any) -> None:
        item = {"query": query, "version": 1, "plan": pipeline.digest, "pipeline": dict(pipeline.document)}
        self.queries.append(
            item | {"agents": list(agents), "subinterval_s": 60, "retain_s": 900, "idle_after_s": 3600} | more
        )

    def latest(self, query: str) -> dict[int, Frame]:
        """The last revision of each window; two frames of one revision must not differ."""
        found: dict[int, Frame] = {}
        for frame in [result for result in self.results if result.query == query]:
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
            if (schema := _SCHEMAS.get(frame.kind)) is not None:
                assert table_of(frame.body).schema.equals(schema)
            kept = {
                FrameKind.RESULT: self.results,
                FrameKind.REFINED: self.refined,
                FrameKind.WATERMARKS: self.watermarks,
            }
            kept.get(frame.kind, self.statistics).append(frame)


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
            if self.path.endswith("/progress"):
                console.progress += json.loads(body)["progress"]
                self.answer(200, json.dumps({"settings": {"trigger_s": console.wanted_trigger_s}}).encode())
                return
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
