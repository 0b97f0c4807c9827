"""Process of a host of a real execution: its operators are threads that pay for tuples with CPU time.

``python -m lab.training.execution.host`` reads its plan from standard input, says at which port it listens, begins at
the moment that it is told, and writes what reached the sink as JSON. It needs NumPy only.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from lab.training.execution.broker import REQUEST, leave_with_parent
from lab.training.execution.streams import (
    CpuLedger,
    ExecutionOver,
    Inbox,
    LinkBucket,
    read_exactly,
    receive_stream,
    send_stream,
)
from lab.training.execution.tuples import FilterWork, Records, WindowContent, new_records, record_type, window_work

__all__ = ["HostOperators", "main"]

_BATCH_S = 0.002  # of CPU time: more tuples are not taken at once
_BUFFER_BYTES = 65_536
_SWITCH_S = 0.0005
_WATCH_S = 0.02
_LANES = 10  # random streams of an operator
_HELLO = struct.Struct("<I")


class HostOperators:
    """Operators of one host, their queues and their streams to and from other hosts.

    Parameters
    ----------
    plan
        `ops`, `succ`, `placement` and `costs` of the query in topological order, `host` (which one this is), limits of
        queues, the way out of each host, and the broker's socket.
    start
        Moment of the monotonic clock at which the run begins.
    """

    def __init__(self, plan: dict[str, Any], start: float) -> None:
        self._plan, self._start = plan, start
        self._end = start + plan["duration_s"]
        self._ops, self._succ, self._costs = plan["ops"], plan["succ"], plan["costs"]
        self._inputs = [[a for a, b in enumerate(self._succ) if b == i] for i in range(len(self._ops))]
        self._layouts = [record_type(cost["wire"]) for cost in self._costs]
        self._own = [i for i, h in enumerate(plan["placement"]) if h == plan["host"]]
        self._inboxes = {i: Inbox(max(1, len(self._inputs[i])), plan["queue_tuples"], self._end) for i in self._own}
        self._outboxes = {i: Inbox(1, plan["send_tuples"], self._end) for i in self._own if self._is_remote(i)}
        self._ledgers = {i: CpuLedger(plan["core_cps"], self._end) for i in self._own}
        rate = plan["ways"][plan["host"]]["bytes_per_s"]
        self._bucket = LinkBucket(rate) if plan["is_user_shaped"] else None
        self.delivered, self.lp_s, self.le_s, self.stall_s = 0, 0.0, 0.0, 0.0

    def run(self, server: socket.socket, ports: list[int]) -> None:
        """Connect, run until the end of the time."""
        awaited = [i for i in self._own for j in self._inputs[i] if j not in self._own]
        threading.Thread(target=self._accept, args=(server, len(awaited)), daemon=True).start()
        for i in self._outboxes:
            reader = self._plan["placement"][self._succ[i]]
            link = socket.socket()
            link.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            link.bind((self._plan["ways"][self._plan["host"]]["address"], 0))
            link.connect((self._plan["ways"][reader]["address"], ports[reader]))
            link.sendall(_HELLO.pack(i))
            self._begin(send_stream, self._outboxes[i], link, self._bucket, self._ledgers[i].helper())
        work = {"source": self._emit, "filter": self._select, "sink": self._deliver}
        for i in self._own:
            self._begin(self._operate, work.get(self._ops[i]["type"], self._keep), i)
        self._watch()

    def _watch(self) -> None:
        """Wait for the end, and see how late a thread that only sleeps wakes up."""
        time.sleep(max(0.0, self._start - time.monotonic()))
        while (now := time.monotonic()) < self._end:
            time.sleep(_WATCH_S)
            self.stall_s = max(self.stall_s, time.monotonic() - now - _WATCH_S)

    def _is_remote(self, i: int) -> bool:
        return self._succ[i] >= 0 and self._plan["placement"][self._succ[i]] != self._plan["placement"][i]

    def _begin(self, work: Callable[..., None], *arguments: Any) -> None:
        def guarded() -> None:
            try:
                work(*arguments)
            except (ExecutionOver, OSError):
                return

        threading.Thread(target=guarded, daemon=True).start()

    def _accept(self, server: socket.socket, count: int) -> None:
        for _ in range(count):
            link, _ = server.accept()
            (sender,) = _HELLO.unpack(read_exactly(link, _HELLO.size))
            reader = self._succ[sender]
            self._begin(
                receive_stream,
                link,
                self._layouts[sender],
                self._inboxes[reader],
                self._inputs[reader].index(sender),
                self._plan["ways"][self._plan["placement"][sender]]["latency_s"],
                self._ledgers[reader].helper(),
            )

    def _operate(self, work: Callable[[int], None], i: int) -> None:
        time.sleep(max(0.0, self._start - time.monotonic()))
        self._ledgers[i].begin()
        work(i)

    def _pass_on(self, i: int, records: Records) -> None:
        if not len(records):
            return
        if i in self._outboxes:
            self._outboxes[i].push(0, records)
        else:
            reader = self._succ[i]
            self._inboxes[reader].push(self._inputs[reader].index(i), records)

    def _await_room(self, i: int) -> None:
        """Before work is begun whose results would not fit."""
        if i in self._outboxes:
            self._outboxes[i].await_room(0)
        else:
            reader = self._succ[i]
            self._inboxes[reader].await_room(self._inputs[reader].index(i))

    def _limit(self, cycles: float) -> int:
        return max(1, int(_BATCH_S * self._plan["core_cps"] / max(cycles, 1.0)))

    def _emit(self, i: int) -> None:
        """Take tuples from the broker."""
        link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        link.connect(self._plan["broker"])
        take, taken = self._costs[i]["take"], 0
        limit, ledger = self._limit(take), self._ledgers[i]
        while True:
            self._await_room(i)
            link.sendall(REQUEST.pack(i, limit))
            (count,) = _HELLO.unpack(read_exactly(link, _HELLO.size))
            if not count:
                return  # nothing more is born
            births = np.frombuffer(read_exactly(link, 8 * count))
            records = new_records(
                self._layouts[i], births, time.monotonic(), taken, lane=_LANES * i, seed=self._plan["seed"]
            )
            taken += count
            ledger.pay(count * take)
            self._pass_on(i, records)

    def _select(self, i: int) -> None:
        """Pass on the tuples that a filter lets through."""
        operator, cost, ledger = self._ops[i], self._costs[i], self._ledgers[i]
        work = FilterWork(operator["fn"], operator["dtype"], operator["sel"], _LANES * i + 2)
        limit = self._limit(cost["take"] + operator["sel"] * cost["make"])
        while True:
            self._await_room(i)
            taken = self._inboxes[i].take(limit, np.inf)
            if taken is not None:
                passed = work.passed(taken[1])
                ledger.pay(len(taken[1]) * cost["take"] + len(passed) * cost["make"])
                self._pass_on(i, passed)

    def _deliver(self, i: int) -> None:
        """Count what arrives at the sink."""
        take, ledger = self._costs[i]["take"], self._ledgers[i]
        while True:
            taken = self._inboxes[i].take(self._limit(take), np.inf)
            if taken is not None:
                records = taken[1]
                ledger.pay(len(records) * take)
                now = time.monotonic()
                self.delivered += len(records)
                self.lp_s += float((now - records["ingested"]).sum())
                self.le_s += float((now - records["born"]).sum())

    def _keep(self, i: int) -> None:
        """Keep tuples in a window and evaluate it when it is due."""
        operator, cost, ledger, inbox = self._ops[i], self._costs[i], self._ledgers[i], self._inboxes[i]
        by_time, sides, slide = operator["wpolicy"] == "time", len(self._inputs[i]), operator["wslide"]
        work = window_work(operator, cost["expected"], self._layouts[i], _LANES * i + 2)
        contents = [WindowContent(operator["wsize"], by_time) for _ in range(sides)]
        due = self._start + slide if by_time else sides * slide
        count = 0
        while True:
            limit = self._limit(cost["take"])
            taken = inbox.take(limit if by_time else min(limit, max(1, round(due) - count)), due if by_time else np.inf)
            if taken is not None:
                side, records = taken
                contents[side].add(records, time.monotonic())
                count += len(records)
                ledger.pay(len(records) * cost["take"])
            while (time.monotonic() if by_time else count) >= due:
                self._evaluate(i, work, [content.at(due) for content in contents])
                due += slide * (1 if by_time else sides)

    def _evaluate(self, i: int, work: Any, contents: list[Records | None]) -> None:
        full = tuple(records for records in contents if records is not None and len(records))
        if len(full) < len(contents):
            return
        cost, ledger = self._costs[i], self._ledgers[i]
        results = work.results(full)
        ledger.pay(cost["evaluate"] + cost["scan"] * sum(map(len, full)))
        size = self._limit(cost["make"])
        for first in range(0, len(results), size):
            piece = results[first : first + size]
            self._await_room(i)
            ledger.pay(len(piece) * cost["make"])
            self._pass_on(i, piece)


def main() -> int:
    """Run the operators of one host."""
    plan = json.loads(sys.stdin.readline())
    sys.setswitchinterval(_SWITCH_S)
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
    server.bind((plan["ways"][plan["host"]]["address"], 0))
    server.listen(len(plan["ops"]))
    print(json.dumps({"ready": os.getpid(), "port": server.getsockname()[1]}), flush=True)
    order = json.loads(sys.stdin.readline())
    threading.Thread(target=leave_with_parent, daemon=True).start()
    used_s = time.process_time()
    host = HostOperators(plan, float(order["start"]))
    host.run(server, order["ports"])
    used_s = time.process_time() - used_s
    result = {"delivered": host.delivered, "lp_s": host.lp_s, "le_s": host.le_s}
    print(json.dumps(result | {"cpu_s": used_s, "stall_s": host.stall_s}), flush=True)
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
