"""Faults of a soak, one after another, drawn by the seed."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from random import Random

import psutil
import redis

from lab.soak.client_ledger import ClientLedger
from lab.soak.installation import SERVICES, SoakConsole, wait_until

__all__ = ["FaultActor"]

_HOLD_S = (2.0, 6.0)  # how long something is frozen, full or away
_STALL_S = (0.2, 0.8)  # how long each write to a slow disk may have to wait
_BETWEEN_STALLS_S = 0.05
_MAX_JUMP_S = 300
_CALM_S = (1.0, 5.0)  # between two faults
_RECOVERY_S = 180.0


class FaultActor:
    """Does harm to a console until it is told to end, and waits for it to be whole again after each.

    It runs in the main thread: the kernel ends the servers that it starts again with the thread that started them.
    """

    def __init__(self, console: SoakConsole, seed: int, ledger: ClientLedger, ending: threading.Event) -> None:
        self.done: Counter[str] = Counter()
        self.left_out: list[str] = []
        self.slowest_recovery_s = 0.0
        self._console, self._rng, self._ledger, self._ending = console, Random(f"{seed}/faults"), ledger, ending
        self._faults: list[tuple[str, Callable[[], None]]] = [
            *((f"kill {name}", lambda name=name: self._kill(name)) for name in SERVICES),
            *((f"freeze {name}", lambda name=name: self._freeze(name)) for name in SERVICES),
            ("restart Redis", self._restart_redis),
            ("kill Redis", lambda: self._restart_redis(signal.SIGKILL)),
            ("freeze Redis", lambda: self._hold(self._console.redis_pid)),
            ("Redis at its memory limit", self._limit_redis),
            ("clock jump", self._jump_clock),
        ]
        if console.postgres:
            self._faults += [
                ("restart PostgreSQL", lambda: self._restart_postgres(signal.SIGINT)),
                ("stop PostgreSQL at once", lambda: self._restart_postgres(signal.SIGQUIT)),
                ("freeze PostgreSQL", self._freeze_postgres),
            ]
        if console.has_own_disk:
            self._faults.append(("full disk", self._fill_disk))
        else:
            self.left_out.append("full disk (needs root, for a disk of its own)")
        if console.can_stall:
            self._faults.append(("slow disk", self._slow_disk))
        else:
            self.left_out.append("slow disk (needs root and a loop device, for a disk whose writes can be held)")

    def run(self) -> None:
        """Each fault once in a drawn order, then again in another."""
        while not self._ending.is_set():
            for name, fault in self._rng.sample(self._faults, len(self._faults)):
                if self._ending.wait(self._rng.uniform(*_CALM_S)):
                    return
                began = time.monotonic()
                fault()
                self.done[name] += 1
                self._recover(name, began)

    def _recover(self, name: str, began: float) -> None:
        try:
            wait_until(self._console.is_whole, "health of the console", _RECOVERY_S)
        except RuntimeError as error:
            self._ledger.note_fault(f"after {name}: {error}")
            self._ending.set()
        self.slowest_recovery_s = max(self.slowest_recovery_s, time.monotonic() - began)

    def _hold_s(self) -> float:
        return self._rng.uniform(*_HOLD_S)

    def _kill(self, service: str) -> None:
        """Its first process or one of its children, the hard way."""
        if family := self._console.family(service):
            _send(self._rng.choice(family), signal.SIGKILL)

    def _freeze(self, service: str) -> None:
        _freeze(self._console.family(service), self._hold_s())

    def _hold(self, pid: int | None) -> None:
        if pid is not None:
            _freeze([psutil.Process(pid)], self._hold_s())

    def _freeze_postgres(self) -> None:
        pid = self._console.postgres.pid if self._console.postgres else None
        if pid is not None:
            server = psutil.Process(pid)
            _freeze([server, *server.children(recursive=True)], self._hold_s())

    def _restart_redis(self, number: signal.Signals = signal.SIGTERM) -> None:
        self._console.halt_redis(number)
        time.sleep(self._hold_s())
        self._console.start_redis()

    def _limit_redis(self) -> None:
        client = self._console.redis()
        try:
            client.config_set("maxmemory", 1)
            time.sleep(self._hold_s())
        finally:
            for _ in range(20):
                try:
                    client.config_set("maxmemory", 0)
                    break
                except redis.RedisError:
                    time.sleep(0.5)

    def _restart_postgres(self, number: signal.Signals) -> None:
        server = self._console.postgres
        assert server is not None
        server.halt(number)
        time.sleep(self._hold_s())
        server.start()
        server.wait()

    def _jump_clock(self) -> None:
        """Ahead or back by up to five minutes, and to the right time again."""
        self._console.shift_clock(self._rng.choice((-1, 1)) * self._rng.randint(1, _MAX_JUMP_S))
        try:
            time.sleep(self._hold_s())
        finally:
            self._console.shift_clock(0)

    def _slow_disk(self) -> None:
        """Hold what is written again and again, as a disk does that is busy with somebody else's."""
        until = time.monotonic() + self._hold_s()
        while time.monotonic() < until:
            try:
                self._console.hold_disk()
                time.sleep(self._rng.uniform(*_STALL_S))
            finally:
                self._console.thaw_disk()
            time.sleep(_BETWEEN_STALLS_S)

    def _fill_disk(self) -> None:
        ballast = self._console.fill_disk()
        time.sleep(self._hold_s())
        ballast.unlink()
        server = self._console.postgres
        if server is not None and server.pid is None:  # it gives up where its log cannot be written
            server.start()
            server.wait()
        if self._console.redis_pid is None:
            self._console.start_redis()


def _send(process: psutil.Process, number: signal.Signals) -> None:
    try:
        process.send_signal(number)
    except psutil.Error:
        return


def _freeze(processes: list[psutil.Process], seconds: float) -> None:
    for process in processes:
        _send(process, signal.SIGSTOP)
    time.sleep(seconds)
    for process in processes:
        _send(process, signal.SIGCONT)
