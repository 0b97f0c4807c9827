"""A console that answers what a test tells it to, over real HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

__all__ = ["FakeConsole", "Reply", "fake_console"]


@dataclass
class Reply:
    """An answer; a `text` is sent as it is."""

    status: int
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    text: str | None = None


@dataclass
class FakeConsole:
    """Answers by method and path, one after the other; the last one repeats."""

    url: str = ""
    replies: dict[str, list[Reply]] = field(default_factory=dict)
    asked: list[tuple[str, dict[str, str], Any]] = field(default_factory=list)

    def answer(self, key: str) -> Reply:
        waiting = self.replies.get(key) or [Reply(404, text="<h1>Not here</h1>")]
        return waiting.pop(0) if len(waiting) > 1 else waiting[0]


@contextmanager
def fake_console(server_type: type[ThreadingHTTPServer] = ThreadingHTTPServer) -> Iterator[FakeConsole]:
    console = FakeConsole()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            console.asked.append((f"{self.command} {self.path}", dict(self.headers), body))
            reply = console.answer(f"{self.command} {self.path}")
            data = (json.dumps(reply.body) if reply.text is None else reply.text).encode()
            self.send_response(reply.status)
            for name, value in {"Content-Length": str(len(data)), "Connection": "close", **reply.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def do_POST(self) -> None:
            self.do_GET()

        def do_PUT(self) -> None:
            self.do_GET()

        def do_PATCH(self) -> None:
            self.do_GET()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it
            pass

    server = server_type(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    console.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield console
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
