"""Servers of mail and webhooks on loopback, for those who deliver to them."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

__all__ = ["Hook", "Mailbox", "closed_port", "hook", "mailbox"]


@dataclass
class Mailbox:
    """An SMTP server in a thread: what it took, and how it answers."""

    port: int = 0
    mails: list[str] = field(default_factory=list)
    recipients: list[str] = field(default_factory=list)
    refuse: str = ""


@pytest.fixture
def mailbox(settings: Any) -> Iterator[Mailbox]:
    box = Mailbox()

    class Session(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self._say("220 here")
            while line := self.rfile.readline().decode().strip():
                verb = line.upper()
                if verb.startswith("RCPT") and box.refuse:
                    self._say(box.refuse)
                elif verb.startswith("RCPT"):
                    box.recipients.append(line.split("<")[1].split(">")[0])
                    self._say("250 fine")
                elif verb == "DATA":
                    self._say("354 go on")
                    box.mails.append(self._mail())
                    self._say("250 taken")
                elif verb == "QUIT":
                    self._say("221 bye")
                    break
                else:
                    self._say("250 fine")

        def _mail(self) -> str:
            lines = []
            while (line := self.rfile.readline()) not in {b".\r\n", b""}:
                lines.append(line.decode())
            return "".join(lines)

        def _say(self, text: str) -> None:
            self.wfile.write(f"{text}\r\n".encode())

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Session) as server:
        server.daemon_threads = True
        box.port = server.server_address[1]
        settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
        settings.EMAIL_CONFIGURED, settings.EMAIL_HOST, settings.EMAIL_PORT = True, "127.0.0.1", box.port
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        yield box
        server.shutdown()
        thread.join()


@dataclass
class Hook:
    """An HTTP server in a thread: what it was told, and the status and document it answers."""

    url: str = ""
    status: int = 200
    document: bytes = b""
    requests: list[tuple[dict[str, str], bytes]] = field(default_factory=list)


@pytest.fixture
def hook(settings: Any) -> Iterator[Hook]:
    settings.WEBHOOK_PRIVATE = True
    told = Hook()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            told.requests.append((dict(self.headers), body))
            self.send_response(told.status)
            if told.status == 302:
                self.send_header("Location", "http://127.0.0.1:1/")
            self.end_headers()

        def do_GET(self) -> None:
            self.send_response(told.status)
            self.end_headers()
            self.wfile.write(told.document)

        def log_message(self, *arguments: Any) -> None:
            """Quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        told.url = f"http://127.0.0.1:{server.server_address[1]}/told?by=sluice"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        yield told
        server.shutdown()
        thread.join()


@pytest.fixture
def closed_port() -> int:
    """A port where nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
