"""Console for tests of the agent: a real HTTP server that keeps frames as the console does, and can be absent or
refuse.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from agent.wire import WireError, decode_frames

Reply = tuple[int, dict[str, Any], dict[str, str]]
TOKEN, SECRET, AGENT = "sle_token", "sla_secret", "5f9c1b1e-0000-4000-8000-000000000001"


class FakeConsole:
    """One cluster. What it has taken outlives `stop` and `start`; `said` is every heartbeat, `posts` every status.

    `no` answers posts of frames before anything is looked at; `commits` is how many frames behind what is taken the
    commit lags (None: nothing is committed).
    """

    def __init__(self, take: Callable[[bytes], None]) -> None:
        self.take = take
        self.port = 0
        self.config: dict[str, Any] = {}
        self.accepted: dict[tuple[str, str], int] = {}
        self.commits: int | None = 0
        self.no: Callable[[bytes], Reply | None] = lambda data: None
        self.secret = SECRET
        self.said: list[dict[str, Any]] = []
        self.posts: list[int] = []
        self.fetched = 0
        self._connections: list[socket.socket] = []
        self._server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        console = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                self._answer(console._post)

            def do_GET(self) -> None:
                self._answer(console._get)

            def _answer(self, handle: Callable[[str, dict[str, str], bytes], Reply]) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                status, document, headers = handle(self.path, dict(self.headers.items()), body)
                data = b"" if status == 304 else json.dumps(document).encode()
                self.send_response(status)
                for name, value in (headers | {"Content-Length": str(len(data))}).items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *args: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def process_request(self, request: Any, address: Any) -> None:
                console._connections.append(request)
                super().process_request(request, address)

            def handle_error(self, request: Any, address: Any) -> None:
                pass  # a caller that was killed

        self._server = Server(("127.0.0.1", self.port), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        """Go away at once, in the middle of kept connections."""
        assert self._server is not None
        self._server.shutdown()
        for connection in self._connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._connections.clear()
        self._server.server_close()

    def _post(self, path: str, headers: dict[str, str], body: bytes) -> Reply:
        if path == "/api/v1/agents/enrol":
            return self._enrol(json.loads(body))
        if headers.get("Authorization") != f"Bearer {self.secret}":
            return self._counted(path, (401, {"code": "agent_unknown", "detail": "No agent has this secret."}, {}))
        if path.endswith("/heartbeat"):
            self.said.append(json.loads(body))
            sender = (AGENT, self.said[-1]["life"])
            says = {"config_version": self.config.get("version"), "accepted_seq": self.accepted.get(sender, 0)}
            return 200, says | {"time": 0, "committed_seq": self._committed(sender)}, {}
        return self._counted(path, self.no(body) or self._frames(body))

    def _counted(self, path: str, reply: Reply) -> Reply:
        if path.endswith("/batches"):
            self.posts.append(reply[0])
        return reply

    def _enrol(self, says: dict[str, Any]) -> Reply:
        if says.pop("token") != TOKEN:
            return 401, {"code": "token_unknown", "detail": "The enrolment token is not known."}, {}
        assert set(says) == {"name", "host", "version", "cores", "capacity_cps"}
        return 201, {"agent": AGENT, "secret": self.secret, "cluster": "eu-1", "heartbeat_s": 0.1}, {}

    def _frames(self, body: bytes) -> Reply:
        try:
            frames = list(decode_frames(body))
        except WireError as error:
            return 400, {"code": "corrupt", "detail": str(error)}, {}
        sender = (frames[0][0].agent, frames[0][0].life)
        before = self.accepted.get(sender, 0)
        fresh = [(frame, data) for frame, data in frames if frame.seq > before]
        if fresh and fresh[0][0].seq != before + 1:
            return 409, {"code": "gap", "detail": "Frames are missing.", "expected_seq": before + 1}, {}
        for frame, data in fresh:
            self.take(bytes(data))
            self.accepted[sender] = frame.seq
        says = {"accepted_seq": self.accepted.get(sender, 0), "committed_seq": self._committed(sender)}
        return 200, says | {"duplicates": len(frames) - len(fresh)}, {}

    def _committed(self, sender: tuple[str, str]) -> int:
        return 0 if self.commits is None else max(self.accepted.get(sender, 0) - self.commits, 0)

    def _get(self, path: str, headers: dict[str, str], body: bytes) -> Reply:
        if not path.endswith("/config"):
            return 404, {"code": "not_found", "detail": "There is no such place."}, {}
        etag = '"' + hashlib.sha256(json.dumps(self.config).encode()).hexdigest() + '"'
        if headers.get("If-None-Match") == etag:
            return 304, {}, {"ETag": etag}
        self.fetched += 1
        return 200, self.config, {"ETag": etag}
