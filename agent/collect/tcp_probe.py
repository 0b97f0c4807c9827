"""Probes between hosts as in Pingmesh: who cannot reach whom, and how long the way takes."""

from __future__ import annotations

import socket
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from agent.collect.base import Collector, batch_of
from agent.collect.probing import Answer, Peer, Prober, split_address
from agent.runtime.clock import EpochLabels, SystemClock

__all__ = ["TcpProbe"]

_DEAD_S = 30.0  # a peer that answers nothing for so long is worth a word in the heartbeat
_RETRY_S = 2.0  # a port that was taken is tried again


class TcpProbe(Collector):
    """Records of the paper's fields: time, source, destination, round trip in microseconds, error code.

    A probe without an answer has no round trip (null) and the system's error number: 110 timed out, 111 refused.
    """

    kind = "tcp_probe"

    def __init__(self, name: str, schema: pa.Schema, time: str, options: Mapping[str, Any]) -> None:
        super().__init__(name, schema)
        self._time = time
        self._listen = split_address(options["listen"]) if "listen" in options else None
        self._name = options.get("name") or (self._listen[0] if self._listen else socket.gethostname())
        self._cluster = options.get("cluster", "default")
        self._peers = [self._peer(peer) for peer in options.get("peers", ())]
        self._every = {"interval_s": options.get("interval_s", 5.0), "timeout_s": options.get("timeout_s", 1.0)}
        self._room = options.get("buffer_records", 100_000)
        self._waiting: deque[tuple[int, Answer]] = deque()
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

    def _peer(self, says: Mapping[str, Any]) -> Peer:
        host, port = split_address(says["address"])
        return Peer(host, port, says.get("name", host), says.get("cluster", self._cluster))

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

    def _keep(self, answer: Answer) -> None:
        with self._lock:
            if len(self._waiting) >= self._room:
                self.records_shed += 1
            else:
                self._waiting.append((self._labels.now_us(), answer))

    def _judge(self, taken: Sequence[tuple[int, Answer]]) -> None:
        """Say which peers have been silent for long."""
        now = time.monotonic()
        for _, answer in taken:
            if answer.err_code == 0:
                self._heard[answer.peer.name] = now
                self.fault(answer.peer.name, None)
            elif now - self._heard.get(answer.peer.name, now) > max(_DEAD_S, 3 * self._every["interval_s"]):
                self.fault(answer.peer.name, f"{answer.peer.name} answers no probes; last error {answer.err_code}")
