"""Benches kept ready in the web process, so that a slider is answered within a second.

A bench is what the engine prepares once for what runs and what it is to keep. The first one of a process also loads the
compiled parts of the engine. Both happen in a thread of their own, never in a request and never when a process starts.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any

from apps.core.errors import Unavailable
from engine.document.deployment import Deployment, Node
from engine.provisioning.answers.pools import PoolSize

if TYPE_CHECKING:  # it loads numba, which is not to be had before the first bench
    from engine.provisioning.pool.curve import PoolCurve

__all__ = ["BENCHES", "MACE_EVERY", "Benches", "SharedBench", "is_quick", "is_quick_size", "prepare_bench"]

MAX_BENCHES = 6
MAX_ANSWERS = 64  # of a bench
#: Operators times slices up to which a sweep takes about a second; beyond, a job does it.
MAX_CELLS = 2_000_000
MAX_CORES = 200
MACE_EVERY = 4  # snapshots are at a quarter of a subinterval


def is_quick(deployment: Deployment) -> bool:
    """Whether the web process answers for such a deployment; else a job does."""
    cores = sum(node.cores for node in deployment.nodes)
    return is_quick_size(len(deployment.operators), deployment.subintervals, cores)


def is_quick_size(operators: int, slices: int, cores: int) -> bool:
    """Whether the web process answers for so much."""
    return operators * slices <= MAX_CELLS and cores <= MAX_CORES


class SharedBench:
    """A bench of the engine that several requests use: one at a time, since it remembers placements."""

    def __init__(self, bench: PoolCurve) -> None:
        self._bench, self._lock = bench, threading.Lock()
        self._answered: OrderedDict[str, list[PoolSize]] = OrderedDict()

    def sweep(self, factor: Any, sizes: Sequence[int], like: str | Node | None) -> list[PoolSize]:
        """Sizes of `PoolCurve.sweep` without ranks; a question has the same answer as long as that is kept."""
        asked = repr((factor, list(sizes), like))
        with self._lock:
            if asked not in self._answered:
                self._answered[asked] = [
                    PoolSize.parse(size.to_dict()) for size in self._bench.sweep(factor, sizes, like=like)
                ]
                while len(self._answered) > MAX_ANSWERS:
                    self._answered.popitem(last=False)
            return self._answered[asked]


def prepare_bench(deployment: Deployment, closed: Sequence[str]) -> SharedBench:
    """A bench that has been asked once, so that everything it needs is compiled and laid out."""
    from engine.provisioning.pool.curve import PoolCurve

    bench = SharedBench(PoolCurve(deployment, MACE_EVERY, closed=closed))
    now = len(deployment.nodes)
    bench.sweep(1.0, [now, now + 1], None)
    return bench


class Benches:
    """The benches used last, by what identifies them. Any thread may ask; each is prepared once."""

    def __init__(
        self,
        prepare: Callable[[Deployment, Sequence[str]], SharedBench] = prepare_bench,
        most: int = MAX_BENCHES,
    ) -> None:
        self._prepare, self._most = prepare, most
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, Future[SharedBench]] = OrderedDict()
        self._thread: ThreadPoolExecutor | None = None

    def ask(
        self, key: str, deployment: Deployment, closed: Sequence[str] = (), patience_s: float = 0.0
    ) -> SharedBench | None:
        """The bench, or None if it is still being prepared after `patience_s`. A failure to prepare it is raised."""
        future = self._future(key, deployment, closed)
        wait([future], patience_s)
        if not future.done():
            return None
        try:
            return future.result()
        except BaseException:
            self._forget(key, future)
            raise

    def require(
        self, key: str, deployment: Deployment, closed: Sequence[str] = (), patience_s: float = 0.0
    ) -> SharedBench:
        """As `ask`.

        Raises
        ------
        Unavailable
            It is still being prepared after `patience_s`.
        """
        bench = self.ask(key, deployment, closed, patience_s)
        if bench is None:
            raise Unavailable("The bench is being prepared for this cluster. Ask again in a few seconds.")
        return bench

    def __len__(self) -> int:
        return len(self._kept)

    def _future(self, key: str, deployment: Deployment, closed: Sequence[str]) -> Future[SharedBench]:
        with self._lock:
            future = self._kept.get(key)
            if future is None:
                if self._thread is None:
                    self._thread = ThreadPoolExecutor(1, "bench")
                future = self._kept[key] = self._thread.submit(self._prepare, deployment, closed)
            self._kept.move_to_end(key)
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)[1].cancel()
            return future

    def _forget(self, key: str, future: Future[SharedBench]) -> None:
        with self._lock:
            if self._kept.get(key) is future:
                del self._kept[key]


BENCHES = Benches()
