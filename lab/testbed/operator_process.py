"""One host's operators as a process: events come over TCP, the oldest takes CPU time and goes on to its readers.

``python operator_process.py PLAN REPORT``: the plan is JSON; on SIGTERM what was counted is written as JSON. The
standard library alone, so that a host with a tenth of a core has started within seconds.
"""

from __future__ import annotations

import heapq
import json
import random
import selectors
import signal
import socket
import struct
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

__all__ = ["HEAD", "PORT", "run"]

PORT = 7100
HEAD = struct.Struct("!dH")  #: stimulus time (CLOCK_MONOTONIC, seconds), number of the input of an operator
_RETRY_S = 0.1
_SHAPE = 4.0  # of the gamma distribution that costs are drawn from: their variance is a quarter of their squared mean


class _Host:
    """Events that wait, connections in both directions, and counts of each operator's inputs."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.inputs = plan["inputs"]  # by number: {cost_s, selectivity, readers: [number], host}
        self.host, self.addresses, self.size = plan["host"], plan["addresses"], plan["event_bytes"]
        self.waiting: list[tuple[float, int, int]] = []
        self.count = 0
        self.random = random.Random(plan["seed"])
        # by input: stimulus, results and CPU seconds of each event
        self.events: dict[int, list[tuple[float, int, float]]] = {}
        self.done: dict[int, list[tuple[float, float]]] = {}  # by input of a sink: stimulus and latency
        self.selector = selectors.DefaultSelector()
        self.partial: dict[socket.socket, bytearray] = {}
        self.peers: dict[str, tuple[socket.socket, bytearray]] = {}
        self.is_over = False
        self.marked_s = time.thread_time()

    def listen(self) -> None:
        server = socket.create_server(("", PORT))
        server.setblocking(False)
        self.selector.register(server, selectors.EVENT_READ, "accept")

    def push(self, stimulus_s: float, number: int) -> None:
        self.count += 1
        heapq.heappush(self.waiting, (stimulus_s, self.count, number))

    def exchange(self, timeout_s: float | None) -> None:
        for key, _ in self.selector.select(timeout_s):
            if key.data == "accept":
                peer = key.fileobj.accept()[0]  # type: ignore[union-attr]
                peer.setblocking(False)
                self.partial[peer] = bytearray()
                self.selector.register(peer, selectors.EVENT_READ, "read")
            elif key.data == "read":
                self._read(key.fileobj)  # type: ignore[arg-type]
            else:
                self._flush(key.data)

    def _read(self, peer: socket.socket) -> None:
        part = peer.recv(65536)
        if not part:
            self.selector.unregister(peer)
            peer.close()
            return
        buffer = self.partial[peer]
        buffer += part
        whole = len(buffer) // self.size * self.size
        for at in range(0, whole, self.size):
            self.push(*HEAD.unpack_from(buffer, at))
        del buffer[:whole]

    def send(self, host: str, stimulus_s: float, number: int) -> None:
        if host not in self.peers:
            self.peers[host] = _connect(self.addresses[host]), bytearray()
        self.peers[host][1].extend(HEAD.pack(stimulus_s, number).ljust(self.size, b"\0"))
        self._flush(host)

    def _flush(self, host: str) -> None:
        peer, buffer = self.peers[host]
        with suppress(BlockingIOError):
            del buffer[: peer.send(buffer)]
        is_watched = peer in self.selector.get_map()
        if buffer and not is_watched:
            self.selector.register(peer, selectors.EVENT_WRITE, host)
        elif not buffer and is_watched:
            self.selector.unregister(peer)

    def process(self) -> None:
        """The oldest event: as much CPU time as is drawn, then its results."""
        stimulus_s, _, number = heapq.heappop(self.waiting)
        entry = self.inputs[number]
        until_s = time.thread_time() + self.random.gammavariate(_SHAPE, entry["cost_s"] / _SHAPE)
        while time.thread_time() < until_s:
            pass
        whole, part = divmod(entry["selectivity"], 1.0)
        results = int(whole) + (self.random.random() < part)
        for reader in entry["readers"] * results:
            place = self.inputs[reader]["host"]
            if place == self.host:
                self.push(stimulus_s, reader)
            else:
                self.send(place, stimulus_s, reader)
        if not entry["readers"]:
            self.done.setdefault(number, []).extend([(stimulus_s, time.monotonic() - stimulus_s)] * results)
        now_s = time.thread_time()  # what receiving and sending takes counts as well
        self.events.setdefault(number, []).append((stimulus_s, results, now_s - self.marked_s))
        self.marked_s = now_s


def _connect(address: str) -> socket.socket:
    until = time.monotonic() + 20.0
    while True:
        try:
            peer = socket.create_connection((address, PORT), 5.0)
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(_RETRY_S)
        else:
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            peer.setblocking(False)
            return peer


def run(plan: Path, report: Path) -> None:
    """Process events until SIGTERM, then write the report."""
    host = _Host(json.loads(plan.read_text()))

    def end(*_: object) -> None:
        host.is_over = True

    signal.signal(signal.SIGTERM, end)
    host.listen()
    print("ready", flush=True)
    while not host.is_over:
        host.exchange(0.0 if host.waiting else 0.2)
        if host.waiting:
            host.process()
    report.write_text(json.dumps({"events": host.events, "done": host.done, "waiting": len(host.waiting)}))


if __name__ == "__main__":
    run(Path(sys.argv[1]), Path(sys.argv[2]))
