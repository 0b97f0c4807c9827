"""Process of the message broker of a real execution: tuples are born by a schedule and wait until a source asks.

``python -m lab.training.execution.broker`` reads its plan from standard input and writes what became of the tuples as
JSON.
"""

from __future__ import annotations

import json
import math
import os
import socket
import struct
import sys
import threading
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lab.training.execution.streams import ExecutionOver, read_exactly

__all__ = ["REQUEST", "BrokerTopic", "birth_schedule", "leave_with_parent", "main"]

REQUEST = struct.Struct("<II")  # operator, and how many tuples it takes at most
_BLOCK_S = 0.2
_SAMPLE_S = 0.05


def birth_schedule(
    rate_eps: float, duration_s: float, *, burst: float, burst_s: float, seed: int
) -> NDArray[np.float64]:
    """Ascending seconds at which tuples are born: a Poisson process whose rate wanders as in the simulation.

    Parameters
    ----------
    rate_eps, duration_s
        Mean rate, and length of the schedule.
    burst, burst_s
        Spread of the rate around its mean, and how long a burst lasts.
    seed
        The same seed gives the same schedule.

    Examples
    --------
    >>> births = birth_schedule(100, 20, burst=0.0, burst_s=1.5, seed=3)
    >>> 1800 < len(births) < 2200, bool((births[1:] >= births[:-1]).all())
    (True, True)
    """
    source = np.random.default_rng(seed)
    keep, wave, births = math.exp(-_BLOCK_S / burst_s), source.normal(), []
    for block in range(math.ceil(duration_s / _BLOCK_S)):
        wave = keep * wave + math.sqrt(1.0 - keep * keep) * source.normal()
        mean = rate_eps * math.exp(burst * (wave - 0.5 * burst)) * _BLOCK_S
        births.append(block * _BLOCK_S + np.sort(source.random(source.poisson(mean))) * _BLOCK_S)
    schedule = np.concatenate(births)
    return schedule[schedule < duration_s]


class BrokerTopic:
    """Tuples of one source: which are born, and how many of them the source has taken."""

    def __init__(self, births: NDArray[np.float64]) -> None:
        self.births, self.taken = births, 0

    def backlog(self, second: float) -> int:
        """Tuples that wait at a second of the run."""
        return int(np.searchsorted(self.births, second, "right")) - self.taken

    def take(self, limit: int, second: float) -> NDArray[np.float64]:
        """Births of up to `limit` tuples that wait, oldest first."""
        count = min(limit, max(self.backlog(second), 0))
        births = self.births[self.taken : self.taken + count]
        self.taken += count
        return births

    def next_birth(self) -> float:
        """Second of the oldest tuple that is not taken; infinity after the last one."""
        return float(self.births[self.taken]) if self.taken < len(self.births) else math.inf


def main() -> int:
    """Serve sources until the run is over."""
    plan = json.loads(sys.stdin.readline())
    topics = {
        int(i): BrokerTopic(
            birth_schedule(
                rate, plan["duration_s"], burst=plan["burst"], burst_s=plan["burst_s"], seed=plan["seed"] + int(i)
            )
        )
        for i, rate in plan["rates"].items()
    }
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.bind(plan["broker"])
    server.listen(len(topics))
    print(json.dumps({"ready": os.getpid()}), flush=True)
    start = float(json.loads(sys.stdin.readline())["start"])
    threading.Thread(target=leave_with_parent, daemon=True).start()
    for _ in topics:
        link, _ = server.accept()
        threading.Thread(target=_serve, args=(link, topics, start, plan["duration_s"]), daemon=True).start()
    print(json.dumps(_watch(topics, start, plan["duration_s"], plan["tail"])), flush=True)
    sys.stdin.readline()  # hosts may still ask
    os._exit(0)


def leave_with_parent() -> None:
    """End when nobody waits for the results any more."""
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def _serve(link: socket.socket, topics: dict[int, BrokerTopic], start: float, duration_s: float) -> None:
    try:
        while True:
            operator, limit = REQUEST.unpack(read_exactly(link, REQUEST.size))
            topic = topics[operator]
            wait_s = min(topic.next_birth(), duration_s) + start - time.monotonic()
            if wait_s > 0.0:
                time.sleep(wait_s)
            now = time.monotonic() - start
            births = topic.take(limit, now) if now < duration_s else topic.births[:0]
            link.sendall(struct.pack("<I", len(births)) + (births + start).tobytes())
            if not len(births):
                return
    except (ExecutionOver, OSError):
        return


def _watch(topics: dict[int, BrokerTopic], start: float, duration_s: float, tail: float) -> dict[str, Any]:
    """Backlog of all topics: mean of the run's `tail`, and at its end."""
    samples = []
    while (now := time.monotonic() - start) < duration_s:
        if now >= (1.0 - tail) * duration_s:
            samples.append(sum(topic.backlog(now) for topic in topics.values()))
        time.sleep(_SAMPLE_S)
    return {
        "backlog": sum(samples) / max(len(samples), 1),
        "waiting": sum(topic.backlog(duration_s) for topic in topics.values()),
        "born": sum(len(topic.births) for topic in topics.values()),
    }


if __name__ == "__main__":
    sys.exit(main())
