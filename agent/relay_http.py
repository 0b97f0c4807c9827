"""The relay's HTTP server: posts of frames, answered as the console answers them."""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from agent.version import VERSION
from agent.wire import MOST_POST_BYTES

__all__ = ["UNKNOWN", "RelayServer", "Reply"]

log = logging.getLogger(__name__)

PATH = "/api/v1/telemetry/batches"
MOST_POSTS = 4  # in memory at once: what bounds it
IDLE_S = 60.0
MOST_PASSED_BYTES = 4 * MOST_POST_BYTES
CHUNK_BYTES = 2**16


@dataclass(frozen=True)
class Reply:
    """A status and a document."""

    status: int
    document: Mapping[str, Any]
    retry_after_s: float | None = None


UNKNOWN = Reply(401, {"code": "agent_unknown", "message": "No agent below this relay has this secret."})
Admitter = Callable[[str], bool]
Taker = Callable[[str, bytes], Reply]


class RelayServer:
    """Listens until closed. `admits` and `take` are given the hash of the caller's secret, `take` the body as well."""

    def __init__(self, listen: tuple[str, int], admits: Admitter, take: Taker) -> None:
        self.listen = listen
        self._server = _Server(listen, admits, take)
        self._thread = threading.Thread(target=self._server.serve_forever, name="relay", daemon=True)
        self._thread.start()
        log.info("taking frames on %s:%d", *self._server.server_address[:2])

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, listen: tuple[str, int], admits: Admitter, take: Taker) -> None:
        self.admits, self.take = admits, take
        self.posts = threading.BoundedSemaphore(MOST_POSTS)
        super().__init__(listen, _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("a caller from %s went away", client_address, exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = f"sluice-relay/{VERSION}"
    timeout = IDLE_S
    server: _Server

    def do_POST(self) -> None:
        length = self._length()
        if self.path != PATH:
            message = f"A relay takes frames at {PATH} alone."
            self._answer(Reply(404, {"code": "missing", "message": message}), read=False)
        elif not self.server.admits(self._secret_hash()):
            self._answer(UNKNOWN, read=False)
        elif length is None:
            self._answer(Reply(411, {"code": "malformed", "message": "Content-Length is missing."}), read=False)
        elif length > MOST_POST_BYTES:
            message = f"The body has {length} bytes; allowed: {MOST_POST_BYTES}."
            self._answer(Reply(413, {"code": "too_large", "message": message}), read=False)
        elif not self.server.posts.acquire(blocking=False):
            self._answer(Reply(503, {"code": "busy", "message": "The relay is busy."}, retry_after_s=1.0), read=False)
        else:
            try:
                self._take(length)
            finally:
                self.server.posts.release()

    def _take(self, length: int) -> None:
        data = self.rfile.read(length)
        if len(data) < length:
            self.close_connection = True
            return
        self._answer(self.server.take(self._secret_hash(), data), read=True)

    def _secret_hash(self) -> str:
        scheme, _, secret = self.headers.get("Authorization", "").partition(" ")
        given = secret.strip() if scheme.lower() == "bearer" else ""
        return hashlib.sha256(given.encode()).hexdigest()

    def _length(self) -> int | None:
        text = self.headers.get("Content-Length", "")
        return int(text) if text.isdigit() else None

    def _answer(self, reply: Reply, *, read: bool) -> None:
        """Answer. A body that was not read would be taken for the next request: then the connection ends.

        It is passed over first, within reason, because a caller that is still sending hears no answer.
        """
        body = json.dumps({"faults": [], **reply.document} if reply.status >= 400 else dict(reply.document)).encode()
        self.send_response(reply.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if reply.status == 401:
            self.send_header("WWW-Authenticate", 'Bearer realm="sluice"')
        if reply.retry_after_s is not None:
            self.send_header("Retry-After", f"{reply.retry_after_s:g}")
        if not read:
            left = min(self._length() or 0, MOST_PASSED_BYTES)
            while left > 0 and (passed := len(self.rfile.read(min(left, CHUNK_BYTES)))):
                left -= passed
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it
        log.debug(format, *args)
