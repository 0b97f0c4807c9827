"""Round trips over TCP between hosts, as in Pingmesh: reachability and latency."""

from __future__ import annotations

import errno
import heapq
import os
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from agent.collect import Collector, batch_of
from agent.collect.options import ProbedPeer, TcpProbeOptions
from agent.runtime.interface import EpochLabels, SystemClock

__all__ = ["TcpProbe"]


_PING = b"slping01"
_IDLE_S = 0.5  # how soon the thread sees that it is to stop
_MAX_BYTES = 4096
_MAX_GUESTS = 4096  # connections of others that are answered at once
_GUEST_S = 30.0  # a silent one is closed after so long
_DEAD_S = 30.0  # a peer that answers nothing for so long is worth a word in the heartbeat
_RETRY_S = 2.0  # a port that was taken is tried again


@dataclass(frozen=True)
class Peer:
    """A probed host, and its name in records."""

    host: str
    port: int
    name: str
    cluster: str


@dataclass(frozen=True)
class ProbeResult:
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
        answered: Callable[[ProbeResult], None],
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
            self._answered(ProbeResult(peer, None, abs(code)))
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
            came = connection.recv(_MAX_BYTES)
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
        self._answered(ProbeResult(probe.peer, rtt_us, code))

    def _accept(self, listener: socket.socket, mask: int) -> None:
        try:
            connection, _ = listener.accept()
        except OSError:
            return  # the caller has gone again, or there are no descriptors: it tries again
        if len(self._guests) >= _MAX_GUESTS:
            connection.close()
            return
        connection.setblocking(False)
        self._guests[connection.fileno()] = _Guest(connection, time.monotonic())
        self._selector.register(connection, selectors.EVENT_READ, self._echo)

    def _echo(self, connection: socket.socket, mask: int) -> None:
        try:
            came = connection.recv(_MAX_BYTES)
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
        """Close connections that take too long: own probes, and silent guests."""
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
        listener = socket.create_server(address, backlog=512)
    except OSError as error:
        code = error.errno or errno.EADDRINUSE
        raise OSError(code, f"listen is {address[0]}:{address[1]}: {os.strerror(code)}") from error
    listener.setblocking(False)
    return listener


class TcpProbe(Collector):
    """Records of the paper's fields: time, source, destination, round trip in microseconds, error code.

    A probe without an answer has no round trip (null) and the system's error number: 110 timed out, 111 refused.
    """

    kind = "tcp_probe"

    def __init__(self, name: str, schema: pa.Schema, time: str, options: TcpProbeOptions) -> None:
        super().__init__(name, schema)
        self._time = time
        self._listen = split_address(options.listen) if options.listen else None
        self._name = options.name or (self._listen[0] if self._listen else socket.gethostname())
        self._cluster = options.cluster
        self._peers = [self._peer(peer) for peer in options.peers]
        self._every = {"interval_s": options.interval_s, "timeout_s": options.timeout_s}
        self._room = options.buffer_records
        self._waiting: deque[tuple[int, ProbeResult]] = deque()
        self._lock = threading.Lock()
        self._labels = EpochLabels(SystemClock())
        self._heard: dict[str, float] = {}
        self._prober: Prober | None = None
        self._try_s = 0.0

    def poll(self, now_us: int, most: int) -> Sequence[pa.RecordBatch]:
        if self._prober is None:
            self._begin()
        with self._lock:
            taken = [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]
        self._judge(taken)
        if not taken:
            return []
        answers = [answer for _, answer in taken]
        columns = {
            self._time: [stamp_us for stamp_us, _ in taken],
            "src_ip": [self._name] * len(taken),
            "src_cluster": [self._cluster] * len(taken),
            "dst_ip": [answer.peer.name for answer in answers],
            "dst_cluster": [answer.peer.cluster for answer in answers],
            "rtt_us": [answer.rtt_us for answer in answers],
            "err_code": [answer.err_code for answer in answers],
        }
        return self.given(batch_of(self.schema, columns))

    def watermark_us(self) -> int:
        with self._lock:
            return self._waiting[0][0] if self._waiting else self._labels.now_us()

    def close(self) -> None:
        if self._prober is not None:
            self._prober.stop()
            self._prober = None

    def _peer(self, peer: ProbedPeer) -> Peer:
        host, port = split_address(peer.address)
        return Peer(host, port, peer.name or host, peer.cluster or self._cluster)

    def _begin(self) -> None:
        """Listen and probe, as soon as the port can be had."""
        if time.monotonic() < self._try_s:
            return
        try:
            self._prober = Prober(listen=self._listen, peers=self._peers, answered=self._keep, **self._every)
        except OSError as error:
            self._try_s = time.monotonic() + _RETRY_S
            self.state = "cannot listen"
            self.fault("listen", error.strerror)
            return
        self.fault("listen", None)
        self.state = "collecting"
        self._heard = {peer.name: time.monotonic() for peer in self._peers}
        self._prober.start()

    def _keep(self, answer: ProbeResult) -> None:
        with self._lock:
            if len(self._waiting) >= self._room:
                self.records_shed += 1
            else:
                self._waiting.append((self._labels.now_us(), answer))

    def _judge(self, taken: Sequence[tuple[int, ProbeResult]]) -> None:
        """Report peers that have been silent for long."""
        now = time.monotonic()
        for _, answer in taken:
            if answer.err_code == 0:
                self._heard[answer.peer.name] = now
                self.fault(answer.peer.name, None)
            elif now - self._heard.get(answer.peer.name, now) > max(_DEAD_S, 3 * self._every["interval_s"]):
                self.fault(answer.peer.name, f"{answer.peer.name} answers no probes; last error {answer.err_code}")
