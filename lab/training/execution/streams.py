"""Queues and streams of real executions: bounded inboxes, CPU time that is owed, and tuples on their way by TCP."""

from __future__ import annotations

import queue
import socket
import struct
import threading
import time
import zlib
from collections import deque
from typing import Any

import numpy as np

from lab.training.execution.tuples import Records

__all__ = ["CpuLedger", "ExecutionOver", "Inbox", "LinkBucket", "read_exactly", "receive_stream", "send_stream"]

_SPIN = bytes(1 << 15)  # about ten microseconds of checksums; Python lets other threads run meanwhile
_CREDIT_S = 0.002  # CPU time of waits and of reading that later work may count as its own
_PAUSE_S = 0.1
_BURST_BYTES = 16_384.0
_COUNT = struct.Struct("<I")
_SENT_TUPLES = 256


class ExecutionOver(Exception):
    """The time of the run is over."""


class Inbox:
    """Bounded queues before an operator, one per input; a full one holds up who writes to it.

    Parameters
    ----------
    sides
        Inputs: two of a join.
    bound
        Tuples of an input; a push may go beyond it by its own tuples.
    end
        Moment of the monotonic clock at which the run is over.
    """

    def __init__(self, sides: int, bound: int, end: float) -> None:
        self._pieces: list[deque[Records]] = [deque() for _ in range(sides)]
        self.amounts = [0] * sides
        self._bound, self._end = bound, end
        self._changed = threading.Condition()

    def push(self, side: int, records: Records) -> None:
        """Append tuples, once there is room."""
        with self._changed:
            self._await_room(side)
            self._pieces[side].append(records)
            self.amounts[side] += len(records)
            self._changed.notify_all()

    def await_room(self, side: int) -> None:
        """Wait until the input is not full."""
        with self._changed:
            self._await_room(side)

    def _await_room(self, side: int) -> None:
        while self.amounts[side] >= self._bound:
            self._wait(self._end)

    def take(self, limit: int, until: float) -> tuple[int, Records] | None:
        """Up to `limit` of the oldest tuples of the fuller input, and which one it is; None at the moment `until`."""
        with self._changed:
            while not any(self.amounts):
                if until <= time.monotonic() < self._end:
                    return None
                self._wait(until)
            if time.monotonic() >= self._end:
                raise ExecutionOver
            side = self.amounts.index(max(self.amounts))
            records = self._pieces[side].popleft()
            if len(records) > limit:
                self._pieces[side].appendleft(records[limit:])
                records = records[:limit]
            self.amounts[side] -= len(records)
            self._changed.notify_all()
            return side, records

    def _wait(self, until: float) -> None:
        now = time.monotonic()
        if now >= self._end:
            raise ExecutionOver
        self._changed.wait(max(0.0, min(until, self._end, now + _PAUSE_S) - now))


class CpuLedger:
    """CPU time that an operator owes by the cost table, less what its thread and its streams' threads have used.

    What the operator's own work in Python lacks is burnt; a credit of at most 2 ms is kept, so that idle time pays for
    nothing.
    """

    def __init__(self, cps: float, end: float) -> None:
        self._cps, self._end = cps, end
        self._credit_s = self._counted_s = 0.0
        self._mark_s = time.thread_time()
        self._others: list[list[float]] = []

    def begin(self) -> None:
        """Start in the thread that pays."""
        self._mark_s = time.thread_time()

    def helper(self) -> list[float]:
        """A cell in which another thread counts the CPU time (s) it has used for the operator."""
        cell = [0.0]
        self._others.append(cell)
        return cell

    def pay(self, cycles: float) -> None:
        """Return once `cycles` have been used."""
        others_s = sum(cell[0] for cell in self._others)
        now_s = time.thread_time()
        self._credit_s = min(self._credit_s + now_s - self._mark_s + others_s - self._counted_s, _CREDIT_S)
        self._counted_s = others_s
        goal_s = now_s + cycles / self._cps - self._credit_s
        while now_s < goal_s:
            zlib.crc32(_SPIN)
            now_s = time.thread_time()
            if time.monotonic() >= self._end:
                raise ExecutionOver
        self._credit_s, self._mark_s = now_s - goal_s, now_s


class LinkBucket:
    """Token bucket of a host's way out, where the kernel does not shape it; all of its streams share it."""

    def __init__(self, bytes_per_s: float) -> None:
        self._rate, self._free_at = bytes_per_s, 0.0
        self._lock = threading.Lock()

    def send(self, amount: int) -> None:
        """Wait until `amount` bytes may leave."""
        with self._lock:
            now = time.monotonic()
            self._free_at = max(self._free_at, now - _BURST_BYTES / self._rate) + amount / self._rate
            wait_s = self._free_at - now
        if wait_s > 0.0:
            time.sleep(wait_s)


def send_stream(outbox: Inbox, link: socket.socket, bucket: LinkBucket | None, cpu_s: list[float]) -> None:
    """Send what is put into `outbox` until the run is over; the thread's CPU time is kept in `cpu_s`."""
    while True:
        taken = outbox.take(_SENT_TUPLES, np.inf)
        if taken is None:
            continue
        data = taken[1].tobytes()
        if bucket is not None:
            bucket.send(len(data))
        link.sendall(_COUNT.pack(len(taken[1])) + data)
        cpu_s[0] = time.thread_time()


def receive_stream(
    link: socket.socket, layout: np.dtype[Any], inbox: Inbox, side: int, latency_s: float, cpu_s: list[float]
) -> None:
    """Read tuples while the inbox has room and give them to it after the latency, until the run is over."""
    way: queue.SimpleQueue[tuple[float, Records]] = queue.SimpleQueue()
    releaser = threading.Thread(target=_release, args=(way, inbox, side), daemon=True)
    releaser.start()
    while True:
        inbox.await_room(side)
        (count,) = _COUNT.unpack(read_exactly(link, _COUNT.size))
        data = read_exactly(link, count * layout.itemsize)
        way.put((time.monotonic() + latency_s, np.frombuffer(data, layout)))
        cpu_s[0] = time.thread_time()


def _release(way: queue.SimpleQueue[tuple[float, Records]], inbox: Inbox, side: int) -> None:
    try:
        while True:
            moment, records = way.get()
            wait_s = moment - time.monotonic()
            if wait_s > 0.0:
                time.sleep(wait_s)
            inbox.push(side, records)
    except ExecutionOver:
        return


def read_exactly(link: socket.socket, count: int) -> bytes:
    """`count` bytes.

    Raises
    ------
    ExecutionOver
        The other side has ended.
    """
    data = bytearray()
    while len(data) < count:
        piece = link.recv(count - len(data))
        if not piece:
            raise ExecutionOver
        data += piece
    return bytes(data)
