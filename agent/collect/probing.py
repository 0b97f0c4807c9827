"""Round trips over TCP: one thread that answers the probes of others and sends its own."""

from __future__ import annotations

import errno
import heapq
import os
import selectors
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

__all__ = ["Answer", "Peer", "Prober", "split_address"]

_PING = b"slping01"
_IDLE_S = 0.5  # how soon the thread sees that it is to stop
_MOST_BYTES = 4096
_MOST_GUESTS = 4096  # connections of others that are answered at once
_GUEST_S = 30.0  # one that says nothing for so long is closed


@dataclass(frozen=True)
class Peer:
    """Who is probed, and what records call it."""

    host: str
    port: int
    name: str
    cluster: str


@dataclass(frozen=True)
class Answer:
    """One probe's end. `err_code` is the system's error number; 0 where the bytes came back."""

    peer: Peer
    rtt_us: int | None
    err_code: int


@dataclass
class _Probe:
    peer: Peer
    socket: socket.socket
    until_s: float
    sent_ns: int = 0
    got: int = 0


@dataclass
class _Guest:
    socket: socket.socket
    heard_s: float


def split_address(text: str) -> tuple[str, int]:
    """Host and port of ``host:port``."""
    host, _, port = text.rpartition(":")
    return host, int(port)


class Prober:
    """Connects to every peer once in an interval, sends eight bytes and waits for them to come back.

    Each probe is a connection of its own, as in Pingmesh: it takes another path where there are several. Peers are
    spread evenly over the interval. The round trip is that of the bytes, without the connection's own.
    """

    def __init__(
        self,
        *,
        listen: tuple[str, int] | None,
        peers: Sequence[Peer],
        interval_s: float,
        timeout_s: float,
        answered: Callable[[Answer], None],
    ) -> None:
        self._peers = peers
        self._interval_s = interval_s
        self._timeout_s = timeout_s
        self._answered = answered
        self._selector = selectors.DefaultSelector()
        self._guests: dict[int, _Guest] = {}
        self._probes: dict[int, _Probe] = {}
        self._stopping = threading.Event()
        self._listener = _listener(listen) if listen else None
        if self._listener:
            self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._thread = threading.Thread(target=self._run, name="probes", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        for key in list(self._selector.get_map().values()):
            self._selector.unregister(key.fileobj)
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
        self._selector.close()

    def _run(self) -> None:
        begin = time.monotonic()
        spread = self._interval_s / max(len(self._peers), 1)
        due = [(begin + i * spread, i) for i in range(len(self._peers))]
        swept_s = begin
        while not self._stopping.is_set():
            now = time.monotonic()
            while due and due[0][0] <= now:
                at, i = due[0]
                # a thread that was held up goes on from now; it does not make up for what it missed
                heapq.heapreplace(due, (max(at, now - self._interval_s) + self._interval_s, i))
                self._send(self._peers[i], now)
            if now - swept_s >= min(self._timeout_s / 4, _IDLE_S):
                self._sweep(now)
                swept_s = now
            wait_s = min(due[0][0] - now if due else _IDLE_S, self._timeout_s / 4 if self._probes else _IDLE_S, _IDLE_S)
            for key, mask in self._selector.select(max(wait_s, 0.0)):
                key.data(key.fileobj, mask)

    def _send(self, peer: Peer, now_s: float) -> None:
        connection = None
        try:
            family = socket.AF_INET6 if ":" in peer.host else socket.AF_INET
            connection = socket.socket(family, socket.SOCK_STREAM)
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            code = connection.connect_ex((peer.host, peer.port))
        except OSError as error:  # no more descriptors, or a name that cannot be resolved
            code = error.errno or errno.EHOSTUNREACH
        if connection is None or code not in (0, errno.EINPROGRESS):
            if connection is not None:
                connection.close()
            self._answered(Answer(peer, None, abs(code)))
            return
        self._probes[connection.fileno()] = _Probe(peer, connection, now_s + self._timeout_s)
        self._selector.register(connection, selectors.EVENT_WRITE, self._progress)

    def _progress(self, connection: socket.socket, mask: int) -> None:
        probe = self._probes[connection.fileno()]
        try:
            if not probe.sent_ns:
                if code := connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                    self._end(probe, code)
                    return
                self._selector.modify(connection, selectors.EVENT_READ, self._progress)
                probe.sent_ns = time.monotonic_ns()
                connection.send(_PING)
                return
            came = connection.recv(_MOST_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            self._end(probe, error.errno or errno.EIO)
            return
        probe.got += len(came)
        if not came:
            self._end(probe, errno.ECONNRESET)
        elif probe.got >= len(_PING):
            self._end(probe, 0)

    def _end(self, probe: _Probe, code: int) -> None:
        rtt_us = None if code else (time.monotonic_ns() - probe.sent_ns) // 1000
        self._close(probe.socket)
        self._answered(Answer(probe.peer, rtt_us, code))

    def _accept(self, listener: socket.socket, mask: int) -> None:
        try:
            connection, _ = listener.accept()
        except OSError:
            return  # the caller has gone again, or there are no descriptors: it tries again
        if len(self._guests) >= _MOST_GUESTS:
            connection.close()
            return
        connection.setblocking(False)
        self._guests[connection.fileno()] = _Guest(connection, time.monotonic())
        self._selector.register(connection, selectors.EVENT_READ, self._echo)

    def _echo(self, connection: socket.socket, mask: int) -> None:
        try:
            came = connection.recv(_MOST_BYTES)
            if came:
                connection.send(came)  # a few bytes: they fit, or the caller is not a prober
                self._guests[connection.fileno()].heard_s = time.monotonic()
                return
        except BlockingIOError:
            return
        except OSError:
            pass
        self._close(connection)

    def _sweep(self, now_s: float) -> None:
        """End what takes too long: own probes, and guests that say nothing."""
        for probe in [probe for probe in self._probes.values() if probe.until_s <= now_s]:
            self._end(probe, errno.ETIMEDOUT)
        for guest in [guest for guest in self._guests.values() if now_s - guest.heard_s > _GUEST_S]:
            self._close(guest.socket)

    def _close(self, connection: socket.socket) -> None:
        self._probes.pop(connection.fileno(), None)
        self._guests.pop(connection.fileno(), None)
        self._selector.unregister(connection)
        connection.close()


def _listener(address: tuple[str, int]) -> socket.socket:
    """A listening socket.

    Raises
    ------
    OSError
        The port is taken or not allowed; the message names it.
    """
    try:
        made = socket.create_server(address, backlog=512)
    except OSError as error:
        code = error.errno or errno.EADDRINUSE
        raise OSError(code, f"listen is {address[0]}:{address[1]}: {os.strerror(code)}") from error
    made.setblocking(False)
    return made
