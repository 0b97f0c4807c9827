"""An engine on loopback that answers what a test says: recorded answers by path, or raw bytes."""

from __future__ import annotations

import datetime as dt
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

__all__ = ["EngineServer", "Reply", "own_certificate", "serve_engine"]


@dataclass
class Reply:
    """An answer: its status, headers and body; `pause_s` between its bytes, `cut` ends it before all were sent."""

    body: bytes | Any = b"{}"
    status: int = 200
    kind: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)
    pause_s: float = 0.0
    cut: bool = False

    @property
    def content(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


@dataclass
class EngineServer:
    """Answers by path, those that `find` makes where none is listed, and the questions so far."""

    url: str = ""
    replies: dict[str, Reply] = field(default_factory=dict)
    default: Reply = field(default_factory=lambda: Reply({"errors": ["Not found."]}, 404))
    asked: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    find: Callable[[str], Reply] | None = None
    served: list[tuple[str, Any]] = field(default_factory=list)

    def reply_of(self, path: str) -> Reply:
        if path in self.replies:
            return self.replies[path]
        return self.find(path) if self.find is not None else self.default


@contextmanager
def serve_engine(certificate: Path | None = None) -> Iterator[EngineServer]:
    """Serve in a thread, over TLS where there is a certificate with its key."""
    engine = EngineServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # or each answer waits 40 ms for an acknowledgement

        def do_GET(self) -> None:
            engine.asked.append(self.path)
            engine.headers.append(dict(self.headers))
            reply = engine.reply_of(self.path)
            content = reply.content
            if reply.status == 200:
                engine.served.append((self.path, reply.body))
            self.send_response(reply.status)
            self.send_header("Content-Type", reply.kind)
            self.send_header("Content-Length", str(len(content)))
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.end_headers()
            if reply.cut:
                self.wfile.write(content[: len(content) // 2])
                self.close_connection = True
            elif reply.pause_s:
                for i in range(len(content)):
                    self.wfile.write(content[i : i + 1])
                    time.sleep(reply.pause_s)
            else:
                self.wfile.write(content)

        def log_message(self, *arguments: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *arguments: Any) -> None:
            """A client that breaks off is what tests are about."""

    with Server(("127.0.0.1", 0), Handler) as server:
        scheme = "http"
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True)
            scheme = "https"
        engine.url = f"{scheme}://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        yield engine
        server.shutdown()
        thread.join()


def own_certificate(folder: Path) -> Path:
    """A certificate of 127.0.0.1 and localhost that it has signed itself, with its key, as one PEM file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "engine")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(dt.datetime(2000, 1, 1, tzinfo=dt.UTC))
        .not_valid_after(dt.datetime(2100, 1, 1, tzinfo=dt.UTC))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1")), x509.DNSName("localhost")]), False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    path = folder / "engine.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM) + private)
    return path
